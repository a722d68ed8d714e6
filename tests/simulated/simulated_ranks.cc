#include "tests/simulated/simulated_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "core/base/check.h"
#include "sync/exchange/rank_link.h"

namespace cotune {
namespace {

// From the last rank that comes to a meeting until all of them go on.
constexpr int64_t kMeetingNs = 1000;

sync::SimulatedJobOptions WithPrograms(sync::SimulatedJobOptions options,
                                       sync::SimulatedPrograms* programs) {
  options.programs = programs;
  return options;
}

tl::unexpected<Error> IsOver() { return Fail(ErrorCode::kRankLost, "the simulation is over"); }

std::string TextOf(const sync::RankEvent& ask) {
  if (const auto* call = std::get_if<sync::CallAsked>(&ask)) {
    return fmt::format("calls {}", call->arrive.ShortDebugString());
  }
  if (const auto* vote = std::get_if<sync::VoteAsked>(&ask)) {
    return vote->yes ? "votes yes" : "votes no";
  }
  return "leaves";
}

}  // namespace

// The events of one rank's exchange, by way of the simulation.
class SimulatedRanks::Link final : public sync::RankLink {
 public:
  Link(SimulatedRanks& ranks, SimulatedRank& rank) : ranks_(ranks), rank_(rank) {}
  Result<sync::FramePtr> Call(Ask ask) override {
    return std::visit([this](auto& event) { return ranks_.Call(rank_, std::move(event)); }, ask);
  }
  // A rank leaves when its body ends.
  void Leave(const std::string& /*channel*/) override {}
  void GiveUp(const Error& /*error*/) override {
    COTUNE_CHECK(false, "the body of a simulated rank does not give up its job");
  }
  const Clock& clock() const override { return rank_; }
  int64_t JobBeginNs() override { return ranks_.job_.JobBeginNs(rank_.rank()); }

 private:
  SimulatedRanks& ranks_;
  SimulatedRank& rank_;
};

int SimulatedRank::world_size() const { return ranks_.world_size_; }

int64_t SimulatedRank::now_ns() const { return ranks_.job_.clock(rank_).Read(ranks_.NowNs(*this)); }

void SimulatedRank::WorkUntil(int64_t clock_ns) {
  busy_ns_ =
      std::max(busy_ns_, ranks_.job_.clock(rank_).WhenItShows(clock_ns) - ranks_.job_.now_ns());
}

Result<std::unique_ptr<RankExchange>> SimulatedRank::Join() {
  const Result<sync::FramePtr> joined = std::move(*ended_);
  ended_.reset();
  COTUNE_RETURN_IF_ERROR(joined);
  return sync::MakeJobExchange(std::make_shared<SimulatedRanks::Link>(ranks_, *this), rank_,
                               world_size());
}

Result<std::vector<std::string>> SimulatedRank::Meet(const std::string& name, std::string value,
                                                     int64_t deadline_ns) {
  if (is_over_) return IsOver();
  SimulatedRanks::Meeting& meeting = ranks_.meetings_[name];
  meeting.values.resize(static_cast<size_t>(world_size()));
  meeting.values[static_cast<size_t>(rank_)] = std::move(value);
  meeting.all_come_ns = std::max(meeting.all_come_ns, ranks_.NowNs(*this));
  ++meeting.come;
  meets_at_ = name;
  meeting_deadline_ns_ = deadline_ns;
  thread_->GiveBack();
  meets_at_ = "";
  if (is_over_) return IsOver();
  const bool all_came =
      meeting.come == world_size() && meeting.all_come_ns + kMeetingNs <= ranks_.job_.now_ns();
  if (!all_came) {
    return Fail(ErrorCode::kDeadline, fmt::format("not all ranks came to {}", name));
  }
  return meeting.values;
}

SimulatedRanks::SimulatedRanks(sync::SimulatedJobOptions options, Body body, BeforeCall before_call)
    : world_size_(options.world_size),
      keeps_trace_(options.keep_trace),
      body_(std::move(body)),
      before_call_(std::move(before_call)),
      job_(WithPrograms(std::move(options), this)),
      ended_(static_cast<size_t>(world_size_)) {
  for (int rank = 0; rank < world_size_; ++rank) {
    ranks_.push_back(std::make_unique<SimulatedRank>(*this, rank));
    SimulatedRank& self = *ranks_.back();
    self.thread_ = std::make_unique<BatonThread>([this, &self] { body_(self); });
  }
}

SimulatedRanks::~SimulatedRanks() = default;

bool SimulatedRanks::Run() {
  const bool all_ended = job_.Run();
  for (const auto& rank : ranks_) {
    rank->is_over_ = true;
    const bool has_begun = rank->wait_token_ > 0;
    if (has_begun && !rank->thread_->has_ended()) rank->thread_->Resume();
  }
  return all_ended;
}

void SimulatedRanks::OnEnd(int rank, Result<sync::FramePtr> result) {
  SimulatedRank& self = at(rank);
  if (keeps_trace_) {
    Note(self, result ? fmt::format("hears {}", (*result)->ShortDebugString())
                      : fmt::format("fails: {}", result.error().ToText()));
  }
  self.ended_ = std::move(result);
  Resume(self);
}

void SimulatedRanks::OnWake(int rank, uint64_t token) {
  SimulatedRank& self = at(rank);
  if (token != self.wait_token_ || self.meets_at_.empty()) return;
  Resume(self);
}

// Runs the rank until it waits again or has ended.
void SimulatedRanks::Resume(SimulatedRank& rank) {
  rank.busy_ns_ = 0;
  ++rank.wait_token_;
  rank.thread_->Resume();
  if (rank.thread_->has_ended()) {
    ended_[static_cast<size_t>(rank.rank())] = true;
    rank.asks_ = sync::LeaveAsked{""};
  }
  if (!rank.asks_) return ComeToMeeting(rank);
  if (keeps_trace_) Note(rank, TextOf(*rank.asks_));
  job_.Ask(rank.rank(), NowNs(rank), std::move(*rank.asks_));
  rank.asks_.reset();
}

void SimulatedRanks::ComeToMeeting(SimulatedRank& rank) {
  if (keeps_trace_) Note(rank, "meets at " + rank.meets_at_);
  const int64_t deadline_ns = job_.clock(rank.rank()).WhenItShows(rank.meeting_deadline_ns_);
  job_.Wake(rank.rank(), std::max(deadline_ns, NowNs(rank)), rank.wait_token_);
  const Meeting& meeting = meetings_.at(rank.meets_at_);
  if (meeting.come < world_size_) return;
  for (const auto& each : ranks_) {
    if (each->meets_at_ != rank.meets_at_) continue;
    job_.Wake(each->rank(), meeting.all_come_ns + kMeetingNs, each->wait_token_);
  }
}

Result<sync::FramePtr> SimulatedRanks::Call(SimulatedRank& rank, sync::RankEvent ask) {
  if (rank.is_over_) return IsOver();
  const auto* call = std::get_if<sync::CallAsked>(&ask);
  if (call != nullptr && before_call_) before_call_(rank, *call);
  rank.asks_ = std::move(ask);
  rank.thread_->GiveBack();
  if (rank.is_over_) return IsOver();
  Result<sync::FramePtr> result = std::move(*rank.ended_);
  rank.ended_.reset();
  return result;
}

void SimulatedRanks::Note(const SimulatedRank& rank, const std::string& text) {
  calls_.push_back(fmt::format("{} rank {} {}", NowNs(rank), rank.rank(), text));
}

}  // namespace cotune
