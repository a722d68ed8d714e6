#include "plugins/ucx/worker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cotune::ucx {
namespace {

constexpr size_t kRequestAlignment = 64;
// Closing by force needs no peer, so that it ends soon.
constexpr int64_t kCloseNs = 100'000'000;
// Time in which messages that nobody has received are dropped before a worker ends.
constexpr int64_t kDrainNs = 100'000'000;

int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

Result<OwnedWorker> Worker::Create(std::shared_ptr<const Context> context) {
  OwnedWorker worker(new Worker(std::move(context)));
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // Calls on a group come one at a time, but not all from the thread that made it.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status =
      worker->ucx_->ucp_worker_create(worker->context_->handle(), &params, &worker->handle_);
  if (status == UCS_OK) return worker;
  worker->handle_ = nullptr;
  return Fail(COTUNE_OUT_OF_RESOURCES,
              fmt::format("UCX cannot make a worker: {}; see the limits of shared memory and open "
                          "files",
                          worker->ucx_.StatusText(status)),
              status);
}

void WorkerDeleter::operator()(Worker* worker) const {
  worker->Close();
  if (!worker->is_abandoned()) {
    delete worker;
    return;
  }
  // Never destroyed, so that all that UCX knows stays reachable.
  static std::mutex mutex;
  static auto* const abandoned = new std::vector<Worker*>;
  const std::lock_guard lock(mutex);
  abandoned->push_back(worker);
}

void Worker::Close() {
  if (handle_ == nullptr || is_abandoned_) return;
  Disconnect(~uint64_t{0}, kCloseNs);
  // The rest of closed connections goes with the next polls.
  for (int i = 0; i < kPollsMin; ++i) Progress();
  Drain();
  // A flush holds an endpoint, and does not end if a connection over TCP was closed with unsent
  // data; UCX would abort the process.
  if (IsInProgress(flush_)) Abandon();
  if (is_abandoned_) return;
  Free(std::exchange(flush_, nullptr));
  ucx_->ucp_worker_destroy(handle_);
  handle_ = nullptr;
}

void Worker::Disconnect(uint64_t peers, int64_t within_ns) {
  std::vector<void*> closings;
  for (; peers != 0 && !is_abandoned_; peers &= peers - 1) {
    Peer& closed = peers_[static_cast<size_t>(std::countr_zero(peers))];
    if (closed.endpoint == nullptr) continue;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucp_ep_h endpoint = std::exchange(closed.endpoint, nullptr);
    closed.status = UCS_ERR_CANCELED;
    closings.push_back(ucx_->ucp_ep_close_nbx(endpoint, &params));
  }
  if (!AwaitAll(closings, within_ns)) Abandon();
}

bool Worker::IsInProgress(void* answer) const {
  return UCS_PTR_IS_PTR(answer) && ucx_->ucp_request_check_status(answer) == UCS_INPROGRESS;
}

void Worker::Free(void* answer) const {
  if (UCS_PTR_IS_PTR(answer)) ucx_->ucp_request_free(answer);
}

void Worker::PollWhile(const std::function<bool()>& waits, int64_t within_ns) const {
  const int64_t end_ns = NowNs() + within_ns;
  for (int polls = 0; !is_abandoned_ && waits(); ++polls) {
    if (polls >= kPollsMin && NowNs() >= end_ns) return;
    Progress();
  }
}

bool Worker::AwaitAll(const std::vector<void*>& answers, int64_t within_ns) const {
  const auto is_any_open = [&] {
    return std::any_of(answers.begin(), answers.end(),
                       [this](void* answer) { return IsInProgress(answer); });
  };
  PollWhile(is_any_open, within_ns);
  const bool are_complete = !is_any_open();
  for (void* const answer : answers) Free(answer);
  return are_complete;
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
  const bool is_failure = status != UCS_OK && !request.is_cancelled_ && request.peer_ >= 0;
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
  request.is_cancelled_ = false;
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
  request.is_cancelled_ = false;
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
  if (!request.is_open_ || request.is_send_ || is_abandoned_) return;
  request.is_cancelled_ = true;
  ucx_->ucp_request_cancel(handle_, request.handle_);
}

void Worker::Drain() {
  const int64_t end_ns = NowNs() + kDrainNs;
  ucp_tag_recv_info_t info{};
  while (!is_abandoned_ && NowNs() < end_ns) {
    constexpr int kRemove = 1;
    ucp_tag_message_h message = ucx_->ucp_tag_probe_nb(handle_, 0, 0, kRemove, &info);
    if (message == nullptr) return;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    // A sender that waits for its data to be taken is told that there is no room.
    void* const taken = ucx_->ucp_tag_msg_recv_nbx(handle_, &sink_, 0, message, &params);
    if (!UCS_PTR_IS_PTR(taken)) continue;
    for (int i = 0; i < kPollsMin && IsInProgress(taken); ++i) Progress();
    Free(taken);
  }
}

bool Worker::IsSent() {
  if (flush_ == nullptr) {
    ucp_request_param_t params{};
    flush_ = ucx_->ucp_worker_flush_nbx(handle_, &params);
  }
  if (IsInProgress(flush_)) return false;
  void* const answer = std::exchange(flush_, nullptr);
  const bool is_request = UCS_PTR_IS_PTR(answer);
  const ucs_status_t status =
      is_request ? ucx_->ucp_request_check_status(answer) : UCS_PTR_RAW_STATUS(answer);
  Free(answer);
  return status == UCS_OK;
}

void Worker::AwaitTaken(int64_t within_ns) {
  std::vector<void*> flushes;
  for (const Peer& peer : peers_) {
    if (peer.endpoint == nullptr || peer.status != UCS_OK) continue;
    ucp_request_param_t params{};
    flushes.push_back(ucx_->ucp_ep_flush_nbx(peer.endpoint, &params));
  }
  AwaitAll(flushes, within_ns);
}

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
