// One worker of UCX and its endpoints to all ranks of a group. Requests live in memory of the
// caller, so that posting allocates nothing here.
//
// UCX writes into buffers only while it is polled, and some of its receives cannot be stopped: one
// of several fragments that has begun goes on when the next fragment comes, also after its
// connection was closed. A worker with such a receive is abandoned: it is never polled again and
// stays with the process, with all memory that UCX knows.
#ifndef COTUNE_PLUGINS_UCX_WORKER_H_
#define COTUNE_PLUGINS_UCX_WORKER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/ucx/context.h"
#include "plugins/ucx/sdk_names.h"

namespace cotune::ucx {

class Worker;

// A message that was posted, or may be. Its place in memory does not change.
class Request {
 public:
  bool is_open() const { return is_open_; }
  // Of a message that is complete.
  ucs_status_t status() const { return status_; }
  int peer() const { return peer_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Worker;
  friend class RequestPool;
  bool is_open_ = false;
  bool is_send_ = false;
  bool is_cancelled_ = false;  // by the caller, not by UCX
  ucs_status_t status_ = UCS_OK;
  int peer_ = 0;
  uint64_t bytes_ = 0;
  Worker* worker_ = nullptr;
  void* handle_ = nullptr;    // UCX's part of it ends here
  uint32_t* open_ = nullptr;  // is counted down when it completes
};

// Requests with the memory that UCX needs for them.
class RequestPool {
 public:
  RequestPool(const Context& context, size_t requests);

  Request& operator[](size_t index) { return requests_[index]; }
  std::vector<Request>& all() { return requests_; }
  const std::vector<Request>& all() const { return requests_; }
  // Messages that complete later count nothing down: the owner of the counters ends.
  void DetachCounters() {
    for (Request& request : requests_) request.open_ = nullptr;
  }

 private:
  std::vector<Request> requests_;
  std::vector<std::byte> memory_;
};

// When a send is complete: its buffer is free, or the receiver has also begun to receive it.
enum class Completion { kSent, kMatched };

// Ends a worker, or leaves it to the process if it is abandoned.
struct WorkerDeleter {
  void operator()(Worker* worker) const;
};
using OwnedWorker = std::unique_ptr<Worker, WorkerDeleter>;

// One thread at a time. No function waits without an end.
class Worker {
 public:
  static Result<OwnedWorker> Create(std::shared_ptr<const Context> context);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // How the other ranks reach this one.
  Result<std::string> Address() const;
  // Endpoints to all ranks but `rank`, by their addresses.
  Result<void> Connect(int rank, const std::vector<std::string>& addresses);

  // Polls while the condition holds, for this time at most, but at least kPollsMin times: the
  // thread may have no processor for long.
  void PollWhile(const std::function<bool()>& waits, int64_t within_ns) const;
  // True where something happened.
  bool Progress() const { return !is_abandoned_ && ucx_->ucp_worker_progress(handle_) != 0; }

  // The request must not be open. Counts *open up, and down when the message is complete.
  void Send(Request& request, int peer, const void* data, uint64_t bytes, uint64_t tag,
            uint32_t* open, Completion completion = Completion::kSent);
  // `peer` is who will send, for messages about it; -1: anyone. A message of another length than
  // `bytes` completes as an error.
  void Receive(Request& request, int peer, void* data, uint64_t bytes, uint64_t tag, uint64_t mask,
               uint32_t* open);
  // A receive completes later, if it can be cancelled; a send ends with its connection only.
  void Cancel(Request& request);
  // Ends the connections to ranks (a bit each), and with them the messages that are open for them,
  // but for receives that have begun. Abandons the worker if UCX does not close them in time.
  void Disconnect(uint64_t peers, int64_t within_ns);
  // From now on UCX gets no turn: no message goes on, and no buffer is touched.
  void Abandon() { is_abandoned_ = true; }
  bool is_abandoned() const { return is_abandoned_; }
  // Ends all connections and frees what UCX has; what is still open completes as cancelled.
  // Abandons the worker if it waits for a peer that does not read.
  void Close();
  // Keeps memory that UCX may know for as long as the worker lives.
  void Keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }

  // Why the connection to a rank does not work any more; UCS_OK while it does.
  ucs_status_t PeerStatus(int peer) const { return peers_[static_cast<size_t>(peer)].status; }
  // The first message of a call that ended without success and was not given to Cancel. UCX ends a
  // message as cancelled by itself, too, if the connection to its sender is lost.
  struct FailedRequest {
    int peer = 0;
    ucs_status_t status = UCS_OK;
  };
  const FailedRequest& failed_request() const { return failed_request_; }

  // Returns true if the system, or the network device, has taken all data that was sent. Over TCP a
  // message is complete before: the part for which the socket has no room waits for further polls.
  bool IsSent();
  // Waits until the peers have taken what was sent, but not for longer than `within_ns`.
  void AwaitTaken(int64_t within_ns);

  // "sysv, tcp/eth0": the transports of the connection to a rank, as UCX reports them.
  std::string TransportsTo(int peer) const;

 private:
  static constexpr int kPollsMin = 1000;

  struct Peer {
    ucp_ep_h endpoint = nullptr;
    ucs_status_t status = UCS_OK;
  };

  friend struct WorkerDeleter;
  explicit Worker(std::shared_ptr<const Context> context)
      : context_(std::move(context)), ucx_(context_->ucx()) {}
  ~Worker() = default;
  static void OnSent(void* handle, ucs_status_t status, void* request);
  static void OnReceived(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* request);
  static void OnPeerFailed(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  void Complete(Request& request, ucs_status_t status);
  void Settle(Request& request, void* answer);
  // Drops messages that have come and that nobody has received.
  void Drain();
  // Takes the answer of UCX to a flush or a close.
  bool IsInProgress(void* answer) const;
  void Free(void* answer) const;
  // Polls until all are complete, and frees them. False: not within the time.
  bool AwaitAll(const std::vector<void*>& answers, int64_t within_ns) const;

  const std::shared_ptr<const Context> context_;
  const UcxLibrary& ucx_;
  ucp_worker_h handle_ = nullptr;
  std::array<Peer, kRanksMax> peers_;
  FailedRequest failed_request_;
  void* flush_ = nullptr;  // the request by which IsSent asks
  bool is_abandoned_ = false;
  std::vector<std::shared_ptr<void>> kept_;
  std::byte sink_{};
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_WORKER_H_
