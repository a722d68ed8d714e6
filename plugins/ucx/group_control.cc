// The messages between the ends of a group.
#include <algorithm>

#include "plugins/ucx/group.h"
#include "plugins/ucx/tag.h"

namespace cotune::ucx {
namespace {

// States that all ranks together send to a rank that does not answer. It has room for few messages
// while it is stopped, and the one that says why the group has failed has to fit.
constexpr int kUnansweredByAll = 24;

}  // namespace

void Group::PostControlReceive(size_t index) {
  constexpr int kAnyone = -1;
  worker_->Receive((*control_receives_)[index], kAnyone, &control_received_[index],
                   sizeof(ControlMessage), ControlTag(digest_), kEveryBit, &control_open_);
}

void Group::HearControl() {
  for (size_t i = 0; i < kControlReceives; ++i) {
    const Request& request = (*control_receives_)[i];
    if (request.is_open()) continue;
    const bool is_whole = request.status() == UCS_OK;
    const ControlMessage message = control_received_[i];
    PostControlReceive(i);
    if (is_whole && IsSound(message, digest_, world_size_)) Hear(message);
  }
}

void Group::Hear(const ControlMessage& message) {
  PeerState& peer = peers_[static_cast<size_t>(message.sender)];
  peer.heard_ns = NowNs();
  peer.unanswered = 0;
  switch (message.kind) {
    case ControlMessage::Kind::kHello:
      peer.said_hello = true;
      return;
    case ControlMessage::Kind::kReady:
      peer.is_ready = true;
      return;
    case ControlMessage::Kind::kFailure:
      peer.calls = message.calls;
      Adopt(message.failure);
      return;
    case ControlMessage::Kind::kLeft:
      peer.has_left = true;
      peer.calls = message.calls;
      return;
    case ControlMessage::Kind::kState:
    case ControlMessage::Kind::kInquiry:
      break;
  }
  peer.awaited = message.awaited;
  peer.calls = message.calls;
  if (message.kind == ControlMessage::Kind::kInquiry) {
    SendControl(message.sender, StateMessage(ControlMessage::Kind::kState));
  }
}

ControlMessage Group::StateMessage(ControlMessage::Kind kind) const {
  ControlMessage message;
  message.kind = kind;
  message.sender = rank_;
  message.group = digest_;
  message.awaited = running_ == nullptr ? 0 : running_->Awaited();
  message.calls = calls_;
  return message;
}

void Group::SendControl(int peer, const ControlMessage& message) {
  // UCX takes no more for it.
  if (worker_->PeerStatus(peer) != UCS_OK) return;
  const bool may_be_left_out = message.kind == ControlMessage::Kind::kState ||
                               message.kind == ControlMessage::Kind::kInquiry;
  int& unanswered = peers_[static_cast<size_t>(peer)].unanswered;
  if (may_be_left_out && unanswered >= std::max(kUnansweredByAll / world_size_, 1)) return;
  ++unanswered;
  const size_t begin = static_cast<size_t>(peer) * kControlSends;
  for (size_t i = may_be_left_out ? 1 : 0; i < kControlSends; ++i) {
    Request& request = (*control_sends_)[begin + i];
    if (request.is_open()) continue;
    control_sent_[begin + i] = message;
    worker_->Send(request, peer, &control_sent_[begin + i], sizeof(ControlMessage),
                  ControlTag(digest_), nullptr);
    return;
  }
}

void Group::SendToAll(const ControlMessage& message) {
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_) SendControl(peer, message);
  }
}

bool Group::AllControlSent() {
  const auto& requests = control_sends_->all();
  return std::none_of(requests.begin(), requests.end(),
                      [](const Request& request) { return request.is_open(); });
}

void Group::FlushControl(int64_t within_ns) {
  const int64_t end_ns = NowNs() + within_ns;
  while (!AllControlSent() && NowNs() < end_ns) worker_->Progress();
}

}  // namespace cotune::ucx
