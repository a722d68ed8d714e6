#include "sync/testing/scripted_rank.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

bool IsAt(const wire::Frame& frame, bool after, FaultPoint point) {
  const bool arrives = frame.has_arrive();
  switch (point) {
    case FaultPoint::kBeforeHello:
      return frame.has_hello() && !after;
    case FaultPoint::kAfterHello:
      return frame.has_hello() && after;
    case FaultPoint::kBeforeStep:
      return arrives && frame.arrive().kind() == wire::CALL_STEP && !after;
    case FaultPoint::kBeforePreSync:
      return arrives && frame.arrive().kind() == wire::CALL_PRE_SYNC && !after;
    case FaultPoint::kBeforeVote:
      return frame.has_vote() && !after;
    case FaultPoint::kAfterVote:
      return frame.has_vote() && after;
    case FaultPoint::kBeforeAcknowledge:
      return frame.has_acknowledge() && !after;
  }
  return false;
}

CallAsked MakeCall(wire::CallKind kind, const std::string& name, int64_t deadline_ns,
                   int64_t window_ns) {
  CallAsked call{1, {}, deadline_ns};
  call.arrive.set_kind(kind);
  call.arrive.set_name(name);
  call.arrive.set_window_duration_ns(window_ns);
  return call;
}

}  // namespace

ScriptedRank::ScriptedRank(const SocketExchangeOptions& options, FaultPoint point, FaultKind kind,
                           int64_t deadline_ns, int64_t window_ns, Reporter& reporter)
    : options_(options),
      point_(point),
      kind_(kind),
      deadline_ns_(deadline_ns),
      window_ns_(window_ns),
      reporter_(reporter),
      machine_({{options.world_size, options.job_id, options.code_version},
                options.rank,
                options.heartbeat_interval_ns,
                options.heartbeat_timeout_ns}) {}

void ScriptedRank::Run() {
  if (point_ == FaultPoint::kBeforeHello) Fault();
  Result<HomeFd> socket =
      ConnectTo(options_.socket_path, options_.rank, MonotonicClock(), options_.deadline_ns);
  if (!socket) return reporter_.ErrorLine(socket.error());
  socket_ = std::move(*socket);
  if (!Await(JoinAsked{1, options_.deadline_ns})) return;
  reporter_.Line("joined");
  if (!Await(MakeCall(wire::CALL_STEP, "first", NowNs() + deadline_ns_, 0))) return;
  reporter_.Line("first");
  const auto met = Await(MakeCall(wire::CALL_PRE_SYNC, "", NowNs() + deadline_ns_, window_ns_));
  if (!met) return;
  reporter_.Line((*met)->release().met() ? "met" : "missed");
  if (!Await(MakeCall(wire::CALL_AGREE, "", NowNs() + deadline_ns_, 0))) return;
  const auto decided = Await(VoteAsked{1, "", true});
  if (!decided) return;
  reporter_.Line((*decided)->decision().ruling() == wire::RULING_GO ? "committed" : "declined");
  if (!Await(MakeCall(wire::CALL_STEP, "last", NowNs() + deadline_ns_, 0))) return;
  reporter_.Line("last");
  Do(LeaveAsked{""});
}

std::optional<FramePtr> ScriptedRank::Await(const RankEvent& event) {
  completed_.reset();
  Do(event);
  while (!completed_.has_value()) ReceiveOnce();
  if (!*completed_) {
    reporter_.ErrorLine(completed_->error());
    return std::nullopt;
  }
  return **completed_;
}

void ScriptedRank::Do(const RankEvent& event) {
  for (RankAction& action : machine_.OnEvent(event, NowNs())) {
    if (auto* send = std::get_if<SendToCoordinator>(&action)) {
      FaultIfAt(*send->frame, false);
      SendFrame(*send->frame);
      FaultIfAt(*send->frame, true);
    } else if (auto* complete = std::get_if<CompleteCall>(&action)) {
      completed_ = std::move(complete->result);
    }
  }
}

// Small frames on an empty socket always fit.
void ScriptedRank::SendFrame(const wire::Frame& frame) {
  const std::string bytes = EncodeFrame(frame);
  [[maybe_unused]] const ssize_t sent =
      send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void ScriptedRank::FaultIfAt(const wire::Frame& frame, bool after) {
  if (point_ != FaultPoint::kBeforeHello && IsAt(frame, after, point_)) Fault();
}

void ScriptedRank::Fault() {
  reporter_.Line("fault");
  if (kind_ == FaultKind::kKill) raise(SIGKILL);
  if (kind_ == FaultKind::kStop) raise(SIGSTOP);
  if (kind_ != FaultKind::kLate) return;
  wire::Frame heartbeat;
  heartbeat.mutable_heartbeat();
  while (!reporter_.HeardWord(options_.heartbeat_interval_ns)) {
    if (socket_.get() >= 0) SendFrame(heartbeat);
  }
}

void ScriptedRank::ReceiveOnce() {
  pollfd polled = {socket_.get(), POLLIN, 0};
  const int wait_ms = static_cast<int>(options_.heartbeat_interval_ns / 1'000'000);
  if (poll(&polled, 1, wait_ms) == 0) {
    Do(HeartbeatDue{});
    if (NowNs() >= machine_.next_time_ns()) Do(RankTimeReached{});
    return;
  }
  std::array<char, 65536> buffer;
  const ssize_t bytes = recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (bytes <= 0) return Do(CoordinatorEnded{"test"});
  reader_.Append(std::string_view(buffer.data(), static_cast<size_t>(bytes)));
  while (true) {
    Result<FramePtr> frame = reader_.Next(ReleaseFrameBytesMax(options_.world_size));
    if (!frame || *frame == nullptr) return;
    Do(CoordinatorFrameCame{*std::move(frame)});
  }
}

}  // namespace cotune::sync
