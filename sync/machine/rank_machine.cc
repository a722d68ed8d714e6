#include "sync/machine/rank_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sync/wire/failure_text.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

constexpr int kCoordinatorRank = 0;

// A call may be made behind its deadline, for example by a rank whose work in front of it took too
// long. The coordinator gets the same time for its verdict then.
int64_t VerdictByNs(int64_t deadline_ns, int64_t sent_ns) {
  return AddNs(std::max(deadline_ns, sent_ns), kVerdictGraceNs);
}

}  // namespace

RankMachine::RankMachine(RankConfig config)
    : config_(std::move(config)),
      liveness_(config_.heartbeat_interval_ns, config_.heartbeat_timeout_ns) {}

RankActions RankMachine::OnEvent(const RankEvent& event, int64_t now_ns) {
  actions_.clear();
  // Heartbeats are due in every interval; a gap between events means that this process was stopped
  // itself.
  liveness_.OnAwake(now_ns);
  std::visit([&](const auto& e) { On(e, now_ns); }, event);
  return std::exchange(actions_, {});
}

// ---- Local events ----

void RankMachine::On(const JoinAsked& event, int64_t now_ns) {
  if (failure_.has_value()) return Complete(event.token, tl::make_unexpected(*failure_));
  StartListening(now_ns);
  joining_ = true;
  Call& call = calls_[""];
  call.token = event.token;
  call.kind = wire::CALL_JOIN;
  call.sent_ns = now_ns;
  call.deadline_ns = event.deadline_ns;
  call.verdict_by_ns = VerdictByNs(call.deadline_ns, now_ns);
  channels_[""] = {1, config_.rank};
  auto frame = std::make_shared<wire::Frame>();
  *frame->mutable_hello() = MakeHello(config_.job, config_.rank, LeftNs(event.deadline_ns, now_ns));
  Send(std::move(frame));
}

void RankMachine::On(const CallAsked& event, int64_t now_ns) {
  const std::string& channel = event.arrive.channel();
  if (failure_.has_value()) return Complete(event.token, tl::make_unexpected(*failure_));
  if (calls_.contains(channel) || left_) {
    return Complete(event.token,
                    Fail(ErrorCode::kInternal,
                         left_ ? "a call came after this rank had left the job"
                               : "two calls on one channel at once",
                         CallText(event.arrive.kind(), event.arrive.name(), channel),
                         "calls of one exchange must be made by one thread, one after another"));
  }
  StartListening(now_ns);
  Call& call = calls_[channel];
  call.token = event.token;
  ChannelState& state = channels_[channel];
  call.number = state.next_call++;
  call.kind = event.arrive.kind();
  call.name = event.arrive.name();
  if (call.kind == wire::CALL_OPEN) {
    const auto& ranks = event.arrive.ranks();
    const auto own = std::find(ranks.begin(), ranks.end(), config_.rank);
    state.position = static_cast<int>(own - ranks.begin());
  }
  call.sent_ns = now_ns;
  call.deadline_ns = event.deadline_ns;
  call.verdict_by_ns = VerdictByNs(call.deadline_ns, now_ns);
  auto frame = std::make_shared<wire::Frame>();
  *frame->mutable_arrive() = event.arrive;
  frame->mutable_arrive()->set_call(call.number);
  frame->mutable_arrive()->set_deadline_left_ns(LeftNs(event.deadline_ns, now_ns));
  Send(std::move(frame));
}

void RankMachine::On(const VoteAsked& event, int64_t now_ns) {
  if (failure_.has_value()) return Complete(event.token, tl::make_unexpected(*failure_));
  const auto found = calls_.find(event.channel);
  if (found == calls_.end() || found->second.phase != Phase::kPrepared) {
    return Complete(event.token, Fail(ErrorCode::kInternal, "a vote came without a proposal",
                                      CallText(wire::CALL_AGREE, "", event.channel)));
  }
  Call& call = found->second;
  call.token = event.token;
  call.phase = Phase::kVoted;
  call.verdict_by_ns = VerdictByNs(call.deadline_ns, now_ns);
  // Too late is a NO for ever: the coordinator may have decided without this rank.
  call.voted_yes = event.yes && now_ns < call.deadline_ns && call.ruling == nullptr;
  auto frame = std::make_shared<wire::Frame>();
  wire::Vote& vote = *frame->mutable_vote();
  vote.set_channel(event.channel);
  vote.set_call(call.number);
  vote.set_yes(call.voted_yes);
  Send(std::move(frame));
  StartListening(now_ns);
  if (call.ruling == nullptr) return;
  const FramePtr ruling = call.ruling;
  calls_.erase(found);
  Complete(event.token, ruling);
}

void RankMachine::On(const StoreAsked& event, int64_t now_ns) {
  if (failure_.has_value()) return Complete(event.token, tl::make_unexpected(*failure_));
  if (left_) {
    return Complete(event.token, Fail(ErrorCode::kInternal,
                                      "the store was used after this rank had left the job"));
  }
  StartListening(now_ns);
  const uint64_t request = next_request_++;
  store_waits_[request] = event.token;
  auto frame = std::make_shared<wire::Frame>();
  *frame->mutable_store_request() = event.request;
  frame->mutable_store_request()->set_request(request);
  frame->mutable_store_request()->set_deadline_left_ns(LeftNs(event.deadline_ns, now_ns));
  Send(std::move(frame));
}

void RankMachine::On(const LeaveAsked& event, int64_t) {
  if (left_ || (failure_.has_value() && (!watches_ || !event.channel.empty()))) return;
  auto frame = std::make_shared<wire::Frame>();
  frame->mutable_bye()->set_channel(event.channel);
  Send(std::move(frame));
  if (!event.channel.empty()) return;
  left_ = true;
  watches_ = false;
  actions_.emplace_back(Disconnect{});
}

void RankMachine::On(const GiveUpAsked& event, int64_t) {
  if (left_) return;
  if (!failure_.has_value()) return FailAll(event.error, Source::kOwn);
  // After an earlier failure there are still groups that had no part in it.
  actions_.emplace_back(ReportLoss{event.error});
  if (watches_) SendGiveUp(event.error);
}

void RankMachine::On(const HeartbeatDue&, int64_t) {
  if (!joining_ || left_ || failure_.has_value()) return;
  auto frame = std::make_shared<wire::Frame>();
  frame->mutable_heartbeat();
  Send(std::move(frame), true);
}

// ---- Events of the connection ----

void RankMachine::On(const CoordinatorBytesCame&, int64_t now_ns) {
  liveness_.Heard(kCoordinatorRank, now_ns);
}

void RankMachine::On(const CoordinatorFrameCame& event, int64_t now_ns) {
  liveness_.Heard(kCoordinatorRank, now_ns);
  if (watches_) return WatchFrame(*event.frame);
  if (failure_.has_value() || left_) return;
  switch (event.frame->body_case()) {
    case wire::Frame::kHeartbeat:
      return;
    case wire::Frame::kRelease:
      return OnRelease(event.frame, now_ns);
    case wire::Frame::kPrepare:
      return OnPrepare(event.frame);
    case wire::Frame::kDecision:
      return OnDecision(event.frame);
    case wire::Frame::kStoreReply:
      return OnStoreReply(event.frame);
    case wire::Frame::kFailure:
      return FailAll(ErrorFromFailure(event.frame->failure()), Source::kCoordinator);
    case wire::Frame::kDecline:
      return FailAll(ErrorFromFailure(event.frame->decline().failure()), Source::kDeclined);
    default:
      On(CoordinatorBadBytesCame{"a frame came that only a rank sends"}, now_ns);
  }
}

void RankMachine::On(const CoordinatorBadBytesCame& event, int64_t) {
  if (watches_) return StopWatching();
  if (failure_.has_value() || left_) return;
  FailAll(RankLost("rank 0 (the coordinator) broke the protocol: " + event.why, OpenCallsText(),
                   "two versions of the code, or a defect in it",
                   "run the same build on every rank; report it when it happens again", {0}),
          Source::kUnreadable);
}

void RankMachine::On(const CoordinatorEnded& event, int64_t) {
  if ((failure_.has_value() && !watches_) || left_) return;
  Error loss =
      RankLost("rank 0 died: the connection to the coordinator in its process ended" +
                   (event.why.empty() ? "" : " (" + event.why + ")"),
               OpenCallsText(), "its process crashed, was killed, or ended before the others",
               "look at the output and exit code of rank 0, then run again", {0});
  if (!watches_) return FailAll(loss, Source::kEnded);
  actions_.emplace_back(ReportLoss{std::move(loss)});
  StopWatching();
}

void RankMachine::On(const RankTimeReached&, int64_t now_ns) {
  if (failure_.has_value() || !listening() || now_ns < next_time_ns()) return;
  const bool is_silent = !liveness_.SilentRanks(now_ns).empty();
  if (is_silent) {
    const PeerState state = config_.coordinator_state ? config_.coordinator_state() : PeerState();
    FailAll(RankLost(fmt::format("nothing was heard from rank 0 (the coordinator) for {}",
                                 DurationText(config_.heartbeat_timeout_ns)),
                     OpenCallsText(), state.cause, state.next_step, {0}),
            Source::kOwn);
    return;
  }
  FailAll(RankLost("rank 0 (the coordinator) gave no answer by the deadline", OpenCallsText(),
                   "its process lives, because its heartbeats come, and it has not ended the step",
                   "see what the process of rank 0 waits for or computes", {0}),
          Source::kOwn);
}

// ---- Frames ----

RankMachine::Call* RankMachine::FindCall(const std::string& channel, uint64_t number) {
  const auto found = calls_.find(channel);
  if (found == calls_.end() || found->second.number != number) {
    On(CoordinatorBadBytesCame{"an answer came to a call that is not open"}, 0);
    return nullptr;
  }
  return &found->second;
}

void RankMachine::OnRelease(const FramePtr& frame, int64_t now_ns) {
  const wire::Release& release = frame->release();
  Call* call = FindCall(release.channel(), release.call());
  if (call == nullptr) return;
  const int position = channels_[release.channel()].position;
  if (position < release.held_duration_ns_size()) {
    job_clock_.OnRoundTrip(
        {call->sent_ns, now_ns, release.held_duration_ns(position), release.elapsed_duration_ns()});
  }
  const CallToken token = call->token;
  calls_.erase(release.channel());
  Complete(token, frame);
}

void RankMachine::OnPrepare(const FramePtr& frame) {
  Call* call = FindCall(frame->prepare().channel(), frame->prepare().call());
  if (call == nullptr) return;
  if (call->kind != wire::CALL_AGREE || call->phase != Phase::kWaiting) {
    On(CoordinatorBadBytesCame{"a proposal came out of turn"}, 0);
    return;
  }
  call->phase = Phase::kPrepared;
  Complete(call->token, frame);
}

void RankMachine::OnDecision(const FramePtr& frame) {
  const wire::Decision& decision = frame->decision();
  Call* call = FindCall(decision.channel(), decision.call());
  if (call == nullptr) return;
  const bool undecided = call->phase == Phase::kPrepared || call->phase == Phase::kVoted;
  if (decision.ruling() == wire::RULING_DECLINED && undecided) {
    if (call->phase == Phase::kPrepared) {
      call->ruling = frame;
      return;
    }
  } else if (decision.ruling() == wire::RULING_COMMIT && call->phase == Phase::kVoted &&
             call->voted_yes) {
    call->phase = Phase::kRecorded;
    auto answer = std::make_shared<wire::Frame>();
    answer->mutable_acknowledge()->set_channel(decision.channel());
    answer->mutable_acknowledge()->set_call(decision.call());
    Send(std::move(answer));
    return;
  } else if (decision.ruling() != wire::RULING_GO || call->phase != Phase::kRecorded) {
    On(CoordinatorBadBytesCame{"a ruling came out of turn"}, 0);
    return;
  }
  const CallToken token = call->token;
  calls_.erase(decision.channel());
  Complete(token, frame);
}

void RankMachine::OnStoreReply(const FramePtr& frame) {
  const auto wait = store_waits_.extract(frame->store_reply().request());
  if (wait.empty()) {
    On(CoordinatorBadBytesCame{"an answer came to a request that is not open"}, 0);
    return;
  }
  if (frame->store_reply().has_failure()) {
    Complete(wait.mapped(), tl::make_unexpected(ErrorFromFailure(frame->store_reply().failure())));
  } else {
    Complete(wait.mapped(), frame);
  }
}

// ---- Time ----

bool RankMachine::listening() const {
  return !store_waits_.empty() || std::any_of(calls_.begin(), calls_.end(), [](const auto& call) {
    return call.second.phase != Phase::kPrepared;
  });
}

// Between calls nobody reads, so silence counts only from the moment somebody does.
void RankMachine::StartListening(int64_t now_ns) { liveness_.Watch(kCoordinatorRank, now_ns); }

int64_t RankMachine::next_time_ns() const {
  if (failure_.has_value() || !listening()) return INT64_MAX;
  int64_t next_ns = liveness_.next_silent_ns();
  for (const auto& [channel, call] : calls_) {
    // While the caller looks at a proposal nobody waits here.
    if (call.phase == Phase::kPrepared) continue;
    next_ns = std::min(next_ns, call.verdict_by_ns);
  }
  // A read of the store may be a look that waits for nothing, so that its deadline says nothing
  // about rank 0: only silence does.
  return std::max(next_ns, liveness_.judge_from_ns());
}

// ---- Endings ----

void RankMachine::Send(std::shared_ptr<wire::Frame> frame, bool droppable) {
  actions_.emplace_back(SendToCoordinator{std::move(frame), droppable});
}

void RankMachine::SendGiveUp(const Error& error) {
  auto frame = std::make_shared<wire::Frame>();
  *frame->mutable_give_up()->mutable_failure() = FailureFromError(error);
  Send(std::move(frame));
}

void RankMachine::Complete(CallToken token, Result<FramePtr> result) {
  actions_.emplace_back(CompleteCall{token, std::move(result)});
}

std::string RankMachine::OpenCallsText() const {
  std::string text = fmt::format("seen by rank {}", config_.rank);
  for (const auto& [channel, call] : calls_) {
    text += " in " + CallText(call.kind, call.name, channel);
  }
  return text;
}

void RankMachine::FailAll(const Error& error, Source source) {
  failure_ = error;
  watches_ = source == Source::kCoordinator || source == Source::kOwn;
  actions_.emplace_back(ReportLoss{error});
  if (source == Source::kOwn || source == Source::kUnreadable) {
    SendGiveUp(error);
  }
  if (source == Source::kUnreadable) {
    // Without it the end of the connection would pass for the death of this rank.
    auto frame = std::make_shared<wire::Frame>();
    frame->mutable_bye();
    Send(std::move(frame));
  }
  for (const auto& [channel, call] : std::exchange(calls_, {})) {
    if (call.phase == Phase::kPrepared) continue;  // its caller asks when it votes
    Error own = error;
    const bool doubt = call.voted_yes && call.phase != Phase::kPrepared;
    if (doubt) own.what += "; this rank voted yes, does not know the outcome and stops";
    Complete(call.token, tl::make_unexpected(std::move(own)));
  }
  for (const auto& [request, token] : std::exchange(store_waits_, {})) {
    Complete(token, tl::make_unexpected(error));
  }
  if (!watches_) actions_.emplace_back(Disconnect{});
}

void RankMachine::WatchFrame(const wire::Frame& frame) {
  if (frame.has_failure()) {
    actions_.emplace_back(ReportLoss{ErrorFromFailure(frame.failure())});
  } else if (frame.has_bye()) {
    StopWatching();
  }
}

void RankMachine::StopWatching() {
  watches_ = false;
  actions_.emplace_back(Disconnect{});
}

}  // namespace cotune::sync
