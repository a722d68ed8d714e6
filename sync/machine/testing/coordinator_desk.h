// A coordinator that a test feeds event by event.
#ifndef COTUNE_SYNC_MACHINE_TESTING_COORDINATOR_DESK_H_
#define COTUNE_SYNC_MACHINE_TESTING_COORDINATOR_DESK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sync/machine/coordinator_machine.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {

inline constexpr int64_t kMillisecondNs = 1'000'000;

// A coordinator of `world_size` ranks and what it did at the last event.
class Desk {
 public:
  explicit Desk(int world_size) : world_size_(world_size), machine_({Job()}) {}

  JobIdentity Job() const { return {world_size_, "job", "1.0"}; }

  void At(int64_t now_ns, const CoordinatorEvent& event) {
    sent_.clear();
    closed_.clear();
    logged_.clear();
    logged_failure_.reset();
    for (const CoordinatorAction& action : machine_.OnEvent(event, now_ns)) {
      if (const auto* send = std::get_if<SendFrame>(&action)) {
        if (!send->frame->has_heartbeat()) sent_.push_back(*send);
      } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
        closed_.push_back(close->id);
      } else {
        const LogLine& line = std::get<LogLine>(action);
        logged_.push_back(line.text);
        logged_failure_ = line.failure;
      }
    }
  }

  void Frame(int64_t now_ns, ConnectionId id, wire::Frame frame) {
    At(now_ns, FrameCame{id, std::make_shared<wire::Frame>(std::move(frame))});
  }

  // Rank r is connection r + 1.
  void Hello(int64_t now_ns, int rank) {
    At(now_ns, Connected{static_cast<ConnectionId>(rank) + 1});
    wire::Frame frame;
    *frame.mutable_hello() = MakeHello(Job(), rank, INT64_MAX);
    Frame(now_ns, static_cast<ConnectionId>(rank) + 1, frame);
  }

  void JoinAll(int64_t now_ns) {
    for (int rank = 0; rank < world_size_; ++rank) Hello(now_ns, rank);
    At(now_ns, TimeReached{});  // the first heartbeats
  }

  void Arrive(int64_t now_ns, int rank, uint64_t call, wire::CallKind kind,
              const std::string& name = "", int64_t deadline_ns = INT64_MAX,
              int64_t window_ns = 0) {
    wire::Frame frame;
    frame.mutable_arrive()->set_call(call);
    frame.mutable_arrive()->set_kind(kind);
    frame.mutable_arrive()->set_name(name);
    frame.mutable_arrive()->set_deadline_left_ns(LeftNs(deadline_ns, now_ns));
    frame.mutable_arrive()->set_window_duration_ns(window_ns);
    Frame(now_ns, static_cast<ConnectionId>(rank) + 1, frame);
  }

  const std::vector<SendFrame>& sent() const { return sent_; }
  const std::vector<ConnectionId>& closed() const { return closed_; }
  const std::vector<std::string>& logged() const { return logged_; }
  // The failure that the last of these lines is about.
  std::optional<ErrorCode> logged_failure() const { return logged_failure_; }
  const CoordinatorMachine& machine() const { return machine_; }
  const Error& failure() const {
    static const Error none;
    return machine_.failure().has_value() ? *machine_.failure() : none;
  }

 private:
  int world_size_;
  CoordinatorMachine machine_;
  std::vector<SendFrame> sent_;
  std::vector<ConnectionId> closed_;
  std::vector<std::string> logged_;
  std::optional<ErrorCode> logged_failure_;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_TESTING_COORDINATOR_DESK_H_
