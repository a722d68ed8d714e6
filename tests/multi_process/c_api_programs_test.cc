// Programs through the C API, in real processes: values against the reference evaluator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "core/problem/program_graph.h"
#include "core/testing/random_program.h"
#include "fmt/format.h"
#include "integration/capi/cotune.h"
#include "nlohmann/json.hpp"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/checked_program.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

class CApiPrograms : public CApiRanks {
 protected:
  CApiPrograms() { call_timeout_ns_ = kPatienceNs; }

  // Starts the ranks; each reports what is wrong.
  void RunRanks(int world_size, const std::function<void(cotune_group*, int, TestLink&)>& work) {
    RankProcesses ranks;
    std::vector<size_t> all(static_cast<size_t>(world_size));
    std::iota(all.begin(), all.end(), size_t{0});
    for (int rank = 0; rank < world_size; ++rank) {
      ranks.Start([&, rank](TestLink& link) {
        cotune_group* const group = Create(rank, world_size, link);
        if (group == nullptr) return 1;
        work(group, rank, link);
        cotune_group_destroy(group);
        return 0;
      });
    }
    ASSERT_TRUE(ranks.WaitForEnd(all, 3 * kPatienceNs)) << ranks.Transcript();
    for (const size_t rank : all) {
      EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
      EXPECT_TRUE(ranks.LinesOf(rank, "wrong").empty()) << ranks.Transcript();
    }
  }
};

constexpr char kNorm[] =
    "program add_residual_norm\n"
    "%x = input bf16 [R, 64]\n"
    "%residual = input bf16 [R, 64] replicated\n"
    "%gamma = input bf16 [1, 64] replicated\n"
    "%sum = all_reduce sum %x\n"
    "%stream = add %sum, %residual\n"
    "%y = rms_norm %stream, %gamma, eps=1e-6\n"
    "return %y, %stream into %residual\n";

// A program takes instrumented ranks, which share two processors, ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kPrograms = 40;
#else
constexpr uint64_t kPrograms = 400;
#endif

class CApiRandomPrograms : public CApiPrograms, public ::testing::WithParamInterface<int> {};

TEST_P(CApiRandomPrograms, GiveWhatTheEvaluatorGives) {
  const int world_size = GetParam();
  RunRanks(world_size, [&](cotune_group* group, int rank, TestLink& link) {
    for (uint64_t seed = 0; seed < kPrograms; ++seed) {
      const std::string text =
          RandomProgram(seed * 8 + static_cast<uint64_t>(world_size), world_size, kAnyCollectives);
      const Result<ProgramGraph> graph = ProgramGraph::Parse(text);
      if (!graph) {
        link.Report("wrong text: " + graph.error().ToText() + "\n" + text);
        return;
      }
      static constexpr uint64_t kRows[] = {0, 1, 3, 7, 30};
      uint64_t rows = kRows[seed % std::size(kRows)];
      if (graph->needs_whole_shares()) rows *= static_cast<uint64_t>(world_size);
      const std::string wrong =
          CheckedProgram(text, rows, rank, world_size, static_cast<uint32_t>(seed)).Run(group);
      if (!wrong.empty()) {
        link.Report(fmt::format("wrong at seed {}, {} rows: {}\n{}", seed, rows, wrong, text));
        return;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, CApiRandomPrograms, ::testing::Values(1, 2, 3, 4, 5));

TEST_F(CApiPrograms, AreTunedTogetherWithCollectives) {
  constexpr int kRanks = 3;
  RunRanks(kRanks, [&](cotune_group* group, int rank, TestLink& link) {
    const uint64_t generation = static_cast<uint64_t>(cotune_table_generation(group));
    CheckedProgram norm(kNorm, 9, rank, kRanks, 1);
    CheckedProgram random(RandomProgram(7, kRanks), 9, rank, kRanks, 2);
    const uint64_t rows[] = {3, 9};
    const uint64_t bytes[] = {4096};
    cotune_tune_node nodes[3] = {};
    for (cotune_tune_node& node : nodes) node.struct_size = sizeof(node);
    nodes[0].program = norm.handle();
    nodes[1].program = random.handle();
    nodes[0].sizes = nodes[1].sizes = rows;
    nodes[0].size_count = nodes[1].size_count = 2;
    nodes[2].collective = COTUNE_COLLECTIVE_ALL_GATHER;
    nodes[2].dtype = COTUNE_F32;
    nodes[2].sizes = bytes;
    nodes[2].size_count = 1;
    cotune_tune_options options{};
    options.struct_size = sizeof(options);
    options.nodes = nodes;
    options.node_count = 3;
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    if (cotune_tune(group, &options, &report) != COTUNE_SUCCESS) {
      link.Report(fmt::format("wrong tune: {}", cotune_last_error(group)));
      return;
    }
    if (report.measured != 5) link.Report(fmt::format("wrong count {}", report.measured));
    if (static_cast<uint64_t>(cotune_table_generation(group)) != generation + 1) {
      link.Report("wrong generation");
    }
    link.Report(fmt::format("digest {:x}", cotune_table_digest(group)));
    char text[2048] = "";
    char json[1 << 16] = "";
    cotune_explain_program(group, norm.handle(), 9, text, sizeof(text), nullptr);
    if (std::string(text).find("tuned for") == std::string::npos) {
      link.Report(std::string("wrong explanation ") + text);
    }
    cotune_explain_program_json(group, norm.handle(), 9, json, sizeof(json), nullptr);
    const auto explained = nlohmann::json::parse(json, nullptr, false);
    if (explained.is_discarded() || explained["source"] != "table" || explained["rows"] != 9 ||
        explained["program"] != norm.graph().ToText() || explained["measured"].empty()) {
      link.Report(std::string("wrong explanation ") + json);
    }
    for (int i = 0; i < 3; ++i) {
      for (CheckedProgram* call : {&norm, &random}) {
        const std::string wrong = call->Run(group);
        if (!wrong.empty()) link.Report("wrong " + wrong);
      }
    }
    if (cotune_save(group, database_.c_str()) != COTUNE_SUCCESS) {
      link.Report(std::string("wrong save: ") + cotune_last_error(group));
    }
  });
  // A group that loads it has checked the choices of the programs on all ranks.
  RunRanks(kRanks, [&](cotune_group* group, int rank, TestLink& link) {
    CheckedProgram norm(kNorm, 9, rank, kRanks, 1);
    if (cotune_load(group, database_.c_str()) != COTUNE_SUCCESS) {
      link.Report(std::string("wrong load: ") + cotune_last_error(group));
    }
    char text[2048] = "";
    cotune_explain_program(group, norm.handle(), 9, text, sizeof(text), nullptr);
    if (std::string(text).find("tuned for") == std::string::npos) {
      link.Report(std::string("wrong explanation ") + text);
    }
    const std::string wrong = norm.Run(group);
    if (!wrong.empty()) link.Report("wrong " + wrong);
  });
}

// The log has lines of severity 0, debug, for what a tune does with the forms of its programs.
cotune_result TuneProgram(cotune_group* group, CheckedProgram& program, uint64_t rows,
                          bool only_agreeable = false) {
  cotune_tune_node node{};
  node.struct_size = sizeof(node);
  node.program = program.handle();
  node.sizes = &rows;
  node.size_count = 1;
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.nodes = &node;
  options.node_count = 1;
  options.only_agreeable = only_agreeable ? 1 : 0;
  return cotune_tune(group, &options, nullptr);
}

TEST_F(CApiPrograms, LogWhatATuneListsAndLeavesOut) {
  constexpr int kRanks = 2;
  RankProcesses ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      cotune_group* const group = Create(rank, kRanks, link);
      if (group == nullptr) return 1;
      CheckedProgram norm(kNorm, 9, rank, kRanks, 1);
      const bool is_tuned = TuneProgram(group, norm, 4) == COTUNE_SUCCESS;
      cotune_group_destroy(group);
      return is_tuned ? 0 : 1;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, 3 * kPatienceNs)) << ranks.Transcript();
  const std::string subject = fmt::format("program add_residual_norm {:016x} at 4 rows: ",
                                          ProgramGraph::Parse(kNorm)->digest());
  // Others depend on what the backends of this machine list.
  EXPECT_THAT(
      ranks.LinesOf(0, "log 0 "),
      IsSupersetOf(
          {subject + "via=split is listed",
           subject + "via=bucket is left out: no two all_reduces or broadcasts of one reduction, "
                     "root and dtype are independent",
           subject + "fuse=1.2 of %3 is listed",
           subject + "host/tree with fuse=1.2 is left out: runs no operations: partial sums travel "
                     "from rank to rank, and the last hop alone has final values",
           subject + "fuse=-3&via=split is left out: value %5 before the collective has further "
                     "readers"}))
      << ranks.Transcript();
  EXPECT_THAT(ranks.LinesOf(1, "log 0 "), IsEmpty());
}

// Tunes these nodes.
cotune_result TuneNodes(cotune_group* group, const std::vector<cotune_tune_node>& nodes) {
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.nodes = nodes.data();
  options.node_count = nodes.size();
  return cotune_tune(group, &options, nullptr);
}

// Which row of the table a call has, and why: the times are for whom reads of a failure.
void ReportRow(TestLink& link, const std::function<void(char* to, size_t size)>& explain) {
  std::string text(1 << 16, '\0');
  explain(text.data(), text.size());
  const auto json = nlohmann::json::parse(text.c_str());
  link.Report(fmt::format("row {} of {} bytes: {} by {}, from {} to {}",
                          json["subject"].get<std::string>(), json["bytes"].dump(),
                          json["choice"].dump(), json["source"].dump(), json["first_bytes"].dump(),
                          json["end_bytes"].dump()));
  for (const auto& cell : json["measured"]) {
    link.Report(fmt::format("cell {} bytes: {}", cell["bytes"].dump(), cell["why"].dump()));
  }
}

// The scripted backend, with parts of the host backend. Its quick choice is listed below 2 KiB
// only, and what it is quicker by is more than what a busy machine adds to most calls: of 20
// samples three may be off by any time before an interval is.
TEST_F(CApiPrograms, BothModesFindTheSameWinnersOfTheScriptedBackend) {
  constexpr int kRanks = 2;
  constexpr char kSequence[] =
      "%x = input bf16 [R, 64]\n%share = reduce_scatter sum %x\n%wide = cast %share, to=f64\n"
      "%y = all_gather %wide\nreturn %y\n";
  SetFakeScript(
      "choice slow default cost_us=100000; "
      "choice quick only=reduce_scatter,all_reduce,all_to_all bytes_max=2047");
  setenv("COTUNE_COLLECTIVE_BENCHMARK_NRUNS", "8", 1);
  backends_ = "fake";
  const std::string both = fake_plugins_ + ":" + plugins_;
  RankProcesses ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      for (const char* mode : {"on", "off"}) {
        setenv("COTUNE_ENABLE_COLLECTIVE_MULTITEMPLATE", mode, 1);
        socket_ += mode;
        cotune_group* const group = Create(rank, kRanks, link, both);
        if (group == nullptr) return 1;
        CheckedProgram sequence(kSequence, 8, rank, kRanks, 1);
        CheckedProgram norm(kNorm, 32, rank, kRanks, 1);
        const uint64_t rows[] = {8, 32};
        std::vector<cotune_tune_node> nodes(3);
        for (cotune_tune_node& node : nodes) {
          node.struct_size = sizeof(node);
          node.sizes = rows;
          node.size_count = 2;
        }
        const uint64_t bytes[] = {1024, 4096};
        nodes[0].program = sequence.handle();
        nodes[1].collective = COTUNE_COLLECTIVE_ALL_TO_ALL;
        nodes[1].dtype = COTUNE_F32;
        nodes[1].sizes = bytes;
        nodes[2].program = norm.handle();
        const cotune_result tuned = TuneNodes(group, nodes);
        if (tuned != COTUNE_SUCCESS) Say(link, "wrong tune", group, tuned);
        link.Report(fmt::format("digest {:x}", cotune_table_digest(group)));
        for (const uint64_t at : rows) {
          ReportRow(link, [&](char* to, size_t size) {
            cotune_explain_program_json(group, sequence.handle(), at, to, size, nullptr);
          });
          ReportRow(link, [&](char* to, size_t size) {
            cotune_explain_program_json(group, norm.handle(), at, to, size, nullptr);
          });
        }
        for (const uint64_t at : bytes) {
          cotune_call call{};
          call.struct_size = sizeof(call);
          call.collective = COTUNE_COLLECTIVE_ALL_TO_ALL;
          call.dtype = COTUNE_F32;
          call.count = at / kRanks / sizeof(float);
          ReportRow(link, [&](char* to, size_t size) {
            cotune_explain_json(group, &call, to, size, nullptr);
          });
        }
        char text[2048] = "";
        cotune_explain_program(group, sequence.handle(), 8, text, sizeof(text), nullptr);
        link.Report(fmt::format("explains {}", text));
        for (CheckedProgram* call : {&sequence, &norm}) {
          const std::string wrong = call->Run(group);
          if (!wrong.empty()) link.Report("wrong call " + wrong);
        }
        cotune_group_destroy(group);
      }
      return 0;
    });
  }
  const bool have_ended = ranks.WaitForEnd({0, 1}, 3 * kPatienceNs);
  unsetenv("COTUNE_COLLECTIVE_BENCHMARK_NRUNS");
  ASSERT_TRUE(have_ended) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  const std::vector<std::string> rows = ranks.LinesOf(0, "row ");
  ASSERT_THAT(rows, SizeIs(12));
  EXPECT_THAT(std::vector<std::string>(rows.begin() + 6, rows.end()),
              ElementsAreArray(rows.begin(), rows.begin() + 6));
  const std::vector<std::string> digests = ranks.LinesOf(0, "digest ");
  ASSERT_THAT(digests, SizeIs(2));
  EXPECT_EQ(digests[0], digests[1]);
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "wrong"), IsEmpty());
    EXPECT_EQ(ranks.LinesOf(rank, "digest "), digests);
    EXPECT_THAT(ranks.LinesOf(rank, "explains "),
                AllOf(SizeIs(2), Each(AllOf(HasSubstr("runs fake/quick+fake/slow"),
                                            HasSubstr("sizes from 0 to 2047 bytes")))));
  }
}

// The ranks resolve all nodes at once (deferred) or one by one (immediate).
class CApiNodes : public CApiPrograms, public ::testing::WithParamInterface<const char*> {
 protected:
  CApiNodes() {
    setenv("COTUNE_ENABLE_COLLECTIVE_MULTITEMPLATE", GetParam(), 1);
    // Any winner will do.
    setenv("COTUNE_COLLECTIVE_BENCHMARK_NRUNS", "8", 1);
  }
  ~CApiNodes() override {
    unsetenv("COTUNE_ENABLE_COLLECTIVE_MULTITEMPLATE");
    unsetenv("COTUNE_COLLECTIVE_BENCHMARK_NRUNS");
  }
};

TEST_P(CApiNodes, ThatDifferAreNamedAndGroupAndTableStay) {
  constexpr int kRanks = 3;
  RunRanks(kRanks, [&](cotune_group* group, int rank, TestLink& link) {
    CheckedProgram norm(kNorm, 9, rank, kRanks, 1);
    CheckedProgram random(RandomProgram(7, kRanks), 9, rank, kRanks, 2);
    CheckedProgram other(RandomProgram(8, kRanks), 9, rank, kRanks, 3);
    const uint64_t rows[] = {3, 6, 9};
    const uint64_t other_rows[] = {3, 9};
    const uint64_t inner_rows[] = {3, 12, 9};
    const uint64_t bytes[] = {4096};
    std::vector<cotune_tune_node> nodes(4);
    for (cotune_tune_node& node : nodes) {
      node = {};
      node.struct_size = sizeof(node);
      node.sizes = rows;
      node.size_count = 3;
    }
    nodes[0].program = norm.handle();
    nodes[2].program = random.handle();
    for (const size_t plain : {1, 3}) {
      nodes[plain].collective =
          plain == 1 ? COTUNE_COLLECTIVE_ALL_GATHER : COTUNE_COLLECTIVE_ALL_TO_ALL;
      nodes[plain].dtype = COTUNE_F32;
      nodes[plain].sizes = bytes;
      nodes[plain].size_count = 1;
    }
    if (TuneNodes(group, nodes) != COTUNE_SUCCESS) {
      return link.Report(fmt::format("wrong tune: {}", cotune_last_error(group)));
    }
    const uint64_t digest = cotune_table_digest(group);
    const int64_t generation = cotune_table_generation(group);
    const auto differ = [&](int odd, const std::vector<cotune_tune_node>& changed,
                            const std::string& told) {
      const cotune_result result = TuneNodes(group, rank == odd ? changed : nodes);
      const std::string error = cotune_last_error(group);
      if (result != COTUNE_ERROR_DISAGREEMENT || error.find(told) == std::string::npos) {
        link.Report(fmt::format("wrong: expected '{}', got {} '{}'", told, result, error));
      }
      if (cotune_table_digest(group) != digest || cotune_table_generation(group) != generation) {
        link.Report("wrong: another table is in force");
      }
      for (CheckedProgram* call : {&norm, &random, &other}) {
        const std::string wrong = call->Run(group);
        if (!wrong.empty()) link.Report("wrong call: " + wrong);
      }
    };
    std::vector<cotune_tune_node> changed = nodes;
    changed[2].program = other.handle();
    differ(1, changed, "rank 1 differs in node 3");
    differ(0, changed, "rank 0 differs in node 3");
    changed = nodes;
    changed[0].size_count = 2;
    changed[0].sizes = other_rows;
    differ(2, changed, "rank 2 differs in node 1");
    changed[0].size_count = 3;
    changed[0].sizes = inner_rows;
    differ(1, changed, "rank 1 differs in node 1");
    changed = nodes;
    changed[2] = nodes[1];
    differ(1, changed, "rank 1 differs in node 3");
    changed = nodes;
    changed.pop_back();
    const bool is_deferred = std::string(GetParam()) == "on";
    differ(1, changed,
           is_deferred ? "rank 1 differs in node 4: rank 1 has no such node"
                       : "rank 1 disagrees about 'number of nodes'");
    if (TuneNodes(group, nodes) != COTUNE_SUCCESS) {
      link.Report(fmt::format("wrong tune again: {}", cotune_last_error(group)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, CApiNodes, ::testing::Values("on", "off"), [](const auto& info) {
  return std::string(info.param) == "on" ? "Deferred" : "Immediate";
});

// The survivors are in the collective of a later call, which the dead rank never makes.
TEST_F(CApiPrograms, ARankThatDiesIsNamedOnTheOthers) {
  constexpr int kRanks = 3;
  RankProcesses ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, kRanks, link);
      if (group == nullptr) return 1;
      CheckedProgram norm(kNorm, 99, rank, kRanks, 1);
      for (int i = 0; i < 5; ++i) {
        const std::string wrong = norm.Run(group);
        if (!wrong.empty()) link.Report("wrong " + wrong);
      }
      if (rank == 1) kill(getpid(), SIGKILL);
      link.Report("lost " + norm.Run(group));
      link.Report("later " + norm.Run(group));
      link.Report(fmt::format("result {}", cotune_last_result(group)));
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_EQ(ranks.ExitOf(1), -SIGKILL);
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "wrong"), IsEmpty());
    ASSERT_THAT(ranks.LinesOf(rank, "lost "), ElementsAre(HasSubstr("rank 1")));
    EXPECT_THAT(ranks.LinesOf(rank, "later "), ElementsAre(HasSubstr("rank 1")));
    EXPECT_THAT(ranks.LinesOf(rank, "result "),
                ElementsAre(fmt::format("{}", static_cast<int>(COTUNE_ERROR_RANK_LOST))));
  }
}

TEST_F(CApiPrograms, RanksThatCallWithOtherRowsAllHearOfIt) {
  constexpr int kRanks = 2;
  RankProcesses ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, kRanks, link);
      if (group == nullptr) return 1;
      CheckedProgram norm(kNorm, rank == 1 ? 6 : 9, rank, kRanks, 1);
      link.Report("differs " + norm.Run(group));
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(ranks.LinesOf(rank, "differs "),
                ElementsAre(AllOf(HasSubstr("384"), HasSubstr("576"))))
        << ranks.Transcript();
  }
}

TEST_F(CApiPrograms, RanksThatCallAnotherCollectiveAllHearOfIt) {
  constexpr int kRanks = 3;
  for (const uint64_t rows : {1, 5000}) {
    RankProcesses ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.Start([&, rank](TestLink& link) {
        socket_ += std::to_string(rows);
        cotune_group* const group = Create(rank, kRanks, link);
        if (group == nullptr) return 1;
        const std::string text =
            fmt::format("%x = input f32 [R, 64]\n%y = all_reduce {} %x\n%z = neg %y\nreturn %z\n",
                        rank == 1 ? "max" : "sum");
        CheckedProgram program(text, rows, rank, kRanks, 1);
        link.Report("differs " + program.Run(group));
        cotune_group_destroy(group);
        return 0;
      });
    }
    ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
    const std::string call = fmt::format("all_reduce of {} f32 (", rows * 64);
    for (const size_t rank : {0, 1, 2}) {
      EXPECT_THAT(ranks.LinesOf(rank, "differs "),
                  ElementsAre(AllOf(HasSubstr("rank 1"), HasSubstr(call))))
          << ranks.Transcript();
    }
  }
}

// The operations around a collective that is agreed are of one rank only.
TEST_F(CApiPrograms, RanksRunOtherProgramsAroundAnAgreedCollective) {
  RunRanks(3, [&](cotune_group* group, int rank, TestLink& link) {
    const std::string bare = "%x = input f32 [R, 1]\n%y = all_reduce sum %x\nreturn %y\n";
    cotune_program* alone = nullptr;
    const uint64_t rows[] = {4096};
    if (cotune_program_parse(bare.data(), bare.size(), &alone, nullptr) != COTUNE_SUCCESS ||
        cotune_program_is_agreed(group, alone, 4096) != 0 ||
        cotune_program_agree(group, alone, rows, 1) != COTUNE_SUCCESS ||
        cotune_program_is_agreed(group, alone, 4096) != 1) {
      link.Report(fmt::format("wrong: not agreed {}", cotune_last_error(group)));
    }
    cotune_program_free(alone);
    const std::string tails[] = {"%z = neg %y\nreturn %z\n", "%z = abs %y\nreturn %z, %y\n",
                                 "return %y\n"};
    CheckedProgram program("%x = input f32 [R, 64]\n%y = all_reduce sum %x\n" + tails[rank], 64,
                           rank, 3, 1);
    for (int run = 0; run < 3; ++run) {
      if (const std::string wrong = program.Run(group); !wrong.empty()) {
        link.Report(fmt::format("wrong: {}", wrong));
      }
    }
  });
}

// Rank 0 sometimes uses the sum alone, so that its graph lacks the operations that the others fuse.
TEST_F(CApiPrograms, AgreedProgramsRunTheWinnerOfATuneForThem) {
  constexpr int kRanks = 3;
  RunRanks(kRanks, [&](cotune_group* group, int rank, TestLink& link) {
    const std::string sum =
        "%x = input f32 [R, 64]\n%b = input f32 [R, 64] replicated\n%y = all_reduce sum %x\n";
    CheckedProgram program(sum + "%t = add %y, %b\n%z = relu %t\nreturn %z\n", 64, rank, kRanks, 1);
    const std::string alone = "%x = input f32 [R, 64]\n%y = all_reduce sum %x\nreturn %y\n";
    CheckedProgram bare(alone, 64, rank, kRanks, 1);
    const uint64_t rows[] = {64};
    if (TuneProgram(group, program, 64, /*only_agreeable=*/true) != COTUNE_SUCCESS ||
        cotune_program_agree(group, program.handle(), rows, 1) != COTUNE_SUCCESS) {
      return link.Report(fmt::format("wrong tune: {}", cotune_last_error(group)));
    }
    static char json[1 << 18] = "";
    cotune_explain_program_json(group, program.handle(), 64, json, sizeof(json), nullptr);
    const auto explained = nlohmann::json::parse(json, nullptr, false);
    // Sizes are there where the call runs their winner.
    if (explained["measured"].empty()) {
      return link.Report(fmt::format("wrong: the winner does not run: {}", json));
    }
    const std::string measured = explained["measured"][0].dump();
    for (const char* const part :
         {R"("choice":"host/one_shot?chunk=65536&fuse=1.2")",
          R"({"choice":"via=split","reason":"all ranks would need the same program"})"}) {
      if (measured.find(part) == std::string::npos) {
        link.Report(fmt::format("wrong: {} has no {}", measured, part));
      }
    }
    for (int run = 0; run < 20; ++run) {
      CheckedProgram& own = rank == 0 && run % 2 == 1 ? bare : program;
      if (const std::string wrong = own.Run(group); !wrong.empty()) {
        return link.Report(fmt::format("wrong in run {}: {}", run, wrong));
      }
    }
  });
}

TEST_F(CApiPrograms, AnAgreedChoiceIsExplainedBesideTheWinner) {
  SetFakeScript("choice slow default cost_us=100000; choice quick");
  setenv("COTUNE_COLLECTIVE_BENCHMARK_NRUNS", "8", 1);
  backends_ = "fake";
  const auto explain = [&](int rank, TestLink& link) {
    cotune_group* const group = Create(rank, 2, link, fake_plugins_);
    if (group == nullptr) return 1;
    CheckedProgram program("%x = input f32 [R, 64]\n%y = all_reduce sum %x\nreturn %y\n", 8, rank,
                           2, 1);
    const uint64_t rows[] = {8};
    cotune_program_agree(group, program.handle(), rows, 1);
    const cotune_result tuned = TuneProgram(group, program, 8);
    if (tuned != COTUNE_SUCCESS) Say(link, "wrong tune", group, tuned);
    char text[4096] = "";
    cotune_explain_program_json(group, program.handle(), 8, text, sizeof(text), nullptr);
    const auto json = nlohmann::json::parse(text, nullptr, false);
    link.Report(fmt::format("runs {} {} {}", json["choice"].dump(), json["is_agreed"].dump(),
                            json["measured"][0]["winner"].dump()));
    cotune_explain_program(group, program.handle(), 8, text, sizeof(text), nullptr);
    link.Report(fmt::format("explains {}", text));
    cotune_group_destroy(group);
    return 0;
  };
  RankProcesses ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start([&, rank](TestLink& link) { return explain(rank, link); });
  }
  const bool have_ended = ranks.WaitForEnd({0, 1}, kPatienceNs);
  unsetenv("COTUNE_COLLECTIVE_BENCHMARK_NRUNS");
  ASSERT_TRUE(have_ended) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_THAT(ranks.LinesOf(0, "wrong"), IsEmpty());
  EXPECT_THAT(ranks.LinesOf(0, "runs "),
              ElementsAre(HasSubstr(R"("fake/slow" true "fake/quick")")));
  EXPECT_THAT(ranks.LinesOf(0, "explains "), ElementsAre(HasSubstr("the ranks have agreed on it")));
}

TEST_F(CApiPrograms, WrongOperandsAreNamedAndTheGroupGoesOn) {
  RunRanks(1, [&](cotune_group* group, int, TestLink& link) {
    cotune_program* program = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    const std::string bad = "%x = input f32 [R, 4]\n%y = all_reduse sum %x\nreturn %y\n";
    if (cotune_program_parse(bad.data(), bad.size(), &program, &error) != COTUNE_ERROR_USAGE ||
        std::string(error.text).find("line 2, column 6") == std::string::npos) {
      link.Report(fmt::format("wrong parse error {}", error.text));
    }
    const std::string good =
        "%x = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = neg %y\nreturn %z\n";
    cotune_program_parse(good.data(), good.size(), &program, &error);
    float values[8] = {};
    float results[8] = {};
    const int64_t sizes[] = {2, 4};
    const int64_t other[] = {4, 2};
    cotune_tensor input{sizeof(cotune_tensor), COTUNE_F32, values, 2, 0, sizes};
    cotune_tensor output{sizeof(cotune_tensor), COTUNE_F32, results, 2, 0, sizes};
    const auto expect = [&](const char* part) {
      if (cotune_program_run(group, program, &input, 1, &output, 1) != COTUNE_ERROR_USAGE ||
          std::string(cotune_last_error(group)).find(part) == std::string::npos) {
        link.Report(fmt::format("wrong error for {}: {}", part, cotune_last_error(group)));
      }
    };
    input.dtype = COTUNE_BF16;
    expect("the dtype is bf16, and the program takes f32 there");
    input.dtype = COTUNE_F32;
    input.sizes = other;
    expect("sizes [4, 2] do not fit the program");
    input.sizes = sizes;
    output.data = nullptr;
    expect("output 1 is NULL");
    output.data = results;
    values[5] = 2;
    if (cotune_program_run(group, program, &input, 1, &output, 1) != COTUNE_SUCCESS ||
        results[5] != -2) {
      link.Report(fmt::format("wrong call {}", cotune_last_error(group)));
    }
    cotune_program_value value{};
    value.struct_size = sizeof(value);
    if (cotune_program_infer(program, 3, &input, 1, &value, 1, &error) != COTUNE_SUCCESS ||
        value.rows != 2 || value.columns != 4 || value.dtype != COTUNE_F32 ||
        value.is_replicated != 1) {
      link.Report("wrong inference");
    }
    cotune_program_free(program);
  });
}

// A step would find out when others have run.
TEST_F(CApiPrograms, OperandsThatOverlapOrLieOddAreRefusedInFrontOfTheFirstStep) {
  RunRanks(1, [&](cotune_group* group, int, TestLink& link) {
    const std::string text =
        "%x = input f32 [R, 4]\n%r = input f32 [R, 4]\n%s = all_reduce sum %x\n"
        "%t = add %s, %r\n%u = all_reduce sum %t\n%v = mul %u, %r\nreturn %t, %v\n";
    cotune_program* program = nullptr;
    if (cotune_program_parse(text.data(), text.size(), &program, nullptr) != COTUNE_SUCCESS) {
      link.Report("wrong parse");
      return;
    }
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float r[8] = {2, 2, 2, 2, 3, 3, 3, 3};
    float results[17] = {};
    const int64_t sizes[] = {2, 4};
    const auto tensor = [&](void* data) {
      return cotune_tensor{sizeof(cotune_tensor), COTUNE_F32, data, 2, 0, sizes};
    };
    const cotune_tensor inputs[] = {tensor(x), tensor(r)};
    const auto run = [&](void* first, void* second) {
      const cotune_tensor outputs[] = {tensor(first), tensor(second)};
      return cotune_program_run(group, program, inputs, 2, outputs, 2);
    };
    const auto expect = [&](void* first, void* second, const char* part) {
      if (run(first, second) != COTUNE_ERROR_USAGE ||
          std::string(cotune_last_error(group)).find(part) == std::string::npos) {
        link.Report(fmt::format("wrong error for {}: {}", part, cotune_last_error(group)));
      }
    };
    expect(r, results, "output 1 overlaps input 2");
    expect(results, x + 7, "output 2 overlaps input 1");
    expect(results, results + 7, "outputs 1 and 2 overlap");
    expect(results, reinterpret_cast<char*>(results + 8) + 2,
           "the address of output 2 is no multiple of its 4 bytes an element");
    if (run(results, results + 8) != COTUNE_SUCCESS) {
      link.Report(fmt::format("wrong call {}", cotune_last_error(group)));
    }
    for (int i = 0; i < 8; ++i) {
      if (results[i] != x[i] + r[i] || results[8 + i] != (x[i] + r[i]) * r[i]) {
        link.Report(fmt::format("wrong value {}", i));
      }
    }
    cotune_program_free(program);
  });
}

}  // namespace
}  // namespace cotune
