#include "core/scheduler/tune_cell.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

using Callers = std::vector<std::unique_ptr<ChoiceCaller>>;

// Moves the callers of these choices from one list to the end of the other; false: there are none.
bool MoveCallers(Callers& from, Callers& to, std::span<const SlowChoice> slow) {
  const auto stays = [&](const std::unique_ptr<ChoiceCaller>& caller) {
    return std::none_of(slow.begin(), slow.end(), [&](const SlowChoice& each) {
      return each.refusal.choice == caller->id().text();
    });
  };
  const auto first = std::stable_partition(from.begin(), from.end(), stays);
  const bool has_some = first != from.end();
  std::move(first, from.end(), std::back_inserter(to));
  from.erase(first, from.end());
  return has_some;
}

}  // namespace

bool HasTwoHeats(const TuneCell& cell) {
  return cell.place.node->combinations_max(cell.place.hint_bytes) > 0;
}

void SetSlowCallersAside(TuneCell& cell, std::span<const SlowChoice> slow) {
  MoveCallers(cell.callers, cell.slow_callers, slow);
}

bool TakeSlowCallersBack(TuneCell& cell, std::span<const SlowChoice> slow) {
  return MoveCallers(cell.slow_callers, cell.callers, slow);
}

void DropFailedCallers(TuneCell& cell, const CellResult& result) {
  const auto has_failed = [&](const std::unique_ptr<ChoiceCaller>& caller) {
    return std::any_of(result.verdicts.begin(), result.verdicts.end(), [&](const Verdict& verdict) {
      const bool has_raced =
          verdict.outcome == Outcome::kTimed || verdict.outcome == Outcome::kOutpaced;
      return verdict.id == caller->id() && (!has_raced || verdict.wrong_elements > 0);
    });
  };
  std::erase_if(cell.callers, has_failed);
}

tl::unexpected<Error> WhileMeasuring(Error error, const CellPlace& place) {
  if (error.code != ErrorCode::kInterrupted) {
    error.where +=
        fmt::format("{}while {} was measured", error.where.empty() ? "" : ", ", place.InWords());
  }
  return tl::make_unexpected(std::move(error));
}

}  // namespace cotune
