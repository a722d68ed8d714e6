#include "plugins/ucx/operation.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "plugins/ucx/tag.h"

namespace cotune::ucx {
namespace {

// A wait that lasts longer sleeps between its polls.
constexpr int64_t kPollNs = 3'000'000;
constexpr int64_t kSleepNs = 50'000;
// How long each of three steps that take messages back may last. With the word to the other ranks
// (20 ms) they end within COTUNE_LAST_TURN_NS.
constexpr int64_t kCancelNs = 25'000'000;

constexpr uint64_t Bit(int rank) { return uint64_t{1} << rank; }

uint64_t PolledPeersOf(const Schedule& schedule, const Group& group) {
  uint64_t peers = 0;
  for (const Message& message : schedule.messages) {
    if (group.NeedsPolls(message.peer)) peers |= Bit(message.peer);
  }
  return peers;
}

}  // namespace

Operation::Operation(Group& group, Schedule schedule, std::string_view choice)
    : group_(group),
      schedule_(std::move(schedule)),
      call_(sdk::RecordOf(schedule_.problem, choice)),
      largest_step_(schedule_.LargestStep()),
      polled_peers_(PolledPeersOf(schedule_, group)),
      requests_(std::make_shared<RequestPool>(
          group.context(), static_cast<size_t>(schedule_.window) * largest_step_)),
      slots_(static_cast<size_t>(schedule_.window)),
      scratch_(group.scratch().Take(schedule_.ScratchBytes())) {
  if (Reduces(schedule_.problem)) {
    kernel_ = sdk::FindReduceKernel(schedule_.problem.type, schedule_.problem.reduction);
  }
}

SegmentMemory Operation::MemoryOf(const Slot& slot) {
  const auto index = static_cast<size_t>(&slot - slots_.data());
  return {schedule_, slot.instance / schedule_.lanes.size(), buffers_,
          scratch_.get() + index * schedule_.scratch_bytes};
}

Request& Operation::RequestOf(const Slot& slot, size_t message) {
  const auto index = static_cast<size_t>(&slot - slots_.data());
  return (*requests_)[index * largest_step_ + message];
}

void Operation::Start(const void* send, void* receive, int64_t deadline_ns) {
  buffers_ = {static_cast<const std::byte*>(send), static_cast<std::byte*>(receive)};
  begin_ns_ = group_.NowNs();
  deadline_ns_ = deadline_ns;
  idle_since_ns_ = 0;
  begun_ = 0;
  ended_ = 0;
  unsent_ = 0;
  for (Slot& slot : slots_) slot = Slot{};
  AdvanceAll();
}

void Operation::Post(Slot& slot, const Message& message, Request& request,
                     const SegmentMemory& memory) {
  const uint64_t bytes = memory.Bytes(message.place, message.span);
  if (bytes == 0) return;
  std::byte* const data = memory.Locate(message.place, message.span);
  const int sender = message.is_send ? group_.rank() : message.peer;
  const uint64_t tag =
      group_.CallTag(sender) | TagOf({.instance = slot.instance, .order = message.order});
  if (message.is_send) {
    const bool may_run_ahead = schedule_.problem.collective == Collective::kBroadcast;
    const bool is_matched = may_run_ahead && group_.MustBeMatched(message.peer, bytes);
    group_.worker().Send(request, message.peer, data, bytes, tag, &slot.open,
                         is_matched ? Completion::kMatched : Completion::kSent);
  } else {
    group_.worker().Receive(request, message.peer, data, bytes, tag, kEveryBit, &slot.open);
  }
}

void Operation::PostStep(Slot& slot) {
  if (slot.step == LaneOf(slot).step_end) {
    slot.runs = false;
    ++ended_;
    return;
  }
  const SegmentMemory memory = MemoryOf(slot);
  const auto messages = schedule_.MessagesOf(schedule_.steps[slot.step]);
  // Receives first: what is expected needs no copy.
  for (const bool is_send : {false, true}) {
    for (size_t m = 0; m < messages.size(); ++m) {
      if (messages[m].is_send == is_send) Post(slot, messages[m], RequestOf(slot, m), memory);
    }
  }
}

void Operation::Begin(Slot& slot) {
  slot.runs = true;
  slot.instance = begun_++;
  slot.step = LaneOf(slot).step_begin;
  PostStep(slot);
}

bool Operation::AdvanceAll() {
  bool advanced = false;
  // A message that failed is complete, too: what depends on it must not run.
  while (!slots_[begun_ % slots_.size()].runs && begun_ < schedule_.Instances()) {
    Begin(slots_[begun_ % slots_.size()]);
    advanced = true;
  }
  for (Slot& slot : slots_) {
    if (!slot.runs || slot.open > 0 || group_.worker().failed_request().status != UCS_OK) continue;
    advanced = true;
    const SegmentMemory memory = MemoryOf(slot);
    for (const LocalWork& local : schedule_.WorkOf(schedule_.steps[slot.step])) {
      memory.Run(local, kernel_);
    }
    ++slot.step;
    PostStep(slot);
  }
  return advanced;
}

bool Operation::IsSent() {
  if (polled_peers_ == 0) return true;
  const uint64_t present = polled_peers_ & ~group_.LeftPeers();
  if (!group_.worker().IsSent()) {
    const uint64_t full = group_.UnsentPeers() & present;
    unsent_ = full != 0 ? full : present;
    return present == 0;
  }
  // A connection that broke meanwhile has nothing to send any more.
  unsent_ &= group_.LostPeers() & present;
  return unsent_ == 0;
}

Advance Operation::Run(int64_t until_ns) {
  const bool is_attempt = until_ns <= 0;
  const int polls_per_look = group_.polls_per_look();
  for (int polls = 1;; ++polls) {
    const bool progressed = group_.Poll();
    if (group_.HasFailed()) {
      Cancel();
      return Advance::kFailed;
    }
    if (AdvanceAll() || progressed) idle_since_ns_ = 0;
    if (ended_ == schedule_.Instances() && IsSent()) return Advance::kComplete;
    if (!is_attempt && polls % polls_per_look != 0) continue;
    const int64_t now_ns = group_.NowNs();
    if (idle_since_ns_ == 0) idle_since_ns_ = now_ns;
    const int64_t idle_ns = now_ns - idle_since_ns_;
    group_.NoteWaiting({now_ns, idle_ns, begin_ns_, deadline_ns_});
    if (group_.HasFailed()) continue;
    if (is_attempt || now_ns >= until_ns) return Advance::kInProgress;
    if (idle_ns == 0 && !group_.is_crowded()) continue;
    if (idle_ns < kPollNs) {
      sched_yield();
    } else {
      const timespec nap = {0, kSleepNs};
      nanosleep(&nap, nullptr);
    }
  }
}

uint64_t Operation::Awaited() const {
  uint64_t awaited = unsent_;
  for (const Request& request : requests_->all()) {
    if (request.is_open()) awaited |= Bit(request.peer());
  }
  return awaited;
}

void Operation::Cancel() {
  Worker& worker = group_.worker();
  auto& requests = requests_->all();
  const auto is_any_open = [&] {
    return std::any_of(requests.begin(), requests.end(),
                       [](const Request& request) { return request.is_open(); });
  };
  // The abort may have come after the last poll. It has to leave before connections are closed.
  group_.AnnounceAbort();
  unsent_ = 0;
  for (Request& request : requests) worker.Cancel(request);
  worker.PollWhile(is_any_open, kCancelNs);
  // Not every message can be cancelled. Without its connection it ends, unless it is a receive of
  // several fragments that has begun: that goes on whenever UCX is polled.
  worker.Disconnect(Awaited(), kCancelNs);
  worker.PollWhile(is_any_open, kCancelNs);
  // Disconnect abandons a worker without a warning if a connection does not close in time.
  if (is_any_open() || worker.is_abandoned()) group_.AbandonWorker();
  for (Slot& slot : slots_) slot.runs = false;
}

Operation::~Operation() {
  if (Awaited() == 0) return;
  requests_->DetachCounters();  // they lie in the slots
  group_.Keep(std::move(requests_));
  group_.Keep(std::move(scratch_));
}

}  // namespace cotune::ucx
