// The example backend in C, built outside of the tree by the command in its README, loaded and run.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/problem/program_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/loader/load_plugin.h"
#include "plugins/loader/testing/fake_ranks.h"
#include "sync/socket/socket_exchange.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The line of the README that compiles the example.
std::string CompileCommand() {
  std::ifstream readme("examples/backend_in_c/README.md");
  for (std::string line; std::getline(readme, line);) {
    const size_t begin = line.find("cc -std=");
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

// Nothing of the repository but the source and the header, where an installed tree has it.
class BackendInCTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    namespace fs = std::filesystem;
    const fs::path folder = fs::canonical(std::getenv("TEST_TMPDIR")) / "tiny";
    fs::create_directories(folder / "tree/include/cotune");
    for (const char* const header : {"cotune_backend_v1.h", "cotune_program_v1.h"}) {
      fs::copy_file(fs::path("plugins/api") / header, folder / "tree/include/cotune" / header);
    }
    fs::copy_file("examples/backend_in_c/tiny_backend.c", folder / "tiny_backend.c");
    std::string command = CompileCommand();
    const size_t tree = command.find("DIR");
    ASSERT_NE(tree, std::string::npos) << "the README has no line that compiles the example";
    command.replace(tree, 3, "tree");
    ASSERT_EQ(std::system(("cd '" + folder.string() + "' && " + command).c_str()), 0) << command;
    fs::permissions(folder / "tiny.so", fs::perms::group_write | fs::perms::others_write,
                    fs::perm_options::remove);
    const auto loaded = LoadPlugin((folder / "tiny.so").string(), nullptr);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().ToText();
    table_ = *loaded;
  }

  static Problem Sum(int world_size, uint64_t count, bool in_place = false) {
    return MakeProblem(Collective::kAllReduce, Reduction::kSum, Dtype::kF32, world_size, count,
                       in_place);
  }

  static const cotune_backend_api_t* table_;
};

const cotune_backend_api_t* BackendInCTest::table_ = nullptr;

TEST_F(BackendInCTest, SumsAreRight) {
  for (int world_size : {1, 2, 5}) {
    OnFakeRanks(
        world_size, "",
        [&](int, FakeRank& self) {
          ASSERT_NE(self.group, nullptr) << self.group_error.ToText();
          // Below, at and above one slab.
          for (uint64_t count : {0, 1, 17, 16384, 16385, 50000}) {
            EXPECT_EQ(self.RunAndCheck(Sum(world_size, count), "slots"), "");
            EXPECT_EQ(self.RunAndCheck(Sum(world_size, count, true), "slots"), "");
          }
        },
        table_);
  }
}

TEST_F(BackendInCTest, RanksCanBeProcesses) {
  std::string folder = "/tmp/cotune_tiny_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  constexpr int kWorldSize = 2;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() > 0) continue;
    const MonotonicClock clock;
    sync::SocketExchangeOptions options;
    options.rank = rank;
    options.world_size = kWorldSize;
    options.job_id = "tiny";
    options.socket_path = folder + "/socket";
    options.code_version = "test";
    options.deadline_ns = clock.now_ns() + kPatienceNs;
    std::string mistake;
    if (const auto exchange = sync::ConnectSocketExchange(options, clock); !exchange) {
      mistake = exchange.error().ToText();
    } else {
      FakeRank self(**exchange, clock, "", table_);
      mistake = self.group == nullptr ? self.group_error.ToText()
                                      : self.RunAndCheck(Sum(kWorldSize, 40000), "slots");
    }
    std::fputs(mistake.c_str(), stderr);
    _exit(mistake.empty() ? 0 : 1);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  std::filesystem::remove_all(folder);
}

TEST_F(BackendInCTest, OtherProblemsAreRefusedWithReasons) {
  OnFakeRanks(
      2, "",
      [](int, FakeRank& self) {
        const auto list = [&](const Problem& problem) {
          return self.backend->ListChoices(*Program::SingleCollective(problem.cls), problem);
        };
        const ChoiceList offered = list(Sum(2, 8));
        ASSERT_EQ(offered.choices.size(), 1u);
        EXPECT_EQ(offered.choices[0].id.text(), "tiny/slots");
        EXPECT_TRUE(offered.choices[0].is_default);
        EXPECT_TRUE(offered.choices[0].is_reproducible);
        EXPECT_THAT(offered.refusals, IsEmpty());
        const auto reason = [&](Collective collective, Reduction reduction, Dtype dtype) {
          const ChoiceList refused = list(MakeProblem(collective, reduction, dtype, 2, 8));
          EXPECT_THAT(refused.choices, IsEmpty());
          return refused.refusals.at(0).reason;
        };
        EXPECT_EQ(reason(Collective::kBroadcast, Reduction::kNone, Dtype::kF32),
                  "tiny: all_reduce/sum only");
        EXPECT_EQ(reason(Collective::kAllReduce, Reduction::kMax, Dtype::kF32),
                  "tiny: all_reduce/sum only");
        EXPECT_EQ(reason(Collective::kAllReduce, Reduction::kSum, Dtype::kF64), "tiny: f32 only");
      },
      table_);
}

// The part of a program behind its collective.
ProgramGraph PartOf(const std::string& text) {
  return ProgramGraph::Parse(text).value().Region({1}, {{.value = 2}}).Lower();
}

TEST_F(BackendInCTest, RunsOnePartOfProgramsAndRefusesOthers) {
  OnFakeRanks(
      1, "",
      [](int, FakeRank& self) {
        ASSERT_TRUE(self.backend->has_parts());
        const auto prepare = [&](const ProgramGraph& part) {
          return self.backend->PreparePart({.part = part, .rows = 3},
                                           self.clock.now_ns() + kPatienceNs);
        };
        const ProgramGraph relu =
            PartOf("%x = input f32 [R, 2]\n%s = all_reduce sum %x\n%y = relu %s\nreturn %y\n");
        const auto plan = prepare(relu);
        ASSERT_TRUE(plan) << plan.error().ToText();
        const float x[6] = {-1, 2, -0.5F, 0, 1e30F, -1e-30F};
        float y[6] = {};
        const void* const inputs[] = {x};
        void* const outputs[] = {y};
        LaunchArguments arguments;
        arguments.inputs = inputs;
        arguments.outputs = outputs;
        arguments.deadline_ns = self.clock.now_ns() + kPatienceNs;
        ASSERT_TRUE((*plan)->Run(arguments, self.clock));
        EXPECT_THAT(y, ElementsAre(0, 2, 0, 0, 1e30F, 0));
        const auto refusal = [&](const std::string& dtype, const std::string& operation) {
          const auto refused = prepare(PartOf("%x = input " + dtype +
                                              " [R, 2]\n%s = all_reduce sum %x\n%y = " + operation +
                                              "\nreturn %y\n"));
          EXPECT_FALSE(refused);
          return refused ? "" : refused.error().ToText();
        };
        EXPECT_THAT(refusal("f32", "neg %s"), HasSubstr("tiny: of parts relu of one value only"));
        EXPECT_THAT(refusal("bf16", "relu %s"), HasSubstr("tiny: relu of f32 only"));
      },
      table_);
}

// The program x, all_reduce sum of x, operation of that sum.
Program SumAnd(const std::string& operation, const std::string& dtype) {
  const std::string text = "%x = input " + dtype +
                           " [R, 2]\n%s = all_reduce sum %x\n%y = " + operation +
                           "\nreturn %y into %x\n";
  return Program::Bind(ProgramGraph::Parse(text).value(), {MemoryKind::kHost, 2, 2}).value();
}

TEST_F(BackendInCTest, RunsOneRegionAndRefusesOthersWithReasons) {
  OnFakeRanks(
      2, "",
      [](int rank, FakeRank& self) {
        const Program relu = SumAnd("relu %s", "f32");
        const Problem problem = relu.ProblemAtRows(3, 0);
        const ChoiceList list = self.backend->ListChoices(relu, problem);
        ASSERT_EQ(list.choices.size(), 1u);
        EXPECT_EQ(list.choices[0].id.text(), "tiny/slots");
        EXPECT_EQ(list.choices[0].numerics, "rank_order_f32");
        const auto plan =
            self.group->Prepare(relu, problem, list.choices[0], self.clock.now_ns() + kPatienceNs);
        ASSERT_TRUE(plan) << plan.error().ToText();
        for (int call = 0; call < 2; ++call) {
          float x[6] = {1, -2, 3, -4, 5, -6};
          if (rank == 1) {
            for (float& each : x) each *= -2;
          }
          const void* const inputs[] = {x};
          void* const outputs[] = {x};
          LaunchArguments arguments;
          arguments.inputs = inputs;
          arguments.outputs = outputs;
          arguments.deadline_ns = self.clock.now_ns() + kPatienceNs;
          const Status ran = (*plan)->Run(arguments, self.clock);
          ASSERT_TRUE(ran) << ran.error().ToText();
          EXPECT_THAT(x, ElementsAre(0, 2, 0, 4, 0, 6));
        }
        const auto reason = [&](const Program& region) {
          const ChoiceList refused = self.backend->ListChoices(region, region.ProblemAtRows(3, 0));
          EXPECT_THAT(refused.choices, IsEmpty());
          return refused.refusals.at(0).reason;
        };
        EXPECT_EQ(reason(SumAnd("neg %s", "f32")),
                  "tiny: of regions all_reduce with relu after it only");
        EXPECT_EQ(reason(SumAnd("relu %s", "bf16")), "tiny: f32 only");
      },
      table_);
}

TEST_F(BackendInCTest, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  OnFakeRanks(
      2, "",
      [](int rank, FakeRank& self) {
        const auto plan = self.Prepare(Sum(2, 8), "slots");
        ASSERT_TRUE(plan.has_value());
        if (rank == 0) {
          const std::vector<float> send(8);
          std::vector<float> recv(8);
          const int64_t deadline_ns = self.clock.now_ns() + 100'000'000;
          ASSERT_TRUE((*plan)->Launch({send.data(), recv.data(), nullptr, deadline_ns}));
          EXPECT_FALSE(*(*plan)->Progress(0));
          const Result<bool> late = (*plan)->Progress(deadline_ns);
          ASSERT_FALSE(late.has_value());
          EXPECT_EQ(late.error().code, ErrorCode::kRankLost);
          EXPECT_THAT(late.error().ranks, ElementsAre(kFirstJobRank + 1));
        }
        ASSERT_TRUE(self.exchange.Step("over", "", 0, self.clock.now_ns() + kPatienceNs));
        EXPECT_EQ(self.group->Health().error().code, ErrorCode::kAborted);
      },
      table_);
}

}  // namespace
}  // namespace cotune
