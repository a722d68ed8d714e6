// Handles the frames of ranks that have joined, and the coordinator's failures.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sync/machine/coordinator_machine.h"
#include "sync/wire/failure_text.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {

void CoordinatorMachine::OnMemberFrame(int rank, const wire::Frame& frame, int64_t now_ns) {
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.left) return;
  // A rank that gives up keeps its connection, as every rank does after a failure: when it ends
  // without a goodbye, that is a loss of its own.
  if (failure_.has_value()) {
    if (frame.has_give_up()) return OnGiveUp(rank, frame.give_up());
    member.left = frame.has_bye() && frame.bye().channel().empty();
    return;
  }
  switch (frame.body_case()) {
    case wire::Frame::kHeartbeat:
      return;
    case wire::Frame::kArrive:
      return OnArrive(rank, frame.arrive(), now_ns);
    case wire::Frame::kVote:
      if (Channel* channel = FindChannel(rank, frame.vote().channel())) {
        ChannelOutput output;
        channel->OnVote(rank, frame.vote(), output);
        return Apply(std::move(output), now_ns);
      }
      return FailProtocol(rank, "a vote for a channel that it is not in");
    case wire::Frame::kAcknowledge:
      if (Channel* channel = FindChannel(rank, frame.acknowledge().channel())) {
        ChannelOutput output;
        channel->OnAcknowledge(rank, frame.acknowledge(), output);
        return Apply(std::move(output), now_ns);
      }
      return FailProtocol(rank, "an acknowledgement for a channel that it is not in");
    case wire::Frame::kStoreRequest:
      return Reply(store_.OnRequest(rank, frame.store_request(), now_ns));
    case wire::Frame::kBye:
      return OnBye(rank, frame.bye().channel(), now_ns);
    case wire::Frame::kGiveUp:
      return OnGiveUp(rank, frame.give_up());
    default:
      FailProtocol(rank, "a frame came that only the coordinator sends");
  }
}

void CoordinatorMachine::OnGiveUp(int rank, const wire::GiveUp& give_up) {
  Error error = ErrorFromFailure(give_up.failure());
  // Its caller wants it so, which is the loss of this rank, whatever has failed before.
  if (error.code == ErrorCode::kAborted) return OnLoss(std::move(error));
  error.where += fmt::format("{}as rank {} saw it", error.where.empty() ? "" : ", ", rank);
  FailAll(std::move(error));
}

void CoordinatorMachine::OnArrive(int rank, const wire::Arrive& arrive, int64_t now_ns) {
  Channel* channel = FindChannel(rank, arrive.channel());
  if (channel == nullptr) {
    channel = OpenChannel(rank, arrive);
    if (channel == nullptr) return;
  }
  ChannelOutput output;
  channel->OnArrive(rank, arrive, now_ns, output);
  Apply(std::move(output), now_ns);
}

Channel* CoordinatorMachine::OpenChannel(int rank, const wire::Arrive& arrive) {
  const auto refuse = [&](const std::string& what) -> Channel* {
    FailAll(RankLost(fmt::format("subgroup {}: {}", Quoted(arrive.channel()), what),
                     fmt::format("rank {}", rank), "the ranks list their groups differently",
                     "open each subgroup under a new name, with the same ranks on every member",
                     {rank}));
    return nullptr;
  };
  const std::vector<int> ranks(arrive.ranks().begin(), arrive.ranks().end());
  if (arrive.kind() != wire::CALL_OPEN) return refuse("it is not open");
  if (channels_.contains(arrive.channel())) {
    return refuse(fmt::format("rank {} is not one of its members, {}", rank,
                              RankList(channels_.at(arrive.channel()).ranks())));
  }
  if (channel_names_.contains(arrive.channel())) return refuse("the name was used before");
  if (channels_.size() >= kChannelsMax) {
    return refuse(fmt::format("{} subgroups are open already", kChannelsMax - 1));
  }
  if (channel_names_.size() >= kChannelNamesMax) {
    return refuse(fmt::format("{} subgroups were opened already", kChannelNamesMax));
  }
  const std::set<int> distinct(ranks.begin(), ranks.end());
  const bool valid = !ranks.empty() && distinct.size() == ranks.size() && *distinct.begin() >= 0 &&
                     *distinct.rbegin() < config_.job.world_size && distinct.contains(rank);
  if (!valid) return refuse("its list of ranks has duplicates, strangers, or not the rank itself");
  channel_names_.insert(arrive.channel());
  return &channels_.emplace(arrive.channel(), Channel(arrive.channel(), ranks, *begin_ns_))
              .first->second;
}

void CoordinatorMachine::OnBye(int rank, const std::string& name, int64_t now_ns) {
  if (name.empty()) {
    members_[static_cast<size_t>(rank)].left = true;
    liveness_.Forget(rank);
    store_.OnLeft(rank);
  }
  for (auto entry = channels_.begin(); entry != channels_.end();) {
    Channel& channel = entry->second;
    if ((!name.empty() && channel.name() != name) || !channel.HasMember(rank)) {
      ++entry;
      continue;
    }
    ChannelOutput output;
    channel.OnLeft(rank, output);
    const bool empty = !channel.name().empty() && channel.left_by_all();
    entry = empty ? channels_.erase(entry) : std::next(entry);
    Apply(std::move(output), now_ns);
    if (failure_.has_value()) return;
  }
}

Channel* CoordinatorMachine::FindChannel(int rank, const std::string& name) {
  const auto found = channels_.find(name);
  return found == channels_.end() || !found->second.HasMember(rank) ? nullptr : &found->second;
}

void CoordinatorMachine::Apply(ChannelOutput output, int64_t now_ns) {
  // Whoever tunes warns of it by itself.
  for (std::string& note : output.notes) Log(Severity::kInfo, std::move(note));
  for (ChannelOutput::Send& send : output.sends) {
    actions_.emplace_back(SendFrame{ConnectionsOf(send.ranks), std::move(send.frame)});
  }
  if (!output.failure.has_value()) return;
  Error error = std::move(*output.failure);
  if (output.waits_for_ranks) {
    for (const int rank : error.ranks) {
      error.cause += fmt::format("{}rank {} {}", error.cause.empty() ? "" : ", ", rank,
                                 StateText(rank, now_ns));
    }
    // It may have been meant to be one of them.
    if (rendezvous_open() && !turned_away_.empty()) {
      error.cause += "; a process was turned away: " + turned_away_;
    }
  }
  FailAll(std::move(error));
}

std::string CoordinatorMachine::StateText(int rank, int64_t now_ns) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  if (!member.joined) return "has not connected: it was not started, or ended before";
  const std::string place = channels_.at("").PlaceText(rank);
  const std::string tail = (place.empty() ? "" : " (it " + place + ")") +
                           (member.declined.empty() ? "" : "; " + member.declined);
  if (!liveness_.watches(rank)) return "is gone" + tail;
  const int64_t silence_ns = now_ns - liveness_.heard_ns(rank);
  if (silence_ns > AddNs(liveness_.interval_ns(), liveness_.interval_ns())) {
    return "has been silent for " + DurationText(silence_ns) + ": " + StateOf(rank).cause + tail;
  }
  return "is alive by its heartbeats, but busy elsewhere" + tail;
}

PeerState CoordinatorMachine::StateOf(int rank) const {
  const auto& connection = members_[static_cast<size_t>(rank)].connection;
  return config_.state_of && connection ? config_.state_of(*connection) : PeerState();
}

void CoordinatorMachine::Reply(const std::vector<Store::Reply>& replies) {
  for (const Store::Reply& reply : replies) {
    actions_.emplace_back(SendFrame{ConnectionsOf({reply.rank}), reply.frame});
  }
}

void CoordinatorMachine::DeclineConnection(ConnectionId id, const Error& error) {
  auto frame = std::make_shared<wire::Frame>();
  *frame->mutable_decline()->mutable_failure() = FailureFromError(error);
  actions_.emplace_back(SendFrame{{id}, std::move(frame)});
  actions_.emplace_back(CloseConnection{id});
  unidentified_.erase(id);
}

void CoordinatorMachine::TurnAway(ConnectionId id, const Error& error) {
  if (rendezvous_open()) turned_away_ = error.what;
  // A process that tries again and again must not fill the log.
  if (logged_declines_.size() < kDeclinesLoggedMax && logged_declines_.insert(error.what).second) {
    Log(Severity::kWarning, "a process was turned away: " + error.ToText());
  }
  DeclineConnection(id, error);
}

void CoordinatorMachine::FailAll(Error error) {
  if (failure_.has_value()) return;
  actions_.emplace_back(LogLine{Severity::kError, error.ToText(), error.code});
  SendFailure(error);
  failure_ = std::move(error);
}

void CoordinatorMachine::OnLoss(Error loss) {
  if (!failure_.has_value()) return FailAll(std::move(loss));
  Log(Severity::kInfo, loss.ToText());
  SendFailure(loss);
}

void CoordinatorMachine::SendFailure(const Error& error) {
  auto frame = std::make_shared<wire::Frame>();
  *frame->mutable_failure() = FailureFromError(error);
  actions_.emplace_back(SendFrame{ConnectionsOf(PresentRanks()), std::move(frame)});
}

void CoordinatorMachine::SendBye(std::vector<ConnectionId> to) {
  if (to.empty()) return;
  auto frame = std::make_shared<wire::Frame>();
  frame->mutable_bye();
  actions_.emplace_back(SendFrame{std::move(to), std::move(frame)});
}

void CoordinatorMachine::FailProtocol(int rank, const std::string& what) {
  OnLoss(RankLost(fmt::format("rank {} broke the protocol: {}", rank, what),
                  fmt::format("rank {}", rank), "two versions of the code, or a defect in it",
                  "run the same build on every rank; report it when it happens again", {rank}));
}

std::vector<ConnectionId> CoordinatorMachine::ConnectionsOf(const std::vector<int>& ranks) const {
  std::vector<ConnectionId> connections;
  for (const int rank : ranks) {
    const auto& connection = members_[static_cast<size_t>(rank)].connection;
    if (connection.has_value()) connections.push_back(*connection);
  }
  return connections;
}

std::vector<int> CoordinatorMachine::PresentRanks() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].connection.has_value() && !members_[rank].left) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

void CoordinatorMachine::Log(Severity severity, std::string text) {
  actions_.emplace_back(LogLine{severity, std::move(text)});
}

}  // namespace cotune::sync
