// A group of ranks that are connected by UCX: joining, one view of failure, and what its ends say
// to each other while they wait.
#ifndef COTUNE_PLUGINS_UCX_GROUP_H_
#define COTUNE_PLUGINS_UCX_GROUP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/process_identity.h"
#include "plugins/sdk/rendezvous.h"
#include "plugins/sdk/shared_scratch.h"
#include "plugins/ucx/context.h"
#include "plugins/ucx/control.h"
#include "plugins/ucx/sdk_names.h"
#include "plugins/ucx/tag.h"
#include "plugins/ucx/worker.h"

namespace cotune::ucx {

// The call that a group runs, as its end needs to know it.
class RunningCall {
 public:
  virtual ~RunningCall() = default;
  // Bit r: a message from or to rank r is not complete.
  virtual uint64_t Awaited() const = 0;
};

// Health, HasFailed and Abort: any thread. Everything else: one thread at a time, which holds the
// lock of UseWorker.
class Group {
 public:
  // Collective; returns when every rank is connected to every other one. COTUNE_PEER_FAILED names a
  // rank that did not come by params.deadline_ns.
  static Result<std::unique_ptr<Group>> Join(const cotune_host_t& host,
                                             const cotune_group_params_t& params,
                                             std::shared_ptr<const Context> context);
  // Tells the others that this rank has left.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const Context& context() const { return *context_; }
  // Whether the ranks of this host share processors.
  bool is_crowded() const { return is_crowded_; }
  // A rank that waits looks at the clock and offers its processor to others after so many polls.
  int polls_per_look() const { return polls_per_look_; }
  Worker& worker() { return *worker_; }
  // The transports by which this rank sends to another one: "sysv, posix".
  std::string TransportsTo(int peer);
  int64_t NowNs() const { return host_.now_ns(host_.context); }
  // The thread that takes the worker announces an abort for which the worker was not free.
  std::unique_lock<std::mutex> UseWorker() {
    std::unique_lock lock(worker_mutex_);
    AnnounceAbort();
    return lock;
  }

  std::optional<Failure> Health() const;
  bool HasFailed() const { return has_failed_.load(std::memory_order_acquire); }
  // Frees the waiters of all ranks, and returns soon. If another thread keeps the worker for long,
  // the group has failed on this rank, and the other ranks learn of it by AnnounceAbort.
  void Abort();
  // Tells the other ranks, once, that this rank has aborted the group. Nothing happens if nobody
  // has called Abort here, or if the group had failed before for another reason.
  void AnnounceAbort() {
    if (is_abort_asked_.load(std::memory_order_relaxed)) DeclareAbort();
  }

  // One call at a time: false when another one runs. Calls without elements are part of what the
  // next one with elements is compared by; they post nothing, but may wait for what was sent
  // before.
  bool BeginCall(const sdk::CallRecord& call, const RunningCall* running);
  void EndCall() { running_ = nullptr; }
  // Tag of all messages of the call that runs, but for sender, instance and order.
  uint64_t CallTag(int sender) const {
    return call_tag_ | (static_cast<uint64_t>(sender) << kSenderShift);
  }

  // The memory of the calls that run in this group. None begins after one that has failed, whose
  // messages UCX may still write to it.
  sdk::SharedScratch& scratch() { return scratch_; }

  // Advances UCX once and hears what other ranks say. True where something happened.
  bool Poll() {
    const bool progressed = worker_->Progress();
    if (control_open_ < kControlReceives) HearControl();
    AnnounceAbort();
    return progressed;
  }
  // Whether this message to a rank has to wait until the receiver has begun its call: a rank that
  // only sends would run ahead without end, and what it sends lie in the memory of others.
  bool MustBeMatched(int peer, uint64_t bytes) {
    uint64_t& unmatched = peers_[static_cast<size_t>(peer)].unmatched_bytes;
    unmatched += bytes;
    if (unmatched < kUnmatchedBytesMax) return false;
    unmatched = 0;
    return true;
  }
  // Keeps what UCX may still touch for as long as the worker lives.
  void Keep(std::shared_ptr<void> memory) { worker_->Keep(std::move(memory)); }
  // For a call that has failed and has a message that UCX cannot stop, or a connection that UCX
  // does not close: UCX gets no turn any more, and the worker stays with the process.
  void AbandonWorker();

  // Returns true if a message to the rank may be complete before it has left: the rest needs polls.
  bool NeedsPolls(int peer) const { return peers_[static_cast<size_t>(peer)].needs_polls; }
  // Bit r: a message to rank r about the group's state is on its way, as for long if rank r does
  // not read.
  uint64_t UnsentPeers() const;
  // Bit r: rank r has destroyed its group.
  uint64_t LeftPeers() const;
  // Bit r: the connection to rank r does not work any more.
  uint64_t LostPeers() const;
  // A wait in which nothing has happened for `idle_ns`. May declare the group failed.
  struct Wait {
    int64_t now_ns = 0;
    int64_t idle_ns = 0;
    int64_t begin_ns = 0;  // of the call
    int64_t deadline_ns = 0;
  };
  void NoteWaiting(const Wait& wait);

 private:
  static constexpr uint32_t kControlReceives = 8;
  static constexpr int kPollsPerLookMax = 32;
  static constexpr uint64_t kUnmatchedBytesMax = 32 << 20;
  // Of each peer: three for messages that may be left out, and the last for one that may not.
  static constexpr size_t kControlSends = 4;

  struct PeerState {
    uint64_t awaited = 0;
    LatestCalls calls{};
    int64_t heard_ns = 0;
    int unanswered = 0;  // messages to it since it was heard last
    bool said_hello = false;
    bool is_ready = false;
    bool has_left = false;
    bool shares_processes = false;  // its process can be looked at from here
    bool shares_memory = false;     // messages to it go through memory in common
    bool needs_polls = false;       // messages to it may be complete before they have left
    uint64_t unmatched_bytes = 0;   // sent since it was last known to follow
    sdk::ProcessIdentity process;
  };

  Group(const cotune_host_t& host, const cotune_group_params_t& params,
        std::shared_ptr<const Context> context);

  // group_join.cc
  Result<void> Connect(int64_t deadline_ns);
  Result<std::vector<std::string>> ExchangeOffers(int64_t deadline_ns);
  Result<void> CheckConnections(int64_t deadline_ns);
  void ChoosePollsPerLook();
  Result<void> AwaitAll(bool PeerState::*said, int64_t deadline_ns);
  void LogConnections();
  // Logs a warning at the first call; later calls do nothing.
  void WarnOfAbandonedWorker();

  // Messages between the ends: group_control.cc.
  void PostControlReceive(size_t index);
  void HearControl();
  void Hear(const ControlMessage& message);
  void SendControl(int peer, const ControlMessage& message);
  void SendToAll(const ControlMessage& message);
  ControlMessage StateMessage(ControlMessage::Kind kind) const;
  bool AllControlSent();
  void FlushControl(int64_t within_ns);

  // Failure: group.cc.
  void HearAll();
  uint64_t StoppedRanks() const;  // of those whose processes can be seen
  void LookForGoneRanks(uint64_t awaited, const Wait& wait);
  void LookForOtherCalls(int64_t now_ns);
  void DeclareLate(uint64_t awaited, const Wait& wait);
  // Whether a rank has left word in the store of why the group has failed.
  bool AdoptFromStore();
  // Makes an abort that was asked for the failure of the group, and announces it, each unless that
  // has happened already.
  void DeclareAbort();
  // Makes this the failure of the group and announces it, unless the group has failed already.
  void Declare(GroupFailure failure);
  // Sends the failure to the other ranks and puts it into the store.
  void Announce(const GroupFailure& failure);
  // Returns false if the group has failed already: the first failure stays.
  bool Adopt(const GroupFailure& failure);
  bool IsProcessGone(int peer) const;
  Failure FailureOf(const GroupFailure& failure) const;
  std::string WhyCallsDiffer(const GroupFailure& failure) const;
  std::string NameOf(int rank) const { return meeting_.NameOf(rank); }
  const NumberedCall& OwnCall() const { return calls_[call_number_ % kCallsKept]; }

  cotune_host_t host_;
  sdk::Rendezvous meeting_;
  const std::shared_ptr<const Context> context_;
  const int rank_;
  const int world_size_;
  const std::vector<int32_t> job_ranks_;
  uint64_t digest_ = 0;  // hash over the name and random words of all ranks
  OwnedWorker worker_;
  std::mutex worker_mutex_;
  std::vector<PeerState> peers_;
  bool is_joined_ = false;
  bool is_abort_announced_ = false;
  bool has_warned_ = false;  // that UCX was abandoned
  bool is_crowded_ = false;
  int polls_per_look_ = kPollsPerLookMax;

  // The call that runs, and the latest ones.
  const RunningCall* running_ = nullptr;
  uint64_t call_number_ = 0;
  uint32_t calls_without_elements_ = 0;  // digest of all of them
  uint64_t call_tag_ = 0;
  LatestCalls calls_{};
  sdk::SharedScratch scratch_;

  // What is on its way between the ends.
  std::unique_ptr<RequestPool> control_receives_;
  std::vector<ControlMessage> control_received_;
  uint32_t control_open_ = kControlReceives;
  std::unique_ptr<RequestPool> control_sends_;
  std::vector<ControlMessage> control_sent_;

  int64_t last_note_ns_ = 0;
  int64_t last_look_ns_ = 0;
  int64_t last_state_ns_ = 0;
  int64_t last_verdict_look_ns_ = 0;
  uint64_t state_call_ = 0;       // whose state was sent last
  int64_t gone_since_ns_ = 0;     // an awaited rank is known to be gone; 0: none
  int64_t differs_since_ns_ = 0;  // a call is known to differ; 0: none

  std::atomic<bool> is_abort_asked_{false};  // and no thread that has the worker has seen it
  std::atomic<bool> has_failed_{false};
  mutable std::mutex failure_mutex_;
  std::optional<GroupFailure> failure_;
  std::optional<Failure> failure_in_store_;
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_GROUP_H_
