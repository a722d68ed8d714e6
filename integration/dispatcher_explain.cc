// Explains which choice runs a call, and why.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/dispatcher.h"
#include "integration/dispatcher_plan.h"

namespace cotune {

std::optional<CallExplanation> Dispatcher::ExplainUnprepared(const PlanKey& key,
                                                             const Program& program,
                                                             const Choice& choice) const {
  CallExplanation explanation{.choice = choice.id, .is_eager = IsEager(key.problem, choice)};
  std::optional<Choice> other;
  if (explanation.is_eager) other = ChoiceInGraphs(program, key.problem, choice.id);
  if (other) explanation.choice_in_graphs = other->id;
  const bool is_collective =
      choice.prepare_is_collective || (other && other->prepare_is_collective);
  return is_collective ? std::optional(std::move(explanation)) : std::nullopt;
}

CallExplanation Dispatcher::ExplainPlan(const CachedPlan& plan) {
  CallExplanation explanation{.choice = plan.caller->id(),
                              .is_next_best = plan.is_next_best,
                              .table_choice_refused = plan.table_choice_refused,
                              .next_size_bytes = plan.next_size_bytes,
                              .is_eager = plan.is_eager};
  if (plan.in_graphs != nullptr) explanation.choice_in_graphs = plan.in_graphs->id();
  return explanation;
}

Result<CallExplanation> Dispatcher::ChosenFor(const PlanKey& key, const Program& program) {
  const auto found = plan_of_.find(key);
  if (found != plan_of_.end()) return ExplainPlan(**found->second);
  const auto keep = [&](std::unique_ptr<CachedPlan> plan) {
    CallExplanation chosen = ExplainPlan(*plan);
    // After all others, so that this rank drops no plan that its peers keep.
    if (plans_.size() < kPlansMax) {
      plans_.push_back(std::move(plan));
      plan_of_.emplace(key, std::prev(plans_.end()));
    }
    return chosen;
  };
  std::string refused;
  COTUNE_TRY(const std::vector<Attempt> attempts, AttemptsFor(key, program, refused));
  for (const Attempt& each : attempts) {
    if (auto unprepared = ExplainUnprepared(key, program, each.nearby.choice)) {
      unprepared->next_size_bytes = each.nearby.next_size_bytes;
      unprepared->is_next_best = each.kind == Attempt::Kind::kNextBest;
      if (each.kind != Attempt::Kind::kWinner) unprepared->table_choice_refused = refused;
      return *unprepared;
    }
    COTUNE_TRY(std::unique_ptr<CachedPlan> plan, Try(key, program, each, refused));
    if (plan != nullptr) return keep(std::move(plan));
  }
  return Fail(ErrorCode::kInternal, "a default choice was neither made ready nor refused",
              ToText(key.problem));
}

Result<CallExplanation> Dispatcher::Explain(const Call& call) {
  COTUNE_TRY(const Problem problem, ProblemOf(call));
  COTUNE_TRY(const CallKey key, KeyOf(call, problem, table()));
  COTUNE_TRY(const Program program, Program::SingleCollective(key.key.problem.cls));
  return ExplainCall(key, program);
}

Result<CallExplanation> Dispatcher::ExplainCall(const CallKey& call, const Program& program) {
  // A plan that is made meanwhile may push out what is kept of the call.
  const ForcedCall forced = call.forced == nullptr ? ForcedCall() : *call.forced;
  if (forced.key) {
    Result<CallExplanation> chosen = ChosenFor(call.key, program);
    if (chosen) {
      chosen->is_forced = true;
      chosen->forced_refused = forced.refused;
    }
    return chosen;
  }
  Result<CallExplanation> explanation = ExplainKey(call.key, program);
  if (explanation) explanation->forced_refused = forced.refused;
  return explanation;
}

Result<CallExplanation> Dispatcher::ExplainKey(const PlanKey& key, const Program& program) {
  const DispatchKey dispatch_key = DispatchKey::Of(key.problem.cls);
  Result<CallExplanation> chosen = ChosenFor(key, program);
  if (!chosen) return chosen;
  CallExplanation explanation = std::move(*chosen);
  const bool has_winner = key.choice_index != DispatchTable::kNoChoice;
  explanation.from_table = has_winner && explanation.table_choice_refused.empty();
  explanation.is_agreed = key.table == nullptr;
  if (!has_winner || key.table == nullptr) return explanation;
  if (const DispatchRow* relative = key.table->RelativeOf(dispatch_key)) {
    explanation.relative = relative->key;
  }
  if (!explanation.from_table && !explanation.is_next_best) return explanation;
  const uint64_t bytes = key.problem.bytes();
  const uint64_t next_bytes = explanation.next_size_bytes;
  if (const auto range = key.table->RangeOf(dispatch_key, std::max(bytes, next_bytes))) {
    explanation.first_bytes = range->first_bytes;
    explanation.end_bytes = range->end_bytes;
  }
  // The winner of the next size runs from the measured size below it on, if it is not far above.
  const NextBestOfSize* below = key.table->MeasuredSizeOf(dispatch_key, bytes);
  if (next_bytes > 0 && below != nullptr) {
    explanation.first_bytes = std::max(below->bytes + 1, next_bytes / kNextSizeTimesMax);
  }
  // At the measured size itself the winner runs.
  if (explanation.is_next_best && below != nullptr && below->bytes < bytes) {
    explanation.first_bytes = std::max(explanation.first_bytes, below->bytes + 1);
  }
  return explanation;
}

}  // namespace cotune
