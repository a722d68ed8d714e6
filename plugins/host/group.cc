#include "plugins/host/group.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "plugins/host/late_ranks.h"

namespace cotune::host {
namespace {

using Kind = PublishedWait::Kind;

// How long a waiter sleeps at most before it looks at deadline, failure and its peers.
constexpr int64_t kSliceNs = 20'000'000;
// How long a waiter polls before it sleeps: longer than it takes to wake an idle processor (some 50
// us on virtual machines), and than a rank needs for a chunk as a rule. Where waking takes longer,
// ranks that wait for each other in turns would sleep in every call, each just before the other is
// awake. So a sleep that did not last makes the next polling longer.
constexpr int64_t kPollNs = 300'000;
constexpr int64_t kLongestPollNs = 3'000'000;

// Polls between two offers of the processor to others: with one for each rank (ranks may have come
// to share one all the same), and with fewer.
constexpr int kPollsPerYield = 64;
constexpr int kPollsPerYieldCrowded = 4;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Group::Group(const cotune_host_t& host, const cotune_group_params_t& params, uint64_t slot_bytes)
    : host_(host),
      meeting_(host_, params, "host"),
      name_(params.name),
      rank_(params.rank),
      world_size_(params.world_size),
      slot_bytes_(slot_bytes),
      job_ranks_(params.job_ranks, params.job_ranks + params.world_size),
      poll_ns_(kPollNs) {
  seen_.fill(ProgressNumber(kFirstIteration, 0));
}

Group::~Group() {
  // A group that never came to be has no segment; there is nobody to tell.
  if (segment_.IsMapped()) Own().membership.store(static_cast<uint32_t>(Membership::kLeft));
}

std::string Group::NameOf(int rank) const {
  return fmt::format("job rank {} (rank {} of group '{}')", job_ranks_[static_cast<size_t>(rank)],
                     rank, name_);
}

void Group::LookAtAll() {
  for (int r = 0; r < world_size_; ++r) {
    seen_[static_cast<size_t>(r)] = segment_.control().ranks[r].progress.Load();
  }
}

bool Group::BeginOperation(const sdk::CallRecord& call) {
  if (operation_in_flight_) return false;
  operation_in_flight_ = true;
  if (call.count == 0) {
    calls_without_elements_ = std::rotl(calls_without_elements_, 5) ^ call.digest;
    return true;
  }
  call_ = call;
  call_.digest ^= calls_without_elements_;
  ++calls_;
  is_call_published_ = world_size_ == 1;
  return true;
}

void Group::EndOperation() {
  operation_in_flight_ = false;
  if (!is_call_published_) PublishCall();
  if (is_waiting_published_) Own().waiting.store(0, std::memory_order_release);
  is_waiting_published_ = false;
}

uint32_t Group::Arrive() {
  if (!is_call_published_) PublishCall();
  ++arrivals_;
  Own().arrivals.store(arrivals_, std::memory_order_release);
  segment_.control().arrivals.AddOne(arrivals_ * static_cast<uint32_t>(world_size_));
  return arrivals_;
}

bool Group::AllReached(uint32_t target) {
  for (int r = 0; r < world_size_; ++r) {
    uint32_t& seen = seen_[static_cast<size_t>(r)];
    if (HasReached(seen, target)) continue;
    seen = segment_.control().ranks[r].progress.Load();
    if (!HasReached(seen, target)) return false;
  }
  return true;
}

bool Group::IsOver(const PublishedWait& wait) {
  switch (wait.kind) {
    case Kind::kNone:
      return true;
    case Kind::kOneRank: {
      uint32_t& seen = seen_[wait.rank];
      if (!HasReached(seen, wait.target))
        seen = segment_.control().ranks[wait.rank].progress.Load();
      return HasReached(seen, wait.target);
    }
    case Kind::kAllRanks:
      return AllReached(wait.target);
    case Kind::kArrivals:
      return HasReached(segment_.control().arrivals.Load(),
                        wait.target * static_cast<uint32_t>(world_size_));
  }
  return true;
}

bool Group::SharesProcessorWithAwaited(const PublishedWait& wait) const {
  const int32_t own = sched_getcpu() + 1;
  const auto shares = [&](int rank) {
    return rank != rank_ &&
           segment_.control().ranks[rank].processor.load(std::memory_order_relaxed) == own;
  };
  if (wait.kind == Kind::kOneRank) return shares(wait.rank);
  for (int r = 0; r < world_size_; ++r) {
    const bool awaited =
        wait.kind == Kind::kArrivals || !HasReached(seen_[static_cast<size_t>(r)], wait.target);
    if (awaited && shares(r)) return true;
  }
  return false;
}

bool Group::Poll(const PublishedWait& wait, int64_t until_ns) {
  const int polls = has_processor_each_ ? kPollsPerYield : kPollsPerYieldCrowded;
  int64_t end_ns = 0;
  do {
    for (int i = 0; i < polls; ++i) {
      Pause();
      if (IsOver(wait)) return true;
    }
    // A rank that waits here for one on the same processor, with another one idle, sleeps: waking
    // up it is given the idle one, and meanwhile the other can run. Yielding promises neither.
    if (has_processor_each_ && SharesProcessorWithAwaited(wait)) return false;
    sched_yield();
    if (IsOver(wait)) return true;
    const int64_t now_ns = NowNs();
    if (end_ns == 0) end_ns = until_ns - now_ns < poll_ns_ ? until_ns : now_ns + poll_ns_;
    if (now_ns >= end_ns) return false;
  } while (true);
}

WaitOutcome Group::Wait(const PublishedWait& wait, int64_t until_ns, int64_t deadline_ns) {
  if (IsOver(wait)) return WaitOutcome::kReached;
  if (HasFailed()) return WaitOutcome::kFailed;
  if (until_ns > 0 && Poll(wait, until_ns)) return WaitOutcome::kReached;
  Own().waiting.store(Pack(wait), std::memory_order_release);
  is_waiting_published_ = true;
  const int64_t begin_ns = NowNs();
  const WaitOutcome outcome = SleepUntilOver(wait, until_ns, deadline_ns);
  if (outcome != WaitOutcome::kReached) return outcome;
  Own().waiting.store(0, std::memory_order_release);
  is_waiting_published_ = false;
  const bool was_short = NowNs() - begin_ns < kLongestPollNs;
  poll_ns_ = was_short ? std::min(2 * poll_ns_, kLongestPollNs) : kPollNs;
  return outcome;
}

WaitOutcome Group::SleepUntilOver(const PublishedWait& wait, int64_t until_ns,
                                  int64_t deadline_ns) {
  while (true) {
    if (IsOver(wait)) return WaitOutcome::kReached;
    // A rank whose call does not fit may never make the signal that this one waits for.
    if (world_size_ > 1 && operation_in_flight_) CompareCallsNow();
    if (HasFailed()) return WaitOutcome::kFailed;
    const int64_t now_ns = NowNs();
    if (now_ns >= deadline_ns) {
      const auto states = ReadStates();
      const std::span view(states.data(), static_cast<size_t>(world_size_));
      const uint64_t late = LateRanks(view, rank_);
      CheckAlive(late, wait);
      if (late != 0) DeclareLate(late);
      continue;
    }
    if (now_ns - last_alive_check_ns_ >= kSliceNs) {
      last_alive_check_ns_ = now_ns;
      const auto states = ReadStates();
      CheckAlive(AwaitedRanks({states.data(), static_cast<size_t>(world_size_)}, wait), wait);
      continue;
    }
    if (now_ns >= until_ns) return WaitOutcome::kNotYet;
    Sleep(wait, std::min({kSliceNs, until_ns - now_ns, deadline_ns - now_ns}));
  }
}

void Group::Sleep(const PublishedWait& wait, int64_t slice_ns) {
  ControlBlock& control = segment_.control();
  switch (wait.kind) {
    case Kind::kNone:
      return;
    case Kind::kOneRank:
      control.ranks[wait.rank].progress.SleepUnlessReached(wait.target, slice_ns, wake_fence_);
      return;
    case Kind::kAllRanks:
      for (int r = 0; r < world_size_; ++r) {
        if (HasReached(seen_[static_cast<size_t>(r)], wait.target)) continue;
        control.ranks[r].progress.SleepUnlessReached(wait.target, slice_ns, wake_fence_);
        return;
      }
      return;
    case Kind::kArrivals:
      control.arrivals.SleepUnlessReached(wait.target * static_cast<uint32_t>(world_size_),
                                          slice_ns);
      return;
  }
}

std::array<RankState, kMaxRanks> Group::ReadStates() const {
  std::array<RankState, kMaxRanks> states;
  for (size_t r = 0; r < static_cast<size_t>(world_size_); ++r) {
    const RankWords& words = segment_.control().ranks[r];
    // The wait first: its target may then look reached, which blames nobody wrongly but that rank,
    // and that one is running.
    states[r].wait = UnpackWait(words.waiting.load(std::memory_order_acquire));
    states[r].progress = words.progress.Load();
    states[r].arrivals = words.arrivals.load(std::memory_order_acquire);
  }
  return states;
}

void Group::CheckAlive(uint64_t ranks, const PublishedWait& wait) {
  for (uint64_t rest = ranks; rest != 0; rest &= rest - 1) {
    const int r = std::countr_zero(rest);
    if (r == rank_) continue;
    const RankWords& words = segment_.control().ranks[r];
    const auto membership = static_cast<Membership>(words.membership.load());
    if (membership == Membership::kAbsent) continue;
    GroupFailure failure{.culprit = static_cast<uint8_t>(r),
                         .reporter = static_cast<uint8_t>(rank_)};
    if (membership == Membership::kLeft) {
      failure.kind = GroupFailure::Kind::kLeft;
    } else if (!sdk::IsAlive({words.pid.load(), words.start_ticks.load()})) {
      failure.kind = GroupFailure::Kind::kDied;
    } else {
      continue;
    }
    // It may have done its part before it went; what it wrote last is visible now.
    if (IsOver(wait)) return;
    const auto states = ReadStates();
    const std::span view(states.data(), static_cast<size_t>(world_size_));
    const uint64_t blamed = AwaitedRanks(view, wait) | LateRanks(view, rank_);
    if (((blamed >> r) & 1) == 0) continue;
    Declare(failure);
    return;
  }
}

void Group::PublishCall() {
  const uint32_t slot = calls_ % kCallsKept;
  Own().processor.store(sched_getcpu() + 1, std::memory_order_relaxed);
  Own().call_kinds[slot].store(call_.kind, std::memory_order_relaxed);
  Own().call_counts[slot].store(call_.count, std::memory_order_relaxed);
  Own().calls[slot].store(PackCall(calls_, call_.digest), std::memory_order_release);
  is_call_published_ = true;
}

bool Group::CompareCallsNow() {
  PublishCall();
  // Sequentially consistent, as the loads of the others' calls.
  Own().calls[calls_ % kCallsKept].store(PackCall(calls_, call_.digest));
  // The earliest difference is the mistake; what comes after follows from it.
  for (uint32_t back = kCallsKept; back > 0; --back) {
    if (!CompareCalls(calls_ - (back - 1))) return false;
  }
  return true;
}

bool Group::CompareCalls(uint32_t number) {
  const uint32_t slot = number % kCallsKept;
  const uint64_t own = Own().calls[slot].load();
  if ((own >> 32) != number) return true;
  int equal = 1;
  int differing = 0;
  int culprit = -1;
  const auto count = [&] {
    equal = 1;
    differing = 0;
    for (int r = 0; r < world_size_; ++r) {
      const uint64_t other = segment_.control().ranks[r].calls[slot].load();
      if (r == rank_ || (other >> 32) != number) continue;
      ++(other == own ? equal : differing);
      if (other != own) culprit = r;
    }
  };
  count();
  if (culprit < 0) return true;
  // Those that are in the minority are at fault; of two alone, the higher rank. The others may be
  // about to come.
  const int64_t end_ns = NowNs() + kSliceNs;
  while (equal == differing && equal + differing < world_size_ && NowNs() < end_ns) {
    sched_yield();
    count();
  }
  int reporter = rank_;
  if (equal < differing || (equal == differing && rank_ > culprit)) std::swap(reporter, culprit);
  Declare({GroupFailure::Kind::kOtherCall, static_cast<uint8_t>(culprit),
           static_cast<uint8_t>(reporter), static_cast<uint8_t>(slot)});
  return false;
}

bool Group::CallsFit(const PublishedWait& wait) {
  const uint32_t slot = calls_ % kCallsKept;
  const uint64_t own = PackCall(calls_, call_.digest);
  // One that is not so far has signalled another call, as has one that is so far ahead that its
  // record of this call is gone.
  const auto fits = [&](int rank) {
    return rank == rank_ ||
           segment_.control().ranks[rank].calls[slot].load(std::memory_order_acquire) == own;
  };
  if (wait.kind == Kind::kOneRank) {
    if (fits(wait.rank)) return true;
    DeclareOtherCall(wait.rank);
    return false;
  }
  for (int r = 0; r < world_size_; ++r) {
    if (fits(r)) continue;
    DeclareOtherCall(r);
    return false;
  }
  return true;
}

void Group::DeclareOtherCall(int rank) {
  if (!CompareCallsNow()) return;
  Declare({GroupFailure::Kind::kOtherCall, static_cast<uint8_t>(rank), static_cast<uint8_t>(rank_),
           static_cast<uint8_t>(calls_ % kCallsKept)});
}

std::string Group::WhyCallsDiffer(const GroupFailure& failure) const {
  const uint32_t slot = failure.call % kCallsKept;
  const auto words = [&](int rank) -> const RankWords& { return segment_.control().ranks[rank]; };
  const auto number = [&](int rank, uint32_t at) {
    return static_cast<uint32_t>(words(rank).calls[at].load() >> 32);
  };
  const auto text = [&](int rank, uint32_t at) {
    return sdk::TextOf(words(rank).call_kinds[at].load(), words(rank).call_counts[at].load());
  };
  const std::string other = text(failure.reporter, slot);
  const uint32_t reached = number(failure.reporter, slot);
  if (!HasReached(number(failure.culprit, slot), reached)) {
    uint32_t latest = 0;
    for (uint32_t at = 1; at < kCallsKept; ++at) {
      if (HasReached(number(failure.culprit, at), number(failure.culprit, latest))) latest = at;
    }
    return fmt::format(
        "{} is in its call {}, {}, and {} in its call {}, {}; has one left out a call?",
        NameOf(failure.culprit), number(failure.culprit, latest), text(failure.culprit, latest),
        NameOf(failure.reporter), reached, other);
  }
  const std::string one = text(failure.culprit, slot);
  if (one == other) {
    return fmt::format(
        "{} runs {} by another choice than {}, or after other calls with no elements; were they "
        "tuned in one job?",
        NameOf(failure.culprit), one, NameOf(failure.reporter));
  }
  return fmt::format(
      "{} called {} where {} called {}; all ranks of a group make the same calls in the same order",
      NameOf(failure.culprit), one, NameOf(failure.reporter), other);
}

void Group::DeclareLate(uint64_t ranks) {
  if (HasFailed()) return;
  segment_.control().late_ranks.fetch_or(ranks);
  Declare({GroupFailure::Kind::kLate, static_cast<uint8_t>(std::countr_zero(ranks)),
           static_cast<uint8_t>(rank_)});
}

void Group::Declare(const GroupFailure& failure) {
  ControlBlock& control = segment_.control();
  uint32_t none = 0;
  control.failure.compare_exchange_strong(none, Pack(failure));
  control.members.WakeAll();
  control.arrivals.WakeAll();
  for (int r = 0; r < world_size_; ++r) control.ranks[r].progress.WakeAll();
}

bool Group::ReadPeer(int rank, uint64_t offset, std::byte* destination, uint64_t bytes) {
  const RankWords& words = segment_.control().ranks[rank];
  const int32_t pid = words.pid.load(std::memory_order_relaxed);
  const uint64_t address = words.send_address.load(std::memory_order_acquire) + offset;
  for (uint64_t done = 0; done < bytes;) {  // one call moves at most 2 GiB
    const iovec local{destination + done, bytes - done};
    const iovec remote{reinterpret_cast<void*>(address + done), bytes - done};
    const ssize_t size = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (size <= 0) {
      const bool died = !sdk::IsAlive({pid, words.start_ticks.load()});
      Declare({died ? GroupFailure::Kind::kDied : GroupFailure::Kind::kUnreadable,
               static_cast<uint8_t>(rank), static_cast<uint8_t>(rank_)});
      return false;
    }
    done += static_cast<uint64_t>(size);
  }
  return true;
}

void Group::Abort() {
  Declare({GroupFailure::Kind::kAborted, static_cast<uint8_t>(rank_), static_cast<uint8_t>(rank_)});
}

std::optional<Failure> Group::Health() const {
  const ControlBlock& control = segment_.control();
  const uint32_t bits = control.failure.load(std::memory_order_acquire);
  if (bits == 0) return std::nullopt;
  if (!IsFailure(bits, world_size_)) {
    return Failure{
        COTUNE_INTERNAL, 0, -1,
        fmt::format("the shared memory of group '{}' is damaged: the word of its failure "
                    "is {:#x}; does a rank write outside of its buffers?",
                    name_, bits)};
  }
  const GroupFailure failure = UnpackFailure(bits);
  const int culprit = failure.culprit;
  const std::string reporter =
      failure.reporter == rank_ ? "" : ", seen by " + NameOf(failure.reporter);
  switch (failure.kind) {
    case GroupFailure::Kind::kAborted:
      return Failure{COTUNE_ABORTED, 0, -1, fmt::format("{} aborted the group", NameOf(culprit))};
    case GroupFailure::Kind::kDied:
      return Failure{COTUNE_PEER_FAILED, 0, culprit,
                     fmt::format("{}, pid {}, died{}; see its output", NameOf(culprit),
                                 control.ranks[culprit].pid.load(), reporter)};
    case GroupFailure::Kind::kLeft:
      return Failure{COTUNE_PEER_FAILED, 0, culprit,
                     fmt::format("{} destroyed its group while others waited for it{}",
                                 NameOf(culprit), reporter)};
    case GroupFailure::Kind::kUnreadable:
      return Failure{
          COTUNE_PEER_FAILED, 0, culprit,
          fmt::format("the send buffer of {} cannot be read{}; is it memory of a device, or "
                      "freed?",
                      NameOf(culprit), reporter)};
    case GroupFailure::Kind::kOtherCall:
      return Failure{COTUNE_PEER_FAILED, 0, culprit, WhyCallsDiffer(failure)};
    case GroupFailure::Kind::kNone:
    case GroupFailure::Kind::kLate:
      break;
  }
  std::string others;
  for (uint64_t rest = control.late_ranks.load(); rest != 0; rest &= rest - 1) {
    const int r = std::countr_zero(rest);
    if (r != culprit && r < world_size_) {
      others += fmt::format("{}{}", others.empty() ? "; also late: job ranks " : ", ",
                            job_ranks_[static_cast<size_t>(r)]);
    }
  }
  return Failure{
      COTUNE_PEER_FAILED, 0, culprit,
      fmt::format("{} did not come before the deadline{}{}", NameOf(culprit), reporter, others)};
}

}  // namespace cotune::host
