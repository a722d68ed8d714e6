// A whole tune on ranks that are threads: for tests of the scheduler.
#ifndef COTUNE_CORE_TESTING_TUNE_ON_RANKS_H_
#define COTUNE_CORE_TESTING_TUNE_ON_RANKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/scheduler/scheduler.h"
#include "core/testing/scripted_ranks.h"

namespace cotune {

// An all_reduce of f32.
ProblemClass AllReduce(int world_size);
// A choice that is named and costs so many ns a call.
ScriptedChoice Scripted(std::string name, int64_t cost_ns);

class NotedWarnings final : public StageObserver {
 public:
  void OnEvent(const Event& event) override {
    if (event.type != EventType::kLine) return;
    (event.severity >= Severity::kWarning ? warnings : lines).emplace_back(event.name);
  }
  void OnRefusedCells(const Event& warning) override {
    refused_cells.emplace_back(warning.name);
    OnEvent(warning);
  }
  void OnPlan(const TunePlan& plan) override { plans.push_back(plan); }
  bool StopRequested() override { return is_interrupted || (stops && stops()); }
  bool is_interrupted = false;
  std::function<bool()> stops;
  std::vector<std::string> warnings;
  std::vector<std::string> refused_cells;  // the warnings that OnRefusedCells has got
  std::vector<std::string> lines;          // that are no warnings
  std::vector<TunePlan> plans;
};

// Remembers every cell that a tune records.
class MemoryOfCells final : public KnownCells {
 public:
  std::optional<CellResult> Find(const Problem& problem) override {
    const auto found = cells.find(problem);
    if (found == cells.end()) return std::nullopt;
    return found->second;
  }
  Status Record(const CellResult& cell, const Winner&) override {
    cells.insert_or_assign(cell.problem, cell);
    return {};
  }
  bool FindsOnAnyThread() const override { return true; }
  std::vector<LeftOutChoice> Begin() override { return left_out; }
  std::map<Problem, CellResult> cells;
  std::vector<LeftOutChoice> left_out;
};

// The view of one rank of a tune.
struct RankView {
  Result<TuneOutcome> outcome = Fail(ErrorCode::kInternal, "did not run");
  NotedWarnings observer;
  std::vector<CellResult> cells;
  int groups_created = 0;
  int plans_prepared = 0;
  int lists_made = 0;                   // by its backend
  std::set<bool> roundings_of_regions;  // as in BackendForTest
  size_t recv_buffers = 0;              // distinct ones that calls were given
};

struct Tune {
  int world_size = 2;
  TuningSettings settings;
  std::function<std::vector<ScriptedChoice>(int rank)> choices;
  std::vector<std::vector<uint64_t>> node_sizes = {{1024}};
  // Texts of nodes that are programs; "", and behind the last one: an all_reduce.
  std::vector<std::string> node_programs;
  // May change the two above on one rank.
  std::function<void(int rank, std::vector<std::string>& programs,
                     std::vector<std::vector<uint64_t>>& sizes)>
      change_nodes;
  std::set<int> late_ranks;
  std::set<int> interrupted_ranks;                // from the beginning
  std::function<bool(int rank)> stops = nullptr;  // asked again and again
  std::function<int64_t(int rank, std::string_view step, int64_t deadline_ns)> on_step =
      nullptr;  // as in HubForTest
  KnownCells* known = nullptr;
  std::function<void(int rank, TuningSettings&)> change_settings;
  std::function<void(int rank)> on_prepare = nullptr;  // as in BackendForTest
  BufferClass buffer_class = BufferClass::kPlain;
  int register_fails_on_rank = -1;
  int part_ulp_on_rank = -1;  // both as in BackendForTest
  bool part_ulp_is_in_replicated = true;
  std::function<DeviceScript(int rank)> device;
  MeasuredWinners base;
  const RecipeSource* recipes = nullptr;  // nullptr: unfused ones
  // As in TuneParts, for each rank; nullptr: cells are not judged by their steadiness.
  std::function<std::function<std::optional<ProcessorTimes>()>(int rank)> processor_times = nullptr;
};

// The collectives differ in size, so that one may want another choice than the other.
inline constexpr char kSequence[] =
    "%x = input f32 [R, 64]\n%g = input f32 [1, 64] replicated\n"
    "%s = reduce_scatter sum %x\n%n = rms_norm %s, %g\n%w = cast %n, to=f64\n%y = all_gather %w\n"
    "return %y\n";
// A choice whose calls take base_ns and ns_per_byte for each byte.
ScriptedChoice Linear(std::string name, int64_t base_ns, int64_t ns_per_byte);
// A default and two choices of which one is fast for small data and the other for large.
std::vector<ScriptedChoice> LatencyAndBandwidth(int rank);
// Nine choices: 81 combinations for two collectives, more than one race has. way3 is the fastest
// for the reduce_scatter of kSequence at 4096 bytes, way5 for its all_gather of 8192; way0 is the
// default of both.
std::vector<ScriptedChoice> NineForEach(int rank);

std::vector<RankView> RunTune(const Tune& tune, int* pre_syncs = nullptr);

// The verdict of choice scripted/`name`.
const Verdict& VerdictOf(const CellResult& cell, const std::string& name);
// The program of node `node`, for that many ranks.
Program ProgramOfNode(const Tune& tune, size_t node);
// "": the table has none.
std::string WinnerAt(const TuneOutcome& outcome, uint64_t bytes, int world_size,
                     bool in_place = false);
// The winner of node `node` at this size; "": the table has none.
std::string WinnerOf(const Tune& tune, const TuneOutcome& outcome, size_t node, uint64_t bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_TUNE_ON_RANKS_H_
