#include "plugins/ucx/worker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace cotune::ucx {
namespace {

constexpr size_t kRequestAlignment = 64;

// Names of the transports in UCX's report of an endpoint, each once.
std::string TransportsIn(const std::string& report) {
  std::vector<std::string> names;
  // Lines such as "#   lane[0]:  2:sysv/memory.0 md[1] -> ...".
  for (size_t at = report.find("lane["); at != std::string::npos;
       at = report.find("lane[", at + 1)) {
    const size_t colon = report.find(':', report.find("]:", at) + 2);
    const size_t end = report.find(' ', colon);
    if (colon == std::string::npos || end == std::string::npos) break;
    std::string name = report.substr(colon + 1, end - colon - 1);
    name = name.substr(0, name.find_last_of('.'));
    // The only device of shared memory says nothing.
    constexpr std::string_view kMemoryDevice = "/memory";
    if (name.ends_with(kMemoryDevice)) name.resize(name.size() - kMemoryDevice.size());
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

RequestPool::RequestPool(const Context& context, size_t requests) : requests_(requests) {
  // UCX's part of a request lies in front of its handle.
  const size_t stride = (context.request_bytes() / kRequestAlignment + 2) * kRequestAlignment;
  memory_.resize(stride * requests + kRequestAlignment);
  const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
  const size_t offset = (kRequestAlignment - begin % kRequestAlignment) % kRequestAlignment;
  for (size_t i = 0; i < requests; ++i) {
    requests_[i].handle_ = memory_.data() + offset + i * stride + context.request_bytes();
  }
}

Result<std::unique_ptr<Worker>> Worker::Create(const Context& context) {
  std::unique_ptr<Worker> worker(new Worker(context));
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // Calls on a group come one at a time, but not all from the thread that made it.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status =
      worker->ucx_->ucp_worker_create(context.handle(), &params, &worker->handle_);
  if (status == UCS_OK) return worker;
  worker->handle_ = nullptr;
  return Fail(COTUNE_OUT_OF_RESOURCES,
              fmt::format("UCX cannot make a worker: {}; see the limits of shared memory and open "
                          "files",
                          worker->ucx_.StatusText(status)),
              status);
}

Worker::~Worker() {
  if (handle_ == nullptr) return;
  for (int peer = 0; peer < kRanksMax; ++peer) Disconnect(peer);
  // What is left of closed connections goes with the next polls.
  constexpr int kPolls = 1000;
  for (int i = 0; i < kPolls; ++i) Progress();
  Drain();
  ucx_->ucp_worker_destroy(handle_);
}

void Worker::Disconnect(int peer) {
  Peer& closed = peers_[static_cast<size_t>(peer)];
  if (closed.endpoint == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* const closing = ucx_->ucp_ep_close_nbx(closed.endpoint, &params);
  closed.endpoint = nullptr;
  closed.status = UCS_ERR_CANCELED;
  if (!UCS_PTR_IS_PTR(closing)) return;
  // Closing by force needs no peer, and so it ends.
  while (ucx_->ucp_request_check_status(closing) == UCS_INPROGRESS) Progress();
  ucx_->ucp_request_free(closing);
}

Result<std::string> Worker::Address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucx_->ucp_worker_get_address(handle_, &address, &bytes);
  if (status != UCS_OK) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("UCX gives no address: {}; see ucx.tls and ucx.net_devices",
                            ucx_.StatusText(status)),
                status);
  }
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucx_->ucp_worker_release_address(handle_, address);
  return copy;
}

Result<void> Worker::Connect(int rank, const std::vector<std::string>& addresses) {
  for (size_t r = 0; r < addresses.size(); ++r) {
    if (static_cast<int>(r) == rank) continue;
    Peer& peer = peers_[r];
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses[r].data());
    // A peer that has died ends the requests to it.
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {OnPeerFailed, &peer};
    const ucs_status_t status = ucx_->ucp_ep_create(handle_, &params, &peer.endpoint);
    if (status == UCS_OK) continue;
    peer.endpoint = nullptr;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("UCX finds no way to rank {} of the group: {}; do all ranks have the "
                            "transports of ucx.tls, and a network in common?",
                            r, ucx_.StatusText(status)),
                status, static_cast<int>(r));
  }
  return {};
}

void Worker::Complete(Request& request, ucs_status_t status) {
  request.status_ = status;
  request.is_open_ = false;
  if (request.open_ == nullptr) return;
  --*request.open_;
  const bool is_failure = status != UCS_OK && status != UCS_ERR_CANCELED && request.peer_ >= 0;
  if (is_failure && failed_request_.status == UCS_OK) failed_request_ = {request.peer_, status};
}

void Worker::OnSent(void* /*handle*/, ucs_status_t status, void* request) {
  auto& sent = *static_cast<Request*>(request);
  sent.worker_->Complete(sent, status);
}

void Worker::OnReceived(void* /*handle*/, ucs_status_t status, const ucp_tag_recv_info_t* info,
                        void* request) {
  auto& received = *static_cast<Request*>(request);
  const bool fits = status != UCS_OK || info->length == received.bytes_;
  received.worker_->Complete(received, fits ? status : UCS_ERR_MESSAGE_TRUNCATED);
}

void Worker::OnPeerFailed(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto& failed = *static_cast<Peer*>(peer);
  failed.status = status;
}

// The answer of UCX to a post: complete already, an error, or on its way.
void Worker::Settle(Request& request, void* answer) {
  if (answer == nullptr) return Complete(request, UCS_OK);
  if (UCS_PTR_IS_ERR(answer)) Complete(request, UCS_PTR_STATUS(answer));
}

void Worker::Send(Request& request, int peer, const void* data, uint64_t bytes, uint64_t tag,
                  uint32_t* open, Completion completion) {
  request.is_open_ = true;
  request.is_send_ = true;
  request.worker_ = this;
  request.peer_ = peer;
  request.bytes_ = bytes;
  request.open_ = open;
  if (open != nullptr) ++*open;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.request = request.handle_;
  params.cb.send = OnSent;
  params.user_data = &request;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucp_ep_h endpoint = peers_[static_cast<size_t>(peer)].endpoint;
  if (endpoint == nullptr) return Complete(request, UCS_ERR_NOT_CONNECTED);
  const auto send =
      completion == Completion::kMatched ? ucx_->ucp_tag_send_sync_nbx : ucx_->ucp_tag_send_nbx;
  Settle(request, send(endpoint, data, bytes, tag, &params));
}

void Worker::Receive(Request& request, int peer, void* data, uint64_t bytes, uint64_t tag,
                     uint64_t mask, uint32_t* open) {
  request.is_open_ = true;
  request.is_send_ = false;
  request.worker_ = this;
  request.peer_ = peer;
  request.bytes_ = bytes;
  request.open_ = open;
  if (open != nullptr) ++*open;
  ucp_request_param_t params{};
  // The callback knows the length of what has come, also of a message that was there before.
  params.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.request = request.handle_;
  params.cb.recv = OnReceived;
  params.user_data = &request;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  Settle(request, ucx_->ucp_tag_recv_nbx(handle_, data, bytes, tag, mask, &params));
}

void Worker::Cancel(Request& request) {
  if (request.is_open_ && !request.is_send_) ucx_->ucp_request_cancel(handle_, request.handle_);
}

void Worker::Drain() {
  ucp_tag_recv_info_t info{};
  while (true) {
    constexpr int kRemove = 1;
    ucp_tag_message_h message = ucx_->ucp_tag_probe_nb(handle_, 0, 0, kRemove, &info);
    if (message == nullptr) return;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    // A sender that waits for its data to be taken is told that there is no room.
    void* const taken = ucx_->ucp_tag_msg_recv_nbx(handle_, &sink_, 0, message, &params);
    if (!UCS_PTR_IS_PTR(taken)) continue;
    constexpr int kPolls = 1000;
    for (int i = 0; i < kPolls && ucx_->ucp_request_check_status(taken) == UCS_INPROGRESS; ++i) {
      Progress();
    }
    ucx_->ucp_request_free(taken);
  }
}

void* Worker::BeginFlush() const {
  ucp_request_param_t params{};
  return ucx_->ucp_worker_flush_nbx(handle_, &params);
}

bool Worker::IsComplete(void* flush) const {
  if (!UCS_PTR_IS_PTR(flush)) return true;
  if (ucx_->ucp_request_check_status(flush) == UCS_INPROGRESS) return false;
  ucx_->ucp_request_free(flush);
  return true;
}

void Worker::Abandon(void* flush) const { ucx_->ucp_request_free(flush); }

std::string Worker::TransportsTo(int peer) const {
  const ucp_ep_h endpoint = peers_[static_cast<size_t>(peer)].endpoint;
  if (endpoint == nullptr) return "";
  char* text = nullptr;
  size_t size = 0;
  FILE* const stream = open_memstream(&text, &size);
  if (stream == nullptr) return "";
  ucx_->ucp_ep_print_info(endpoint, stream);
  fclose(stream);
  const std::string report(text, size);
  free(text);
  return TransportsIn(report);
}

}  // namespace cotune::ucx
