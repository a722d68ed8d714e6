#include "sync/machine/coordinator_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sync/wire/failure_text.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

std::vector<int> AllRanks(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) ranks[static_cast<size_t>(rank)] = rank;
  return ranks;
}

}  // namespace

CoordinatorMachine::CoordinatorMachine(CoordinatorConfig config)
    : config_(std::move(config)),
      members_(static_cast<size_t>(config_.job.world_size)),
      liveness_(config_.heartbeat_interval_ns, config_.heartbeat_timeout_ns) {}

CoordinatorActions CoordinatorMachine::OnEvent(const CoordinatorEvent& event, int64_t now_ns) {
  actions_.clear();
  if (!begin_ns_.has_value()) {
    begin_ns_ = now_ns;
    channels_.emplace("", Channel("", AllRanks(config_.job.world_size), now_ns));
  }
  // The timer makes events only while ranks belong to a job that has not failed; without it a gap
  // between events says nothing.
  const bool had_timer = !ranks_.empty() && !failure_.has_value();
  const int64_t gap_ns = liveness_.OnAwake(now_ns);
  if (gap_ns > 0 && had_timer) {
    Log(Severity::kWarning,
        fmt::format("the coordinator (rank 0) was stopped for {}", DurationText(gap_ns)));
  }
  std::visit([&](const auto& e) { On(e, now_ns); }, event);
  return std::exchange(actions_, {});
}

void CoordinatorMachine::On(const Connected& event, int64_t now_ns) {
  if (unidentified_.size() >= kUnidentifiedMax + members_.size()) {
    // The oldest has had the most time; a flood of silent connections must not keep ranks out.
    const auto oldest =
        std::min_element(unidentified_.begin(), unidentified_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    Log(Severity::kWarning, "too many connections without HELLO: the oldest is closed");
    actions_.emplace_back(CloseConnection{oldest->first});
    unidentified_.erase(oldest);
  }
  unidentified_[event.id] = AddNs(now_ns, kHelloTimeoutNs);
}

void CoordinatorMachine::On(const BytesCame& event, int64_t now_ns) {
  const auto rank = ranks_.find(event.id);
  if (rank != ranks_.end()) liveness_.Heard(rank->second, now_ns);
}

void CoordinatorMachine::On(const FrameCame& event, int64_t now_ns) {
  const auto rank = ranks_.find(event.id);
  if (rank != ranks_.end()) {
    liveness_.Heard(rank->second, now_ns);
    OnMemberFrame(rank->second, *event.frame, now_ns);
  } else if (unidentified_.contains(event.id)) {
    if (event.frame->has_hello()) {
      OnHello(event.id, event.frame->hello(), now_ns);
    } else {
      On(BadBytesCame{event.id, "the first frame is no HELLO"}, now_ns);
    }
  }
}

void CoordinatorMachine::On(const BadBytesCame& event, int64_t) {
  const auto rank = ranks_.find(event.id);
  if (rank != ranks_.end()) {
    FailProtocol(rank->second, event.why);
    // All know that this rank is lost to its groups. The connection is closed now, which is no
    // death, neither of this rank nor of rank 0.
    members_[static_cast<size_t>(rank->second)].left = true;
    SendBye({event.id});
    return;
  }
  if (unidentified_.erase(event.id) == 0) return;
  Log(Severity::kWarning, "a connection that is no rank was closed: " + event.why);
  actions_.emplace_back(CloseConnection{event.id});
}

void CoordinatorMachine::On(const ConnectionEnded& event, int64_t) {
  unidentified_.erase(event.id);
  const auto found = ranks_.find(event.id);
  if (found == ranks_.end()) return;
  const int rank = found->second;
  ranks_.erase(found);
  Member& member = members_[static_cast<size_t>(rank)];
  member.connection.reset();
  liveness_.Forget(rank);
  store_.OnLeft(rank);
  if (member.left) return;
  const std::string place = channels_.at("").PlaceText(rank);
  Error loss = RankLost(
      fmt::format("rank {} died: its connection ended without a goodbye", rank),
      fmt::format("rank {}{}{}", rank, place.empty() ? "" : ", which ", place),
      "the process crashed, was killed, or ended without destroying its exchange",
      fmt::format("look at the output and exit code of rank {}, then run again", rank), {rank});
  OnLoss(std::move(loss));
}

void CoordinatorMachine::On(const TimeReached&, int64_t now_ns) {
  for (auto connection = unidentified_.begin(); connection != unidentified_.end();) {
    if (now_ns < connection->second) {
      ++connection;
      continue;
    }
    Log(Severity::kWarning, "a connection that said no HELLO was closed");
    actions_.emplace_back(CloseConnection{connection->first});
    connection = unidentified_.erase(connection);
  }
  if (failure_.has_value()) return;
  NoticeMissingRanks(now_ns);
  SendPings(now_ns);
  if (now_ns < liveness_.judge_from_ns()) return;
  const std::vector<int> silent = liveness_.SilentRanks(now_ns);
  if (!silent.empty()) {
    FailAll(RankLost(fmt::format("nothing was heard from {} for {}", RankList(silent),
                                 DurationText(config_.heartbeat_timeout_ns)),
                     "heartbeats", StateText(silent.front(), now_ns),
                     StateOf(silent.front()).next_step, silent));
    return;
  }
  Reply(store_.OnTime(now_ns));
  for (auto& [name, channel] : channels_) {
    ChannelOutput output;
    channel.OnTime(now_ns, output);
    Apply(std::move(output), now_ns);
    if (failure_.has_value()) return;
  }
}

void CoordinatorMachine::On(const StopAsked&, int64_t) {
  if (!everybody_gone() && !failure_.has_value()) {
    FailAll(RankLost(
        fmt::format("rank 0 has left while {} still belonged to the job", RankList(PresentRanks())),
        "rank 0", "rank 0 ended early; the coordinator runs in its process",
        "see why rank 0 ended before the others: its output and exit code", {0}));
  }
  SendBye(ConnectionsOf(PresentRanks()));
  for (const auto& [id, rank] : ranks_) actions_.emplace_back(CloseConnection{id});
  for (const auto& [id, until_ns] : unidentified_) actions_.emplace_back(CloseConnection{id});
}

void CoordinatorMachine::OnHello(ConnectionId id, const wire::Hello& hello, int64_t now_ns) {
  const int rank = hello.rank();
  const bool claims_place = ClaimsPlace(config_.job, hello);
  if (failure_.has_value()) {
    if (claims_place) members_[static_cast<size_t>(rank)].knows_failure = true;
    DeclineConnection(id, *failure_);
    return;
  }
  if (const auto error = CheckHello(config_.job, hello); error.has_value()) {
    if (!claims_place || members_[static_cast<size_t>(rank)].joined) return TurnAway(id, *error);
    // The job waits for this very rank, which cannot join: nobody needs to wait for the deadline.
    members_[static_cast<size_t>(rank)].knows_failure = true;
    FailAll(*error);
    DeclineConnection(id, *error);
    return;
  }
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.joined) {
    member.declined = "a second process that said it was the same rank was turned away";
    return TurnAway(
        id,
        RankLost(fmt::format("rank {} has joined already", rank), "the rendezvous",
                 "two processes were given the same rank, or a rank was started again",
                 "give each process its own rank; restart the whole job, not one rank", {rank}));
  }
  join_deadline_ns_ = std::min(join_deadline_ns_, AddNs(now_ns, hello.deadline_left_ns()));
  if (!join_notice_ns_) join_notice_ns_ = AddNs(now_ns, kJoinNoticeNs);
  unidentified_.erase(id);
  ranks_[id] = rank;
  member.connection = id;
  member.joined = true;
  liveness_.Watch(rank, now_ns);
  wire::Arrive join;
  join.set_kind(wire::CALL_JOIN);
  join.set_deadline_left_ns(hello.deadline_left_ns());
  ChannelOutput output;
  channels_.at("").OnArrive(rank, std::move(join), now_ns, output);
  Apply(std::move(output), now_ns);
}

void CoordinatorMachine::NoticeMissingRanks(int64_t now_ns) {
  if (!join_notice_ns_ || now_ns < *join_notice_ns_) return;
  join_notice_ns_ = INT64_MAX;
  if (join_deadline_ns_ <= now_ns) return;  // the error that follows names them
  std::vector<int> missing;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].joined) missing.push_back(static_cast<int>(rank));
  }
  if (missing.empty()) return;
  const std::string limit =
      join_deadline_ns_ == INT64_MAX
          ? "without a limit"
          : fmt::format("for at most {} more", DurationText(join_deadline_ns_ - now_ns));
  const std::string& hint = config_.missing_ranks_hint;
  Log(Severity::kWarning,
      fmt::format("waiting for {}, which {} not joined the job yet, {}{}{}", RankList(missing),
                  missing.size() == 1 ? "has" : "have", limit, hint.empty() ? "" : "; ", hint));
}

void CoordinatorMachine::SendPings(int64_t now_ns) {
  if (now_ns < next_ping_ns_) return;
  next_ping_ns_ = AddNs(now_ns, config_.heartbeat_interval_ns);
  const std::vector<ConnectionId> to = ConnectionsOf(PresentRanks());
  if (to.empty()) return;
  auto frame = std::make_shared<wire::Frame>();
  frame->mutable_heartbeat();
  actions_.emplace_back(SendFrame{to, std::move(frame), true});
}

int64_t CoordinatorMachine::next_time_ns() const {
  int64_t next_ns = INT64_MAX;
  for (const auto& [id, until_ns] : unidentified_) next_ns = std::min(next_ns, until_ns);
  if (failure_.has_value() || ranks_.empty()) return next_ns;
  int64_t judged_ns = std::min(liveness_.next_silent_ns(), store_.next_time_ns());
  for (const auto& [name, channel] : channels_) {
    judged_ns = std::min(judged_ns, channel.next_time_ns());
  }
  next_ns = std::min(next_ns, std::max(judged_ns, liveness_.judge_from_ns()));
  if (rendezvous_open()) next_ns = std::min(next_ns, join_notice_ns_.value_or(INT64_MAX));
  return std::min(next_ns, next_ping_ns_);
}

uint64_t CoordinatorMachine::FrameBytesMax(ConnectionId id) const {
  const auto rank = ranks_.find(id);
  if (rank == ranks_.end()) return kHelloFrameBytesMax;
  for (const auto& [name, channel] : channels_) {
    if (channel.ranks().front() == rank->second) return kProposalFrameBytesMax;
  }
  return kFrameBytesMax;
}

bool CoordinatorMachine::everybody_gone() const { return PresentRanks().empty(); }

int64_t CoordinatorMachine::tell_until_ns() const {
  const bool all = std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.joined || member.knows_failure;
  });
  return all ? INT64_MIN : join_deadline_ns_;
}

bool CoordinatorMachine::rendezvous_open() const {
  return !std::all_of(members_.begin(), members_.end(),
                      [](const Member& member) { return member.joined; });
}

}  // namespace cotune::sync
