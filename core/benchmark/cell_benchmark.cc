#include "core/benchmark/cell_benchmark.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "core/benchmark/sample_size.h"
#include "core/selection/selection.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

constexpr int64_t kWindowMinNs = 500'000;
constexpr int64_t kWindowMaxNs = 5'000'000;
constexpr int32_t kInvalidMax =
    16;  // samples of a cell that start late before it gives the window up
constexpr int32_t kWarmRepetitionsMax = 16;
constexpr int32_t kFewRepetitions = 16;
constexpr size_t kSamplesToForgetMax = 3;
// Of samples that no host disturbs: graphs behind a barrier of the devices. On 2 H200 the best of
// two in a row was at most 2.3 % over the median of all, of three 1.4 %, of four 0.4 % (428
// choices).
constexpr EarlyCut kCutsOnDevices[] = {{2, 1.25}, {3, 1.1}, {5, 1.05}};
constexpr size_t kReasonBytesMax = 200;   // of each choice in the record of prepared plans
constexpr size_t kReasonsBytesMax = 600;  // of all ranks in a verdict

Outcome OutcomeOf(ErrorCode code) {
  // A peer that does not come although it lives is a launch that does not end.
  return code == ErrorCode::kDeadline || code == ErrorCode::kRankLost ? Outcome::kDeadline
                                                                      : Outcome::kLaunchFailed;
}

int64_t LongestCall(const ExchangedRecords& all) {
  int64_t longest_ns = 1;
  for (const StepRecord& record : all.records) {
    longest_ns = std::max(longest_ns, record.end_ns - record.start_ns);
  }
  return longest_ns;
}

Verdict EmptyVerdict(const Choice& choice) {
  return Verdict{choice.id, Outcome::kTimed, choice.is_default, "", 0, {}, {}, 0, 0, 0, 0};
}

// Of a decimal number that another rank sent; 1 when it is none.
int32_t CopiesOf(const StepRecord& record) {
  int32_t copies = 1;
  if (record.items.empty()) return copies;
  const std::string& text = record.items[0];
  std::from_chars(text.data(), text.data() + text.size(), copies);
  return std::max(copies, 1);
}

// Why item `i` failed, by rank; a reason that several ranks give is said once. "": it did not fail.
std::string ReasonsOf(size_t i, const ExchangedRecords& all) {
  const std::vector<StepRecord>& records = all.records;
  std::string text;
  std::set<std::string_view> said;
  for (const StepRecord& record : records) {
    const std::string& reason = record.items[i];
    if (reason.empty() || !said.insert(reason).second) continue;
    std::vector<int> ranks;
    for (size_t rank = 0; rank < records.size(); ++rank) {
      if (records[rank].items[i] == reason) ranks.push_back(all.job_ranks[rank]);
    }
    if (text.size() >= kReasonsBytesMax) return text + "; and others";
    text += fmt::format("{}rank{} {}: {}", text.empty() ? "" : "; ", ranks.size() == 1 ? "" : "s",
                        fmt::join(ranks, ", "), reason);
  }
  return text;
}

uint64_t SumWrong(const ExchangedRecords& all) {
  uint64_t wrong = 0;
  for (const StepRecord& record : all.records) wrong += record.wrong_elements;
  return wrong;
}

}  // namespace

CellBenchmark::CellBenchmark(const BenchmarkParts& parts,
                             std::span<const std::unique_ptr<ChoiceCaller>> callers,
                             std::string label, int64_t budget_ns)
    : parts_(parts), label_(std::move(label)), budget_ns_(budget_ns), window_ns_(kWindowMinNs) {
  for (const std::unique_ptr<ChoiceCaller>& caller : callers) {
    const ChoiceId& id = caller->id();
    entrants_.push_back(Entrant{
        caller.get(), EmptyVerdict(caller->choice()),
        CallSubject::OfChoice(std::string(id.backend()), "of backend " + std::string(id.backend()),
                              id, caller->problem()),
        true, 0, 0, nullptr, 0});
  }
}

Result<CellResult> CellBenchmark::Run(const Problem& problem) {
  problem_ = problem;
  CellResult result;
  result.problem = problem;
  result.start_mode = parts_.start_mode;
  if (Status done = AllocateBuffers(); !done) return tl::make_unexpected(done.error());
  result.buffer_copies = buffers_->copies();
  if (Status done = DropUnprepared(); !done) return tl::make_unexpected(done.error());
  for (Entrant& entrant : entrants_) {
    if (!entrant.in) continue;
    NoteAttempt(&entrant);
    if (Status done = Check(entrant, CheckBy::kCall); !done)
      return tl::make_unexpected(done.error());
    if (!entrant.in) continue;
    if (Status done = SetRepetitions(entrant); !done) return tl::make_unexpected(done.error());
  }
  NoteAttempt(nullptr);
  if (Status done = RunRace(result); !done) return tl::make_unexpected(done.error());
  if (Status done = NoteClocks(result); !done) return tl::make_unexpected(done.error());
  if (Status done = RecheckWinner(result); !done) return tl::make_unexpected(done.error());
  return result;
}

LaunchArguments CellBenchmark::Arguments() const {
  LaunchArguments arguments;
  arguments.send = buffers_->send();
  arguments.recv = buffers_->recv();
  arguments.stream = parts_.device.stream();
  arguments.deadline_ns = parts_.clock.now_ns() + parts_.settings.collective_autotune_timeout_ns;
  return arguments;
}

std::vector<LaunchArguments> CellBenchmark::TimedArguments(const LaunchArguments& arguments) const {
  std::vector<LaunchArguments> timed;
  for (int32_t copy = 0; copy < buffers_->copies(); ++copy) {
    timed.push_back(arguments);
    timed.back().send = buffers_->send(copy);
    timed.back().recv = buffers_->recv(copy);
  }
  return timed;
}

Result<ExchangedRecords> CellBenchmark::Exchange(std::string_view step, const StepRecord& record,
                                                 int64_t start_delay_ns) {
  // A peer may be inside a launch until its deadline and a little longer, until it is aborted.
  const int64_t deadline_ns =
      parts_.clock.now_ns() + parts_.settings.collective_autotune_timeout_ns * 3 / 2;
  Result<ExchangedRecords> all =
      ExchangeRecords(parts_.exchange, fmt::format("{} {} {}", label_, step_count_++, step), record,
                      parts_.start_mode == StartMode::kWindow ? start_delay_ns : 0, deadline_ns);
  if (all) coordinator_now_ns_ = all->coordinator_now_ns;
  return all;
}

Status CellBenchmark::AllocateBuffers() {
  const bool is_symmetric = problem_.cls.buffer_class == BufferClass::kSymmetric;
  auto buffers = OperandBuffers::Allocate(parts_.device, problem_, parts_.exchange.rank(),
                                          is_symmetric ? parts_.symmetric : nullptr);
  StepRecord record;
  if (buffers) {
    const int32_t wanted = OperandBuffers::WantedCopies(problem_, parts_.device.cache_bytes());
    record.items.push_back(std::to_string((*buffers)->AffordableCopies(wanted)));
    clocks_before_ = parts_.device.ReadClocks();
    if (clocks_before_) record.items.emplace_back("clocks");
  } else {
    record = StepRecord::FromStatus(tl::make_unexpected(buffers.error()));
  }
  record.number = parts_.observer.StopRequested() ? 1 : 0;
  const Result<ExchangedRecords> all = Exchange("buffers", record, 0);
  if (!all) return tl::make_unexpected(all.error());
  for (const StepRecord& other : all->records) {
    if (other.number != 0) {
      return Fail(ErrorCode::kInterrupted, "the tune was interrupted");
    }
  }
  if (std::optional<Error> failure = all->FirstFailure()) return tl::make_unexpected(*failure);
  buffers_ = std::move(*buffers);
  // As many on every rank, so that all read from memory or none does.
  int32_t copies = CopiesOf(record);
  for (const StepRecord& other : all->records) {
    copies = std::min(copies, CopiesOf(other));
    some_know_clocks_ = some_know_clocks_ || other.items.size() > 1;
  }
  copies_added_ = buffers_->AddCopies(copies);
  return {};
}

Status CellBenchmark::DropUnprepared() {
  StepRecord record = StepRecord::FromStatus(copies_added_);
  const int64_t deadline_ns =
      parts_.clock.now_ns() + parts_.settings.collective_autotune_timeout_ns;
  for (Entrant& entrant : entrants_) {
    // Plans that are made alone were made, and noted, before.
    const bool is_collective = entrant.caller->choice().prepare_is_collective;
    if (is_collective) NoteAttempt(&entrant);
    const Status prepared = entrant.caller->Precompile(deadline_ns);
    if (is_collective) NoteAttempt(nullptr);
    record.items.push_back(prepared ? "" : prepared.error().ToText().substr(0, kReasonBytesMax));
  }
  const Result<ExchangedRecords> all = Exchange("prepared", record, 0);
  if (!all) return tl::make_unexpected(all.error());
  if (std::optional<Error> failure = all->FirstFailure()) return tl::make_unexpected(*failure);
  for (const StepRecord& other : all->records) {
    if (other.items.size() != entrants_.size()) {
      return Fail(ErrorCode::kInternal, "ranks race different numbers of choices", label_);
    }
  }
  for (size_t i = 0; i < entrants_.size(); ++i) {
    std::string reason = ReasonsOf(i, *all);
    if (reason.empty()) continue;
    entrants_[i].in = false;
    entrants_[i].verdict.outcome = Outcome::kPrecompileFailed;
    entrants_[i].verdict.reason = std::move(reason);
  }
  return {};
}

StepRecord CellBenchmark::CheckOnThisRank(Entrant& entrant, CheckBy by, uint32_t salt) {
  // Timed calls: one on each copy.
  const int32_t copies = by == CheckBy::kCall ? 1 : buffers_->copies();
  if (Status filled = buffers_->Fill(salt, copies); !filled) return StepRecord::FromStatus(filled);
  StepRecord record = by == CheckBy::kCall ? CallOnce(entrant) : Measure(entrant, copies, 0);
  if (record.error) return record;
  const Result<OperandCheck> check = buffers_->Check(salt, copies);
  if (!check) return StepRecord::FromStatus(tl::make_unexpected(check.error()));
  record.wrong_elements = check->wrong_elements;
  if (check->wrong_elements > 0) record.message = "wrong values";
  if (check->wrote_outside) record.message = "wrote outside of its buffer";
  if (check->changed_send) record.message = "changed the send buffer";
  if (check->wrote_outside || check->changed_send) ++record.wrong_elements;
  return record;
}

Status CellBenchmark::Check(Entrant& entrant, CheckBy by) {
  parts_.observer.OnStage(Stage::kCheck);
  const uint32_t salt = checks_++;
  const StepRecord record = CheckOnThisRank(entrant, by, salt);
  const Result<ExchangedRecords> all = Exchange("check " + entrant.caller->id().text(), record, 0);
  if (!all) return tl::make_unexpected(all.error());
  if (const std::optional<Error> failure = all->FirstFailure()) {
    return DropFailed(entrant, *all, *failure);
  }
  entrant.check_ns = LongestCall(*all);
  entrant.verdict.wrong_elements = SumWrong(*all);
  if (entrant.verdict.wrong_elements == 0) return {};
  std::string reason = fmt::format("{} wrong elements", entrant.verdict.wrong_elements);
  for (size_t rank = 0; rank < all->records.size(); ++rank) {
    const StepRecord& other = all->records[rank];
    if (other.wrong_elements == 0) continue;
    reason += fmt::format("; rank {}: {}", all->job_ranks[rank], other.message);
  }
  return Drop(entrant, Outcome::kWrongResult, reason);
}

int32_t CellBenchmark::CallsOf(int64_t call_ns) const {
  return CallsOfSample(parts_.settings.SampleNs(problem_.cls.memory), call_ns, buffers_->copies(),
                       problem_.cls.memory);
}

Status CellBenchmark::SetRepetitions(Entrant& entrant) {
  const int64_t sample_ns = parts_.settings.SampleNs(problem_.cls.memory);
  entrant.verdict.repetitions = CallsOf(entrant.check_ns);
  if (entrant.check_ns >= sample_ns * kWarmRepetitionsMax) return {};
  const auto warm = static_cast<int32_t>(
      std::clamp<int64_t>(sample_ns / entrant.check_ns, 1, kWarmRepetitionsMax));
  const Result<ExchangedRecords> all = Exchange("warm", Measure(entrant, warm, 0), 0);
  if (!all) return tl::make_unexpected(all.error());
  if (const std::optional<Error> failure = all->FirstFailure()) {
    return DropFailed(entrant, *all, *failure);
  }
  const int64_t call_ns = std::max<int64_t>(1, LongestCall(*all) / warm);
  entrant.call_ns = call_ns;
  entrant.verdict.repetitions = CallsOf(call_ns);
  return {};
}

bool CellBenchmark::GiveMoreRepetitions(Entrant& entrant, int64_t time_ns) const {
  int32_t& repetitions = entrant.verdict.repetitions;
  const int64_t believed_ns = entrant.call_ns > 0 ? entrant.call_ns : entrant.check_ns;
  const int32_t wanted = CallsOf(time_ns);
  // Far more than noise: a little less time can make twice the calls of one.
  const bool was_far_off = time_ns * 3 <= believed_ns * 2;
  if (!was_far_off || repetitions >= kFewRepetitions || wanted < 2 * repetitions) return false;
  repetitions = wanted;
  entrant.call_ns = time_ns;
  entrant.verdict.skews_ns.clear();
  return true;
}

void CellBenchmark::MeasureAnewWhatHadTooFewCalls(const std::vector<size_t>& order,
                                                  std::vector<int64_t>& times_ns, Race& race) {
  for (size_t turn = 0; turn < order.size(); ++turn) {
    const size_t index = order[turn];
    // Later on it has been measured well enough.
    const bool is_early = race.samples_ns(index).size() < kSamplesToForgetMax;
    if (!is_early || times_ns[turn] == 0) continue;
    if (!GiveMoreRepetitions(entrants_[index], times_ns[turn])) continue;
    race.Forget(index);
    times_ns[turn] = 0;
  }
}

StepRecord CellBenchmark::RunGuarded(
    Entrant& entrant, const std::function<Result<TimedSpan>(const LaunchArguments&)>& calls) {
  BackendMember& member = entrant.caller->member();
  const LaunchArguments arguments = Arguments();
  // A fresh plan when the group was made anew; otherwise it is there already.
  if (Status prepared = entrant.caller->Precompile(arguments.deadline_ns); !prepared) {
    if (member.group != nullptr) member.group->Abort();
    return StepRecord::FromStatus(prepared);
  }
  parts_.watchdog.Watch(*member.group, entrant.subject, arguments.deadline_ns);
  Result<TimedSpan> span = calls(arguments);
  parts_.watchdog.Unwatch();
  // A kernel that gave up has ended like one that is done; and who was late is known there only.
  if (problem_.cls.memory == MemoryKind::kCuda) {
    if (Status health = member.group->Health(); !health) {
      span = tl::make_unexpected(health.error());
    }
  }
  if (!span) {
    // Frees the peers, which would wait for this rank until their deadline.
    member.group->Abort();
    if (parts_.observer.StopRequested()) span.error().code = ErrorCode::kInterrupted;
    return StepRecord::FromStatus(tl::make_unexpected(span.error()));
  }
  StepRecord record;
  record.start_ns = span->start_ns;
  record.end_ns = span->end_ns;
  return record;
}

StepRecord CellBenchmark::CallOnce(Entrant& entrant) {
  return RunGuarded(entrant, [&](const LaunchArguments& arguments) {
    return entrant.caller->RunOnce(parts_.device, arguments);
  });
}

StepRecord CellBenchmark::Measure(Entrant& entrant, int32_t repetitions, int64_t start_ns) {
  // All ranks have the release of the last step in common.
  if (parts_.device.aligns_ranks()) start_ns = coordinator_now_ns_;
  return RunGuarded(entrant, [&](const LaunchArguments& arguments) -> Result<TimedSpan> {
    if (entrant.timed == nullptr || entrant.timed_repetitions != repetitions) {
      entrant.timed.reset();
      auto timed =
          entrant.caller->PrepareTimed(parts_.device, TimedArguments(arguments), repetitions);
      if (!timed) return tl::make_unexpected(timed.error());
      entrant.timed = std::move(*timed);
      entrant.timed_repetitions = repetitions;
    }
    return entrant.timed->Run(start_ns, arguments.deadline_ns);
  });
}

void CellBenchmark::NoteAttempt(const Entrant* entrant) {
  if (parts_.note_attempt == nullptr) return;
  parts_.note_attempt(problem_, entrant == nullptr ? nullptr : &entrant->caller->id());
}

Status CellBenchmark::DropFailed(Entrant& entrant, const ExchangedRecords& all,
                                 const Error& failure) {
  // An interrupted call says nothing about the choice: another tune measures this cell.
  const bool was_interrupted =
      std::any_of(all.records.begin(), all.records.end(),
                  [](const StepRecord& record) { return record.error == ErrorCode::kInterrupted; });
  if (was_interrupted) {
    NoteAttempt(nullptr);
    return Fail(ErrorCode::kInterrupted, "the tune was interrupted");
  }
  return Drop(entrant, OutcomeOf(failure.code), failure.what);
}

Status CellBenchmark::Drop(Entrant& entrant, Outcome outcome, const std::string& reason) {
  entrant.in = false;
  entrant.verdict.outcome = outcome;
  entrant.verdict.reason = reason;
  if (outcome == Outcome::kWrongResult) return {};
  BackendMember& member = entrant.caller->member();
  for (Entrant& other : entrants_) {
    if (&other.caller->member() == &member) other.timed.reset();
  }
  parts_.reset_callers(member);
  return parts_.groups.Recreate(
      member, parts_.clock.now_ns() + parts_.settings.collective_autotune_timeout_ns);
}

Result<int64_t> CellBenchmark::TakeSample(Entrant& entrant, const ExchangedRecords& all,
                                          int64_t planned_start_ns, CellResult& result) {
  if (const std::optional<Error> failure = all.FirstFailure()) {
    if (Status dropped = DropFailed(entrant, all, *failure); !dropped) {
      return tl::make_unexpected(dropped.error());
    }
    return 0;
  }
  const auto by_start = [](const StepRecord& a, const StepRecord& b) {
    return a.start_ns < b.start_ns;
  };
  const auto by_end = [](const StepRecord& a, const StepRecord& b) { return a.end_ns < b.end_ns; };
  const auto [first, last] = std::minmax_element(all.records.begin(), all.records.end(), by_start);
  const int64_t end_ns = std::max_element(all.records.begin(), all.records.end(), by_end)->end_ns;
  const int64_t span_ns = end_ns - first->start_ns;
  const int64_t late_ns = last->start_ns - planned_start_ns;
  if (planned_start_ns > 0 && late_ns > std::max<int64_t>(2000, span_ns / 20)) {
    ++result.invalid_rounds;
    window_ns_ = std::min(window_ns_ * 2, kWindowMaxNs);
    // The cores are busy with something else: line up behind the barrier only, and record the skew.
    if (result.invalid_rounds >= kInvalidMax)
      result.start_mode = parts_.start_mode = StartMode::kBarrier;
    return 0;
  }
  entrant.verdict.skews_ns.push_back(last->start_ns - first->start_ns);
  return std::max<int64_t>(1, span_ns / entrant.verdict.repetitions);
}

int64_t CellBenchmark::StartDelayNs(const Entrant& entrant) const {
  // Several calls begin with one that is not timed, in front of the start, and may find all cold.
  const bool has_untimed_call = entrant.verdict.repetitions > 1;
  return window_ns_ + (has_untimed_call ? 2 * entrant.call_ns : 0);
}

Result<std::vector<int64_t>> CellBenchmark::MeasureRound(const std::vector<size_t>& order,
                                                         CellResult& result) {
  std::vector<int64_t> times_ns(order.size(), 0);
  StepRecord record;
  int64_t planned_start_ns = 0;
  // Each step carries the sample before it, so that a round of n choices takes n + 1 steps.
  for (size_t turn = 0; turn <= order.size(); ++turn) {
    const bool is_last = turn == order.size();
    const int64_t start_delay_ns = is_last ? 0 : StartDelayNs(entrants_[order[turn]]);
    Result<ExchangedRecords> all = Exchange(
        is_last ? "round end" : entrants_[order[turn]].caller->id().text(), record, start_delay_ns);
    if (!all) return tl::make_unexpected(all.error());
    if (turn > 0 && entrants_[order[turn - 1]].in) {
      Entrant& before = entrants_[order[turn - 1]];
      const Result<int64_t> time_ns = TakeSample(before, *all, planned_start_ns, result);
      if (!time_ns) return tl::make_unexpected(time_ns.error());
      times_ns[turn - 1] = *time_ns;
      if (!before.in && !is_last) {
        // Making the group anew took time: line up once more.
        all = Exchange("again", StepRecord{}, start_delay_ns);
        if (!all) return tl::make_unexpected(all.error());
      }
    }
    record = StepRecord{};
    if (is_last || !entrants_[order[turn]].in) continue;
    planned_start_ns = all->start_ns;
    Entrant& entrant = entrants_[order[turn]];
    record = Measure(entrant, entrant.verdict.repetitions, planned_start_ns);
  }
  return times_ns;
}

Status CellBenchmark::RunRace(CellResult& result) {
  size_t default_index = SIZE_MAX;
  for (size_t i = 0; i < entrants_.size(); ++i) {
    if (entrants_[i].verdict.is_default && entrants_[i].in) default_index = i;
  }
  const TuningSettings& settings = parts_.settings;
  RaceRules rules{settings.min_rounds, settings.collective_benchmark_nruns, settings.noise_percent};
  if (parts_.device.aligns_ranks())
    rules.cuts.assign(std::begin(kCutsOnDevices), std::end(kCutsOnDevices));
  Race race(entrants_.size(), default_index, rules);
  for (size_t i = 0; i < entrants_.size(); ++i) {
    if (!entrants_[i].in) race.Disqualify(i);
  }
  const int64_t begin_ns = coordinator_now_ns_;
  for (std::vector<size_t> order = race.NextRound(); !order.empty(); order = race.NextRound()) {
    parts_.observer.OnStage(Stage::kBenchmark);
    Result<std::vector<int64_t>> times_ns = MeasureRound(order, result);
    if (!times_ns) return tl::make_unexpected(times_ns.error());
    const bool is_spent = budget_ns_ > 0 && coordinator_now_ns_ - begin_ns >= budget_ns_;
    // Only where there are rounds enough to come.
    if (!is_spent && race.rounds() + settings.min_rounds < settings.collective_benchmark_nruns) {
      MeasureAnewWhatHadTooFewCalls(order, *times_ns, race);
    }
    // First, so that nobody is dropped for the times of one that failed.
    for (size_t i : order) {
      if (!entrants_[i].in) race.Disqualify(i);
    }
    race.AddRound(order, *times_ns);
    // A cell that is begun is measured well enough to be believed; cells after it are left out.
    if (is_spent && race.rounds() >= settings.min_rounds) race.Stop();
  }
  for (size_t i = 0; i < entrants_.size(); ++i) {
    Verdict& verdict = entrants_[i].verdict;
    verdict.samples_ns = race.samples_ns(i);
    if (race.outpaced(i)) verdict.outcome = Outcome::kOutpaced;
    if (!verdict.samples_ns.empty() && entrants_[i].in) {
      const MedianInterval interval = MedianWithInterval(verdict.samples_ns);
      verdict.median_ns = interval.median_ns;
      verdict.interval_low_ns = interval.low_ns;
      verdict.interval_high_ns = interval.high_ns;
    }
    result.verdicts.push_back(verdict);
  }
  return {};
}

Status CellBenchmark::NoteClocks(CellResult& result) {
  if (!some_know_clocks_) return {};
  StepRecord record;
  const std::optional<DeviceClocks> after = parts_.device.ReadClocks();
  if (after) record.number = after->sm_mhz;
  const auto add = [&record](const DeviceClocks& clocks) {
    record.items.insert(record.items.end(), clocks.throttle_reasons.begin(),
                        clocks.throttle_reasons.end());
  };
  if (clocks_before_) add(*clocks_before_);
  if (after) add(*after);
  const Result<ExchangedRecords> all = Exchange("clocks", record, 0);
  if (!all) return tl::make_unexpected(all.error());
  if (std::optional<Error> failure = all->FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  std::set<std::string> reasons;
  for (const StepRecord& other : all->records) {
    const auto mhz = static_cast<int32_t>(other.number);
    const bool is_first = result.sm_clock_mhz == 0;
    if (mhz > 0) result.sm_clock_mhz = is_first ? mhz : std::min(result.sm_clock_mhz, mhz);
    reasons.insert(other.items.begin(), other.items.end());
  }
  result.throttle_reasons = fmt::format("{}", fmt::join(reasons, ","));
  return {};
}

// Timed runs reuse buffers without looking at them: the winner has to be right once more after
// them.
Status CellBenchmark::RecheckWinner(CellResult& result) {
  while (true) {
    const Result<Winner> winner =
        SelectWinner(result, SelectionRules{parts_.settings.noise_percent});
    if (!winner) return {};
    const auto at = std::find_if(result.verdicts.begin(), result.verdicts.end(),
                                 [&](const Verdict& verdict) { return verdict.id == winner->id; });
    Entrant& entrant = entrants_[at - result.verdicts.begin()];
    if (Status checked = Check(entrant, CheckBy::kTimedCalls); !checked) return checked;
    if (entrant.in) return {};
    at->outcome = entrant.verdict.outcome;
    at->reason = "after its timed runs: " + entrant.verdict.reason;
    at->wrong_elements = entrant.verdict.wrong_elements;
    at->median_ns = 0;
  }
}

}  // namespace cotune
