// One worker of UCX and its endpoints to all ranks of a group. Requests live in memory of the
// caller, so that posting allocates nothing here.
#ifndef COTUNE_PLUGINS_UCX_WORKER_H_
#define COTUNE_PLUGINS_UCX_WORKER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
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

 private:
  std::vector<Request> requests_;
  std::vector<std::byte> memory_;
};

// When a send is complete: its buffer is free, or the receiver has also begun to receive it.
enum class Completion { kSent, kMatched };

// One thread at a time.
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> Create(const Context& context);
  // Completes what is still open as cancelled.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // How the other ranks reach this one.
  Result<std::string> Address() const;
  // Endpoints to all ranks but `rank`, by their addresses.
  Result<void> Connect(int rank, const std::vector<std::string>& addresses);

  // True where something happened.
  bool Progress() const { return ucx_->ucp_worker_progress(handle_) != 0; }

  // The request must not be open. Counts *open up, and down when the message is complete.
  void Send(Request& request, int peer, const void* data, uint64_t bytes, uint64_t tag,
            uint32_t* open, Completion completion = Completion::kSent);
  // `peer` is who will send, for messages about it; -1: anyone. A message of another length than
  // `bytes` completes as an error.
  void Receive(Request& request, int peer, void* data, uint64_t bytes, uint64_t tag, uint64_t mask,
               uint32_t* open);
  // A receive completes later, if it can be cancelled; a send ends with its connection only.
  void Cancel(Request& request);
  // Ends the connection to a rank, and with it all messages that are open for it.
  void Disconnect(int peer);

  // Why the connection to a rank does not work any more; UCS_OK while it does.
  ucs_status_t PeerStatus(int peer) const { return peers_[static_cast<size_t>(peer)].status; }
  // The first message of a call that ended by an error other than that it was cancelled.
  struct FailedRequest {
    int peer = 0;
    ucs_status_t status = UCS_OK;
  };
  const FailedRequest& failed_request() const { return failed_request_; }

  // Gives what was sent to the network, or gives up at `end_ns` (on the clock given).
  template <class Clock>
  bool Flush(int64_t end_ns, Clock now_ns);

  // "sysv, tcp/eth0": the transports of the connection to a rank, as UCX reports them.
  std::string TransportsTo(int peer) const;

 private:
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    ucs_status_t status = UCS_OK;
  };

  explicit Worker(const Context& context) : ucx_(context.ucx()) {}
  static void OnSent(void* handle, ucs_status_t status, void* request);
  static void OnReceived(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* request);
  static void OnPeerFailed(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  void Complete(Request& request, ucs_status_t status);
  void Settle(Request& request, void* answer);
  // Drops messages that have come and that nobody has received.
  void Drain();
  void* BeginFlush() const;
  bool IsComplete(void* flush) const;
  void Abandon(void* flush) const;

  const UcxLibrary& ucx_;
  ucp_worker_h handle_ = nullptr;
  std::array<Peer, kRanksMax> peers_;
  FailedRequest failed_request_;
  std::byte sink_{};
};

template <class Clock>
bool Worker::Flush(int64_t end_ns, Clock now_ns) {
  void* const flush = BeginFlush();
  while (!IsComplete(flush)) {
    if (now_ns() >= end_ns) {
      Abandon(flush);
      return false;
    }
    Progress();
  }
  return true;
}

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_WORKER_H_
