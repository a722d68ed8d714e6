#include "sync/machine/pre_sync_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "sync/wire/failure_text.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

constexpr size_t kOpinionsShown = 4;

// Both halves of a pair as one text, so that a missing field and another name count as differences
// too.
struct Pair {
  std::string name;
  std::string value;
};

Pair PairAt(const wire::Arrive& arrive, int index) {
  if (index >= arrive.fields_size()) return {"", "(not given)"};
  return {arrive.fields(index).name(), arrive.fields(index).value()};
}

Error FieldError(const Meeting& meeting, const std::vector<int>& ranks, int index) {
  std::vector<std::string> texts;
  std::string field;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Pair pair = PairAt(meeting.arrival(i), index);
    if (field.empty()) field = pair.name;
    texts.push_back(pair.name == field || pair.name.empty() ? pair.value
                                                            : pair.name + "=" + pair.value);
  }
  const std::vector<Opinion> opinions = GroupOpinions(ranks, texts);
  const std::vector<int> odd = OddRanks(opinions);
  std::string what = fmt::format("{} {} about {}: ", RankList(odd),
                                 odd.size() == 1 ? "disagrees" : "disagree", Quoted(field));
  const size_t shown = std::min(opinions.size(), kOpinionsShown);
  for (size_t i = shown; i-- > 0;) {
    what += fmt::format("{} {} {}{}", RankList(opinions[i].ranks),
                        opinions[i].ranks.size() == 1 ? "has" : "have", Quoted(opinions[i].text),
                        i == 0 ? "" : ", ");
  }
  Error error =
      RankLost(std::move(what), meeting.Text(),
               "this field decides what is tuned and must be equal on every rank",
               fmt::format("make {} equal on every rank and run again", Quoted(field)), odd);
  error.code = ErrorCode::kDisagreement;
  return error;
}

}  // namespace

int64_t WindowEndNs(const Meeting& meeting, int64_t window_ns) {
  return std::min(AddNs(meeting.opened_ns(), std::max<int64_t>(0, window_ns)),
                  meeting.deadline_ns());
}

std::optional<Error> CompareFields(const Meeting& meeting, const std::vector<int>& ranks) {
  int fields = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    fields = std::max(fields, meeting.arrival(i).fields_size());
  }
  for (int index = 0; index < fields; ++index) {
    const Pair first = PairAt(meeting.arrival(0), index);
    for (size_t i = 1; i < ranks.size(); ++i) {
      const Pair other = PairAt(meeting.arrival(i), index);
      if (other.name != first.name || other.value != first.value) {
        return FieldError(meeting, ranks, index);
      }
    }
  }
  return std::nullopt;
}

void MissedWindows::Add(uint64_t call, const std::vector<int>& late_ranks) {
  missed_[call] = Missed{late_ranks, late_ranks};
}

std::optional<std::vector<int>> MissedWindows::Tell(uint64_t call, int rank) {
  const auto found = missed_.find(call);
  if (found == missed_.end()) return std::nullopt;
  std::vector<int>& untold = found->second.untold_ranks;
  const auto late = std::find(untold.begin(), untold.end(), rank);
  if (late == untold.end()) return std::nullopt;
  untold.erase(late);
  std::vector<int> ranks = found->second.late_ranks;
  if (untold.empty()) missed_.erase(found);
  return ranks;
}

std::vector<int> MissedWindows::OldestLateRanks() const {
  return missed_.empty() ? std::vector<int>{} : missed_.begin()->second.untold_ranks;
}

}  // namespace cotune::sync
