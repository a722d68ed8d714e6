#include "plugins/ucx/testing/schedule_run.h"

#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "plugins/ucx/segment_memory.h"

namespace cotune::ucx {
namespace {

// Sender, receiver, instance, order.
using MessageKey = std::tuple<int, int, uint64_t, int>;

struct Instance {
  bool runs = false;
  uint64_t number = 0;
  uint32_t step = 0;
  int open = 0;  // messages of the step that are not complete
  std::vector<std::byte> scratch;
};

struct Posted {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  Instance* instance = nullptr;
};

class Rank {
 public:
  Rank(const Schedule& schedule, const RankBuffers& buffers)
      : schedule_(schedule),
        buffers_{buffers.send, buffers.receive},
        slots_(static_cast<size_t>(schedule.window)) {
    if (Reduces(schedule.problem)) {
      kernel_ = sdk::FindReduceKernel(schedule.problem.type, schedule.problem.reduction);
    }
    for (Instance& slot : slots_) slot.scratch.resize(schedule.scratch_bytes, std::byte{0x5a});
  }

  bool IsComplete() const { return ended_ == schedule_.Instances(); }

  // Goes on by one step of one instance. False: every instance waits.
  template <class Post>
  bool Advance(std::mt19937& random, Post post) {
    const size_t first = random() % slots_.size();
    for (size_t i = 0; i < slots_.size(); ++i) {
      Instance& slot = slots_[(first + i) % slots_.size()];
      if (!slot.runs && begun_ < schedule_.Instances() && begun_ < ended_ + slots_.size() &&
          &slot == &slots_[begun_ % slots_.size()]) {
        slot.runs = true;
        slot.number = begun_++;
        slot.step = LaneOf(slot).step_begin;
        PostStep(slot, post);
        return true;
      }
      if (!slot.runs || slot.open > 0) continue;
      Continue(slot, post);
      return true;
    }
    return false;
  }

 private:
  const Lane& LaneOf(const Instance& slot) const {
    return schedule_.lanes[slot.number % schedule_.lanes.size()];
  }
  SegmentMemory MemoryOf(Instance& slot) {
    return {schedule_, slot.number / schedule_.lanes.size(), buffers_, slot.scratch.data()};
  }
  template <class Post>
  void PostStep(Instance& slot, Post post) {
    if (slot.step == LaneOf(slot).step_end) {
      slot.runs = false;
      ++ended_;
      return;
    }
    const SegmentMemory memory = MemoryOf(slot);
    for (const Message& message : schedule_.MessagesOf(schedule_.steps[slot.step])) {
      const uint64_t bytes = memory.Bytes(message.place, message.span);
      if (bytes == 0) continue;
      ++slot.open;
      post(message, slot.number, Posted{memory.Locate(message.place, message.span), bytes, &slot});
    }
  }
  template <class Post>
  void Continue(Instance& slot, Post post) {
    const SegmentMemory memory = MemoryOf(slot);
    for (const LocalWork& local : schedule_.WorkOf(schedule_.steps[slot.step])) {
      memory.Run(local, kernel_);
    }
    ++slot.step;
    PostStep(slot, post);
  }

  const Schedule& schedule_;
  const CallBuffers buffers_;
  std::vector<Instance> slots_;
  sdk::ReduceKernel kernel_ = nullptr;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
};

}  // namespace

std::string RunSchedules(const std::vector<Schedule>& schedules,
                         const std::vector<RankBuffers>& buffers, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Rank> ranks;
  for (size_t r = 0; r < schedules.size(); ++r) ranks.emplace_back(schedules[r], buffers[r]);
  std::map<MessageKey, std::pair<Posted, Posted>> messages;  // send, receive
  std::vector<MessageKey> ready;
  std::string wrong;
  const auto advance = [&](size_t r) {
    return ranks[r].Advance(random, [&](const Message& message, uint64_t instance, Posted posted) {
      const int self = static_cast<int>(r);
      const MessageKey key = {message.is_send ? self : message.peer,
                              message.is_send ? message.peer : self, instance, message.order};
      auto& pair = messages[key];
      (message.is_send ? pair.first : pair.second) = posted;
      if (pair.first.instance != nullptr && pair.second.instance != nullptr) ready.push_back(key);
    });
  };
  const auto deliver = [&](size_t index) {
    std::swap(ready[index], ready.back());
    const auto [sent, received] = messages[ready.back()];
    if (sent.bytes != received.bytes) wrong = "messages of different lengths";
    if (wrong.empty()) std::memcpy(received.data, sent.data, sent.bytes);
    --sent.instance->open;
    --received.instance->open;
    messages.erase(ready.back());
    ready.pop_back();
  };
  while (wrong.empty()) {
    if (!ready.empty() && random() % 2 == 0) {
      deliver(random() % ready.size());
      continue;
    }
    const size_t first = random() % ranks.size();
    bool advanced = false;
    for (size_t i = 0; i < ranks.size() && !advanced; ++i) {
      advanced = advance((first + i) % ranks.size());
    }
    if (advanced) continue;
    if (ready.empty()) break;
    deliver(random() % ready.size());
  }
  for (const Rank& rank : ranks) {
    if (wrong.empty() && !rank.IsComplete()) wrong = "ranks wait for ever";
  }
  if (wrong.empty() && !messages.empty()) wrong = "messages are left";
  return wrong;
}

}  // namespace cotune::ucx
