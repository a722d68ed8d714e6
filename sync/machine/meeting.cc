#include "sync/machine/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "sync/wire/failure_text.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {

Meeting::Meeting(std::string channel, std::vector<int> ranks)
    : channel_(std::move(channel)),
      ranks_(std::move(ranks)),
      arrivals_(ranks_.size()),
      arrived_ns_(ranks_.size()) {}

void Meeting::Open(uint64_t call, int64_t now_ns) {
  open_ = true;
  mismatched_ = false;
  call_ = call;
  kind_ = wire::CALL_NONE;
  name_.clear();
  opened_ns_ = now_ns;
  deadline_ns_ = INT64_MAX;
}

void Meeting::Close() {
  open_ = false;
  mismatched_ = false;
  arrived_ = 0;
  for (auto& arrival : arrivals_) arrival.reset();
}

void Meeting::Arrive(size_t member, wire::Arrive arrive, int64_t now_ns) {
  COTUNE_CHECK(member < arrivals_.size() && !has(member), "a member arrives once");
  if (arrived_ == 0) {
    kind_ = arrive.kind();
    name_ = arrive.name();
    first_window_ns_ = arrive.window_duration_ns();
  } else if (arrive.kind() != kind_ || arrive.name() != name_) {
    mismatched_ = true;
  }
  ++arrived_;
  deadline_ns_ = std::min(deadline_ns_, AddNs(now_ns, arrive.deadline_left_ns()));
  // Nothing can save the call now; a short wait lets the error say where the others are.
  if (mismatched_) deadline_ns_ = std::min(deadline_ns_, AddNs(now_ns, kSettleNs));
  arrivals_[member] = std::make_shared<const wire::Arrive>(std::move(arrive));
  arrived_ns_[member] = now_ns;
}

std::vector<int> Meeting::ArrivedRanks() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (has(i)) ranks.push_back(ranks_[i]);
  }
  return ranks;
}

std::vector<int> Meeting::MissingRanks() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!has(i)) ranks.push_back(ranks_[i]);
  }
  return ranks;
}

std::string Meeting::Text() const { return CallText(kind_, name_, channel_); }

Error Meeting::MismatchError() const {
  std::vector<int> ranks;
  std::vector<std::string> places;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!has(i)) continue;
    ranks.push_back(ranks_[i]);
    places.push_back(CallText(arrivals_[i]->kind(), arrivals_[i]->name(), channel_));
  }
  const std::vector<Opinion> opinions = GroupOpinions(ranks, places);
  std::string what = "ranks are at different calls: ";
  for (size_t i = opinions.size(); i-- > 0;) {
    const Opinion& opinion = opinions[i];
    what += fmt::format("{} {} at {}{}", RankList(opinion.ranks),
                        opinion.ranks.size() == 1 ? "is" : "are", opinion.text, i == 0 ? "" : ", ");
  }
  const std::vector<int> missing = MissingRanks();
  if (!missing.empty()) what += fmt::format("; {} not here yet", RankList(missing));
  return RankLost(std::move(what), fmt::format("call {}", call_),
                  "the ranks do not run the same program with the same settings",
                  "start every rank with the same binary, arguments, environment and database",
                  OddRanks(opinions));
}

std::vector<Opinion> GroupOpinions(const std::vector<int>& ranks,
                                   const std::vector<std::string>& texts) {
  std::vector<Opinion> opinions;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto same = std::find_if(opinions.begin(), opinions.end(),
                                   [&](const Opinion& o) { return o.text == texts[i]; });
    if (same == opinions.end()) {
      opinions.push_back({texts[i], {ranks[i]}});
    } else {
      same->ranks.push_back(ranks[i]);
    }
  }
  std::stable_sort(opinions.begin(), opinions.end(), [](const Opinion& a, const Opinion& b) {
    return a.ranks.size() > b.ranks.size();
  });
  return opinions;
}

std::vector<int> OddRanks(const std::vector<Opinion>& opinions) {
  std::vector<int> odd;
  for (size_t i = 1; i < opinions.size(); ++i) {
    odd.insert(odd.end(), opinions[i].ranks.begin(), opinions[i].ranks.end());
  }
  std::sort(odd.begin(), odd.end());
  return odd;
}

}  // namespace cotune::sync
