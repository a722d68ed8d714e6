#include "core/scheduler/rank_zero_knowledge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/ranks/step_record.h"
#include "fmt/format.h"

namespace cotune {
namespace {

std::optional<DecidedCell> FindKnown(KnownCells* known, const CellPlace& place,
                                     std::span<const LeftOutChoice> left_out,
                                     const SelectionRules& rules) {
  if (known == nullptr) return std::nullopt;
  std::optional<CellResult> cell = known->Find(place.problem(), place.node->dispatch_digest());
  if (!cell) return std::nullopt;
  // By the rules of this tune, which may differ from those of the tune that measured the cell.
  DecidedCell decided = Decide(std::move(*cell), rules);
  const std::string problem_class = ToText(place.node->program().anchor());
  const auto is_winner = [&](const LeftOutChoice& each) {
    return each.problem_class == problem_class && each.choice == decided.winner->id.text();
  };
  // Making it ready for the table may end this tune too.
  if (decided.winner && std::any_of(left_out.begin(), left_out.end(), is_winner)) {
    return std::nullopt;
  }
  return decided;
}

// Every rank learns of a difference before any goes on.
Status CompareCounts(RankExchange& exchange, size_t of_rank_zero, size_t own, int64_t deadline_ns) {
  Status as_many;
  if (of_rank_zero != own) {
    as_many = Fail(ErrorCode::kUsage, fmt::format("rank {} tunes {} cells, this one {}",
                                                  exchange.job_rank(0), of_rank_zero, own));
  }
  const auto counted = ExchangeRecords(exchange, "known cells",
                                       StepRecord<Done>::FromStatus(as_many), 0, deadline_ns);
  if (!counted) return Propagate(counted);
  if (const std::optional<Error> failure = counted->FirstFailure()) {
    return Fail(ErrorCode::kDisagreement, failure->what, "known cells",
                "the ranks were given different collectives, types or sizes",
                "start every rank with the same arguments", failure->ranks);
  }
  return {};
}

}  // namespace

Result<std::vector<LeftOutChoice>> ShareLeftOut(RankExchange& exchange, KnownCells* known,
                                                int64_t deadline_ns) {
  const bool is_writer = exchange.rank() == 0 && known != nullptr;
  const std::string own = is_writer ? EncodeLeftOut(known->Begin()) : "";
  const Result<std::string> shared = BroadcastInParts(exchange, own, deadline_ns);
  if (!shared) return Propagate(shared);
  return DecodeLeftOut(*shared);
}

Result<std::vector<std::optional<DecidedCell>>> ShareKnownCells(
    RankExchange& exchange, KnownCells* known, std::span<const CellPlace> places,
    std::span<const LeftOutChoice> left_out, const SelectionRules& rules, int64_t deadline_ns) {
  std::string bytes;
  if (exchange.rank() == 0) {
    std::vector<std::optional<DecidedCell>> found;
    for (const CellPlace& place : places) {
      found.push_back(FindKnown(known, place, left_out, rules));
    }
    bytes = EncodeKnownCells(found);
  }
  const Result<std::string> shared = BroadcastInParts(exchange, bytes, deadline_ns);
  if (!shared) return Propagate(shared);
  Result<std::vector<std::optional<DecidedCell>>> cells = DecodeKnownCells(*shared);
  if (!cells) return cells;
  if (Status same = CompareCounts(exchange, cells->size(), places.size(), deadline_ns); !same) {
    return Propagate(same);
  }
  return cells;
}

}  // namespace cotune
