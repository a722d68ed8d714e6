#include "sync/exchange/local_exchange.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "sync/exchange/rank_link.h"
#include "sync/machine/coordinator_machine.h"
#include "sync/machine/rank_machine.h"

namespace cotune::sync {
namespace {

// The coordinator and all ranks behind one mutex; frames are handed over in order through a queue.
class LocalHub {
 public:
  LocalHub(int world_size, const Clock& clock)
      : clock_(clock), coordinator_({{world_size, "local", "local"}, INT64_MAX, INT64_MAX}) {
    for (int rank = 0; rank < world_size; ++rank) {
      ranks_.emplace_back(RankConfig{{world_size, "local", "local"}, rank, INT64_MAX, INT64_MAX});
      Run(coordinator_.OnEvent(Connected{Id(rank)}, clock_.now_ns()));
      Run(rank, ranks_.back().OnEvent(JoinAsked{next_token_++, INT64_MAX}, clock_.now_ns()));
    }
    Deliver();
    completed_.clear();  // of the joins
  }

  const Clock& clock() const { return clock_; }

  Result<FramePtr> Call(int rank, RankLink::Ask ask) {
    std::unique_lock lock(mutex_);
    const CallToken token = next_token_++;
    const int64_t now_ns = clock_.now_ns();
    std::visit(
        [&](auto& event) {
          event.token = token;
          Run(rank, machine(rank).OnEvent(event, now_ns));
        },
        ask);
    Deliver();
    while (!completed_.contains(token)) Wait(rank, lock);
    Result<FramePtr> result = std::move(completed_.at(token));
    completed_.erase(token);
    return result;
  }

  int64_t JobBeginNs(int rank) {
    const std::lock_guard lock(mutex_);
    return machine(rank).job_clock().begin_ns();
  }

  void GiveUp(int rank, const Error& error) {
    const std::lock_guard lock(mutex_);
    Run(rank, machine(rank).OnEvent(GiveUpAsked{error}, clock_.now_ns()));
    Deliver();
  }

  void Leave(int rank, const std::string& channel) {
    const std::lock_guard lock(mutex_);
    Run(rank, machine(rank).OnEvent(LeaveAsked{channel}, clock_.now_ns()));
    Deliver();
  }

 private:
  struct InFlight {
    int rank;
    bool to_coordinator;
    FramePtr frame;
  };

  static ConnectionId Id(int rank) { return static_cast<ConnectionId>(rank) + 1; }
  RankMachine& machine(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  void Run(int rank, RankActions actions) {
    for (RankAction& action : actions) {
      if (auto* send = std::get_if<SendToCoordinator>(&action)) {
        queue_.push_back({rank, true, std::move(send->frame)});
      } else if (auto* complete = std::get_if<CompleteCall>(&action)) {
        completed_.emplace(complete->token, std::move(complete->result));
        changed_.notify_all();
      }
    }
  }

  void Run(CoordinatorActions actions) {
    for (CoordinatorAction& action : actions) {
      const auto* send = std::get_if<SendFrame>(&action);
      if (send == nullptr) continue;
      for (const ConnectionId id : send->to) {
        queue_.push_back({static_cast<int>(id) - 1, false, send->frame});
      }
    }
  }

  void Deliver() {
    while (!queue_.empty()) {
      const InFlight flight = std::move(queue_.front());
      queue_.pop_front();
      const int64_t now_ns = clock_.now_ns();
      if (flight.to_coordinator) {
        Run(coordinator_.OnEvent(FrameCame{Id(flight.rank), flight.frame}, now_ns));
      } else {
        Run(flight.rank, machine(flight.rank).OnEvent(CoordinatorFrameCame{flight.frame}, now_ns));
      }
    }
  }

  // Until something completes or it is time for the coordinator or this rank to act.
  void Wait(int rank, std::unique_lock<std::mutex>& lock) {
    const int64_t now_ns = clock_.now_ns();
    const int64_t next_ns = std::min(coordinator_.next_time_ns(), machine(rank).next_time_ns());
    if (next_ns > now_ns) {
      // Cut, so that adding it to the time of day cannot overflow; the caller waits again.
      const int64_t wait_ns = std::min<int64_t>(next_ns - now_ns, 1'000'000'000);
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
      return;
    }
    Run(coordinator_.OnEvent(TimeReached{}, now_ns));
    Run(rank, machine(rank).OnEvent(RankTimeReached{}, now_ns));
    Deliver();
  }

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  CoordinatorMachine coordinator_;
  std::deque<RankMachine> ranks_;
  std::deque<InFlight> queue_;
  std::map<CallToken, Result<FramePtr>> completed_;
  CallToken next_token_ = 1;
};

class LocalLink final : public RankLink {
 public:
  LocalLink(std::shared_ptr<LocalHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  Result<FramePtr> Call(Ask ask) override { return hub_->Call(rank_, std::move(ask)); }
  void Leave(const std::string& channel) override { hub_->Leave(rank_, channel); }
  void GiveUp(const Error& error) override { hub_->GiveUp(rank_, error); }
  const Clock& clock() const override { return hub_->clock(); }
  int64_t JobBeginNs() override { return hub_->JobBeginNs(rank_); }

 private:
  std::shared_ptr<LocalHub> hub_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<RankExchange>> MakeLocalExchanges(int world_size, const Clock& clock) {
  const auto hub = std::make_shared<LocalHub>(world_size, clock);
  std::vector<std::unique_ptr<RankExchange>> exchanges;
  for (int rank = 0; rank < world_size; ++rank) {
    exchanges.push_back(MakeJobExchange(std::make_shared<LocalLink>(hub, rank), rank, world_size));
  }
  return exchanges;
}

}  // namespace cotune::sync
