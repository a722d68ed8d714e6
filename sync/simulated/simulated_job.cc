#include "sync/simulated/simulated_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

constexpr uint64_t kEventsMax = 1'000'000;  // a job that needs more never ends

JobIdentity SimulatedIdentity(int world_size) { return {world_size, "simulated", "1"}; }

std::vector<SimulatedClock> ClocksOf(uint64_t seed, int world_size) {
  std::mt19937_64 random(~seed);
  std::vector<SimulatedClock> clocks;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto offset_ns = static_cast<int64_t>(random() % SimulatedClock::kOffsetMaxNs);
    const auto drift_ppb = static_cast<int64_t>(random() % (2 * SimulatedClock::kDriftMaxPpb + 1));
    clocks.emplace_back(offset_ns, drift_ppb - SimulatedClock::kDriftMaxPpb);
  }
  return clocks;
}

ConnectionId Id(int rank) { return static_cast<ConnectionId>(rank) + 1; }

}  // namespace

int64_t SimulatedClock::Read(int64_t simulated_ns) const {
  const auto drift_ns = static_cast<__int128>(simulated_ns) * drift_ppb_ / 1'000'000'000;
  return offset_ns_ + simulated_ns + static_cast<int64_t>(drift_ns);
}

int64_t SimulatedClock::WhenItShows(int64_t clock_ns) const {
  if (clock_ns == INT64_MAX) return INT64_MAX;
  const auto since_zero_ns = static_cast<__int128>(clock_ns) - offset_ns_;
  auto simulated_ns =
      static_cast<int64_t>(since_zero_ns * 1'000'000'000 / (1'000'000'000 + drift_ppb_)) - 2;
  while (Read(simulated_ns) < clock_ns) ++simulated_ns;
  return simulated_ns;
}

SimulatedJob::SimulatedJob(SimulatedJobOptions options)
    : options_(std::move(options)),
      random_(options_.seed),
      clocks_(ClocksOf(options_.seed, options_.world_size)),
      coordinator_({SimulatedIdentity(options_.world_size), options_.heartbeat_interval_ns,
                    options_.heartbeat_timeout_ns}),
      ranks_(static_cast<size_t>(options_.world_size)) {
  for (int rank = 0; rank < options_.world_size; ++rank) {
    at(rank).machine = std::make_unique<RankMachine>(
        RankConfig{SimulatedIdentity(options_.world_size), rank, options_.heartbeat_interval_ns,
                   options_.heartbeat_timeout_ns});
    Push({.at_ns = options_.start_ns[static_cast<size_t>(rank)],
          .what = What::kBegin,
          .rank = rank});
  }
  for (const SimulatedFault& fault : std::exchange(options_.faults, {})) AddFault(fault);
}

void SimulatedJob::AddFault(const SimulatedFault& fault) {
  // `rank` carries the number of the fault.
  Push({.at_ns = fault.at_ns,
        .what = What::kFault,
        .rank = static_cast<int>(options_.faults.size())});
  options_.faults.push_back(fault);
}

bool SimulatedJob::Run() {
  const auto ended = [](const Rank& rank) { return rank.done || rank.crashed; };
  while (!events_.empty() && next_order_ < kEventsMax) {
    if (std::all_of(ranks_.begin(), ranks_.end(), ended)) return true;
    SimulatedEvent event = events_.top();
    events_.pop();
    now_ns_ = event.at_ns;
    if (event.what != What::kFault) {
      const bool coordinators = event.what == What::kToCoordinator || event.what == What::kTime;
      const Rank& process = at(coordinators ? 0 : event.rank);
      if (process.crashed) continue;
      if (process.paused_until_ns > now_ns_) {
        event.at_ns = process.paused_until_ns;
        Push(std::move(event));
        continue;
      }
    }
    Handle(event);
  }
  return std::all_of(ranks_.begin(), ranks_.end(), ended);
}

void SimulatedJob::Handle(const SimulatedEvent& event) {
  const int rank = event.rank;
  switch (event.what) {
    case What::kFault:
      return OnFault(options_.faults[static_cast<size_t>(rank)]);
    case What::kBegin:
      return BeginCall(rank);
    case What::kVote:
      return Feed(
          rank,
          VoteAsked{1, "",
                    at(rank).next_call < 1 ||
                        options_.calls[static_cast<size_t>(rank)][at(rank).next_call - 1].yes});
    case What::kEnd:
      return GoOn(rank);
    case What::kAsk:
      return AskNow(rank);
    case What::kWake:
      return options_.programs->OnWake(rank, event.token);
    case What::kHeartbeat:
      if (at(rank).done) return;
      Feed(rank, HeartbeatDue{});
      return Push({.at_ns = now_ns_ + options_.heartbeat_interval_ns,
                   .what = What::kHeartbeat,
                   .rank = rank});
    case What::kToRank:
      if (at(rank).lost && !event.despite_loss) return;
      if (options_.keep_trace) Trace(fmt::format("{} hears", rank));
      if (event.frame == nullptr) return Feed(rank, CoordinatorEnded{""});
      return Feed(rank, CoordinatorFrameCame{event.frame});
    case What::kToCoordinator:
      if (at(rank).lost && !event.despite_loss) return;
      if (options_.keep_trace) Trace(fmt::format("the coordinator hears {}", rank));
      if (event.connects) FeedCoordinator(Connected{Id(rank)});
      if (event.frame == nullptr) return FeedCoordinator(ConnectionEnded{Id(rank)});
      return FeedCoordinator(FrameCame{Id(rank), event.frame});
    case What::kRankTime:
      at(rank).timer_ns = INT64_MAX;
      return Feed(rank, RankTimeReached{});
    case What::kTime:
      coordinator_timer_ns_ = INT64_MAX;
      return FeedCoordinator(TimeReached{});
  }
}

void SimulatedJob::OnFault(const SimulatedFault& fault) {
  Rank& rank = at(fault.rank);
  if (rank.crashed || rank.done) return;
  Trace(fmt::format("fault {} of rank {}", static_cast<int>(fault.kind), fault.rank));
  switch (fault.kind) {
    case SimulatedFault::Kind::kCrash:
      rank.crashed = true;
      EndConnection(fault.rank, false, true);
      if (fault.rank != 0) return;
      for (int other = 1; other < options_.world_size; ++other) EndConnection(other, true, false);
      return;
    case SimulatedFault::Kind::kPause:
      rank.paused_until_ns = std::max(rank.paused_until_ns, now_ns_ + fault.length_ns);
      rank.paused_ns += fault.length_ns + options_.heartbeat_interval_ns;
      return;
    case SimulatedFault::Kind::kBreak:
      // Nothing to break before the rank has connected.
      if (now_ns_ < options_.start_ns[static_cast<size_t>(fault.rank)]) return;
      rank.lost = true;
      return EndConnection(fault.rank, true, true);
    case SimulatedFault::Kind::kPartition:
      rank.lost = true;
      return;
  }
}

// Bytes that are under way on a connection that ends by a crash still arrive; its end comes after
// them.
void SimulatedJob::EndConnection(int rank, bool seen_by_rank, bool seen_by_coordinator) {
  Rank& end = at(rank);
  if (seen_by_coordinator) {
    end.sent_until_ns = std::max(end.sent_until_ns, now_ns_ + Delay());
    Push({.at_ns = end.sent_until_ns,
          .what = What::kToCoordinator,
          .rank = rank,
          .despite_loss = true});
  }
  if (seen_by_rank) {
    end.received_until_ns = std::max(end.received_until_ns, now_ns_ + Delay());
    Push({.at_ns = end.received_until_ns,
          .what = What::kToRank,
          .rank = rank,
          .despite_loss = true});
  }
}

void SimulatedJob::BeginCall(int rank) {
  Rank& self = at(rank);
  self.began_ns = ClockNs(rank);
  if (self.next_call == 0) {
    Push({.at_ns = now_ns_ + options_.heartbeat_interval_ns,
          .what = What::kHeartbeat,
          .rank = rank});
    return Feed(rank, JoinAsked{1, ClockNs(rank) + options_.join_deadline_ns});
  }
  const SimulatedCall& call = options_.calls[static_cast<size_t>(rank)][self.next_call - 1];
  wire::Arrive arrive;
  arrive.set_kind(call.kind);
  arrive.set_name(call.name);
  arrive.set_window_duration_ns(call.window_ns);
  if (call.kind == wire::CALL_AGREE && rank == 0) arrive.set_payload("table");
  for (const auto& [name, value] : call.fields) {
    arrive.add_fields()->set_name(name);
    arrive.mutable_fields(arrive.fields_size() - 1)->set_value(value);
  }
  Feed(rank, CallAsked{1, std::move(arrive), ClockNs(rank) + call.deadline_ns});
}

void SimulatedJob::Ended(int rank, Result<FramePtr> result) {
  Rank& self = at(rank);
  if (options_.programs != nullptr) {
    // Behind the other actions of the machine, whose frames are sent first.
    self.ended = std::move(result);
    return Push({.at_ns = now_ns_, .what = What::kEnd, .rank = rank});
  }
  const auto& calls = options_.calls[static_cast<size_t>(rank)];
  if (result && (*result)->has_prepare()) {
    return Push({.at_ns = now_ns_ + calls[self.next_call - 1].vote_think_ns,
                 .what = What::kVote,
                 .rank = rank});
  }
  const bool failed = !result.has_value();
  Trace(fmt::format("rank {} ends call {}: {}", rank, self.next_call,
                    failed ? result.error().ToText() : (*result)->ShortDebugString()));
  SimulatedOutcome outcome{
      self.next_call == 0
          ? SimulatedCall{.kind = wire::CALL_JOIN, .deadline_ns = options_.join_deadline_ns}
          : calls[self.next_call - 1],
      std::move(result),
      self.began_ns,
      ClockNs(rank),
      ElapsedErrorNs(rank),
      self.machine->job_clock().ErrorNs(ClockNs(rank)),
      0};
  for (const Rank& other : ranks_) outcome.recorded_ranks += other.recorded;
  self.outcomes.push_back(std::move(outcome));
  ++self.next_call;
  if (failed || self.next_call > calls.size()) return Finish(rank);
  Push({.at_ns = now_ns_ + calls[self.next_call - 1].think_ns, .what = What::kBegin, .rank = rank});
}

void SimulatedJob::GoOn(int rank) {
  Result<FramePtr> result = std::move(*at(rank).ended);
  at(rank).ended.reset();
  options_.programs->OnEnd(rank, std::move(result));
}

void SimulatedJob::Ask(int rank, int64_t at_ns, RankEvent ask) {
  at(rank).asked = std::move(ask);
  Push({.at_ns = std::max(at_ns, now_ns_), .what = What::kAsk, .rank = rank});
}

void SimulatedJob::AskNow(int rank) {
  const RankEvent ask = std::move(*at(rank).asked);
  at(rank).asked.reset();
  if (std::holds_alternative<LeaveAsked>(ask)) at(rank).done = true;
  Feed(rank, ask);
}

void SimulatedJob::Wake(int rank, int64_t at_ns, uint64_t token) {
  Push({.at_ns = std::max(at_ns, now_ns_), .what = What::kWake, .rank = rank, .token = token});
}

void SimulatedJob::Finish(int rank) {
  at(rank).done = true;
  Feed(rank, LeaveAsked{""});
}

void SimulatedJob::Feed(int rank, const RankEvent& event) {
  Rank& self = at(rank);
  for (RankAction& action : self.machine->OnEvent(event, ClockNs(rank))) {
    if (auto* send = std::get_if<SendToCoordinator>(&action)) {
      if (send->frame->has_acknowledge()) ++self.recorded;
      SendFromRank(rank, send->frame, std::holds_alternative<JoinAsked>(event));
    } else if (auto* complete = std::get_if<CompleteCall>(&action)) {
      Ended(rank, std::move(complete->result));
    } else if (std::holds_alternative<Disconnect>(action)) {
      EndConnection(rank, false, true);
    }
  }
  ArmTimers(rank);
}

void SimulatedJob::FeedCoordinator(const CoordinatorEvent& event) {
  if (!job_begin_ns_.has_value()) job_begin_ns_ = ClockNs(0);
  for (const CoordinatorAction& action : coordinator_.OnEvent(event, ClockNs(0))) {
    if (const auto* send = std::get_if<SendFrame>(&action)) {
      for (const ConnectionId id : send->to) SendToRank(static_cast<int>(id) - 1, send->frame);
    } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
      EndConnection(static_cast<int>(close->id) - 1, true, false);
    } else {
      Trace("log: " + std::get<LogLine>(action).text);
    }
  }
  ArmTimers(0);
}

void SimulatedJob::SendToRank(int rank, const FramePtr& frame) {
  std::vector<FramePtr> frames = {frame};
  if (options_.tamper) frames = options_.tamper(rank, false, frame);
  for (FramePtr& sent : frames) {
    Rank& to = at(rank);
    if (options_.keep_trace) Trace(fmt::format("to {}: {}", rank, sent->ShortDebugString()));
    to.received_until_ns = std::max(to.received_until_ns, now_ns_ + Delay());
    Push({.at_ns = to.received_until_ns,
          .what = What::kToRank,
          .rank = rank,
          .frame = std::move(sent)});
  }
}

void SimulatedJob::SendFromRank(int rank, const FramePtr& frame, bool connects) {
  std::vector<FramePtr> frames = {frame};
  if (options_.tamper) frames = options_.tamper(rank, true, frame);
  for (FramePtr& sent : frames) {
    Rank& from = at(rank);
    if (options_.keep_trace) Trace(fmt::format("from {}: {}", rank, sent->ShortDebugString()));
    from.sent_until_ns = std::max(from.sent_until_ns, now_ns_ + Delay());
    Push({.at_ns = from.sent_until_ns,
          .what = What::kToCoordinator,
          .rank = rank,
          .frame = std::move(sent),
          .connects = std::exchange(connects, false)});
  }
}

void SimulatedJob::Push(SimulatedEvent event) {
  event.order = next_order_++;
  events_.push(std::move(event));
}

void SimulatedJob::ArmTimers(int rank) {
  Rank& self = at(rank);
  const SimulatedClock& clock = clocks_[static_cast<size_t>(rank)];
  const int64_t rank_ns = std::max(clock.WhenItShows(self.machine->next_time_ns()), now_ns_);
  if (rank_ns < self.timer_ns && rank_ns != INT64_MAX) {
    self.timer_ns = rank_ns;
    Push({.at_ns = rank_ns, .what = What::kRankTime, .rank = rank});
  }
  const int64_t next_ns = std::max(clocks_[0].WhenItShows(coordinator_.next_time_ns()), now_ns_);
  if (next_ns < coordinator_timer_ns_ && next_ns != INT64_MAX) {
    coordinator_timer_ns_ = next_ns;
    Push({.at_ns = next_ns, .what = What::kTime, .rank = 0});
  }
}

int64_t SimulatedJob::Delay() {
  // Mostly short, now and then as long as allowed.
  const int64_t bound_ns =
      random_() % 8 == 0 ? options_.delay_max_ns : std::max<int64_t>(1, options_.delay_max_ns / 16);
  return 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(bound_ns));
}

void SimulatedJob::Trace(const std::string& text) {
  if (options_.keep_trace) trace_.push_back(fmt::format("{} {}", now_ns_, text));
}

const std::vector<SimulatedOutcome>& SimulatedJob::outcomes(int rank) const {
  return at(rank).outcomes;
}

bool SimulatedJob::crashed(int rank) const { return at(rank).crashed; }

int64_t SimulatedJob::paused_ns(int rank) const {
  const SimulatedClock& clock = clocks_[static_cast<size_t>(rank)];
  // The clock may round once at each end.
  return at(rank).paused_ns == 0 ? 0 : clock.Read(at(rank).paused_ns) - clock.Read(0) + 2;
}

int64_t SimulatedJob::ElapsedErrorNs(int rank) const {
  if (!job_begin_ns_.has_value()) return 0;
  const int64_t elapsed_ns = ClockNs(0) - *job_begin_ns_;
  const int64_t believed_ns = ClockNs(rank) - at(rank).machine->job_clock().begin_ns();
  return believed_ns - elapsed_ns;
}

}  // namespace cotune::sync
