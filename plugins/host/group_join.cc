// How a group comes to be: rank 0 makes the segment and announces it, the others map it, and nobody
// goes on before all have joined.
#include <fmt/format.h>
#include <sched.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "plugins/host/group.h"
#include "plugins/host/process_fence.h"

namespace cotune::host {
namespace {

constexpr int64_t kSliceNs = 20'000'000;

// The phase in which rank 0 describes the segment, or says why there is none (any more).
constexpr char kSegmentPhase[] = "segment";

// Ranks may be bound to different processors, so that only all of them together know whether each
// can have one.
void NoteProcessors(ControlBlock& control) {
  std::array<uint64_t, kProcessorWords> set{};
  auto* const bits = reinterpret_cast<cpu_set_t*>(set.data());
  if (sched_getaffinity(0, sizeof(set), bits) != 0) return;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i] != 0) control.processors[i].fetch_or(set[i]);
  }
}

int CountProcessors(const ControlBlock& control) {
  int count = 0;
  for (const auto& word : control.processors) count += std::popcount(word.load());
  return count;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::Join(const cotune_host_t& host,
                                           const cotune_group_params_t& params,
                                           uint64_t slot_bytes) {
  std::unique_ptr<Group> group(new Group(host, params, slot_bytes));
  COTUNE_RETURN_IF_ERROR(group->ShareSegment(params.deadline_ns));
  return group;
}

Result<void> Group::ShareSegment(int64_t deadline_ns) {
  auto found = rank_ == 0 ? AnnounceSegment() : FindSegment(deadline_ns);
  if (found) found = segment_.ReserveSlot(rank_);
  if (!found) {
    // Those that wait in the segment, or will, need not wait for their deadline to learn it.
    meeting_.GiveUp(found.error());
    if (rank_ == 0) AnnounceFailure(found.error());
    segment_.CloseFile();
    return found;
  }
  auto met = MeetMembers(deadline_ns);
  if (rank_ == 0 && met) meeting_.Delete(kSegmentPhase);
  // Whoever comes later finds the reason instead of a file that is gone.
  if (rank_ == 0 && !met) AnnounceFailure(met.error());
  segment_.CloseFile();
  return met;
}

Result<void> Group::MeetMembers(int64_t deadline_ns) {
  const sdk::ProcessIdentity self = sdk::OwnIdentity();
  Own().pid.store(self.pid);
  Own().start_ticks.store(self.start_ticks);
  Own().token_address.store(reinterpret_cast<uint64_t>(segment_.control().token));
  Own().progress.Store(ProgressNumber(kFirstIteration, 0), WakeFence::kOfStorer);
  Own().membership.store(static_cast<uint32_t>(Membership::kMember));
  ControlBlock& control = segment_.control();
  if (!JoinProcessFences()) control.storers_fence.store(1);
  NoteProcessors(control);
  control.members.AddOne(static_cast<uint32_t>(world_size_));
  auto joined = AwaitMembers(control.members, deadline_ns);
  if (!joined) return joined;
  // Known to all now, and nobody has waited for another's progress yet.
  if (control.storers_fence.load() == 0) wake_fence_ = WakeFence::kOfSleeper;
  has_processor_each_ = CountProcessors(control) >= world_size_;
  ProbePeers();
  Own().probed.store(1);
  control.probed.AddOne(static_cast<uint32_t>(world_size_));
  return AwaitMembers(control.probed, deadline_ns);
}

Result<void> Group::AnnounceSegment() {
  COTUNE_TRY(auto segment, SharedSegment::Create(world_size_, slot_bytes_));
  segment_ = std::move(segment);
  return meeting_.Put(kSegmentPhase, Result<SegmentAnnouncement>(segment_.Announce()));
}

void Group::AnnounceFailure(const Failure& failure) {
  // A store that is gone too leaves the others to their deadline.
  static_cast<void>(
      meeting_.Put(kSegmentPhase, Result<SegmentAnnouncement>(tl::unexpected(failure))));
}

Result<SegmentAnnouncement> Group::ReadAnnouncement(int64_t deadline_ns) {
  auto announcement = meeting_.Get<SegmentAnnouncement>(kSegmentPhase, 0, deadline_ns);
  if (announcement && announcement->version != kSegmentVersion) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("{} announced the group in another format (version {}, not {}); do all "
                            "ranks run the same host plugin?",
                            NameOf(0), announcement->version, kSegmentVersion));
  }
  return announcement;
}

Result<void> Group::FindSegment(int64_t deadline_ns) {
  COTUNE_TRY(const auto announcement, ReadAnnouncement(deadline_ns));
  auto segment = SharedSegment::Open(announcement, world_size_, slot_bytes_);
  if (!segment) {
    // It may have gone since, and then rank 0 has left word why.
    const auto again = ReadAnnouncement(deadline_ns);
    const bool has_word = !again && again.error().failed_rank >= 0;
    return tl::unexpected(has_word ? again.error() : segment.error());
  }
  segment_ = std::move(*segment);
  return {};
}

uint64_t Group::RanksWithMembership(Membership membership) const {
  uint64_t ranks = 0;
  for (int r = 0; r < world_size_; ++r) {
    const uint32_t present = segment_.control().ranks[r].membership.load();
    if (present == static_cast<uint32_t>(membership)) ranks |= uint64_t{1} << r;
  }
  return ranks;
}

void Group::DeclareJoinLate(const FutexWord& members) {
  const bool joining = &members == &segment_.control().members;
  uint64_t late = 0;
  for (int r = 0; r < world_size_; ++r) {
    const RankWords& words = segment_.control().ranks[r];
    const bool here = joining
                          ? words.membership.load() != static_cast<uint32_t>(Membership::kAbsent)
                          : words.probed.load() != 0;
    if (!here) late |= uint64_t{1} << r;
  }
  if (late != 0) DeclareLate(late);
}

// Whether one process may read another depends on the system's settings and may differ from pair to
// pair; all ranks must come to the same answer, so each tries all.
void Group::ProbePeers() {
  ControlBlock& control = segment_.control();
  for (int r = 0; r < world_size_; ++r) {
    uint8_t token[sizeof(control.token)] = {};
    const iovec local{token, sizeof(token)};
    const iovec remote{reinterpret_cast<void*>(control.ranks[r].token_address.load()),
                       sizeof(token)};
    const ssize_t size = process_vm_readv(control.ranks[r].pid.load(), &local, 1, &remote, 1, 0);
    if (size != sizeof(token) || std::memcmp(token, control.token, sizeof(token)) != 0) {
      control.unreadable.store(static_cast<uint32_t>(r) + 1);
      return;
    }
  }
}

std::string Group::WhyPeersAreUnreadable() const {
  const uint32_t unreadable = segment_.control().unreadable.load();
  if (unreadable == 0) return "";
  const std::string tried = unreadable <= static_cast<uint32_t>(world_size_)
                                ? NameOf(static_cast<int>(unreadable) - 1)
                                : "an unknown rank";
  return fmt::format(
      "the system does not let the ranks read each other's memory, tried with {}; see "
      "/proc/sys/kernel/yama/ptrace_scope and the container's seccomp profile",
      tried);
}

std::optional<GroupFailure> Group::MemberThatIsGone() const {
  const auto failure = [this](GroupFailure::Kind kind, int rank) {
    return GroupFailure{kind, static_cast<uint8_t>(rank), static_cast<uint8_t>(rank_)};
  };
  for (uint64_t rest = RanksWithMembership(Membership::kMember); rest != 0; rest &= rest - 1) {
    const int r = std::countr_zero(rest);
    const RankWords& words = segment_.control().ranks[r];
    if (r == rank_ || sdk::IsAlive({words.pid.load(), words.start_ticks.load()})) continue;
    return failure(GroupFailure::Kind::kDied, r);
  }
  const uint64_t left = RanksWithMembership(Membership::kLeft);
  if (left == 0) return std::nullopt;
  return failure(GroupFailure::Kind::kLeft, std::countr_zero(left));
}

Result<void> Group::AwaitMembers(FutexWord& members, int64_t deadline_ns) {
  const auto all = static_cast<uint32_t>(world_size_);
  while (!HasReached(members.Load(), all)) {
    const std::optional<GroupFailure> gone = MemberThatIsGone();
    // That rank may have come since the look above, and gone afterwards: the group is complete.
    if (gone && HasReached(members.Load(), all)) break;
    if (gone && gone->kind == GroupFailure::Kind::kLeft) {
      if (auto refusal = meeting_.WhoGaveUp()) return tl::unexpected(*refusal);
    }
    if (gone) Declare(*gone);
    const int64_t now_ns = NowNs();
    if (now_ns >= deadline_ns && !HasReached(members.Load(), all)) DeclareJoinLate(members);
    if (auto failure = Health()) return tl::unexpected(*failure);
    members.SleepUnlessReached(all, std::min(kSliceNs, deadline_ns - now_ns));
    if (HasReached(members.Load(), all)) break;
    if (auto refusal = meeting_.WhoGaveUp()) return tl::unexpected(*refusal);
  }
  return {};
}

}  // namespace cotune::host
