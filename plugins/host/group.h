// A group of ranks that share memory: joining, waiting, and one common view of failure.
#ifndef COTUNE_PLUGINS_HOST_GROUP_H_
#define COTUNE_PLUGINS_HOST_GROUP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/host/control_block.h"
#include "plugins/host/late_ranks.h"
#include "plugins/host/sdk_names.h"
#include "plugins/host/shared_segment.h"
#include "plugins/host/tagged_line.h"
#include "plugins/sdk/call_record.h"
#include "plugins/sdk/rendezvous.h"
#include "plugins/sdk/shared_scratch.h"

namespace cotune::host {

enum class WaitOutcome { kReached, kNotYet, kFailed };

// One rank's end of a group. Health and Abort: any thread; everything else: one thread at a time.
class Group {
 public:
  // Joins the group; every rank calls it. Returns when all ranks have joined.
  // COTUNE_PEER_FAILED names a rank that died or did not come by params.deadline_ns.
  static Result<std::unique_ptr<Group>> Join(const cotune_host_t& host,
                                             const cotune_group_params_t& params,
                                             uint64_t slot_bytes);
  // Tells the others that this rank has left.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  // Whether every rank can have a processor of its own: at least as many as ranks in all ranks'
  // sets together. (Sets can be such that two ranks share one all the same; waits bear with that.)
  bool has_processor_each() const { return has_processor_each_; }
  std::byte* Slot(int rank) const { return segment_.Slot(rank); }
  int64_t NowNs() const { return host_.now_ns(host_.context); }
  // The memory of operations for what no slot keeps. Only this rank writes to it.
  sdk::SharedScratch& scratch() { return scratch_; }

  // The failure that made the group unusable, if any; the same rank and status on every rank.
  std::optional<Failure> Health() const;
  bool HasFailed() const { return segment_.control().failure.load(std::memory_order_acquire) != 0; }
  // Frees every waiter of every rank.
  void Abort();

  // Waits until `wait` is over. kNotYet: `until_ns` has passed first. kFailed: the group is
  // unusable, also because `deadline_ns` has passed. Sleeps in short slices and looks whether the
  // awaited ranks are alive.
  WaitOutcome Wait(const PublishedWait& wait, int64_t until_ns, int64_t deadline_ns);

  // Progress of this rank in group iteration `iteration`: see ProgressNumber.
  void Signal(uint32_t iteration, uint32_t step) {
    if (!is_call_published_) PublishCall();
    signalled_iteration_ = iteration;
    Own().progress.Store(ProgressNumber(iteration, step), wake_fence_);
  }
  // Adds this rank's arrival; returns how often it has arrived.
  uint32_t Arrive();
  uint32_t arrivals() const { return arrivals_; }

  // Iterations that this rank has ended since the group began; the same on all ranks between
  // collectives.
  uint32_t iteration() const { return iteration_; }
  // `quietly`: the others are told only where this rank has not signalled in the iteration.
  void EndIteration(bool quietly) {
    const bool has_signalled = signalled_iteration_ == iteration_;
    ++iteration_;
    ++iterations_ended_;
    if (iteration_ % kIterationsSeenIsGood == 0) LookAtAll();
    if (quietly && has_signalled) return;
    if (!is_call_published_) PublishCall();
    Own().progress.Store(ProgressNumber(iteration_, 0), wake_fence_);
  }

  // The tagged lines of a rank for the present iteration, and their tag in the present call.
  TaggedLine* Lines(int rank) const {
    return segment_.Lines(rank) + (iteration_ & 1) * kLinesPerHalf;
  }
  uint64_t LineTagNow() const {
    // With the number of the call, which need not be the same in equal iterations.
    return LineTag(iterations_ended_, call_.digest ^ (calls_ * 0x9E3779B1u));
  }
  // Lines of `rank` with that tag were seen: it has begun the iteration, and so ended all before.
  void NoteBegun(int rank) {
    uint32_t& seen = seen_[static_cast<size_t>(rank)];
    const uint32_t begun = ProgressNumber(iteration_, 0);
    if (!HasReached(seen, begun)) seen = begun;
  }
  // Rank `rank` has signalled after lines that this one cannot read: its call is another one.
  void DeclareOtherCall(int rank);

  // The deadline has passed, and this rank waits for nobody.
  void DeclareOwnLateness() { DeclareLate(uint64_t{1} << rank_); }

  // Tells the others where this rank's send buffer is, for ReadPeer.
  void PublishSendBuffer(const void* send) {
    Own().send_address.store(reinterpret_cast<uint64_t>(send), std::memory_order_release);
  }
  // Copies from the send buffer of another rank's process, `offset` bytes after its begin. False:
  // the group has failed, because that process has died or its buffer cannot be read.
  bool ReadPeer(int rank, uint64_t offset, std::byte* destination, uint64_t bytes);
  // After the reads of a call, whether they count: no rank's call has failed before, after which it
  // may have used its buffer for something else. False: the group has failed.
  bool ReadsCount() const {
    std::atomic_thread_fence(std::memory_order_acquire);  // after what was read
    return !HasFailed();
  }
  // Empty when all ranks may read each other's memory, else why not. The same on all ranks.
  std::string WhyPeersAreUnreadable() const;

  // One operation at a time: false when another is in flight. A call with elements is made known to
  // the others with its first signal; one without is part of what the next one with elements is
  // compared by.
  bool BeginOperation(const sdk::CallRecord& call);
  void EndOperation();
  // After a wait in the first iteration of a call, for those that it was for: whether their call
  // fits this one. If not the group has failed. No rank takes data, or passes it on, of a rank that
  // it has not asked this of; that one has published before it signalled. Waits that last compare
  // with all, since what they wait for may never come.
  bool CallsFit(const PublishedWait& wait);

  // "job rank 7 (rank 3 of the group)".
  std::string NameOf(int rank) const;

 private:
  Group(const cotune_host_t& host, const cotune_group_params_t& params, uint64_t slot_bytes);

  Result<void> ShareSegment(int64_t deadline_ns);
  Result<void> MeetMembers(int64_t deadline_ns);
  Result<void> AnnounceSegment();
  void AnnounceFailure(const Failure& failure);
  Result<SegmentAnnouncement> ReadAnnouncement(int64_t deadline_ns);
  Result<void> FindSegment(int64_t deadline_ns);
  Result<void> AwaitMembers(FutexWord& count, int64_t deadline_ns);
  void ProbePeers();

  RankWords& Own() const { return segment_.control().ranks[rank_]; }
  bool IsOver(const PublishedWait& wait);
  bool AllReached(uint32_t target);
  // True: the wait was over before its time and that of polling were.
  bool Poll(const PublishedWait& wait, int64_t until_ns);
  // Whether an awaited rank was last seen on this rank's processor.
  bool SharesProcessorWithAwaited(const PublishedWait& wait) const;
  WaitOutcome SleepUntilOver(const PublishedWait& wait, int64_t until_ns, int64_t deadline_ns);
  void Sleep(const PublishedWait& wait, int64_t slice_ns);
  std::array<RankState, kMaxRanks> ReadStates() const;
  // Before the first signal of a call, so that who sees the signal sees the call.
  void PublishCall();
  // False, and the group has failed: another rank's call of that number is known and differs.
  bool CompareCalls(uint32_t number);
  // The same of all calls that are kept. Of two ranks that do this at the same time one sees the
  // other's call.
  bool CompareCallsNow();
  std::string WhyCallsDiffer(const GroupFailure& failure) const;
  // Declares the group failed when one of these ranks, for which `wait` waits directly or through
  // others, is dead or has left.
  void CheckAlive(uint64_t ranks, const PublishedWait& wait);
  void DeclareLate(uint64_t ranks);
  void Declare(const GroupFailure& failure);
  void DeclareJoinLate(const FutexWord& members);
  uint64_t RanksWithMembership(Membership membership) const;
  // Returns a rank that has joined and is dead, or has left.
  std::optional<GroupFailure> MemberThatIsGone() const;

  cotune_host_t host_;
  sdk::Rendezvous meeting_;
  std::string name_;
  int rank_;
  int world_size_;
  uint64_t slot_bytes_;
  std::vector<int32_t> job_ranks_;
  SharedSegment segment_;
  bool has_processor_each_ = false;              // every rank can have a processor of its own
  int64_t poll_ns_;                              // before a wait sleeps
  WakeFence wake_fence_ = WakeFence::kOfStorer;  // of all ranks' progress
  bool operation_in_flight_ = false;
  uint32_t iteration_ = kFirstIteration;
  uint64_t iterations_ended_ = 0;              // the same without wrap-around
  uint32_t signalled_iteration_ = UINT32_MAX;  // of the latest signal
  uint32_t arrivals_ = 0;
  uint32_t calls_ = 0;                   // operations with elements begun
  uint32_t calls_without_elements_ = 0;  // digest of all of them
  bool is_waiting_published_ = false;
  sdk::CallRecord call_;  // the latest
  bool is_call_published_ = true;
  sdk::SharedScratch scratch_;
  int64_t last_alive_check_ns_ = 0;
  // Far less than the iterations after which a number that was not looked at again would seem to
  // lie ahead.
  static constexpr uint32_t kIterationsSeenIsGood = 1u << 20;
  void LookAtAll();
  // Latest progress read of each rank: most waits are over by it, without reading shared memory.
  std::array<uint32_t, kMaxRanks> seen_{};
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_GROUP_H_
