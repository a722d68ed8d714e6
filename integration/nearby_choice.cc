#include "integration/nearby_choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/choice/choice_lists.h"

namespace cotune {
namespace {

std::optional<Problem> AtBytes(const Program& program, const Problem& problem, uint64_t bytes) {
  Problem measured = problem;
  measured.count = program.is_single_collective()
                       ? CountForBytes(problem.cls, bytes)
                       : program.ProblemAt(bytes, problem.topology_digest).count;
  return measured.count == 0 ? std::nullopt : std::optional(measured);
}

// Returns whether the rule of numerics allows the choice, which is not listed for the problem.
bool AllowsNumerics(const BackendGroups& groups, const Program& program, const Problem& problem,
                    const Choice& choice) {
  if (groups.numerics() == NumericsRule::kAny) return true;
  if (!program.is_single_collective()) return false;
  if (choice.numerics == kExactNumerics) return true;
  // The list has one class beside the exact one.
  const ChoiceList list = ListChoicesOf(groups, program, problem);
  return !choice.numerics.empty() &&
         std::any_of(list.choices.begin(), list.choices.end(),
                     [&](const Choice& each) { return each.numerics == choice.numerics; });
}

}  // namespace

std::optional<Problem> AtMeasuredSize(const DispatchTable& table, const Program& program,
                                      const Problem& problem) {
  const NextBestOfSize* size = table.MeasuredSizeOf(DispatchKey::Of(problem.cls), problem.bytes());
  return size == nullptr ? std::nullopt : AtBytes(program, problem, size->bytes);
}

std::optional<Problem> AtNextSize(const DispatchTable& table, const Program& program,
                                  const Problem& problem) {
  const DispatchKey key = DispatchKey::Of(problem.cls);
  const NextBestOfSize* size = table.MeasuredSizeOf(key, problem.bytes());
  if (size == nullptr || size->bytes >= problem.bytes()) return std::nullopt;
  const DispatchRow* own = table.Find(key);
  const DispatchRow* row = own != nullptr ? own : table.RelativeOf(key);
  if (row == nullptr) return std::nullopt;
  const auto next = std::find_if(row->next_best.begin(), row->next_best.end(),
                                 [&](const auto& each) { return each.bytes > size->bytes; });
  if (next == row->next_best.end() || next->bytes / kNextSizeTimesMax > problem.bytes()) {
    return std::nullopt;
  }
  return AtBytes(program, problem, next->bytes);
}

std::optional<NearbyChoice> FindNearby(const BackendGroups& groups, const Program& program,
                                       const Problem& problem,
                                       const std::optional<Problem>& measured, const ChoiceId& id) {
  if (std::optional<Choice> here = FindChoice(groups, program, problem, id)) {
    return NearbyChoice{*std::move(here), true};
  }
  if (!measured || measured->count == problem.count) return std::nullopt;
  if (FindRefusal(groups, program, problem, id)) return std::nullopt;
  std::optional<Choice> there = FindChoice(groups, program, *measured, id);
  if (!there || !AllowsNumerics(groups, program, problem, *there)) return std::nullopt;
  return NearbyChoice{*std::move(there), false};
}

std::vector<NearbyChoice> WinnersOf(const BackendGroups& groups, const Program& program,
                                    const DispatchTable& table, const Problem& problem) {
  const auto winner_at = [&](const Problem& at) -> const ChoiceId& {
    const int32_t index = table.Lookup(DispatchKey::Of(at.cls), at.bytes());
    return table.choices()[static_cast<size_t>(index)];
  };
  const ChoiceId& own = winner_at(problem);
  std::vector<NearbyChoice> winners;
  auto own_winner =
      FindNearby(groups, program, problem, AtMeasuredSize(table, program, problem), own);
  if (!own_winner || !own_winner->is_listed_here) {
    if (const std::optional<Problem> next = AtNextSize(table, program, problem)) {
      const ChoiceId& id = winner_at(*next);
      const bool may_run =
          problem.cls.buffer_class == BufferClass::kPlain || HasBackendsOf(own, id);
      auto found = may_run && id != own ? FindNearby(groups, program, problem, next, id)
                                        : std::optional<NearbyChoice>();
      if (found) {
        found->next_size_bytes = next->bytes();
        winners.push_back(*std::move(found));
      }
    }
  }
  if (own_winner) winners.push_back(*std::move(own_winner));
  return winners;
}

bool IsAboveMeasuredSize(const DispatchTable& table, const Problem& problem) {
  const NextBestOfSize* size = table.MeasuredSizeOf(DispatchKey::Of(problem.cls), problem.bytes());
  return size != nullptr && size->bytes < problem.bytes();
}

std::vector<Attempt> AttemptsOf(const BackendGroups& groups, const Program& program,
                                const DispatchTable& table, const Problem& problem,
                                std::vector<NearbyChoice> winners) {
  using Kind = Attempt::Kind;
  std::vector<Attempt> attempts;
  for (NearbyChoice& each : winners) attempts.push_back({std::move(each), Kind::kWinner});
  const bool is_symmetric = problem.cls.buffer_class == BufferClass::kSymmetric;
  const std::optional<Problem> measured = AtMeasuredSize(table, program, problem);
  const DispatchKey key = DispatchKey::Of(problem.cls);
  const auto index = static_cast<size_t>(table.Lookup(key, problem.bytes()));
  const ChoiceId& winner = table.choices()[index];
  for (const ChoiceId& id : table.NextBestOf(key, problem.bytes()).choices()) {
    // It is only known of the winner's backends that they have taken the call's buffers.
    if (is_symmetric && !HasBackendsOf(winner, id)) continue;
    auto nearby = FindNearby(groups, program, problem, measured, id);
    if (nearby) attempts.push_back({*std::move(nearby), Kind::kNextBest});
  }
  if (!IsAboveMeasuredSize(table, problem)) return attempts;
  std::vector<Attempt> ordered;
  std::vector<Attempt> others;
  for (Attempt& each : attempts) {
    const NearbyChoice& nearby = each.nearby;
    const bool suits = nearby.is_listed_here && nearby.next_size_bytes == 0 &&
                       HasBackendsOf(winner, nearby.choice.id);
    (suits ? ordered : others).push_back(std::move(each));
  }
  std::move(others.begin(), others.end(), std::back_inserter(ordered));
  return ordered;
}

std::vector<TableChoice> ChoicesInOrder(const DispatchTable& table, const Program& program,
                                        const Problem& anchor) {
  const DispatchKey key = DispatchKey::Of(anchor.cls);
  const int32_t index = table.Lookup(key, anchor.bytes());
  if (index == DispatchTable::kNoChoice) return {};
  const std::optional<Problem> measured = AtMeasuredSize(table, program, anchor);
  const ChoiceId& winner = table.choices()[static_cast<size_t>(index)];
  const auto& next_best = table.NextBestOf(key, anchor.bytes()).choices();
  std::vector<TableChoice> ordered;
  if (IsAboveMeasuredSize(table, anchor)) {
    ordered.push_back({winner, measured, true});
    for (const ChoiceId& id : next_best) {
      if (HasBackendsOf(winner, id)) ordered.push_back({id, measured, true});
    }
  }
  if (const std::optional<Problem> next = AtNextSize(table, program, anchor)) {
    const int32_t of_next = table.Lookup(key, next->bytes());
    ordered.push_back({table.choices()[static_cast<size_t>(of_next)], next});
  }
  ordered.push_back({winner, measured});
  for (const ChoiceId& id : next_best) ordered.push_back({id, measured});
  return ordered;
}

bool HasBackendsOf(const ChoiceId& other, const ChoiceId& id) {
  const std::vector<ChoiceId> known = other.steps();
  const std::vector<ChoiceId> steps = id.steps();
  return std::all_of(steps.begin(), steps.end(), [&](const ChoiceId& step) {
    return std::any_of(known.begin(), known.end(),
                       [&](const ChoiceId& each) { return each.backend() == step.backend(); });
  });
}

}  // namespace cotune
