// Every choice of the host backend runs random programs right: values against the reference
// evaluator, in real processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/float16.h"
#include "core/choice/choice_lists.h"
#include "core/problem/program.h"
#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "core/problem/tuning_settings.h"
#include "core/selection/dispatch_table.h"
#include "core/selection/measured_winners.h"
#include "core/selection/next_best.h"
#include "core/testing/random_program.h"
#include "fmt/format.h"
#include "integration/dispatcher.h"
#include "integration/job.h"
#include "plugins/host/backend.h"
#include "tests/multi_process/testing/rank_processes.h"
#include "tests/multi_process/testing/reference_operands.h"

namespace cotune {
namespace {

constexpr int64_t kPatienceNs = 300 * kSecondNs;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kProgramsByAny = 30;
constexpr uint64_t kProgramsBySame = 20;
#else
constexpr uint64_t kProgramsByAny = 200;
constexpr uint64_t kProgramsBySame = 60;
#endif
using Bytes = std::vector<std::byte>;

// Runs the caller once; "" when all values are right.
std::string RunCaller(ReferenceOperands& operands, const Program& program, uint64_t rows,
                      ChoiceCaller& caller, const Clock& clock) {
  return operands.RunBy(program, rows, [&](LaunchArguments arguments) {
    arguments.deadline_ns = clock.now_ns() + 60 * kSecondNs;
    return caller.Launch(arguments, clock);
  });
}

// Runs every choice of one program; "" when all are right.
std::string RunChoices(Job& job, const std::string& text, uint64_t rows, uint32_t salt,
                       size_t& choices) {
  Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  if (!graph) return graph.error().ToText();
  if (graph->needs_whole_shares()) rows *= static_cast<uint64_t>(job.world_size());
  const Program program =
      Program::Bind(*graph, {MemoryKind::kHost, job.world_size(), job.world_size()}).value();
  const Problem problem = program.ProblemAtRows(rows, job.topology_digest());
  ReferenceOperands operands(program, rows, job.rank(), salt);
  for (const Choice& choice : ListChoicesOf(job.groups(), program, problem).choices) {
    // A part of them, because each of these lists the choices anew.
    const bool is_looked_for = choices % 5 == 0;
    const std::optional<Choice> found =
        is_looked_for ? FindChoice(job.groups(), program, problem, choice.id) : choice;
    if (!found || found->id != choice.id || found->numerics != choice.numerics ||
        found->is_capturable != choice.is_capturable) {
      return choice.id.text() + " is listed, and not found";
    }
    auto caller = MakeCaller(job.groups(), program, problem, choice);
    if (!caller) return caller.error().ToText();
    if (Status ready = (*caller)->Precompile(job.clock().now_ns() + 60 * kSecondNs); !ready) {
      return ready.error().ToText();
    }
    const std::string wrong = RunCaller(operands, program, rows, **caller, job.clock());
    if (!wrong.empty()) return choice.id.text() + ": " + wrong;
    ++choices;
  }
  return "";
}

// Programs that the form via=split changes, in the dtypes and shapes at which it may go wrong: a
// norm of the residual stream that overwrites it, an input that is read by rows alone, rows whose
// shares begin at no multiple of 16 bytes, and operations that stay behind the all_gather.
const std::vector<std::string>& SplitPrograms() {
  static const std::vector<std::string> programs = {
      "%x = input bf16 [R, 129]\n%residual = input bf16 [R, 129] replicated\n"
      "%gamma = input bf16 [1, 129] replicated\n%sum = all_reduce sum %x\n"
      "%stream = add %sum, %residual\n%y = rms_norm %stream, %gamma, eps=1e-6\n"
      "return %y, %stream into %residual\n",
      "%scale = input f32 [R, 1] replicated\n%x = input f32 [R, 7]\n"
      "%b = input f32 [1, 7] replicated\n%s = all_reduce sum %x\n%t = mul %s, %scale\n"
      "%u = add %t, %b\n%y = relu %u\nreturn %y\n",
      "%x = input f16 [R, 33]\n%z = input f16 [R, 33]\n%r = input f16 [R, 33] replicated\n"
      "%h = mul %r, 0.5\n%s = all_reduce sum %x\n%t = all_reduce max %z\n%a = add %s, %t\n"
      "%b = add %a, %h\n%c = add %b, %x\nreturn %b into %r, %c, %h\n",
      "%x = input u8 [R, 3]\n%k = input u8 [R, 3] replicated\n%s = all_reduce sum %x\n"
      "%t = max %s, %k\n%u = all_reduce sum %t\n%y = min %u, 200\nreturn %y, %s\n",
      // Nothing reads the input that the output overwrites.
      "%x = input f32 [R, 5]\n%memory = input f32 [R, 5]\n%s = all_reduce sum %x\n"
      "%y = relu %s\nreturn %y into %memory\n",
  };
  return programs;
}

// Runs every choice of the form via=split, found by its id; "" when all are right and there is one.
std::string RunSplitChoices(Job& job, const std::string& text, uint64_t rows, uint32_t salt) {
  const ProgramGraph graph = ProgramGraph::Parse(text).value();
  const Program program =
      Program::Bind(graph, {MemoryKind::kHost, job.world_size(), job.world_size()}).value();
  const Problem problem = program.ProblemAtRows(rows, job.topology_digest());
  ReferenceOperands operands(program, rows, job.rank(), salt);
  int split = 0;
  for (const Choice& listed : ListChoicesOf(job.groups(), program, problem).choices) {
    if (listed.id.HostKey("via") != "split") continue;
    const std::optional<Choice> choice = FindChoice(job.groups(), program, problem, listed.id);
    if (!choice) return listed.id.text() + " is not found";
    auto caller = MakeCaller(job.groups(), program, problem, *choice);
    if (!caller) return caller.error().ToText();
    if (Status ready = (*caller)->Precompile(job.clock().now_ns() + 60 * kSecondNs); !ready) {
      return ready.error().ToText();
    }
    const std::string wrong = RunCaller(operands, program, rows, **caller, job.clock());
    if (!wrong.empty()) return listed.id.text() + ": " + wrong;
    ++split;
  }
  return split > 0 ? "" : "no choice splits it";
}

// A choice that was measured at other rows: ranks that have no equal shares of these refuse it, on
// each rank alike.
std::string RefuseUnevenRows(Job& job, const std::string& text) {
  const Program program = Program::Bind(ProgramGraph::Parse(text).value(),
                                        {MemoryKind::kHost, job.world_size(), job.world_size()})
                              .value();
  const auto rows = static_cast<uint64_t>(job.world_size()) * 4;
  const auto at = [&](uint64_t each) { return program.ProblemAtRows(each, job.topology_digest()); };
  for (const Choice& choice : ListChoicesOf(job.groups(), program, at(rows)).choices) {
    if (choice.id.HostKey("via") != "split") continue;
    if (FindChoice(job.groups(), program, at(rows + 1), choice.id)) return "it is listed";
    auto caller = MakeCaller(job.groups(), program, at(rows + 1), choice);
    Status ready = caller ? (*caller)->Precompile(job.clock().now_ns() + 60 * kSecondNs)
                          : Status(Propagate(caller));
    if (ready) return choice.id.text() + " is ready to run";
    return ready.error().code == ErrorCode::kUnsupported ? "" : ready.error().ToText();
  }
  return "no choice splits it";
}

// Calls by a table whose winner splits the rows, at rows that the ranks can share and at others.
// These run the next best choice of the table if there is one, and else the default. "" when all
// values are right.
std::string RunSplitOfTable(Job& job, const std::string& text, bool has_next_best) {
  const ProgramGraph graph = ProgramGraph::Parse(text).value();
  const Program program =
      Program::Bind(graph, {MemoryKind::kHost, job.world_size(), job.world_size()}).value();
  const auto shared = static_cast<uint64_t>(job.world_size()) * 4;
  const Problem problem = program.ProblemAtRows(shared, job.topology_digest());
  const Problem uneven = program.ProblemAtRows(shared + 1, job.topology_digest());
  std::optional<ChoiceId> split;
  std::optional<ChoiceId> next_best;
  std::string by_default;
  for (const Choice& choice : ListChoicesOf(job.groups(), program, problem).choices) {
    if (!split && choice.id.HostKey("via") == "split") split = choice.id;
    if (choice.is_default) by_default = choice.id.text();
    const bool is_other = !choice.is_default && !choice.id.has_host_keys() &&
                          FindChoice(job.groups(), program, uneven, choice.id).has_value();
    if (!next_best && is_other) next_best = choice.id;
  }
  if (!split || !next_best) return "no choice splits it, or there is one choice beside";
  MeasuredWinner winner{*split};
  if (has_next_best) winner.next_best = NextBest({*next_best});
  MeasuredWinners winners;
  winners.Put(DispatchKey::Of(program.anchor()), problem.bytes(), std::move(winner));
  Dispatcher dispatcher(job);
  dispatcher.SetTable(winners.BuildTable().value());
  for (const uint64_t rows : {shared, shared + 1}) {
    const ReferenceOperands operands(program, rows, job.rank(), 1);
    std::string chosen;
    const std::string wrong =
        operands.RunBy(program, rows, [&](const LaunchArguments& arguments) -> Status {
          const ProgramCall call{.graph = &graph,
                                 .rows = rows,
                                 .inputs = arguments.inputs,
                                 .outputs = arguments.outputs};
          COTUNE_RETURN_IF_ERROR(dispatcher.Run(call));
          COTUNE_TRY(const CallExplanation explanation, dispatcher.Explain(call));
          chosen = fmt::format("{}{}", explanation.choice.text(),
                               explanation.is_next_best ? ", the next best" : "");
          return {};
        });
    if (!wrong.empty()) return fmt::format("{} rows: {}", rows, wrong);
    const std::string of_uneven =
        has_next_best ? next_best->text() + ", the next best" : by_default;
    const std::string expected = rows == shared ? split->text() : of_uneven;
    if (chosen != expected) return fmt::format("{} rows by {}, not {}", rows, chosen, expected);
  }
  return "";
}

// Random bits of each input; the same on all ranks where the program promises that. Floats have
// magnitudes between 2^-8 and 2^8, so that sums depend on the order of additions.
Bytes RandomInput(const ProgramGraph& graph, ValueIndex input, uint64_t bytes, int rank,
                  uint64_t seed) {
  const uint64_t of_rank = graph.is_replicated(input) ? 0 : 1 + static_cast<uint64_t>(rank);
  std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(input) * 50 + of_rank);
  const auto value = [&] {
    const double fraction = 1 + std::ldexp(static_cast<double>(random() >> 11), -53);
    return std::ldexp(random() % 2 == 0 ? fraction : -fraction,
                      static_cast<int>(random() % 16) - 8);
  };
  const Dtype dtype = graph.type(input).dtype;
  Bytes data(bytes);
  for (uint64_t at = 0; at < bytes; at += SizeBytes(dtype)) {
    const auto put = [&](const auto& element) {
      std::memcpy(data.data() + at, &element, sizeof(element));
    };
    switch (dtype) {
      case Dtype::kF64:
        put(value());
        break;
      case Dtype::kF32:
        put(static_cast<float>(value()));
        break;
      case Dtype::kBf16:
        put(Bf16FromF32(static_cast<float>(value())));
        break;
      case Dtype::kF16:
        put(F16FromF32(static_cast<float>(value())));
        break;
      default:
        // The highest bit is not set, so that no 8-bit float is NaN.
        for (uint64_t i = 0; i < SizeBytes(dtype); ++i) {
          data[at + i] = static_cast<std::byte>(random() % 64);
        }
    }
  }
  return data;
}

// The outputs of one run of a choice. `failure` says why there are none.
std::vector<Bytes> OutputsOf(Job& job, const Program& program, uint64_t rows, const Choice& choice,
                             uint64_t seed, std::string& failure) {
  const ProgramGraph& graph = program.graph();
  std::vector<Bytes> inputs;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const auto value = static_cast<ValueIndex>(i);
    inputs.push_back(RandomInput(graph, value, program.BytesOf(value, rows), job.rank(), seed));
  }
  std::vector<Bytes> outputs;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Bytes& input : inputs) from.push_back(input.data());
  outputs.reserve(graph.outputs().size());
  for (const ProgramOutput& output : graph.outputs()) {
    outputs.emplace_back(output.into < 0 ? program.BytesOf(output.value, rows) : 0);
    to.push_back(output.into < 0 ? outputs.back().data()
                                 : inputs[static_cast<size_t>(output.into)].data());
  }
  auto caller =
      MakeCaller(job.groups(), program, program.ProblemAtRows(rows, job.topology_digest()), choice);
  Status ran = caller ? Status() : Status(Propagate(caller));
  if (ran) ran = (*caller)->Precompile(job.clock().now_ns() + 60 * kSecondNs);
  LaunchArguments arguments;
  arguments.inputs = from;
  arguments.outputs = to;
  arguments.deadline_ns = job.clock().now_ns() + 60 * kSecondNs;
  if (program.is_single_collective()) {
    arguments.send = from.front();
    arguments.recv = to.front();
  }
  if (ran) ran = (*caller)->Launch(arguments, job.clock());
  if (!ran) failure = ran.error().ToText();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int32_t into = graph.outputs()[i].into;
    if (into >= 0) outputs[i] = inputs[static_cast<size_t>(into)];
  }
  return outputs;
}

// What the choices of programs have shown so far.
struct SeenBits {
  uint64_t compared = 0;      // pairs of choices that are listed under numerics=same
  uint64_t orders_apart = 0;  // programs in which choices that are listed under any differ
};

// Runs every choice of one program twice: those of one class, which must give the same bits, and
// all. "" when that is so.
std::string CompareBits(Job& job, const std::string& text, uint64_t rows, uint64_t seed,
                        SeenBits& seen) {
  const ProgramGraph graph = ProgramGraph::Parse(text).value();
  if (graph.needs_whole_shares()) rows *= static_cast<uint64_t>(job.world_size());
  const Program program =
      Program::Bind(graph, {MemoryKind::kHost, job.world_size(), job.world_size()}).value();
  const Problem problem = program.ProblemAtRows(rows, job.topology_digest());
  std::optional<std::vector<Bytes>> first;
  bool is_apart = false;
  for (const NumericsRule rule : {NumericsRule::kSame, NumericsRule::kAny}) {
    TuningSettings settings = job.settings();
    settings.numerics = rule;
    job.set_settings(settings);
    // Rounded values in both passes: only the order of additions is another one.
    ProgramSupport support = job.groups().program_support();
    support.rounds_values = true;
    job.groups().set_program_support(support);
    for (const Choice& choice : ListChoicesOf(job.groups(), program, problem).choices) {
      std::string failure;
      std::vector<Bytes> outputs = OutputsOf(job, program, rows, choice, seed, failure);
      if (!failure.empty()) return choice.id.text() + ": " + failure;
      const bool is_equal = !first || outputs == *first;
      if (!first) first = std::move(outputs);
      if (rule == NumericsRule::kAny) {
        is_apart = is_apart || !is_equal;
        continue;
      }
      ++seen.compared;
      if (!is_equal) return choice.id.text() + " (" + choice.numerics + ") gives other bits";
    }
  }
  if (is_apart) ++seen.orders_apart;
  return "";
}

class ProgramChoices : public ::testing::TestWithParam<int> {};

TEST_P(ProgramChoices, AllGiveWhatTheEvaluatorGives) {
  constexpr uint64_t kPrograms = kProgramsByAny;
  const int world_size = GetParam();
  const PrivateFolder folder;
  RankProcesses ranks;
  std::vector<size_t> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), size_t{0});
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      JobOptions options;
      options.context = {"test", rank, world_size, rank, world_size, "job", folder.path() + "/s"};
      options.catalogue.tables = {host::BackendApi()};
      Result<std::unique_ptr<Job>> job = Job::Join(options);
      if (!job) {
        link.Report("wrong " + job.error().ToText());
        return 1;
      }
      size_t choices = 0;
      for (uint64_t seed = 0; seed < kPrograms; ++seed) {
        const uint64_t of_ranks = 100'000 + seed * 8 + static_cast<uint64_t>(world_size);
        const std::string text = seed % 4 == 3
                                     ? RandomBucketProgram(of_ranks, world_size)
                                     : RandomProgram(of_ranks, world_size, kAnyCollectives);
        static constexpr uint64_t kRows[] = {1, 0, 3, 7, 30};
        const uint64_t rows = kRows[seed % std::size(kRows)];
        const std::string wrong =
            RunChoices(**job, text, rows, static_cast<uint32_t>(seed), choices);
        if (wrong.empty()) continue;
        link.Report(fmt::format("wrong at seed {}, {} rows: {}\n{}", seed, rows, wrong, text));
        return 1;
      }
      // A program without a choice would prove nothing.
      if (choices < kPrograms) link.Report(fmt::format("wrong: {} choices in all", choices));
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
  for (const size_t rank : all) {
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_TRUE(ranks.LinesOf(rank, "wrong").empty()) << ranks.Transcript();
  }
}

TEST_P(ProgramChoices, SplitProgramsGiveWhatTheEvaluatorGives) {
  const int world_size = GetParam();
  if (world_size == 1) GTEST_SKIP() << "one rank shares nothing out";
  const PrivateFolder folder;
  RankProcesses ranks;
  std::vector<size_t> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), size_t{0});
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      JobOptions options;
      options.context = {"test", rank, world_size, rank, world_size, "job", folder.path() + "/s"};
      options.catalogue.tables = {host::BackendApi()};
      Result<std::unique_ptr<Job>> job = Job::Join(options);
      if (!job) {
        link.Report("wrong " + job.error().ToText());
        return 1;
      }
      uint32_t salt = 0;
      for (const std::string& text : SplitPrograms()) {
        for (const int shares : {1, 5, 64}) {
          const auto rows = static_cast<uint64_t>(shares * world_size);
          const std::string wrong = RunSplitChoices(**job, text, rows, ++salt);
          if (wrong.empty()) continue;
          link.Report(fmt::format("wrong at {} rows: {}\n{}", rows, wrong, text));
          return 1;
        }
        for (const std::string& wrong :
             {RefuseUnevenRows(**job, text), RunSplitOfTable(**job, text, false),
              RunSplitOfTable(**job, text, true)}) {
          if (!wrong.empty()) link.Report(fmt::format("wrong: {}\n{}", wrong, text));
        }
      }
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
  for (const size_t rank : all) {
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_TRUE(ranks.LinesOf(rank, "wrong").empty()) << ranks.Transcript();
  }
}

TEST_P(ProgramChoices, GiveTheSameBitsByTheSameNumerics) {
  constexpr uint64_t kPrograms = kProgramsBySame;
  const int world_size = GetParam();
  const PrivateFolder folder;
  RankProcesses ranks;
  std::vector<size_t> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), size_t{0});
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      JobOptions options;
      options.context = {"test", rank, world_size, rank, world_size, "job", folder.path() + "/s"};
      options.catalogue.tables = {host::BackendApi()};
      Result<std::unique_ptr<Job>> job = Job::Join(options);
      if (!job) {
        link.Report("wrong " + job.error().ToText());
        return 1;
      }
      SeenBits seen;
      for (uint64_t seed = 0; seed < kPrograms; ++seed) {
        const uint64_t of_ranks = 200'000 + seed * 8 + static_cast<uint64_t>(world_size);
        const std::string text = seed % 4 == 3 ? RandomBucketProgram(of_ranks, world_size)
                                               : RandomProgram(of_ranks, world_size);
        static constexpr uint64_t kRows[] = {1, 3, 7, 30, 333};
        const uint64_t rows = kRows[seed % std::size(kRows)];
        const std::string wrong = CompareBits(**job, text, rows, seed, seen);
        if (wrong.empty()) continue;
        link.Report(fmt::format("wrong at seed {}, {} rows: {}\n{}", seed, rows, wrong, text));
        return 1;
      }
      link.Report(fmt::format("seen {} {}", seen.compared, seen.orders_apart));
      if (seen.compared < 2 * kPrograms && world_size > 1) link.Report("wrong: few choices");
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
  uint64_t orders_apart = 0;
  for (const size_t rank : all) {
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_TRUE(ranks.LinesOf(rank, "wrong").empty()) << ranks.Transcript();
    for (const std::string& line : ranks.LinesOf(rank, "seen ")) {
      orders_apart += std::stoull(line.substr(line.rfind(' ') + 1));
    }
  }
  // Programs whose results are the same in every order would prove nothing; two ranks have but one.
  // The few that run under sanitizers may have none.
  if (world_size > 2 && kProgramsBySame >= 100) {
    EXPECT_GT(orders_apart, 0u) << ranks.Transcript();
  }
}

// Elements of a * b + c in bf16 that are not what rounding after each operation gives.
uint64_t NotRounded(const std::vector<Bytes>& inputs, const Bytes& output) {
  const auto at = [](const Bytes& bytes, size_t i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof(bits));
    return bits;
  };
  uint64_t differing = 0;
  for (size_t i = 0; i < output.size() / 2; ++i) {
    const auto value = [&](size_t input) { return F32FromBf16(at(inputs[input], i)); };
    const float product = F32FromBf16(Bf16FromF32(value(0) * value(1)));
    if (at(output, i) != Bf16FromF32(product + value(2))) ++differing;
  }
  return differing;
}

TEST(ProgramNumerics, TheSettingRoundsEveryValue) {
  const PrivateFolder folder;
  for (const NumericsRule rule : {NumericsRule::kAny, NumericsRule::kSame}) {
    JobOptions options;
    options.context = {"test", 0, 1, 0, 1, "job", folder.path() + "/s"};
    options.catalogue.tables = {host::BackendApi()};
    options.settings.numerics = rule;
    const auto job = Job::Join(options);
    ASSERT_TRUE(job) << job.error().ToText();
    const ProgramGraph graph = ProgramGraph::Parse(
                                   "program p\n"
                                   "%x = input bf16 [R, 512]\n"
                                   "%y = input bf16 [R, 512]\n"
                                   "%z = input bf16 [R, 512]\n"
                                   "%s = all_reduce sum %x\n"
                                   "%m = mul %s, %y\n"
                                   "%a = add %m, %z\n"
                                   "return %a\n")
                                   .value();
    const Program program = Program::Bind(graph, {MemoryKind::kHost, 1, 1}).value();
    const Problem problem = program.ProblemAtRows(3, (*job)->topology_digest());
    const Choice choice = (*job)->DefaultChoice(program, problem).value();
    std::string failure;
    const std::vector<Bytes> outputs = OutputsOf(**job, program, 3, choice, 1, failure);
    ASSERT_EQ(failure, "");
    std::vector<Bytes> inputs;
    for (ValueIndex i = 0; i < 3; ++i) {
      inputs.push_back(RandomInput(graph, i, outputs[0].size(), 0, 1));
    }
    const uint64_t differing = NotRounded(inputs, outputs[0]);
    if (rule == NumericsRule::kSame) {
      EXPECT_EQ(differing, 0u);
    } else {
      EXPECT_GT(differing, 0u) << "the data cannot tell";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, ProgramChoices, ::testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace cotune
