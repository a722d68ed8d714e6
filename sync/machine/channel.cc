#include "sync/machine/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sync/wire/failure_text.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

Error ProtocolError(int rank, const std::string& what) {
  return RankLost(fmt::format("rank {} broke the protocol: {}", rank, what),
                  fmt::format("rank {}", rank), "two versions of the code, or a defect in it",
                  "run the same build on every rank; report it when it happens again", {rank});
}

}  // namespace

Channel::Channel(std::string name, std::vector<int> ranks, int64_t begin_ns)
    : begin_ns_(begin_ns),
      name_(std::move(name)),
      ranks_(std::move(ranks)),
      members_(ranks_.size()),
      meeting_(name_, ranks_) {
  for (const int rank : ranks_) positions_.emplace(rank, positions_.size());
}

bool Channel::HasMember(int rank) const { return positions_.contains(rank); }

size_t Channel::Position(int rank) const { return positions_.at(rank); }

void Channel::OnArrive(int rank, wire::Arrive arrive, int64_t now_ns, ChannelOutput& output) {
  const size_t position = Position(rank);
  Member& member = members_[position];
  if (member.left || member.waits || arrive.call() != member.next_call) {
    output.failure = ProtocolError(
        rank, fmt::format("call {} came where call {} was due", arrive.call(), member.next_call));
    return;
  }
  ++member.next_call;
  member.last_place = CallText(arrive.kind(), arrive.name(), name_);
  if (arrive.call() < meeting_.call() ||
      (arrive.call() == meeting_.call() && !meeting_.open() && arrive.call() != 0)) {
    TellMissedWindow(rank, arrive, output);
    return;
  }
  if (!meeting_.open()) meeting_.Open(arrive.call(), now_ns);
  if (arrive.call() != meeting_.call()) {
    output.failure = ProtocolError(rank, "it went on before its call was over");
    return;
  }
  member.waits = true;
  meeting_.Arrive(position, std::move(arrive), now_ns);
  std::vector<int> left;
  // The list of who is missing takes as long as there are ranks: not at every arrival.
  for (const int missing : left_ > 0 ? meeting_.MissingRanks() : std::vector<int>()) {
    if (members_[Position(missing)].left) left.push_back(missing);
  }
  if (!left.empty()) {
    FailLeft(std::move(left), output);
  } else if (meeting_.full()) {
    OnFull(now_ns, output);
  }
}

void Channel::TellMissedWindow(int rank, const wire::Arrive& arrive, ChannelOutput& output) {
  const auto late = missed_windows_.Tell(arrive.call(), rank);
  if (!late.has_value()) {
    output.failure = ProtocolError(rank, fmt::format("call {} is over", arrive.call()));
    return;
  }
  if (arrive.kind() != wire::CALL_PRE_SYNC) {
    output.failure = RankLost(
        fmt::format("rank {} is at {}, the others met for a pre-sync there", rank,
                    CallText(arrive.kind(), arrive.name(), name_)),
        fmt::format("call {}", arrive.call()),
        "the ranks do not run the same program with the same settings",
        "start every rank with the same binary, arguments, environment and database", {rank});
    return;
  }
  auto frame = std::make_shared<wire::Frame>();
  wire::Release& release = *frame->mutable_release();
  release.set_channel(name_);
  release.set_call(arrive.call());
  for (const int late_rank : *late) release.add_late_ranks(late_rank);
  output.sends.push_back({{rank}, std::move(frame)});
}

void Channel::OnFull(int64_t now_ns, ChannelOutput& output) {
  if (meeting_.mismatched()) {
    output.failure = meeting_.MismatchError();
    return;
  }
  switch (meeting_.kind()) {
    case wire::CALL_PRE_SYNC:
      PreSyncFull(now_ns, output);
      break;
    case wire::CALL_AGREE:
      PrepareAll(output);
      break;
    case wire::CALL_OPEN:
      CheckSameGroup(output);
      if (!output.failure.has_value()) ReleaseAll(now_ns, output);
      break;
    default:
      ReleaseAll(now_ns, output);
  }
}

void Channel::CheckSameGroup(ChannelOutput& output) const {
  std::vector<std::string> groups;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto& ranks = meeting_.arrival(i).ranks();
    groups.push_back(RankList(std::vector<int>(ranks.begin(), ranks.end())));
  }
  const std::vector<Opinion> opinions = GroupOpinions(ranks_, groups);
  if (opinions.size() == 1) return;
  const std::vector<int> odd = OddRanks(opinions);
  output.failure =
      RankLost(fmt::format("subgroup {} has different members: {} for {}, {} for {}", Quoted(name_),
                           opinions[0].text, RankList(opinions[0].ranks), opinions[1].text,
                           RankList(opinions[1].ranks)),
               meeting_.Text(), "the ranks list the group differently",
               "pass the same ranks in the same order on every member", odd);
}

void Channel::ReleaseAll(int64_t now_ns, ChannelOutput& output) {
  auto frame = std::make_shared<wire::Frame>();
  wire::Release& release = *frame->mutable_release();
  release.set_channel(name_);
  release.set_call(meeting_.call());
  release.set_elapsed_duration_ns(now_ns - begin_ns_);
  int64_t delay_ns = 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const wire::Arrive& arrival = meeting_.arrival(i);
    release.add_held_duration_ns(now_ns - meeting_.arrived_ns(i));
    if (meeting_.kind() == wire::CALL_STEP) release.add_records(arrival.payload());
    delay_ns = std::max<int64_t>(delay_ns, arrival.start_delay_ns());
  }
  if (meeting_.kind() == wire::CALL_BROADCAST) release.set_payload(meeting_.arrival(0).payload());
  // Whatever a rank asks for, nobody waits beyond the deadline of who is most in a hurry.
  if (delay_ns > 0) {
    const int64_t left_ns = std::min(delay_ns, LeftNs(meeting_.deadline_ns(), now_ns));
    release.set_start_left_ns(std::max<int64_t>(1, left_ns));
  }
  release.set_met(true);
  output.sends.push_back({ranks_, std::move(frame)});
  Over(ranks_);
}

void Channel::PreSyncFull(int64_t now_ns, ChannelOutput& output) {
  const std::optional<Error> difference = CompareFields(meeting_, ranks_);
  if (!difference.has_value()) return ReleaseAll(now_ns, output);
  // All ranks are here and hear the same, so that all decline, and the exchange goes on.
  auto frame = std::make_shared<wire::Frame>();
  wire::Release& release = *frame->mutable_release();
  release.set_channel(name_);
  release.set_call(meeting_.call());
  *release.mutable_disagreement() = FailureFromError(*difference);
  output.sends.push_back({ranks_, std::move(frame)});
  Over(ranks_);
}

void Channel::PrepareAll(ChannelOutput& output) {
  auto frame = std::make_shared<wire::Frame>();
  wire::Prepare& prepare = *frame->mutable_prepare();
  prepare.set_channel(name_);
  prepare.set_call(meeting_.call());
  prepare.set_proposal(meeting_.arrival(0).payload());
  agreement_.Start(ranks_.size());
  output.sends.push_back({ranks_, std::move(frame)});
}

bool Channel::IsCurrentAgreement(uint64_t call) const {
  return meeting_.open() && call == meeting_.call() &&
         agreement_.phase() != AgreementRound::Phase::kIdle;
}

void Channel::OnVote(int rank, const wire::Vote& vote, ChannelOutput& output) {
  // A vote may come after another rank's NO has ended the call; it decides nothing then.
  if (!IsCurrentAgreement(vote.call())) return;
  switch (agreement_.OnVote(Position(rank), vote.yes())) {
    case AgreementRound::Next::kCommit:
      Rule(wire::RULING_COMMIT, output);
      break;
    case AgreementRound::Next::kDecline:
      Rule(wire::RULING_DECLINED, output);
      Over(ranks_);
      break;
    default:
      break;
  }
}

void Channel::OnAcknowledge(int rank, const wire::Acknowledge& acknowledge, ChannelOutput& output) {
  if (!IsCurrentAgreement(acknowledge.call())) return;
  if (agreement_.OnAcknowledge(Position(rank)) != AgreementRound::Next::kGo) return;
  Rule(wire::RULING_GO, output);
  Over(ranks_);
}

void Channel::Rule(wire::Ruling ruling, ChannelOutput& output) {
  auto frame = std::make_shared<wire::Frame>();
  wire::Decision& decision = *frame->mutable_decision();
  decision.set_channel(name_);
  decision.set_call(meeting_.call());
  decision.set_ruling(ruling);
  output.sends.push_back({ranks_, std::move(frame)});
}

void Channel::Over(const std::vector<int>& ranks) {
  for (const int rank : ranks) members_[Position(rank)].waits = false;
  meeting_.Close();
  agreement_.Stop();
}

void Channel::OnLeft(int rank, ChannelOutput& output) {
  Member& member = members_[Position(rank)];
  if (!std::exchange(member.left, true)) ++left_;
  // It owes the others its arrival, its vote or its acknowledgement.
  if (meeting_.open()) FailLeft({rank}, output);
}

void Channel::OnTime(int64_t now_ns, ChannelOutput& output) {
  if (now_ns < next_time_ns()) return;
  if (meeting_.mismatched()) {
    output.failure = meeting_.MismatchError();
  } else if (meeting_.kind() == wire::CALL_PRE_SYNC) {
    CloseWindow(now_ns, output);
  } else {
    FailDeadline(output);
  }
}

void Channel::CloseWindow(int64_t now_ns, ChannelOutput& output) {
  const std::vector<int> late = meeting_.MissingRanks();
  const std::vector<int> came = meeting_.ArrivedRanks();
  auto frame = std::make_shared<wire::Frame>();
  wire::Release& release = *frame->mutable_release();
  release.set_channel(name_);
  release.set_call(meeting_.call());
  for (const int rank : late) release.add_late_ranks(rank);
  output.sends.push_back({came, std::move(frame)});
  output.notes.push_back(
      fmt::format("{} missed the pre-sync window of {}: every rank keeps the default table",
                  RankList(late), DurationText(now_ns - meeting_.opened_ns())));
  if (missed_windows_.size() >= kMissedWindowsMax) {
    output.failure =
        RankLost(fmt::format("{} missed {} pre-sync windows", RankList(late), kMissedWindowsMax),
                 meeting_.Text(), "it makes no calls any more", "look at what that rank is doing",
                 missed_windows_.OldestLateRanks());
    return;
  }
  missed_windows_.Add(meeting_.call(), late);
  Over(came);
}

void Channel::FailLeft(std::vector<int> left, ChannelOutput& output) const {
  const std::string which = RankList(left);
  const std::string verb = left.size() == 1 ? "has" : "have";
  output.failure = RankLost(
      fmt::format("{} {} left while {} {} at {}", which, verb, RankList(meeting_.ArrivedRanks()),
                  meeting_.ArrivedRanks().size() == 1 ? "is" : "are", meeting_.Text()),
      "", "it ended its part of the job before the others did",
      fmt::format("see why {} ended early: its output and exit code", which), std::move(left));
}

void Channel::FailDeadline(ChannelOutput& output) const {
  const bool voting = agreement_.phase() != AgreementRound::Phase::kIdle;
  const std::vector<int> ranks = voting ? AgreementWaitsFor() : meeting_.MissingRanks();
  const char* did_not = "did not come to";
  if (agreement_.phase() == AgreementRound::Phase::kVoting) did_not = "did not vote in";
  if (agreement_.phase() == AgreementRound::Phase::kRecording)
    did_not = "did not record the table in";
  output.waits_for_ranks = true;
  output.failure = RankLost(
      fmt::format("{} {} {} within the deadline of {}", RankList(ranks), did_not, meeting_.Text(),
                  DurationText(meeting_.deadline_ns() - meeting_.opened_ns())),
      "", "", "look at what that rank is doing", ranks);
}

std::vector<int> Channel::AgreementWaitsFor() const {
  std::vector<int> ranks;
  for (const size_t position : agreement_.WaitsFor()) ranks.push_back(ranks_[position]);
  return ranks;
}

int64_t Channel::next_time_ns() const {
  if (!meeting_.open()) return INT64_MAX;
  if (meeting_.kind() == wire::CALL_PRE_SYNC && !meeting_.mismatched()) {
    return WindowEndNs(meeting_, meeting_.first_window_ns());
  }
  return meeting_.deadline_ns();
}

bool Channel::left_by_all() const { return left_ == members_.size(); }

std::string Channel::PlaceText(int rank) const {
  const Member& member = members_[Position(rank)];
  if (member.last_place.empty()) return "";
  return (member.waits ? "waits in " : "was last in ") + member.last_place;
}

std::vector<int> Channel::WaitingRanks() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (members_[i].waits) ranks.push_back(ranks_[i]);
  }
  return ranks;
}

}  // namespace cotune::sync
