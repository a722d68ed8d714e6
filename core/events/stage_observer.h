// The listeners of a tune, and the words of its events.
#ifndef COTUNE_CORE_EVENTS_STAGE_OBSERVER_H_
#define COTUNE_CORE_EVENTS_STAGE_OBSERVER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/event_sink.h"
#include "core/selection/select_winner.h"
#include "core/selection/verdict.h"

namespace cotune {

// The stages of a tune and of a call, in order: spans of SpanKind::kStage and, where only the
// moment counts, marks. Names as text are the words of Name().
enum class Stage : uint8_t {
  kRendezvous,  // before the ranks meet
  kGroups,      // before backends create their groups
  kChoices,
  kKnownCells,  // before rank 0's known cells reach all ranks
  kPrecompile,
  kWarm,  // before the ranks meet with everything compiled
  kPreSync,
  kCheck,      // before the correctness run of each choice
  kBenchmark,  // before each round
  kAgree,      // before the proposal
  kVote,       // proposal seen, before the vote
  kCommitted,  // the table is in force on all ranks
  kSave,       // before the database is written
  kDispatch,   // before a call by the tuned table
};
inline constexpr int kStages = static_cast<int>(Stage::kDispatch) + 1;
std::string_view Name(Stage stage);  // "rendezvous", "groups", ..., "dispatch"
std::optional<Stage> FindStage(std::string_view name);
// The stage that begins with the event.
std::optional<Stage> StageBegunBy(const Event& event);
// The stage that ends with the event.
std::optional<Stage> StageEndedBy(const Event& event);

void MarkStage(EventSink& sink, Stage stage);

// A stage from its construction to the end of its scope.
class StageSpan {
 public:
  StageSpan(EventSink& sink, Stage stage, std::string choice = "")
      : span_(sink, SpanKind::kStage, std::string(Name(stage)), "", std::move(choice)) {}

 private:
  const ScopedSpan span_;
};

// What is about to be measured; equal on all ranks.
struct TunePlan {
  int32_t nodes = 0;
  int32_t cells = 0;               // node x size
  int32_t known_cells = 0;         // of these, taken from the database
  int32_t forced_cells = 0;        // not among `cells`: forced choices run them
  int64_t choices_to_measure = 0;  // in first heats, over all cells that are not known
  int64_t refusals = 0;
  int64_t estimated_ns = 0;
  // Largest cell: send and receive buffers; on host memory also what results are compared with.
  uint64_t buffer_bytes_per_rank = 0;
  uint64_t workspace_bytes_per_rank = 0;  // largest cell
  // About what the backends' groups hold already, on a GPU; 0 where it is not measured.
  uint64_t group_bytes_per_rank = 0;
};

// A listener of the stream. All but OnEvent come from the thread that tunes; they carry what has no
// form as a line or a number. Default: ignore.
class StageObserver : public EventSink {
 public:
  void OnEvent(const Event&) override {}
  // A warning about a cell for which no backend offers a choice, or about a node of which no cell
  // has a winner: each of its cells has a warning of its own. Default: a line as any other.
  virtual void OnRefusedCells(const Event& warning) { OnEvent(warning); }
  virtual void OnPlan(const TunePlan&) {}
  virtual void OnCellStart(int32_t /*index*/, int32_t /*total*/, const Problem&) {}
  virtual void OnCellDone(int32_t /*index*/, int32_t /*total*/, const CellResult&, const Winner&) {}
  // Asked on every rank during the precompile, behind it and before each cell; when one rank says
  // true, all stop there with kInterrupted.
  virtual bool StopRequested() { return false; }
};

void EmitRefusedCells(StageObserver& observer, std::string_view warning);

}  // namespace cotune

#endif  // COTUNE_CORE_EVENTS_STAGE_OBSERVER_H_
