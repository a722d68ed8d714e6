#include "core/scheduler/rank_zero_knowledge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/parallel_for.h"
#include "core/ranks/step_record.h"
#include "fmt/format.h"

namespace cotune {
namespace {

std::optional<DecidedCell> FindKnown(KnownCells* known, const CellPlace& place,
                                     std::span<const LeftOutChoice> left_out,
                                     const SelectionRules& rules) {
  if (known == nullptr) return std::nullopt;
  std::optional<CellResult> cell = known->Find(place.problem());
  if (!cell) return std::nullopt;
  // By the rules of this tune, which may differ from those of the tune that measured the cell.
  DecidedCell decided = Decide(std::move(*cell), rules);
  if (!decided.winner) return std::nullopt;  // to the other ranks it is not known either
  const std::string problem_class = ToText(place.node->program().anchor());
  const auto is_winner = [&](const LeftOutChoice& each) {
    return each.problem_class == problem_class && each.choice == decided.winner->id.text();
  };
  // Making it ready for the table may end this tune too.
  if (std::any_of(left_out.begin(), left_out.end(), is_winner)) return std::nullopt;
  return decided;
}

}  // namespace

Result<std::vector<LeftOutChoice>> ShareLeftOut(RankExchange& exchange, KnownCells* known,
                                                int64_t deadline_ns) {
  const bool is_writer = exchange.rank() == 0 && known != nullptr;
  const std::string own = is_writer ? EncodeLeftOut(known->Begin()) : "";
  COTUNE_TRY(const std::string shared, BroadcastInParts(exchange, own, deadline_ns));
  return DecodeLeftOut(shared);
}

Result<std::vector<std::optional<DecidedCell>>> ShareKnownCells(
    RankExchange& exchange, KnownCells* known, std::span<const CellPlace> places,
    std::span<const LeftOutChoice> left_out, const SelectionRules& rules, size_t threads,
    int64_t deadline_ns) {
  std::string own;
  if (exchange.rank() == 0) {
    std::vector<std::optional<DecidedCell>> found(places.size());
    const bool is_shared = known != nullptr && known->FindsOnAnyThread();
    ParallelFor(places.size(), is_shared ? threads : 1,
                [&](size_t i) { found[i] = FindKnown(known, places[i], left_out, rules); });
    own = EncodeKnownCells(found, threads);
  }
  // Rank 0 reads its own message, too: cells that it took from its memory would differ from those
  // of the other ranks by all that the message does not carry.
  COTUNE_TRY(const std::string shared, BroadcastInParts(exchange, own, deadline_ns));
  Result<std::vector<std::optional<DecidedCell>>> cells = DecodeKnownCells(shared, threads);
  if (!cells) return cells;
  if (cells->size() == places.size()) return cells;
  return Fail(ErrorCode::kInternal,
              fmt::format("rank {} knows of {} cells, this one has {}", exchange.job_rank(0),
                          cells->size(), places.size()),
              "known cells", "the ranks run different versions of cotune",
              "start all ranks from one build");
}

}  // namespace cotune
