#include "core/scheduler/tune_pass.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/usable_processors.h"
#include "core/benchmark/operand_buffers.h"
#include "core/choice/choice_lists.h"
#include "core/choice/forced_collectives.h"
#include "core/choice/neighbour_pruning.h"
#include "core/choice/precompile.h"
#include "core/choice/winner_check.h"
#include "core/ranks/step_record.h"
#include "core/scheduler/cell_timing.h"
#include "core/scheduler/listing_lines.h"
#include "core/scheduler/pre_sync_fields.h"
#include "core/scheduler/rank_zero_knowledge.h"
#include "core/scheduler/tune_comparison.h"
#include "core/scheduler/tune_cost.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

// Bytes of right results that a rank keeps before their cells are measured. The cells beyond it
// evaluate theirs when it is their turn.
constexpr uint64_t kEvaluatedBytesMax = uint64_t{256} << 20;

}  // namespace

TunePass::TunePass(TuneState& state, size_t first)
    : state_(state),
      parts_(state.parts),
      settings_(state.settings),
      first_(first),
      watchdog_(parts_.watchdog == nullptr ? own_watchdog_.emplace(parts_.clock)
                                           : *parts_.watchdog) {}

TunePass::~TunePass() {
  // After a pass that failed, a launch may still use the region.
  SymmetricRegion::Retire(std::move(symmetric_), parts_.device.stream(),
                          parts_.clock.now_ns() + settings_.collective_autotune_timeout_ns);
}

Status TunePass::Run() {
  ListChoices();
  if (Status known = LookUpKnownCells(); !known) return known;
  Plan();
  // Before plans are made: those that need registered memory are refused where there is none.
  if (Status made = MakeSymmetricRegion(); !made) return made;
  if (Status ready = Precompile(); !ready) {
    // The thread whose call is stuck still uses them.
    parts_.watchdog->Keep(std::make_shared<std::vector<TuneCell>>(std::move(cells_)));
    return ready;
  }
  if (Status warm = Warm(); !warm) return warm;
  COTUNE_TRY(const bool met, PreSync());
  if (!met) return {};
  if (Status measured = Benchmark(); !measured) return measured;
  return Agree();
}

size_t TunePass::ThreadsOfRank() const {
  // Beginning a thread takes as long as the work on a cell.
  constexpr size_t kThreadsMax = 8;
  const ProblemClass& cls = state_.nodes[first_]->program().anchor();
  return std::min(kThreadsMax, PrecompileThreads(settings_.precompile_threads, cls));
}

void TunePass::ListChoices() {
  const StageSpan stage(parts_.observer, Stage::kChoices);
  const size_t threads = ThreadsOfRank();
  for (size_t i = first_; i < state_.nodes.size(); ++i) {
    MultiTemplate& node = *state_.nodes[i];
    const ScopedSpan span(parts_.observer, SpanKind::kNode, std::string(kNodeSpan),
                          ToText(node.program().anchor()));
    node.ListAllChoices(parts_.groups, threads);
    for (uint64_t hint : node.size_hints_bytes()) {
      const ChoiceList& list = node.ListChoices(parts_.groups, hint);
      if (parts_.exchange.rank() == 0) LogListing(node, hint, list);
    }
  }
}

void TunePass::LogListing(const MultiTemplate& node, uint64_t hint_bytes,
                          const ChoiceList& list) const {
  const Program& program = node.program();
  const std::string name = ToText(program.anchor());
  for (const ListingLine& line :
       ListingLines(program, node.ProblemAt(hint_bytes), node.considered(hint_bytes), list)) {
    parts_.observer.OnEvent({.type = EventType::kLine,
                             .severity = Severity::kDebug,
                             .name = line.text,
                             .node = name,
                             .choice = line.key});
  }
}

Status TunePass::LookUpKnownCells() {
  const StageSpan stage(parts_.observer, Stage::kKnownCells);
  if (Status same = CompareTunes(parts_.exchange, FieldsOfTune(state_.agreed, settings_),
                                 std::span(state_.nodes).subspan(first_), first_, WarmDeadlineNs());
      !same) {
    return same;
  }
  COTUNE_TRY(const auto left_out, ShareLeftOut(parts_.exchange, parts_.known, WarmDeadlineNs()));
  std::vector<CellPlace> all;
  for (size_t i = first_; i < state_.nodes.size(); ++i) {
    for (uint64_t hint : state_.nodes[i]->size_hints_bytes()) {
      all.push_back({state_.nodes[i].get(), hint});
    }
  }
  COTUNE_TRY(auto known,
             ShareKnownCells(parts_.exchange, parts_.known, all, left_out,
                             SelectionRules::Of(settings_), ThreadsOfRank(), WarmDeadlineNs()));
  // The ranks come from that meeting together. A tune of one short cell waits the less at its end,
  // the earlier the processors are observed.
  processors_.Begin();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!known[i]) {
      const bool is_forced =
          AreAllForced(parts_.groups, settings_.force, all[i].node->program(), all[i].problem());
      if (is_forced) {
        forced_.push_back(all[i]);
      } else {
        cells_.push_back(TuneCell{all[i]});
      }
      continue;
    }
    all[i].node->SetTimings(all[i].hint_bytes, std::move(*known[i]));
    known_.push_back(all[i]);
  }
  state_.outcome.known_cells += static_cast<int32_t>(known_.size());
  state_.outcome.forced_cells += static_cast<int32_t>(forced_.size());
  LeaveOut(left_out);
  return {};
}

void TunePass::LeaveOut(const std::vector<LeftOutChoice>& left_out) {
  for (TuneCell& cell : cells_) {
    cell.place.node->LeaveOut(parts_.groups, cell.place.hint_bytes, left_out);
  }
  if (parts_.exchange.rank() != 0) return;
  for (const LeftOutChoice& each : left_out) {
    // Known cells count as well: the tunes that measured them may have left the choice out. A pass
    // before this one has warned for its own nodes.
    const auto first = std::find_if(state_.nodes.begin(), state_.nodes.end(),
                                    [&](const std::unique_ptr<MultiTemplate>& node) {
                                      return ToText(node->program().anchor()) == each.problem_class;
                                    });
    const auto pass_begin = state_.nodes.begin() + static_cast<std::ptrdiff_t>(first_);
    if (first == state_.nodes.end() || first < pass_begin) continue;
    Warn(fmt::format("{} is left out for {}: {}", each.choice, each.problem_class, each.reason));
  }
}

void TunePass::Plan() {
  TuneCost cost = EstimateCost(cells_, parts_.groups, parts_.device, settings_,
                               settings_.budget_ns - state_.measured_ns);
  cost.plan.nodes = static_cast<int32_t>(state_.nodes.size() - first_);
  cost.plan.known_cells = static_cast<int32_t>(known_.size());
  cost.plan.cells = static_cast<int32_t>(cells_.size()) + cost.plan.known_cells;
  cost.plan.forced_cells = static_cast<int32_t>(forced_.size());
  parts_.observer.OnPlan(cost.plan);
  memory_ = CheckMemory(parts_.device, parts_.exchange.world_size(), cost.least_bytes_per_rank);
}

Status TunePass::MakeSymmetricRegion() {
  uint64_t bytes = 0;
  for (const TuneCell& cell : cells_) {
    const Problem problem = cell.place.problem();
    if (problem.cls.buffer_class != BufferClass::kSymmetric) continue;
    const Program& program = cell.place.node->program();
    const int32_t copies =
        CellOperands::WantedCopies(program, problem, parts_.device.cache_bytes());
    bytes = std::max(bytes, CellOperands::RegionBytes(program, problem, copies));
  }
  if (bytes == 0) return {};
  // The same on all ranks, as the size of the cache is; Create fails if it is not.
  COTUNE_TRY(auto region,
             SymmetricRegion::Create(parts_.device, parts_.groups, bytes, WarmDeadlineNs()));
  symmetric_ = std::move(region);
  return {};
}

Status TunePass::Precompile() {
  const StageSpan stage(parts_.observer, Stage::kPrecompile);
  std::vector<ChoiceCaller*> callers;
  for (TuneCell& cell : cells_) {
    const Problem problem = cell.place.problem();
    for (const Choice& choice :
         cell.place.node->ListChoices(parts_.groups, cell.place.hint_bytes).choices) {
      auto caller = MakeCaller(parts_.groups, cell.place.node->program(), problem, choice);
      if (!caller) continue;
      cell.callers.push_back(std::move(*caller));
      callers.push_back(cell.callers.back().get());
    }
  }
  return PrecompileAll(
      callers, settings_.precompile_threads, WarmDeadlineNs(),
      {parts_.exchange.rank(), parts_.exchange.world_size()}, parts_.watchdog, parts_.prepare_notes,
      [this] { return parts_.observer.StopRequested(); }, EvaluationsOfCells());
}

std::vector<std::function<void()>> TunePass::EvaluationsOfCells() {
  std::vector<std::function<void()>> evaluations;
  uint64_t bytes = 0;
  for (TuneCell& cell : cells_) {
    const Program& program = cell.place.node->program();
    if (program.is_single_collective()) continue;
    const uint64_t rows = program.RowsAt(cell.place.problem());
    const uint64_t bytes_of_cell = ReferenceResults::BytesFor(program, rows);
    if (bytes + bytes_of_cell > kEvaluatedBytesMax) continue;
    bytes += bytes_of_cell;
    cell.reference = std::make_shared<ReferenceResults>(program, rows, parts_.exchange.rank());
    for (uint32_t kind = 0; kind < CellOperands::kDataKinds; ++kind) {
      evaluations.push_back([reference = cell.reference, kind] { reference->Evaluate(kind); });
    }
  }
  return evaluations;
}

// A long wait with heartbeats: compiling takes from nothing to minutes, and differs from rank to
// rank. Only behind it does the short window of the pre-sync make sense.
Status TunePass::Warm() {
  const StageSpan stage(parts_.observer, Stage::kWarm);
  // One rank may have heard of the interrupt during its precompile and another not yet: all end
  // here.
  const Status interrupted = parts_.observer.StopRequested() ? Status(TuneInterrupted()) : Status{};
  auto record = StepRecord<ProcessorsOfRank>::FromStatus(interrupted ? memory_ : interrupted);
  record.message.usable = UsableProcessors();
  COTUNE_TRY(const auto all, ExchangeRecords(parts_.exchange, "warm", record, 0, WarmDeadlineNs()));
  if (all.SomeFailedWith(ErrorCode::kInterrupted)) return TuneInterrupted();
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  std::vector<std::string> processors;
  for (const auto& rank : all.records) processors.push_back(rank.message.usable);
  const bool core_for_each_rank = CountDistinctProcessors(processors) >= all.records.size();
  start_mode_ = core_for_each_rank ? StartMode::kWindow : StartMode::kBarrier;
  if (parts_.device.aligns_ranks()) start_mode_ = StartMode::kDevice;
  begin_ns_ = all.elapsed_ns;
  return {};
}

Result<bool> TunePass::PreSync() {
  const StageSpan stage(parts_.observer, Stage::kPreSync);
  Result<bool> met = MeetInWindow();
  if (!met || !*met) return met;
  COTUNE_RETURN_IF_ERROR(CheckChoices());
  return true;
}

Result<bool> TunePass::MeetInWindow() {
  const AgreedFields fields =
      PreSyncFields(state_.agreed, settings_, std::span(state_.nodes).subspan(first_), first_);
  const int64_t window_ns = settings_.collective_pre_sync_timeout_ns;
  const int64_t deadline_ns =
      parts_.clock.now_ns() + std::max(window_ns * 2, settings_.collective_autotune_timeout_ns);
  COTUNE_TRY(const PreSyncResult result, parts_.exchange.PreSync(fields, window_ns, deadline_ns));
  ++state_.outcome.pre_syncs;
  state_.outcome.pre_sync_ns += result.waited_ns;
  if (result.met) return true;
  state_.outcome.committed = false;
  state_.outcome.late_ranks = result.late_ranks;
  if (parts_.exchange.rank() == 0) {
    Warn(fmt::format(
        "rank {} missed the pre-sync window of {} ms: every rank uses the default table; "
        "raise collective_pre_sync_timeout if that rank is only slow",
        fmt::join(result.late_ranks, ", "), window_ns / 1'000'000));
  }
  return false;
}

Status TunePass::CheckChoices() {
  const int64_t deadline_ns = WarmDeadlineNs();
  std::vector<CellToCheck> cells;
  for (const TuneCell& cell : cells_) {
    cells.push_back({&cell.place.node->program(), cell.place.problem(),
                     &cell.place.node->ListChoices(parts_.groups, cell.place.hint_bytes)});
  }
  // The lists decide which cells are forced.
  for (const CellPlace& place : forced_) {
    cells.push_back({&place.node->program(), place.problem(),
                     &place.node->ListChoices(parts_.groups, place.hint_bytes)});
  }
  std::vector<CellToCheck> known;
  std::vector<ChoiceId> winners;
  std::vector<CellPlace> places;
  for (const CellPlace& place : known_) {
    const Result<Winner>& winner = place.node->cells().at(place.hint_bytes).winner;
    if (!winner) continue;
    known.push_back({&place.node->program(), place.problem(),
                     &place.node->ListChoices(parts_.groups, place.hint_bytes)});
    winners.push_back(winner->id);
    places.push_back(place);
  }
  cells.insert(cells.end(), known.begin(), known.end());
  if (Status same = CompareChoiceLists(parts_.exchange, parts_.groups, cells, deadline_ns); !same) {
    return same;
  }
  // Those that are measured are run on every rank, which is more than making them ready.
  if (known.empty()) return {};
  COTUNE_TRY(
      const std::vector<RefusedWinner> refused,
      CheckWinners(parts_.exchange, parts_.groups, known, winners, settings_.precompile_threads,
                   parts_.clock, settings_.warm_timeout_ns, parts_.watchdog, parts_.prepare_notes,
                   [this] { return parts_.observer.StopRequested(); }));
  for (const RefusedWinner& each : refused) {
    const CellPlace& place = places[each.cell];
    unusable_.insert(place);
    place.node->NoteUnusableWinner(place.hint_bytes);
    if (parts_.exchange.rank() != 0) continue;
    Warn(
        fmt::format("{}, which won {} in the database, is not in the table: {}; measure it again "
                    "with force",
                    winners[each.cell].text(), ToText(known[each.cell].problem), each.reason));
  }
  return {};
}

std::vector<CellPlace> TunePass::PlacesInOrder() const {
  std::vector<CellPlace> first;
  std::vector<CellPlace> rest;
  for (size_t i = first_; i < state_.nodes.size(); ++i) {
    MultiTemplate& node = *state_.nodes[i];
    const MeasuringOrder order = settings_.neighbour_pruning
                                     ? node.OrderOfMeasuring()
                                     : MeasuringOrder{node.size_hints_bytes(), {}};
    for (const uint64_t hint : order.first) first.push_back({&node, hint});
    for (const uint64_t hint : order.rest) rest.push_back({&node, hint});
  }
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

Status TunePass::Benchmark() {
  processors_.BeginMeasuring();
  CellTiming timing(state_, watchdog_, cells_, symmetric_.get(), processors_, start_mode_,
                    begin_ns_);
  COTUNE_RETURN_IF_ERROR(timing.RaceFirstHeats());
  for (const CellPlace& place : PlacesInOrder()) {
    if (place.node->has_timings(place.hint_bytes) || IsForced(place)) continue;
    if (timing.IsBudgetSpent() && !timing.HasBegun(*place.node, place.hint_bytes)) {
      ++state_.outcome.skipped_cells;
      continue;
    }
    COTUNE_RETURN_IF_ERROR(place.node->choice_timings(place.hint_bytes, timing));
  }
  state_.measured_ns += timing.elapsed_ns();
  return {};
}

MeasuredWinners TunePass::MergedWinners() {
  MeasuredWinners winners = state_.winners;
  for (size_t i = first_; i < state_.nodes.size(); ++i) {
    MultiTemplate& node = *state_.nodes[i];
    // The budget was used up before its first cell, or forced choices run all of them.
    if (node.cells().empty()) continue;
    const Result<MeasuredWinners::BySize> by_size = node.Finalize();
    if (!by_size) {
      // The reason of each cell that was measured is reported already.
      const bool has_known = std::any_of(known_.begin(), known_.end(),
                                         [&](const CellPlace& each) { return each.node == &node; });
      if (has_known) EmitRefusedCells(parts_.observer, by_size.error().ToText());
      continue;
    }
    // The same collective twice in one graph: the later node has measured a common size last.
    const DispatchKey key = DispatchKey::Of(node.program().anchor());
    if (key.program_digest != 0) {
      winners.PutProgram(key.program_digest, node.program().graph().ToText());
    }
    for (const auto& [bytes, winner] : *by_size) {
      if (!unusable_.contains(CellPlace{&node, bytes})) winners.Put(key, bytes, winner);
    }
  }
  return winners;
}

Status TunePass::Agree() {
  MeasuredWinners winners = MergedWinners();
  COTUNE_TRY(DispatchTable table, winners.BuildTable());
  const StageSpan stage(parts_.observer, Stage::kAgree);
  const std::string own = table.Serialize();
  const auto accept = [&](std::string_view proposal) {
    MarkStage(parts_.observer, Stage::kVote);
    return proposal == own;
  };
  COTUNE_TRY(
      const AgreementOutcome agreed,
      parts_.exchange.Agree(parts_.exchange.rank() == 0 ? own : "", accept,
                            parts_.clock.now_ns() + settings_.collective_autotune_timeout_ns));
  if (agreed == AgreementOutcome::kDeclined) {
    state_.outcome.committed = false;
    if (parts_.exchange.rank() == 0) {
      Warn("a rank declined the tuned table: every rank keeps the table that it had");
    }
    return {};
  }
  state_.winners = std::move(winners);
  state_.outcome.table = std::move(table);
  state_.outcome.winners = state_.winners;
  state_.outcome.committed = true;
  MarkStage(parts_.observer, Stage::kCommitted);
  return {};
}

}  // namespace cotune
