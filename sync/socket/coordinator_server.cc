#include "sync/socket/coordinator_server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/fork_guard.h"
#include "sync/socket/process_state.h"
#include "sync/socket/signal_mask.h"
#include "sync/socket/socket_file.h"
#include "sync/socket/unix_socket.h"

namespace cotune::sync {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;

constexpr size_t kReadBytes = 64 * 1024;
constexpr int64_t kTimerMaxNs = 3'600'000'000'000;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// One connection: what has come and what waits to be sent.
struct Session {
  explicit Session(asio::io_context& context) : socket(context) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    error_code ignored;
    if (socket.is_open()) socket.release(ignored);
  }

  ConnectionId id = 0;
  HomeFd fd;                       // owns the descriptor
  stream_protocol::socket socket;  // waits on it
  FrameReader reader;
  std::array<char, kReadBytes> read_buffer;
  std::deque<std::shared_ptr<const std::string>> outbox;
  size_t sent_bytes = 0;      // of the outbox's front
  uint64_t outbox_bytes = 0;  // with what is sent of the front
  bool is_full = false;       // it asks and does not read
  bool waits_to_write = false;
  bool closing = false;
};

// The descriptors of a large job are more than a process usually may have.
void RaiseDescriptorLimit(int world_size, const LogSink& log) {
  constexpr rlim_t kOthers = 512;  // of the program
  // Those that have not said HELLO count too.
  const rlim_t wanted = 2 * static_cast<rlim_t>(world_size) + kUnidentifiedMax + kOthers;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  const bool is_raised = setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == wanted;
  if (is_raised || !log) return;
  log({Severity::kWarning,
       fmt::format("rank 0 may open {} files, a job of {} rank{} wants {}: raise ulimit -n",
                   limit.rlim_cur, world_size, world_size == 1 ? "" : "s", wanted)});
}

}  // namespace

// Everything but the constructor, Start and Stop runs on the server's thread.
class CoordinatorServer::Loop {
 public:
  Loop(CoordinatorServerOptions options, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        machine_(ConfigWithStates()),
        acceptor_(context_),
        timer_(context_),
        accept_timer_(context_),
        linger_timer_(context_) {}

  ~Loop() {
    error_code ignored;
    if (acceptor_.is_open()) acceptor_.release(ignored);
  }

  Status Start() {
    RaiseDescriptorLimit(options_.config.job.world_size, options_.log);
    Result<HomeFd> fd =
        ListenAt(options_.socket_path, options_.log, clock_, options_.listen_deadline_ns);
    COTUNE_RETURN_IF_ERROR(fd);
    listener_ = *std::move(fd);
    error_code error;
    acceptor_.assign(stream_protocol(), listener_.get(), error);
    if (error) return Fail(ErrorCode::kEnvironment, "cannot listen: " + error.message());
    Accept();
    const SignalsBlocked signals_go_to_other_threads;
    thread_ = std::thread([this] { context_.run(); });
    NoteSocketFile(options_.socket_path);
    return {};
  }

  void Stop() {
    if (!thread_.joinable()) return;
    asio::post(context_, [this] {
      stopping_ = true;
      linger_timer_.expires_after(std::chrono::nanoseconds(LingerNs()));
      linger_timer_.async_wait([this](error_code) { Finish(); });
      FinishWhenDone();
    });
    thread_.join();
    ForgetSocketFile(options_.socket_path);
    unlink(options_.socket_path.c_str());
  }

 private:
  using SessionPtr = std::shared_ptr<Session>;

  // The machine's configuration, with which it can look at the processes of ranks.
  CoordinatorConfig ConfigWithStates() {
    CoordinatorConfig config = options_.config;
    config.state_of = [this](ConnectionId id) {
      const auto found = sessions_.find(id);
      if (found == sessions_.end()) return PeerState();
      return PeerStateOf(LookAtPeer(found->second->fd.get(), options_.config.job.world_size));
    };
    return config;
  }
  void Accept();
  void AcceptOne();
  void OnAccepted(HomeFd fd);
  void Read(const SessionPtr& session);
  void OnRead(const SessionPtr& session, std::string_view bytes);
  void Flush(const SessionPtr& session);
  void Close(ConnectionId id);
  void OnEvent(const CoordinatorEvent& event);
  void Do(const SendFrame& action);
  void Do(const CloseConnection& action);
  void Do(const LogLine& action);
  void ArmTimer();
  int64_t LingerNs() const;
  void FinishWhenDone();
  void Finish();

  CoordinatorServerOptions options_;
  const Clock& clock_;
  CoordinatorMachine machine_;
  asio::io_context context_{1};
  HomeFd listener_;                     // owns the descriptor
  stream_protocol::acceptor acceptor_;  // waits on it
  asio::steady_timer timer_;
  asio::steady_timer accept_timer_;
  asio::steady_timer linger_timer_;
  int64_t timer_ns_ = INT64_MAX;  // what timer_ is set to
  std::map<ConnectionId, SessionPtr> sessions_;
  ConnectionId next_id_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

void CoordinatorServer::Loop::Accept() {
  acceptor_.async_wait(stream_protocol::acceptor::wait_read, [this](error_code error) {
    if (error != asio::error::operation_aborted) AcceptOne();
  });
}

// By the system's own call: Asio's leaves the descriptor open in programs that this one starts, and
// in forked children.
void CoordinatorServer::Loop::AcceptOne() {
  HomeFd fd = HomeFd::Make(
      [this] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  const int error = fd.get() < 0 ? errno : 0;
  if (error == 0) OnAccepted(std::move(fd));
  const bool is_out_of_descriptors =
      error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
  if (!is_out_of_descriptors) return Accept();  // anything else concerns that connection alone
  if (options_.log) options_.log({Severity::kWarning, "accept: " + ErrnoText(error)});
  accept_timer_.expires_after(kAcceptPause);  // let some go first
  accept_timer_.async_wait([this](error_code stopped) {
    if (!stopped) Accept();
  });
}

void CoordinatorServer::Loop::OnAccepted(HomeFd fd) {
  if (!SameUser(fd.get())) {
    if (options_.log) options_.log({Severity::kWarning, "a process of another user was refused"});
    return;
  }
  auto session = std::make_shared<Session>(context_);
  session->fd = std::move(fd);
  error_code error;
  session->socket.assign(stream_protocol(), session->fd.get(), error);
  if (error) {
    if (options_.log) options_.log({Severity::kWarning, "accept: " + error.message()});
    return;
  }
  session->id = next_id_++;
  sessions_[session->id] = session;
  OnEvent(Connected{session->id});
  Read(session);
}

void CoordinatorServer::Loop::Read(const SessionPtr& session) {
  session->socket.async_read_some(
      asio::buffer(session->read_buffer), [this, session](error_code error, size_t bytes) {
        if (session->closing || !sessions_.contains(session->id)) return;
        if (error) {
          OnEvent(ConnectionEnded{session->id});
          Close(session->id);
          FinishWhenDone();
          return;
        }
        OnRead(session, std::string_view(session->read_buffer.data(), bytes));
        if (!session->closing) Read(session);
      });
}

void CoordinatorServer::Loop::OnRead(const SessionPtr& session, std::string_view bytes) {
  const ConnectionId id = session->id;
  session->reader.Append(bytes);
  bool whole = false;
  while (!session->closing) {
    Result<FramePtr> frame = session->reader.Next(machine_.FrameBytesMax(id));
    if (!frame) {
      OnEvent(BadBytesCame{id, frame.error().what});
      // Nothing can be read after bad bytes, but what was queued for the rank still goes out.
      session->closing = true;
      if (session->outbox.empty()) Close(id);
      return;
    }
    if (*frame == nullptr) break;
    whole = true;
    OnEvent(FrameCame{id, *std::move(frame)});
  }
  if (!whole) OnEvent(BytesCame{id});
}

void CoordinatorServer::Loop::Do(const SendFrame& action) {
  const auto bytes = std::make_shared<const std::string>(EncodeFrame(*action.frame));
  for (const ConnectionId id : action.to) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) continue;
    const SessionPtr session = found->second;  // Flush may close it
    if (action.droppable && !session->outbox.empty()) continue;
    session->outbox.push_back(bytes);
    session->outbox_bytes += bytes->size();
    if (!session->waits_to_write) Flush(session);
    if (session->outbox_bytes <= OutboxBytesMax(options_.config.job.world_size)) continue;
    if (std::exchange(session->is_full, true)) continue;
    asio::post(context_, [this, id] {
      OnEvent(BadBytesCame{id, "it asks for more and more and reads no answer"});
    });
  }
}

// Sends what the socket takes now; asks for a call when it takes no more.
void CoordinatorServer::Loop::Flush(const SessionPtr& session) {
  while (!session->outbox.empty()) {
    const std::string& bytes = *session->outbox.front();
    const ssize_t sent = send(session->fd.get(), bytes.data() + session->sent_bytes,
                              bytes.size() - session->sent_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      session->waits_to_write = true;
      session->socket.async_wait(stream_protocol::socket::wait_write,
                                 [this, session](error_code error) {
                                   session->waits_to_write = false;
                                   if (error) return;
                                   Flush(session);
                                   FinishWhenDone();
                                 });
      return;
    }
    if (sent < 0) {
      session->outbox.clear();  // it is gone: reading will tell
      session->outbox_bytes = 0;
      session->sent_bytes = 0;
      return;
    }
    session->sent_bytes += static_cast<size_t>(sent);
    if (session->sent_bytes < bytes.size()) continue;
    session->outbox_bytes -= bytes.size();
    session->outbox.pop_front();
    session->sent_bytes = 0;
  }
  if (session->closing) Close(session->id);
}

void CoordinatorServer::Loop::Do(const CloseConnection& action) {
  const auto found = sessions_.find(action.id);
  if (found == sessions_.end()) return;
  found->second->closing = true;
  if (found->second->outbox.empty()) Close(action.id);
}

void CoordinatorServer::Loop::Do(const LogLine& action) {
  if (options_.log) options_.log(action);
}

void CoordinatorServer::Loop::Close(ConnectionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  error_code ignored;
  session.socket.release(ignored);  // handlers that still wait keep the session, and run
  session.fd = HomeFd();
  sessions_.erase(found);
}

void CoordinatorServer::Loop::OnEvent(const CoordinatorEvent& event) {
  const CoordinatorActions actions = machine_.OnEvent(event, clock_.now_ns());
  for (const CoordinatorAction& action : actions) {
    std::visit([this](const auto& a) { Do(a); }, action);
  }
  ArmTimer();
  FinishWhenDone();
}

// The timer is left alone while it is early enough: a wake-up too many costs less than setting it
// at every frame.
void CoordinatorServer::Loop::ArmTimer() {
  const int64_t next_ns = machine_.next_time_ns();
  if (next_ns >= timer_ns_) return;
  timer_ns_ = next_ns;
  const int64_t now_ns = clock_.now_ns();
  const int64_t wait_ns = next_ns <= now_ns ? 0 : std::min(next_ns - now_ns, kTimerMaxNs);
  timer_.expires_after(std::chrono::nanoseconds(wait_ns));
  timer_.async_wait([this](error_code error) {
    if (error) return;
    timer_ns_ = INT64_MAX;
    OnEvent(TimeReached{});
  });
}

int64_t CoordinatorServer::Loop::LingerNs() const {
  if (!machine_.failure().has_value()) return options_.linger_ns;
  const int64_t now_ns = clock_.now_ns();
  const int64_t until_ns = std::max(machine_.tell_until_ns(), now_ns);
  // Frames that are queued for the ranks need time even when nobody else may come.
  return until_ns == now_ns ? options_.linger_ns : std::min(until_ns - now_ns, options_.linger_ns);
}

void CoordinatorServer::Loop::FinishWhenDone() {
  if (!stopping_) return;
  // Ranks that are on their way must hear why the job failed, not find a closed door.
  const bool told = machine_.failure().has_value() && machine_.tell_until_ns() <= clock_.now_ns() &&
                    std::all_of(sessions_.begin(), sessions_.end(),
                                [](const auto& entry) { return entry.second->outbox.empty(); });
  if (told || (machine_.everybody_gone() && !machine_.failure().has_value())) Finish();
}

void CoordinatorServer::Loop::Finish() {
  if (context_.stopped()) return;
  stopping_ = false;  // StopAsked must not come back here
  for (const CoordinatorAction& action : machine_.OnEvent(StopAsked{}, clock_.now_ns())) {
    std::visit([this](const auto& a) { Do(a); }, action);
  }
  context_.stop();
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

CoordinatorServer::~CoordinatorServer() { loop_->Stop(); }

Result<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    CoordinatorServerOptions options, const Clock& clock) {
  auto loop = std::make_unique<Loop>(std::move(options), clock);
  COTUNE_RETURN_IF_ERROR(loop->Start());
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(loop)));
}

}  // namespace cotune::sync
