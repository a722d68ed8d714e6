#include "tests/simulated/tune_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "core/base/check.h"

namespace cotune {
namespace {

constexpr int64_t kMicrosecondNs = 1000;
constexpr int64_t kMillisecondNs = 1000 * kMicrosecondNs;

// A wrong element reaches an output of each of them. {} is a number.
constexpr const char* kPrograms[] = {
    // A sequence-parallel norm. Its collectives differ in size.
    "%x = input f32 [R, 4]\n%g = input f32 [1, 4] replicated\n%s = reduce_scatter sum %x\n"
    "%m = mul %s, {}\n%n = rms_norm %m, %g\n%w = cast %n, to=f64\n%y = all_gather %w\nreturn %y\n",
    // The end of a layer that keeps its residual stream.
    "%x = input bf16 [R, 4]\n%r = input bf16 [R, 4] replicated\n"
    "%g = input bf16 [1, 4] replicated\n%s = all_reduce sum %x\n%m = mul %s, {}\n"
    "%t = add %m, %r\n%y = rms_norm %t, %g\nreturn %y, %t into %r\n",
    "%x = input f32 [R/n, 2]\n%y = all_gather %x\n%z = mul %y, {}\nreturn %z\n",
    "%x = input f32 [R, 3]\n%m = mul %x, {}\n%y = all_to_all %m\n%z = neg %y\nreturn %z\n",
    "%x = input i32 [R, 2]\n%y = all_reduce max %x\n%z = add %y, {}\nreturn %z\n",
    // Two collectives that are the same problem, and run by the same choice.
    "%x = input f32 [R, 2]\n%a = all_reduce sum %x\n%m = mul %a, {}\n%b = all_reduce sum %m\n"
    "return %b\n",
    "%x = input f64 [R, 1]\n%y = broadcast %x, root=1\n%z = mul %y, {}\nreturn %z\n",
    // Twins. A bucket runs them as one.
    "%x = input f32 [R, 2]\n%a = all_reduce sum %x\n%b = all_reduce sum %x\n%y = mul %a, {}\n"
    "%z = neg %b\nreturn %y, %z\n",
    // Operations on both sides of a collective, of which some make no region without others.
    "%x = input bf16 [R, 2]\n%k = input bf16 [R, 2]\n%u = mul %x, {}\n%v = add %u, %k\n"
    "%s = all_reduce sum %v\n%p = neg %s\n%q = add %p, %k\nreturn %q\n",
    // A bucket of three of different sizes, with operations that run in its parts.
    "%x = input f32 [R, 1]\n%y = input f32 [R, 2]\n%z = input f32 [R, 1]\n"
    "%a = all_reduce sum %x\n%b = all_reduce sum %y\n%c = all_reduce sum %z\n%m = mul %b, {}\n"
    "return %a, %m, %c\n",
    "%x = input i32 [R, 1]\n%y = input i32 [R, 2]\n%a = broadcast %x, root=1\n%m = add %y, {}\n"
    "%b = broadcast %m, root=1\nreturn %a, %b\n",
};

class ScheduleMaker {
 public:
  explicit ScheduleMaker(uint64_t seed)
      : random_(seed * 0x9e3779b97f4a7c15ull + 11), has_neighbours_(seed % 20 == 3) {
    schedule_.seed = seed;
    schedule_.job.seed = seed;
  }

  TuneSchedule Make() {
    MakeJob();
    MakeSettings();
    for (int nodes = OneIn(10) ? 3 : 1 + Below(2); nodes > 0; --nodes) {
      schedule_.usual.nodes.push_back({AnyProgram(), AnySizes()});
    }
    schedule_.has_jitter = OneIn(2);
    MakeBackends();
    schedule_.usual.fields = {{"code", "1"}};
    schedule_.usual.base = BaseWith("alpha/a");
    schedule_.aligns_ranks = OneIn(2);
    if (!OneIn(3)) schedule_.cache_bytes = uint64_t{2048} << Below(3);
    if (OneIn(3)) {
      MakeDifference();
    } else if (OneIn(6)) {
      MakeLate();
    }
    if (OneIn(3)) MakeFaults();
    return std::move(schedule_);
  }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  bool OneIn(int n) { return Below(n) == 0; }
  int world_size() const { return schedule_.job.world_size; }

  void MakeJob() {
    sync::SimulatedJobOptions& job = schedule_.job;
    job.world_size = 2 + Below(3);
    job.delay_max_ns = (1 + Below(20)) * kMillisecondNs;
    for (int rank = 0; rank < job.world_size; ++rank) {
      job.start_ns.push_back(Below((OneIn(8) ? 1000 : 20) * kMillisecondNs));
    }
  }

  void MakeSettings() {
    TuningSettings& settings = schedule_.usual.settings;
    settings.collective_autotune_timeout_ns = 1000 * kMillisecondNs;
    settings.collective_pre_sync_timeout_ns = 200 * kMillisecondNs;
    settings.warm_timeout_ns = 4000 * kMillisecondNs;
    settings.collective_benchmark_nruns = 2 + Below(2);
    settings.min_rounds = 2;
    settings.neighbour_pruning = has_neighbours_;
    settings.precompile_threads = 1;  // a second one would run beside the first
    settings.sample_ns = OneIn(2) ? 1 : 200 * kMicrosecondNs;
    settings.enable_collective_multitemplate = !OneIn(4);
    FusionRules& fusion = settings.fusion;
    if (OneIn(4)) fusion.enabled = false;
    if (OneIn(8)) fusion.types = static_cast<uint8_t>(Below(kAllFusionTypes + 1));
    if (OneIn(8)) fusion.is_recursive = false;
    if (OneIn(3)) fusion.speedup_threshold = 1 + Below(50) / 100.0;
  }

  Program AnyProgram() {
    const GroupShape group{MemoryKind::kHost, world_size(), world_size()};
    if (has_neighbours_ || OneIn(2)) {
      ProblemClass cls;
      cls.collective = AllCollectives()[static_cast<size_t>(Below(5))];
      cls.reduction = Reduces(cls.collective) ? Reduction::kSum : Reduction::kNone;
      cls.world_size = group.world_size;
      cls.ranks_per_node = group.ranks_per_node;
      cls.in_place = cls.collective == Collective::kAllReduce && OneIn(2);
      return *Program::SingleCollective(cls);
    }
    const char* const text =
        kPrograms[static_cast<size_t>(Below(static_cast<int>(std::size(kPrograms))))];
    const Result<ProgramGraph> graph =
        ProgramGraph::Parse(fmt::format(fmt::runtime(text), 2 + Below(50)));
    COTUNE_CHECK(graph.has_value(), "the programs of the test are right");
    return *Program::Bind(*graph, group);
  }

  std::vector<uint64_t> AnySizes() {
    if (has_neighbours_) return {256, 1024, 2048, 4096};
    if (OneIn(4)) return {256, 1024};
    return {uint64_t{256} << Below(2)};
  }

  void MakeBackends() {
    has_regions_ = OneIn(3);
    const int backends = OneIn(3) ? 2 : 1;
    int names = 0;
    for (int i = 0; i < backends; ++i) {
      std::vector<SimulatedChoice>& choices = schedule_.usual.backends.emplace_back();
      // Four choices always race at all sizes, beside the default.
      for (int left = 1 + Below(2) + (has_neighbours_ ? 4 : 0); left >= 0; --left) {
        choices.push_back(AnyChoice(names++));
        if (choices.size() > 1 && OneIn(2)) TieWith(choices.front(), choices.back());
      }
      // The first choice, which is right, races at every size if it is the default.
      const int usual = Below(static_cast<int>(choices.size()));
      choices[has_neighbours_ ? 0 : static_cast<size_t>(usual)].is_default = true;
    }
  }

  static void TieWith(const SimulatedChoice& other, SimulatedChoice& choice) {
    choice.base_ns = other.base_ns;
    choice.ns_per_byte = other.ns_per_byte;
    choice.jitter_percent = other.jitter_percent;
  }

  // The first one is right everywhere, so that each cell has a winner.
  SimulatedChoice AnyChoice(int number) {
    SimulatedChoice choice;
    choice.name = std::string(1, static_cast<char>('a' + number));
    choice.prepare_is_collective = OneIn(5);
    choice.prepare_ns = Below(5 * kMillisecondNs);
    choice.base_ns = Below(300 * kMicrosecondNs) + kMicrosecondNs;
    choice.ns_per_byte = Below(int64_t{200});
    if (schedule_.has_jitter) choice.jitter_percent = Below(30);
    if (has_regions_ && !OneIn(3)) {
      choice.operations_max = 1 + static_cast<size_t>(Below(2));
      choice.fused_base_ns = choice.base_ns * (50 + Below(70)) / 100;
      choice.operation_ns = Below(5 * kMicrosecondNs);
    }
    if (number == 0 || !OneIn(3)) return choice;
    choice.defect = static_cast<Defect>(1 + Below(kDefects - 1));
    choice.defect_rank = Below(world_size());
    // A winner has at least three calls in front of its last check.
    if (OneIn(2)) choice.right_calls = Below(4);
    if (choice.operations_max > 0 && !OneIn(3)) choice.defect_in_regions = OneIn(2);
    if (OneIn(3)) choice.defect_collective = AllCollectives()[static_cast<size_t>(Below(5))];
    // It would be the winner.
    if (OneIn(2)) choice.base_ns = choice.fused_base_ns = kMicrosecondNs;
    if (OneIn(2)) choice.ns_per_byte = 0;
    return choice;
  }

  // A size that no node has.
  MeasuredWinners BaseWith(const char* winner) const {
    ProblemClass cls;
    cls.reduction = Reduction::kSum;
    cls.world_size = world_size();
    MeasuredWinners base;
    base.Put(DispatchKey::Of(cls), 1 << 20, *ChoiceId::Parse(winner));
    return base;
  }

  void MakeDifference() {
    schedule_.difference = static_cast<Difference>(1 + Below(kDifferences - 1));
    // All have the nodes before it, one by one: those that have no more have ended by then.
    if (schedule_.difference == Difference::kExtraNode) {
      schedule_.usual.settings.enable_collective_multitemplate = true;
    }
    schedule_.odd_rank = Below(world_size());
    schedule_.odd = schedule_.usual;
    TuneOfRank& odd = schedule_.odd;
    schedule_.odd_node = static_cast<size_t>(Below(static_cast<int>(odd.nodes.size())));
    TuneNode& node = odd.nodes[schedule_.odd_node];
    switch (schedule_.difference) {
      case Difference::kProgram:
        while (node.program == schedule_.usual.nodes[schedule_.odd_node].program) {
          node.program = AnyProgram();
        }
        break;
      case Difference::kSizes:
        node.sizes_bytes.back() *= 2;
        break;
      case Difference::kExtraNode:
        schedule_.odd_node = odd.nodes.size();
        odd.nodes.push_back({AnyProgram(), AnySizes()});
        break;
      case Difference::kSetting:
        ++odd.settings.collective_benchmark_nruns;
        break;
      case Difference::kMode:
        odd.settings.enable_collective_multitemplate ^= true;
        break;
      case Difference::kField:
        odd.fields[0].second = "2";
        break;
      case Difference::kChoice:
        odd.backends[0].back().name = "other";
        break;
      case Difference::kFusion:
        odd.settings.fusion.is_recursive ^= true;
        break;
      case Difference::kBase:
        odd.base = BaseWith("alpha/another");
        break;
      case Difference::kNone:
        break;
    }
  }

  void MakeLate() {
    schedule_.late_rank = Below(world_size());
    const int64_t window_ns = schedule_.usual.settings.collective_pre_sync_timeout_ns;
    schedule_.late_ns = OneIn(3) ? Below(window_ns / 2) : window_ns * 2 + Below(window_ns);
    const bool has_one_pass = schedule_.usual.settings.enable_collective_multitemplate;
    const auto nodes = static_cast<int>(schedule_.usual.nodes.size());
    schedule_.late_pass = has_one_pass ? 0 : static_cast<size_t>(Below(nodes));
  }

  sync::SimulatedFault AnyFault(int64_t until_ns) {
    sync::SimulatedFault fault;
    fault.kind = static_cast<sync::SimulatedFault::Kind>(Below(4));
    fault.rank = Below(world_size());
    fault.at_ns = Below(until_ns);
    fault.length_ns = Below((OneIn(2) ? 300 : 4000) * kMillisecondNs);
    return fault;
  }

  void MakeFaults() {
    if (OneIn(6)) schedule_.job.delay_max_ns = 2000 * kMillisecondNs;
    for (int i = Below(3); i > 0; --i) schedule_.job.faults.push_back(AnyFault(kTuneNs));
    const bool has_others = !schedule_.job.faults.empty();
    for (int i = Below(3) + (has_others ? 0 : 1); i > 0; --i) {
      schedule_.faults_at_agreement.push_back(AnyFault(2 * schedule_.job.delay_max_ns));
    }
  }

  // About how long an undisturbed one takes.
  static constexpr int64_t kTuneNs = 1000 * kMillisecondNs;

  std::mt19937_64 random_;
  bool has_regions_ = false;   // some choices may run regions
  const bool has_neighbours_;  // all nodes are collectives whose sizes learn from each other
  TuneSchedule schedule_;
};

}  // namespace

std::string_view Name(Difference difference) {
  static constexpr std::string_view kNames[] = {"none",    "program", "sizes", "extra node",
                                                "setting", "mode",    "field", "choice",
                                                "fusion",  "base"};
  return kNames[static_cast<size_t>(difference)];
}

TuneSchedule MakeTuneSchedule(uint64_t seed) { return ScheduleMaker(seed).Make(); }

}  // namespace cotune
