#include "core/scheduler/scheduler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/backend/launch_watchdog.h"
#include "core/backend/symmetric_region.h"
#include "core/base/sha256.h"
#include "core/base/usable_processors.h"
#include "core/benchmark/cell_benchmark.h"
#include "core/benchmark/operand_buffers.h"
#include "core/choice/precompile.h"
#include "core/choice/winner_check.h"
#include "core/ranks/step_record.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

// Rough cost of one choice of one cell, for the plan that is printed: checks, warm-up and rounds.
constexpr int64_t kSamplesPerChoice = 12;
constexpr int64_t kStepNs = 300'000;

int64_t EstimateChoiceNs(const Choice& choice, int32_t copies, MemoryKind memory,
                         const TuningSettings& settings) {
  const auto model_ns = static_cast<int64_t>(std::max(0.0, choice.cost_us) * 1000) * copies;
  return kSamplesPerChoice * (std::max(model_ns, settings.SampleNs(memory)) + kStepNs);
}

}  // namespace

// One run through the stages for the nodes [first, nodes.size()).
class Scheduler::Pass {
 public:
  Pass(Scheduler& scheduler, size_t first)
      : parts_(scheduler.parts_),
        settings_(scheduler.settings_),
        agreed_(scheduler.agreed_),
        nodes_(scheduler.nodes_),
        first_(first),
        outcome_(scheduler.outcome_),
        winners_(scheduler.winners_),
        measured_ns_(scheduler.measured_ns_) {
    if (parts_.watchdog == nullptr) own_watchdog_.emplace(parts_.clock);
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  ~Pass() {
    // Of a pass that failed, something may still be on its way.
    SymmetricRegion::Retire(std::move(symmetric_), parts_.device.stream(),
                            parts_.clock.now_ns() + settings_.collective_autotune_timeout_ns);
  }

  Status Run();

 private:
  // One node at one size that is not known.
  struct Cell {
    MultiTemplate* node = nullptr;
    uint64_t hint_bytes = 0;
    std::vector<std::unique_ptr<ChoiceCaller>> callers;
  };

  void ListChoices();
  // Choices that have ended a tune: rank 0 tells all.
  Status ShareLeftOut();
  // A known cell whose winner is left out is measured anew.
  Status ShareKnownCells();
  // Takes the choices that are left out from the cells to measure.
  void LeaveOut();
  // Rank 0 looks up the result that an earlier tune has left for a cell.
  std::optional<CellResult> FindKnown(const MultiTemplate& node, uint64_t hint_bytes) const;
  void Plan();
  // Whether the largest cell fits into what is free now.
  Status CheckMemory(uint64_t bytes_per_rank) const;
  Status Precompile();
  Status Warm();
  Result<bool> PreSync();
  // Compares the choices that the ranks list for all cells, and checks that each rank can run the
  // winners of the known ones.
  Status CheckChoices();
  Status Benchmark();
  // Memory for the operands of all symmetric cells, where there are any.
  Status MakeSymmetricRegion();
  Result<CellResult> TimeCell(MultiTemplate& node, uint64_t hint_bytes);
  Status AgreeAndSelect();
  // Of the budget of all passes together.
  int64_t BudgetLeftNs() const {
    return settings_.budget_ns - measured_ns_ - (coordinator_now_ns_ - begin_ns_);
  }
  void Warn(const std::string& text) { parts_.observer.OnWarning(text); }

  Parts& parts_;
  const TuningSettings& settings_;
  const AgreedFields& agreed_;
  std::vector<std::unique_ptr<MultiTemplate>>& nodes_;
  size_t first_;
  TuneOutcome& outcome_;
  MeasuredWinners& winners_;
  int64_t& measured_ns_;  // by the passes before this one
  LaunchWatchdog& watchdog() {
    return parts_.watchdog == nullptr ? *own_watchdog_ : *parts_.watchdog;
  }

  std::optional<LaunchWatchdog> own_watchdog_;
  Status memory_;  // of this rank, for the plan
  std::vector<LeftOutChoice> left_out_;
  std::vector<Cell> cells_;
  std::vector<std::pair<MultiTemplate*, uint64_t>> known_;
  std::set<std::pair<MultiTemplate*, uint64_t>> unusable_;  // known, but no rank can run the winner
  std::unique_ptr<SymmetricRegion> symmetric_;
  StartMode start_mode_ = StartMode::kBarrier;
  int32_t cells_total_ = 0;  // to measure
  int32_t cells_done_ = 0;
  int64_t begin_ns_ = 0;  // the coordinator's clock when measuring began
  int64_t coordinator_now_ns_ = 0;
};

Status Scheduler::Pass::Run() {
  parts_.observer.OnStage(Stage::kChoices);
  ListChoices();
  parts_.observer.OnStage(Stage::kKnownCells);
  if (Status shared = ShareLeftOut(); !shared) return shared;
  if (Status shared = ShareKnownCells(); !shared) return shared;
  LeaveOut();
  Plan();
  // Before plans are made: those that need registered memory are refused where there is none.
  if (Status made = MakeSymmetricRegion(); !made) return made;
  parts_.observer.OnStage(Stage::kPrecompile);
  if (Status ready = Precompile(); !ready) {
    // The thread whose call is stuck still uses them.
    parts_.watchdog->Keep(std::make_shared<std::vector<Cell>>(std::move(cells_)));
    return ready;
  }
  parts_.observer.OnStage(Stage::kWarm);
  if (Status warm = Warm(); !warm) return warm;
  parts_.observer.OnStage(Stage::kPreSync);
  const Result<bool> met = PreSync();
  if (!met) return tl::make_unexpected(met.error());
  if (!*met) return {};
  if (Status checked = CheckChoices(); !checked) return checked;
  if (Status measured = Benchmark(); !measured) return measured;
  return AgreeAndSelect();
}

void Scheduler::Pass::ListChoices() {
  for (size_t i = first_; i < nodes_.size(); ++i) {
    for (uint64_t hint : nodes_[i]->size_hints_bytes()) nodes_[i]->ListChoices(parts_.groups, hint);
  }
}

Status Scheduler::Pass::ShareKnownCells() {
  const int64_t deadline_ns = parts_.clock.now_ns() + settings_.warm_timeout_ns;
  std::string bytes;
  std::vector<std::pair<MultiTemplate*, uint64_t>> all;
  for (size_t i = first_; i < nodes_.size(); ++i) {
    for (uint64_t hint : nodes_[i]->size_hints_bytes()) all.emplace_back(nodes_[i].get(), hint);
  }
  if (parts_.exchange.rank() == 0) {
    std::vector<std::optional<CellResult>> found;
    for (const auto& [node, hint] : all) found.push_back(FindKnown(*node, hint));
    bytes = EncodeKnownCells(found);
  }
  const Result<std::string> shared = BroadcastInParts(parts_.exchange, bytes, deadline_ns);
  if (!shared) return tl::make_unexpected(shared.error());
  Result<std::vector<std::optional<CellResult>>> cells = DecodeKnownCells(*shared);
  if (!cells) return tl::make_unexpected(cells.error());
  // All learn of it, and go no further.
  Status as_many;
  if (cells->size() != all.size()) {
    as_many = Fail(ErrorCode::kUsage,
                   fmt::format("rank {} tunes {} cells, this one {}", parts_.exchange.job_rank(0),
                               cells->size(), all.size()));
  }
  const Result<ExchangedRecords> counted = ExchangeRecords(
      parts_.exchange, "known cells", StepRecord::FromStatus(as_many), 0, deadline_ns);
  if (!counted) return tl::make_unexpected(counted.error());
  if (const std::optional<Error> failure = counted->FirstFailure()) {
    return Fail(ErrorCode::kDisagreement, failure->what, "known cells",
                "the ranks were given different collectives, types or sizes",
                "start every rank with the same arguments", failure->ranks);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (!(*cells)[i]) {
      cells_.push_back(Cell{all[i].first, all[i].second, {}});
      continue;
    }
    all[i].first->SetTimings(all[i].second, std::move(*(*cells)[i]));
    known_.push_back(all[i]);
  }
  outcome_.known_cells += static_cast<int32_t>(known_.size());
  cells_total_ = static_cast<int32_t>(cells_.size());
  return {};
}

std::optional<CellResult> Scheduler::Pass::FindKnown(const MultiTemplate& node,
                                                     uint64_t hint_bytes) const {
  if (parts_.known == nullptr) return std::nullopt;
  std::optional<CellResult> cell =
      parts_.known->Find(node.ProblemAt(hint_bytes), node.dispatch_digest());
  if (!cell) return std::nullopt;
  const Result<Winner> winner = SelectWinner(*cell, SelectionRules{settings_.noise_percent});
  const std::string problem_class = ToText(node.program().anchor());
  const bool is_left_out =
      winner && std::any_of(left_out_.begin(), left_out_.end(), [&](const LeftOutChoice& each) {
        return each.problem_class == problem_class && each.choice == winner->id.text();
      });
  // Making it ready for the table may end this tune too.
  return is_left_out ? std::nullopt : std::move(cell);
}

Status Scheduler::Pass::ShareLeftOut() {
  const bool is_writer = parts_.exchange.rank() == 0 && parts_.known != nullptr;
  const std::string own = is_writer ? EncodeLeftOut(parts_.known->Begin()) : "";
  const Result<std::string> shared =
      BroadcastInParts(parts_.exchange, own, parts_.clock.now_ns() + settings_.warm_timeout_ns);
  if (!shared) return tl::make_unexpected(shared.error());
  Result<std::vector<LeftOutChoice>> left_out = DecodeLeftOut(*shared);
  if (!left_out) return tl::make_unexpected(left_out.error());
  left_out_ = std::move(*left_out);
  return {};
}

void Scheduler::Pass::LeaveOut() {
  for (Cell& cell : cells_) cell.node->LeaveOut(parts_.groups, cell.hint_bytes, left_out_);
  if (parts_.exchange.rank() != 0) return;
  for (const LeftOutChoice& each : left_out_) {
    const bool is_here = std::any_of(cells_.begin(), cells_.end(), [&](const Cell& cell) {
      return ToText(cell.node->program().anchor()) == each.problem_class;
    });
    if (!is_here) continue;
    Warn(fmt::format("{} is left out for {}: {}", each.choice, each.problem_class, each.reason));
  }
}

void Scheduler::Pass::Plan() {
  TunePlan plan;
  plan.nodes = static_cast<int32_t>(nodes_.size() - first_);
  plan.known_cells = static_cast<int32_t>(known_.size());
  plan.cells = cells_total_ + plan.known_cells;
  uint64_t least_bytes = 0;  // of buffers
  for (const Cell& cell : cells_) {
    const ChoiceList& list = cell.node->ListChoices(parts_.groups, cell.hint_bytes);
    uint64_t workspace_bytes = 0;
    const Problem problem = cell.node->ProblemAt(cell.hint_bytes);
    const int32_t copies = OperandBuffers::WantedCopies(problem, parts_.device.cache_bytes());
    for (const Choice& choice : list.choices) {
      plan.estimated_ns += EstimateChoiceNs(choice, copies, parts_.device.kind(), settings_);
      workspace_bytes += choice.workspace_bytes;
    }
    plan.choices_to_measure += static_cast<int64_t>(list.choices.size());
    plan.refusals += static_cast<int64_t>(list.refusals.size());
    plan.workspace_bytes_per_rank = std::max(plan.workspace_bytes_per_rank, workspace_bytes);
    uint64_t staging_bytes = 0;
    if (parts_.device.kind() == MemoryKind::kHost) {
      staging_bytes = OperandBuffers::StagingBytes(problem);
    }
    plan.buffer_bytes_per_rank =
        std::max(plan.buffer_bytes_per_rank,
                 OperandBuffers::AllocatedBytes(problem, copies) + staging_bytes);
    // Where memory is short, there are fewer copies.
    least_bytes = std::max(least_bytes, OperandBuffers::AllocatedBytes(problem) + staging_bytes);
  }
  if (settings_.budget_ns > 0) {
    plan.estimated_ns =
        std::min(plan.estimated_ns, std::max<int64_t>(0, settings_.budget_ns - measured_ns_));
  }
  parts_.observer.OnPlan(plan);
  memory_ = CheckMemory(least_bytes + plan.workspace_bytes_per_rank);
}

Status Scheduler::Pass::CheckMemory(uint64_t bytes_per_rank) const {
  const std::optional<uint64_t> available = parts_.device.AvailableBytes();
  const bool is_shared = parts_.device.kind() == MemoryKind::kHost;
  const auto sharers = static_cast<uint64_t>(is_shared ? parts_.exchange.world_size() : 1);
  if (!available || bytes_per_rank <= *available / sharers) return {};
  constexpr double kMebibyte = 1 << 20;
  return Fail(ErrorCode::kEnvironment,
              fmt::format("the largest size needs {:.0f} MiB on {}, and {:.0f} MiB are free",
                          static_cast<double>(bytes_per_rank) / kMebibyte,
                          is_shared ? fmt::format("each of {} ranks", sharers) : "the GPU",
                          static_cast<double>(*available) / kMebibyte),
              "", "",
              is_shared ? "tune smaller sizes, or start fewer ranks"
                        : "tune smaller sizes, or see `nvidia-smi`");
}

Status Scheduler::Pass::Precompile() {
  std::vector<ChoiceCaller*> callers;
  for (Cell& cell : cells_) {
    const Problem problem = cell.node->ProblemAt(cell.hint_bytes);
    for (const Choice& choice : cell.node->ListChoices(parts_.groups, cell.hint_bytes).choices) {
      BackendMember* member = parts_.groups.Find(choice.id.backend());
      if (member == nullptr) continue;
      cell.callers.push_back(
          std::make_unique<ChoiceCaller>(cell.node->program(), problem, choice, *member));
      callers.push_back(cell.callers.back().get());
    }
  }
  return PrecompileAll(callers, settings_.precompile_threads,
                       parts_.clock.now_ns() + settings_.warm_timeout_ns,
                       {parts_.exchange.rank(), parts_.exchange.world_size()}, parts_.watchdog,
                       parts_.prepare_notes);
}

// A long wait with heartbeats: compiling takes from nothing to minutes, and differs from rank to
// rank. Only behind it does the short window of the pre-sync make sense.
Status Scheduler::Pass::Warm() {
  StepRecord record = StepRecord::FromStatus(memory_);
  record.items = {UsableProcessors()};
  const Result<ExchangedRecords> all = ExchangeRecords(
      parts_.exchange, "warm", record, 0, parts_.clock.now_ns() + settings_.warm_timeout_ns);
  if (!all) return tl::make_unexpected(all.error());
  if (std::optional<Error> failure = all->FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  std::vector<std::string> processors;
  for (const StepRecord& rank : all->records) {
    if (!rank.items.empty()) processors.push_back(rank.items.front());
  }
  const bool core_for_each_rank = CountDistinctProcessors(processors) >= all->records.size();
  start_mode_ = core_for_each_rank ? StartMode::kWindow : StartMode::kBarrier;
  if (parts_.device.aligns_ranks()) start_mode_ = StartMode::kDevice;
  begin_ns_ = coordinator_now_ns_ = all->coordinator_now_ns;
  return {};
}

Result<bool> Scheduler::Pass::PreSync() {
  AgreedFields fields = agreed_;
  const std::string settings = settings_.AgreedText();
  for (size_t begin = 0; begin < settings.size();) {
    const size_t end = settings.find('\n', begin);
    const size_t equals = settings.find('=', begin);
    fields.emplace_back("setting " + settings.substr(begin, equals - begin),
                        settings.substr(equals + 1, end - equals - 1));
    begin = end + 1;
  }
  // In words as far as there is room, so that a difference can be read; the digest covers the rest.
  constexpr size_t kNodesInWords = 64;
  std::string nodes;
  for (size_t i = first_; i < nodes_.size(); ++i) {
    const std::vector<uint64_t>& hints = nodes_[i]->size_hints_bytes();
    if (i - first_ < kNodesInWords) {
      fields.emplace_back(
          fmt::format("problem {}", i - first_ + 1),
          fmt::format("{}, {} from {} to {} bytes", ToText(nodes_[i]->program().anchor()),
                      hints.size() == 1 ? "1 size" : fmt::format("{} sizes", hints.size()),
                      hints.front(), hints.back()));
    }
    nodes += nodes_[i]->program().ToText();
    for (uint64_t hint : nodes_[i]->size_hints_bytes()) nodes += fmt::format("{} ", hint);
  }
  fields.emplace_back("programs", Sha256Hex(nodes).substr(0, 16));
  const int64_t window_ns = settings_.collective_pre_sync_timeout_ns;
  const int64_t deadline_ns =
      parts_.clock.now_ns() + std::max(window_ns * 2, settings_.collective_autotune_timeout_ns);
  const Result<PreSyncResult> result = parts_.exchange.PreSync(fields, window_ns, deadline_ns);
  if (!result) return tl::make_unexpected(result.error());
  ++outcome_.pre_syncs;
  outcome_.pre_sync_ns += result->waited_ns;
  if (result->met) return true;
  outcome_.committed = false;
  outcome_.late_ranks = result->late_ranks;
  if (parts_.exchange.rank() == 0) {
    Warn(fmt::format(
        "rank {} missed the pre-sync window of {} ms: every rank uses the default table; "
        "raise collective_pre_sync_timeout if that rank is only slow",
        fmt::join(result->late_ranks, ", "), window_ns / 1'000'000));
  }
  return false;
}

Status Scheduler::Pass::CheckChoices() {
  const int64_t deadline_ns = parts_.clock.now_ns() + settings_.warm_timeout_ns;
  std::vector<CellToCheck> cells;
  for (const Cell& cell : cells_) {
    cells.push_back({&cell.node->program(), cell.node->ProblemAt(cell.hint_bytes)});
  }
  std::vector<CellToCheck> known;
  std::vector<ChoiceId> winners;
  std::vector<std::pair<MultiTemplate*, uint64_t>> places;
  for (const auto& [node, hint] : known_) {
    const Result<Winner> winner =
        SelectWinner(node->cells().at(hint), SelectionRules{settings_.noise_percent});
    if (!winner) continue;
    known.push_back({&node->program(), node->ProblemAt(hint)});
    winners.push_back(winner->id);
    places.emplace_back(node, hint);
  }
  cells.insert(cells.end(), known.begin(), known.end());
  if (Status same = CompareChoiceLists(parts_.exchange, parts_.groups, cells, deadline_ns); !same) {
    return same;
  }
  // Those that are measured are run on every rank, which is more than making them ready.
  if (known.empty()) return {};
  const Result<std::vector<RefusedWinner>> refused =
      CheckWinners(parts_.exchange, parts_.groups, known, winners, settings_.precompile_threads,
                   deadline_ns, parts_.watchdog, parts_.prepare_notes);
  if (!refused) return tl::make_unexpected(refused.error());
  for (const RefusedWinner& each : *refused) {
    unusable_.insert(places[each.cell]);
    if (parts_.exchange.rank() != 0) continue;
    Warn(
        fmt::format("{}, which won {} in the database, is not in the table: {}; measure it again "
                    "with force",
                    winners[each.cell].text(), ToText(known[each.cell].problem), each.reason));
  }
  return {};
}

Status Scheduler::Pass::MakeSymmetricRegion() {
  uint64_t bytes = 0;
  for (const Cell& cell : cells_) {
    const Problem problem = cell.node->ProblemAt(cell.hint_bytes);
    if (problem.cls.buffer_class != BufferClass::kSymmetric) continue;
    const int32_t copies = OperandBuffers::WantedCopies(problem, parts_.device.cache_bytes());
    bytes = std::max(bytes, OperandBuffers::RegionBytes(problem, copies));
  }
  if (bytes == 0) return {};
  auto region = SymmetricRegion::Create(parts_.device, parts_.groups, bytes,
                                        parts_.clock.now_ns() + settings_.warm_timeout_ns);
  if (!region) return tl::make_unexpected(region.error());
  symmetric_ = std::move(*region);
  return {};
}

Status Scheduler::Pass::Benchmark() {
  for (size_t i = first_; i < nodes_.size(); ++i) {
    MultiTemplate& node = *nodes_[i];
    node.set_time_cell(
        [this](MultiTemplate& asked, uint64_t hint) { return TimeCell(asked, hint); });
    for (uint64_t hint : node.size_hints_bytes()) {
      if (node.has_timings(hint)) continue;
      // Decided by the coordinator's clock, so alike on all ranks.
      if (settings_.budget_ns > 0 && BudgetLeftNs() <= 0) {
        ++outcome_.skipped_cells;
        continue;
      }
      const Result<const CellResult*> timed = node.choice_timings(hint);
      if (!timed) return tl::make_unexpected(timed.error());
    }
    node.set_time_cell(nullptr);
  }
  measured_ns_ += coordinator_now_ns_ - begin_ns_;
  return {};
}

Result<CellResult> Scheduler::Pass::TimeCell(MultiTemplate& node, uint64_t hint_bytes) {
  const auto cell = std::find_if(cells_.begin(), cells_.end(), [&](const Cell& each) {
    return each.node == &node && each.hint_bytes == hint_bytes;
  });
  const Problem problem = node.ProblemAt(hint_bytes);
  parts_.observer.OnCellStart(cells_done_, cells_total_, problem);
  // What is left is shared evenly by the cells that are left.
  int64_t budget_ns = 0;
  if (settings_.budget_ns > 0) {
    budget_ns = std::max<int64_t>(1, BudgetLeftNs() / (cells_total_ - cells_done_));
  }
  const BenchmarkParts parts{
      .exchange = parts_.exchange,
      .groups = parts_.groups,
      .device = parts_.device,
      .clock = parts_.clock,
      .observer = parts_.observer,
      .watchdog = watchdog(),
      .settings = settings_,
      .start_mode = start_mode_,
      .symmetric = symmetric_.get(),
      .reset_callers =
          [this](BackendMember& member) {
            for (Cell& each : cells_) {
              for (auto& caller : each.callers) {
                if (&caller->member() == &member) caller->Reset();
              }
            }
          },
      .note_attempt =
          [this](const Problem& each, const ChoiceId* choice) {
            const bool is_writer = parts_.exchange.rank() == 0 && parts_.known != nullptr;
            if (is_writer) parts_.known->NoteAttempt(each, choice);
          },
  };
  CellBenchmark benchmark(parts, cell->callers, fmt::format("cell {}", cells_done_), budget_ns);
  Result<CellResult> result = benchmark.Run(problem);
  if (!result) return result;
  coordinator_now_ns_ = benchmark.coordinator_now_ns();
  start_mode_ = result->start_mode;  // a window that failed once is not tried again
  cell->callers.clear();
  result->program_digest = node.dispatch_digest();
  result->refusals = node.ListChoices(parts_.groups, hint_bytes).refusals;
  ++outcome_.measured_cells;
  if (const Result<Winner> winner =
          SelectWinner(*result, SelectionRules{settings_.noise_percent})) {
    if (parts_.exchange.rank() == 0 && parts_.known != nullptr) {
      // Losing the journal costs a repeated measurement later, never this tune.
      if (Status recorded = parts_.known->Record(*result, *winner); !recorded) {
        Warn(recorded.error().ToText());
      }
    }
    parts_.observer.OnCellDone(cells_done_, cells_total_, *result, *winner);
  } else {
    Warn(winner.error().ToText());
  }
  ++cells_done_;
  return result;
}

Status Scheduler::Pass::AgreeAndSelect() {
  MeasuredWinners winners = winners_;
  for (size_t i = first_; i < nodes_.size(); ++i) {
    MultiTemplate& node = *nodes_[i];
    if (node.cells().empty()) continue;  // the budget was used up before its first cell
    const Result<MeasuredWinners::BySize> by_size =
        node.Finalize(SelectionRules{settings_.noise_percent});
    if (!by_size) {
      Warn(by_size.error().ToText());
      continue;
    }
    // The same collective twice in one graph: the later node has measured a common size last.
    const DispatchKey key = DispatchKey::Of(node.program().anchor(), node.dispatch_digest());
    for (const auto& [bytes, winner] : *by_size) {
      if (!unusable_.contains({&node, bytes})) winners.Put(key, bytes, winner);
    }
  }
  Result<DispatchTable> table = winners.BuildTable();
  if (!table) return tl::make_unexpected(table.error());
  parts_.observer.OnStage(Stage::kAgree);
  const std::string own = table->Serialize();
  const auto accept = [&](std::string_view proposal) {
    parts_.observer.OnStage(Stage::kVote);
    return proposal == own;
  };
  const Result<AgreementOutcome> agreed =
      parts_.exchange.Agree(parts_.exchange.rank() == 0 ? own : "", accept,
                            parts_.clock.now_ns() + settings_.collective_autotune_timeout_ns);
  if (!agreed) return tl::make_unexpected(agreed.error());
  if (*agreed == AgreementOutcome::kDeclined) {
    outcome_.committed = false;
    if (parts_.exchange.rank() == 0) {
      Warn("a rank declined the tuned table: every rank keeps the table that it had");
    }
    return {};
  }
  winners_ = std::move(winners);
  outcome_.table = std::move(*table);
  outcome_.winners = winners_;
  outcome_.committed = true;
  parts_.observer.OnStage(Stage::kCommitted);
  return {};
}

Scheduler::Scheduler(Parts parts, TuningSettings settings, AgreedFields agreed,
                     MeasuredWinners base)
    : parts_(parts),
      settings_(std::move(settings)),
      agreed_(std::move(agreed)),
      winners_(std::move(base)) {
  outcome_.backend_refusals = parts_.groups.refusals();
}

Scheduler::~Scheduler() = default;

const std::vector<std::unique_ptr<MultiTemplate>>& Scheduler::nodes() const { return nodes_; }

Status Scheduler::AddNode(Program program, std::vector<uint64_t> size_hints_bytes,
                          uint64_t topology_digest) {
  const ProblemClass& cls = program.anchor();
  if (cls.world_size != parts_.exchange.world_size()) {
    return Fail(ErrorCode::kUsage,
                fmt::format("a program for {} ranks cannot be tuned by a group of {}",
                            cls.world_size, parts_.exchange.world_size()),
                ToText(cls));
  }
  if (size_hints_bytes.empty()) size_hints_bytes = settings_.collective_multi_kernel_hints_bytes;
  if (size_hints_bytes.empty()) {
    return Fail(ErrorCode::kUsage, "there is no size to tune", ToText(cls), "",
                "give sizes, or set collective_multi_kernel_hints");
  }
  nodes_.push_back(std::make_unique<MultiTemplate>(std::move(program), std::move(size_hints_bytes),
                                                   topology_digest));
  if (settings_.enable_collective_multitemplate) return {};
  return ResolveNew();
}

Status Scheduler::ResolveNew() {
  if (resolved_nodes_ == nodes_.size()) return {};
  const size_t first = resolved_nodes_;
  resolved_nodes_ = nodes_.size();
  Status resolved = Pass(*this, first).Run();
  if (!resolved && parts_.watchdog != nullptr && parts_.watchdog->stuck() != nullptr) {
    // The thread whose call is stuck still uses their programs.
    parts_.watchdog->Keep(
        std::make_shared<std::vector<std::unique_ptr<MultiTemplate>>>(std::move(nodes_)));
  }
  return resolved;
}

Result<TuneOutcome> Scheduler::Resolve() {
  if (Status resolved = ResolveNew(); !resolved) return tl::make_unexpected(resolved.error());
  return outcome_;
}

}  // namespace cotune
