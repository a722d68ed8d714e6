#include "plugins/ucx/group.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

#include "plugins/ucx/tag.h"

namespace cotune::ucx {
namespace {

constexpr int64_t kMillisecondNs = 1'000'000;
// How long the calls of all ranks are waited for when some are known to differ: who is in the
// minority shows only then.
constexpr int64_t kComparingNs = 300 * kMillisecondNs;
// How long a rank that has gone is given to say why itself.
constexpr int64_t kHearingNs = 20 * kMillisecondNs;
// The time after which a waiting rank looks again whether the awaited ones live.
constexpr int64_t kLookNs = 20 * kMillisecondNs;
// How long nothing has happened when a rank that died may have taken the way of others' messages
// with it: it ended while it wrote into memory that this rank reads messages from.
constexpr int64_t kBlockedNs = 500 * kMillisecondNs;
// How long a wait lasts before the rank says what it waits for.
constexpr int64_t kFirstStateNs = 5 * kMillisecondNs;
constexpr int64_t kLongestStateNs = 500 * kMillisecondNs;
// How long before its deadline a waiting rank begins to ask who waits for whom.
constexpr int64_t kLongestInquiryNs = 1000 * kMillisecondNs;
// A rank that has not looked for so long was not waiting.
constexpr int64_t kAwayNs = 100 * kMillisecondNs;
// The time that an abort waits for the worker, which another thread may use.
constexpr int64_t kAbortNs = 50 * kMillisecondNs;

constexpr uint64_t Bit(int rank) { return uint64_t{1} << rank; }

}  // namespace

Group::Group(const cotune_host_t& host, const cotune_group_params_t& params,
             std::shared_ptr<const Context> context)
    : host_(host),
      meeting_(host_, params, "ucx"),
      context_(std::move(context)),
      rank_(params.rank),
      world_size_(params.world_size),
      job_ranks_(params.job_ranks, params.job_ranks + params.world_size),
      peers_(static_cast<size_t>(params.world_size)) {}

bool Group::BeginCall(const sdk::CallRecord& call, const RunningCall* running) {
  if (running_ != nullptr) return false;
  running_ = running;
  gone_since_ns_ = 0;
  differs_since_ns_ = 0;
  if (call.count == 0) {
    const uint32_t words[] = {calls_without_elements_, call.digest};
    calls_without_elements_ = static_cast<uint32_t>(XXH64(words, sizeof(words), 0));
    return true;
  }
  ++call_number_;
  NumberedCall& own = calls_[call_number_ % kCallsKept];
  own = {call_number_, call};
  own.record.digest ^= calls_without_elements_;
  const uint64_t words[] = {digest_, call_number_, own.record.kind, own.record.count,
                            own.record.digest};
  call_tag_ = TagOf({.call = call_number_, .digest = XXH64(words, sizeof(words), 0)});
  return true;
}

void Group::NoteWaiting(const Wait& wait) {
  if (HasFailed() || running_ == nullptr) return;
  const int64_t now_ns = wait.now_ns;
  const int64_t span_ns = std::max<int64_t>(wait.deadline_ns - wait.begin_ns, 0);
  const int64_t away_ns = now_ns - std::max(last_note_ns_, wait.begin_ns);
  last_note_ns_ = now_ns;
  // A rank that was stopped, or did not poll, hears the others before it judges them.
  if (away_ns > kAwayNs) HearAll();
  if (HasFailed()) return;
  if (now_ns >= wait.deadline_ns && away_ns > std::max(span_ns / 2, kAwayNs)) {
    // It was late itself, and those who could say so are gone.
    return Declare({.kind = GroupFailure::Kind::kLate, .culprit = rank_, .late = Bit(rank_)});
  }
  const Worker::FailedRequest& failed = worker_->failed_request();
  const bool has_failed_request = failed.status != UCS_OK;
  uint64_t awaited = running_->Awaited() & ~Bit(rank_);
  if (has_failed_request) awaited |= Bit(failed.peer);
  if (now_ns - last_look_ns_ >= kLookNs || gone_since_ns_ != 0 || differs_since_ns_ != 0 ||
      has_failed_request) {
    last_look_ns_ = now_ns;
    LookForOtherCalls(now_ns);
    if (!HasFailed() && differs_since_ns_ == 0) LookForGoneRanks(awaited, wait);
    if (HasFailed()) return;
  }
  // A rank that is gone is named as that within kHearingNs.
  if (has_failed_request && gone_since_ns_ != 0) return;
  if (now_ns >= wait.deadline_ns) return DeclareLate(awaited, wait);
  const int64_t inquiry_ns = std::min(span_ns / 4, kLongestInquiryNs);
  const bool inquires = now_ns >= wait.deadline_ns - inquiry_ns;
  const bool is_new = state_call_ != call_number_ && wait.idle_ns >= kFirstStateNs;
  const int64_t interval_ns =
      inquires ? inquiry_ns / 8 : std::clamp(span_ns / 16, 4 * kFirstStateNs, kLongestStateNs);
  const bool is_due = wait.idle_ns >= kFirstStateNs && now_ns - last_state_ns_ >= interval_ns;
  if (!is_new && !is_due && !(inquires && now_ns - last_state_ns_ >= interval_ns)) return;
  last_state_ns_ = now_ns;
  state_call_ = call_number_;
  SendToAll(StateMessage(inquires ? ControlMessage::Kind::kInquiry : ControlMessage::Kind::kState));
}

uint64_t Group::UnsentPeers() const {
  uint64_t unsent = 0;
  for (const Request& request : control_sends_->all()) {
    if (request.is_open()) unsent |= Bit(request.peer());
  }
  return unsent;
}

uint64_t Group::LeftPeers() const {
  uint64_t left = 0;
  for (int r = 0; r < world_size_; ++r) {
    if (peers_[static_cast<size_t>(r)].has_left) left |= Bit(r);
  }
  return left;
}

uint64_t Group::LostPeers() const {
  uint64_t lost = 0;
  for (int r = 0; r < world_size_; ++r) {
    if (r != rank_ && worker_->PeerStatus(r) != UCS_OK) lost |= Bit(r);
  }
  return lost;
}

void Group::AbandonWorker() {
  worker_->Abandon();
  WarnOfAbandonedWorker();
}

void Group::HearAll() {
  constexpr int kQuietPolls = 64;
  constexpr int kPolls = 10'000;
  int quiet = 0;
  for (int i = 0; i < kPolls && quiet < kQuietPolls; ++i) quiet = Poll() ? 0 : quiet + 1;
}

bool Group::IsProcessGone(int peer) const {
  const PeerState& state = peers_[static_cast<size_t>(peer)];
  return state.shares_processes && !sdk::IsAlive(state.process);
}

uint64_t Group::StoppedRanks() const {
  uint64_t stopped = 0;
  for (int r = 0; r < world_size_; ++r) {
    const PeerState& state = peers_[static_cast<size_t>(r)];
    const bool may_be = state.shares_processes && !state.has_left;
    if (may_be && sdk::IsStopped(state.process)) stopped |= Bit(r);
  }
  return stopped;
}

void Group::LookForGoneRanks(uint64_t awaited, const Wait& wait) {
  const int64_t now_ns = wait.now_ns;
  if (wait.idle_ns >= kBlockedNs) {
    for (int r = 0; r < world_size_; ++r) {
      const PeerState& state = peers_[static_cast<size_t>(r)];
      if (state.shares_memory && !state.has_left && IsProcessGone(r)) awaited |= Bit(r);
    }
  }
  const Worker::FailedRequest& failed = worker_->failed_request();
  int gone = -1;
  auto kind = GroupFailure::Kind::kLost;
  for (uint64_t rest = awaited; rest != 0 && gone < 0; rest &= rest - 1) {
    const int peer = std::countr_zero(rest);
    const bool is_lost =
        worker_->PeerStatus(peer) != UCS_OK || (failed.status != UCS_OK && failed.peer == peer);
    if (peers_[static_cast<size_t>(peer)].has_left) {
      kind = GroupFailure::Kind::kLeft;
    } else if (IsProcessGone(peer)) {
      kind = GroupFailure::Kind::kDied;
    } else if (!is_lost) {
      continue;
    }
    gone = peer;
  }
  if (gone < 0) {
    gone_since_ns_ = 0;
    return;
  }
  // What it sent before may still be on its way, and so may its own word of why.
  if (gone_since_ns_ == 0) gone_since_ns_ = now_ns;
  if (now_ns - gone_since_ns_ < kHearingNs) return;
  // This rank may have had no turn on a processor since it looked first.
  HearAll();
  if (HasFailed() || AdoptFromStore()) return;
  if (peers_[static_cast<size_t>(gone)].has_left) kind = GroupFailure::Kind::kLeft;
  const ucs_status_t status = failed.status != UCS_OK ? failed.status : worker_->PeerStatus(gone);
  Declare({.kind = kind, .culprit = gone, .native_code = status});
}

void Group::LookForOtherCalls(int64_t now_ns) {
  std::array<const sdk::CallRecord*, kRanksMax> known{};
  // The earliest difference is the mistake; what comes after follows from it.
  for (size_t back = kCallsKept; back > 0; --back) {
    if (call_number_ < back) continue;
    const uint64_t number = call_number_ - (back - 1);
    const NumberedCall& own = calls_[number % kCallsKept];
    for (int r = 0; r < world_size_; ++r) {
      const NumberedCall& call =
          r == rank_ ? own : peers_[static_cast<size_t>(r)].calls[number % kCallsKept];
      known[static_cast<size_t>(r)] = call.number == number ? &call.record : nullptr;
    }
    const CallComparison compared =
        CompareCalls({known.data(), static_cast<size_t>(world_size_)}, rank_);
    if (!compared.differs) continue;
    if (differs_since_ns_ == 0) differs_since_ns_ = now_ns;
    if (!compared.is_complete && now_ns - differs_since_ns_ < kComparingNs) return;
    Declare({.kind = GroupFailure::Kind::kOtherCall,
             .culprit = compared.culprit,
             .reporter = compared.reporter,
             .culprits_call = {number, *known[static_cast<size_t>(compared.culprit)]},
             .reporters_call = {number, *known[static_cast<size_t>(compared.reporter)]}});
    return;
  }
}

void Group::DeclareLate(uint64_t awaited, const Wait& wait) {
  if (wait.now_ns - last_verdict_look_ns_ < kLookNs) return;
  last_verdict_look_ns_ = wait.now_ns;
  const int64_t span_ns = std::max<int64_t>(wait.deadline_ns - wait.begin_ns, 0);
  const int64_t fresh_ns = std::min(span_ns / 4, kLongestInquiryNs) / 2;
  HearAll();
  if (HasFailed() || AdoptFromStore()) return;
  std::array<RankView, kRanksMax> views;
  for (size_t r = 0; r < peers_.size(); ++r) {
    views[r].is_silent = peers_[r].heard_ns < wait.deadline_ns - fresh_ns;
    views[r].awaited = peers_[r].awaited;
  }
  views[static_cast<size_t>(rank_)].is_silent = false;
  const uint64_t silent_ranks = SilentRanks({views.data(), peers_.size()});
  // On busy processors ranks answer late, and this one may be cut off itself. Those who hear more
  // of the group know better who is late, and judge first. A rank that waits for nobody judges
  // last: it may be between two messages, of which the first was late.
  const int others = std::max(world_size_ - 1, 1);
  const int unheard = awaited == 0 ? others : std::popcount(silent_ranks);
  if (wait.now_ns < wait.deadline_ns + fresh_ns * unheard / others) return;
  const uint64_t late = RanksAtFault({views.data(), peers_.size()}, rank_, awaited, StoppedRanks());
  if (late != 0) {
    Declare({.kind = GroupFailure::Kind::kLate, .culprit = std::countr_zero(late), .late = late});
    return;
  }
  // They wait for each other: a rank has left out a call, or a message is lost.
  const int other = std::countr_zero(awaited);
  const LatestCalls& calls = peers_[static_cast<size_t>(other)].calls;
  const auto latest = std::max_element(
      calls.begin(), calls.end(),
      [](const NumberedCall& a, const NumberedCall& b) { return a.number < b.number; });
  Declare({.kind = GroupFailure::Kind::kStuck,
           .culprit = other,
           .culprits_call = *latest,
           .reporters_call = OwnCall()});
}

void Group::DeclareAbort() {
  if (!is_abort_asked_.exchange(false)) return;
  const GroupFailure own_abort = {
      .kind = GroupFailure::Kind::kAborted, .culprit = rank_, .reporter = rank_};
  // The thread that aborts has adopted it already if it did not get the worker in time.
  Adopt(own_abort);
  {
    const std::lock_guard lock(failure_mutex_);
    const bool is_own_abort = failure_->kind == own_abort.kind && failure_->culprit == rank_;
    if (!is_own_abort || is_abort_announced_) return;
  }
  is_abort_announced_ = true;
  Announce(own_abort);
}

void Group::Declare(GroupFailure failure) {
  if (failure.kind != GroupFailure::Kind::kOtherCall) failure.reporter = rank_;
  // Only an abort on another thread can be first; this thread announces it at its next poll.
  if (Adopt(failure)) Announce(failure);
}

void Group::Announce(const GroupFailure& failure) {
  ControlMessage message = StateMessage(ControlMessage::Kind::kFailure);
  message.failure = failure;
  SendToAll(message);
  FlushControl(kHearingNs);
  // For a rank that is stopped, which has no room for messages, and finds the others gone.
  meeting_.GiveUp(FailureOf(failure));
}

bool Group::AdoptFromStore() {
  auto failure = meeting_.WhoGaveUp();
  if (!failure) return false;
  {
    const std::lock_guard lock(failure_mutex_);
    failure_in_store_ = std::move(failure);
  }
  Adopt({.kind = GroupFailure::Kind::kInStore});
  return true;
}

bool Group::Adopt(const GroupFailure& failure) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) return false;
  failure_ = failure;
  has_failed_.store(true, std::memory_order_release);
  return true;
}

void Group::Abort() {
  is_abort_asked_.store(true);
  // The thread that runs a call announces the abort; if none runs, this one does.
  const int64_t end_ns = NowNs() + kAbortNs;
  std::unique_lock lock(worker_mutex_, std::try_to_lock);
  while (!lock.owns_lock() && !HasFailed() && NowNs() < end_ns) {
    std::this_thread::yield();
    lock.try_lock();
  }
  if (lock.owns_lock()) return DeclareAbort();
  // Health has to report the abort when this function returns. The thread that uses the worker, or
  // the next one that does, finds is_abort_asked_ set and announces the abort.
  Adopt({.kind = GroupFailure::Kind::kAborted, .culprit = rank_, .reporter = rank_});
}

std::optional<Failure> Group::Health() const {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) return std::nullopt;
  return FailureOf(*failure_);
}

Failure Group::FailureOf(const GroupFailure& failure) const {
  using Kind = GroupFailure::Kind;
  const int culprit = failure.culprit;
  const std::string name = NameOf(culprit);
  // A rank that was late itself is also the reporter; its name twice would read like two ranks.
  const bool is_seen_by_other = failure.reporter != rank_ && failure.reporter != culprit;
  const std::string seen = is_seen_by_other ? ", seen by " + NameOf(failure.reporter) : "";
  const auto peer_failed = [&](std::string text, int native_code = 0) {
    return Failure{COTUNE_PEER_FAILED, native_code, culprit, std::move(text)};
  };
  switch (failure.kind) {
    case Kind::kAborted:
      return {COTUNE_ABORTED, 0, -1, fmt::format("{} aborted the group", name)};
    case Kind::kDied:
      return peer_failed(fmt::format("{} died{}; see its output", name, seen));
    case Kind::kLost:
      return peer_failed(
          fmt::format("the connection to {} is lost: {}{}; has it died, or the network?", name,
                      context_->ucx().StatusText(static_cast<ucs_status_t>(failure.native_code)),
                      seen),
          failure.native_code);
    case Kind::kLeft:
      return peer_failed(
          fmt::format("{} destroyed its group while others waited for it{}", name, seen));
    case Kind::kOtherCall:
    case Kind::kStuck:
      return peer_failed(WhyCallsDiffer(failure));
    case Kind::kInStore:
      return *failure_in_store_;
    case Kind::kLate:
      break;
  }
  std::string others;
  for (uint64_t rest = failure.late & ~Bit(culprit); rest != 0; rest &= rest - 1) {
    const int r = std::countr_zero(rest);
    if (r >= world_size_) break;
    others += fmt::format("{}{}", others.empty() ? "; also late: job ranks " : ", ",
                          job_ranks_[static_cast<size_t>(r)]);
  }
  return peer_failed(fmt::format("{} did not come before the deadline{}{}", name, seen, others));
}

std::string Group::WhyCallsDiffer(const GroupFailure& failure) const {
  const NumberedCall& one = failure.culprits_call;
  const NumberedCall& other = failure.reporters_call;
  const std::string name = NameOf(failure.culprit);
  const std::string reporter = NameOf(failure.reporter);
  const std::string text = sdk::TextOf(one.record.kind, one.record.count);
  const std::string other_text = sdk::TextOf(other.record.kind, other.record.count);
  if (one.number != other.number) {
    return fmt::format(
        "{} is in its call {}, {}, and {} in its call {}, {}; has one left out a "
        "call?",
        name, one.number, text, reporter, other.number, other_text);
  }
  if (failure.kind == GroupFailure::Kind::kStuck) {
    return fmt::format(
        "{} and {} wait for each other in their call {}, {}, at the deadline; is a "
        "message lost?",
        name, reporter, one.number, text);
  }
  if (text == other_text) {
    return fmt::format(
        "{} runs {} by another choice than {}, or after other calls with no "
        "elements; were they tuned in one job?",
        name, text, reporter);
  }
  return fmt::format(
      "{} called {} where {} called {}; all ranks of a group make the same calls in "
      "the same order",
      name, text, reporter, other_text);
}

}  // namespace cotune::ucx
