#include "sync/socket/socket_link.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "sync/socket/process_state.h"
#include "sync/socket/signal_mask.h"
#include "sync/wire/limits.h"

namespace cotune::sync {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr int64_t kWaitMaxNs = 3'600'000'000'000;

}  // namespace

Result<std::shared_ptr<SocketLink>> SocketLink::Make(RankConfig config, HomeFd socket,
                                                     std::unique_ptr<CoordinatorServer> server,
                                                     const Clock& clock, OnLoss on_loss) {
  HomeFd wake = HomeFd::Make([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (wake.get() < 0) {
    return Fail(ErrorCode::kEnvironment, "cannot make an eventfd: " + ErrnoText(errno), "",
                "too many open files", "raise the limit (ulimit -n)");
  }
  config.coordinator_state = [fd = socket.get(), ranks = config.job.world_size] {
    return PeerStateOf(LookAtPeer(fd, ranks));
  };
  return std::shared_ptr<SocketLink>(
      new SocketLink(std::move(config), std::move(socket), std::move(wake), std::move(server),
                     clock, std::move(on_loss)),
      [](SocketLink* link) {
        if (link->home_.IsHere()) delete link;
      });
}

SocketLink::SocketLink(RankConfig config, HomeFd socket, HomeFd wake,
                       std::unique_ptr<CoordinatorServer> server, const Clock& clock,
                       OnLoss on_loss)
    : clock_(clock),
      frame_bytes_max_(ReleaseFrameBytesMax(config.job.world_size)),
      heartbeat_interval_ns_(config.heartbeat_interval_ns),
      on_loss_(std::move(on_loss)),
      server_(std::move(server)),
      socket_(std::move(socket)),
      wake_(std::move(wake)),
      machine_(std::move(config)),
      read_buffer_(kReadBytes) {
  const SignalsBlocked signals_go_to_other_threads;
  heartbeat_thread_ = std::thread([this] { BeatUntilStopped(); });
}

SocketLink::~SocketLink() {
  Leave("");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    WakeReader();
  }
  stop_.notify_all();
  heartbeat_thread_.join();
  // The coordinator must see this rank go before it waits for everybody to be gone.
  shutdown(socket_.get(), SHUT_RDWR);
  server_.reset();
}

void SocketLink::BeatUntilStopped() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const int64_t next_ns = AddNs(clock_.now_ns(), heartbeat_interval_ns_);
    // A caller reads for itself, which spares its answer the way through this thread.
    while (!stopping_ && connected_ && calls_open_ == 0 && clock_.now_ns() < next_ns) {
      ReadOnce(lock, next_ns);
      changed_.notify_all();
    }
    const int64_t left_ns = next_ns - clock_.now_ns();
    if (!stopping_ && left_ns > 0) stop_.wait_for(lock, std::chrono::nanoseconds(left_ns));
    if (!stopping_) OnEvent(HeartbeatDue{});
  }
}

Result<FramePtr> SocketLink::Call(Ask ask) {
  COTUNE_RETURN_IF_ERROR(home_.Check());
  std::unique_lock lock(mutex_);
  const CallToken token = next_token_++;
  ++calls_open_;
  std::visit(
      [&](auto& event) {
        event.token = token;
        OnEvent(event);
      },
      ask);
  WakeReader();  // it waits for the deadlines that it knew
  while (!completed_.contains(token)) {
    if (reading_) {
      changed_.wait(lock);
      continue;
    }
    ReadOnce(lock, INT64_MAX);
    changed_.notify_all();
  }
  --calls_open_;
  Result<FramePtr> result = std::move(completed_.at(token));
  completed_.erase(token);
  return result;
}

void SocketLink::Leave(const std::string& channel) {
  if (!home_.IsHere()) return;
  const std::lock_guard lock(mutex_);
  OnEvent(LeaveAsked{channel});
}

void SocketLink::GiveUp(const Error& error) {
  if (!home_.IsHere()) return;
  const std::lock_guard lock(mutex_);
  OnEvent(GiveUpAsked{error});
  // Threads that wait take their results, also while one of them reads.
  WakeReader();
  changed_.notify_all();
}

int64_t SocketLink::JobBeginNs() {
  const std::lock_guard lock(mutex_);
  return machine_.job_clock().begin_ns();
}

void SocketLink::OnEvent(const RankEvent& event) {
  for (RankAction& action : machine_.OnEvent(event, clock_.now_ns())) {
    std::visit([this](auto& a) { Do(a); }, action);
  }
}

void SocketLink::Do(SendToCoordinator& action) {
  if (!connected_ || (action.droppable && !outbox_.empty())) return;
  outbox_ += EncodeFrame(*action.frame);
  Flush();
  if (!outbox_.empty()) WakeReader();
}

void SocketLink::Do(CompleteCall& action) {
  completed_.emplace(action.token, std::move(action.result));
}

void SocketLink::Do(ReportLoss& action) {
  if (on_loss_) on_loss_(action.error);
}

void SocketLink::Do(Disconnect&) {
  connected_ = false;
  outbox_.clear();
  shutdown(socket_.get(), SHUT_RDWR);
}

void SocketLink::Flush() {
  size_t sent_bytes = 0;
  while (sent_bytes < outbox_.size()) {
    const ssize_t sent = send(socket_.get(), outbox_.data() + sent_bytes,
                              outbox_.size() - sent_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    // Gone. What it said last is still to be read, and the end of reading names the culprit.
    if (sent < 0) sent_bytes = outbox_.size();
    if (sent > 0) sent_bytes += static_cast<size_t>(sent);
  }
  outbox_.erase(0, sent_bytes);
}

void SocketLink::WakeReader() {
  if (!reading_) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the reader is awake anyway.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

// Waits for the socket, without the mutex, and handles what comes, or the time that has come.
void SocketLink::ReadOnce(std::unique_lock<std::mutex>& lock, int64_t until_ns) {
  const int64_t next_ns = std::min(machine_.next_time_ns(), until_ns);
  const int64_t now_ns = clock_.now_ns();
  const int64_t wait_ns = next_ns <= now_ns ? 0 : std::min(next_ns - now_ns, kWaitMaxNs);
  std::array<pollfd, 2> polled = {};
  polled[0] = {socket_.get(), static_cast<short>(outbox_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  polled[1] = {wake_.get(), POLLIN, 0};
  const timespec timeout = {wait_ns / 1'000'000'000, wait_ns % 1'000'000'000};
  reading_ = true;
  lock.unlock();
  const int ready = ppoll(polled.data(), polled.size(), &timeout, nullptr);
  lock.lock();
  reading_ = false;
  if (polled[1].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = read(wake_.get(), &count, sizeof(count));
  }
  if ((polled[0].revents & POLLOUT) != 0) Flush();
  if ((polled[0].revents & ~POLLOUT) != 0) {
    Receive();
  } else if (ready == 0) {
    OnEvent(RankTimeReached{});  // only when nothing waits to be read
  }
}

void SocketLink::Receive() {
  const ssize_t bytes = recv(socket_.get(), read_buffer_.data(), read_buffer_.size(), MSG_DONTWAIT);
  if (bytes < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return;
  if (bytes <= 0) {
    OnEvent(CoordinatorEnded{bytes < 0 ? ErrnoText(errno) : ""});
    return;
  }
  reader_.Append(std::string_view(read_buffer_.data(), static_cast<size_t>(bytes)));
  OnEvent(CoordinatorBytesCame{});
  while (true) {
    Result<FramePtr> frame = reader_.Next(frame_bytes_max_);
    if (!frame) {
      OnEvent(CoordinatorBadBytesCame{frame.error().what});
      return;
    }
    if (*frame == nullptr) return;
    OnEvent(CoordinatorFrameCame{*std::move(frame)});
  }
}

}  // namespace cotune::sync
