// The choices that run a call: the winner of the table, those that follow if it refuses the call,
// and the default.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/choice/choice_lists.h"
#include "fmt/format.h"
#include "integration/dispatcher.h"
#include "integration/dispatcher_plan.h"

namespace cotune {
namespace {

// A choice of the agreed table, or an agreed or forced one, that is listed for the problem and yet
// cannot be made ready: other ranks may run it, so this one must not take another choice by itself.
Error RefusedAlone(const ChoiceId& id, bool is_of_table, Error error) {
  if (EndsTheGroup(error.code)) return error;
  error.code = ErrorCode::kEnvironment;
  error.what = fmt::format("{}{} cannot be made ready: {}", id.text(),
                           is_of_table ? " of the tuned table" : "", error.what);
  error.next_step = "every rank would have to take another choice: mend it, or tune again";
  return error;
}

}  // namespace

Result<std::unique_ptr<Dispatcher::CachedPlan>> Dispatcher::PrepareChoice(const PlanKey& key,
                                                                          const Program& program,
                                                                          const Choice& choice) {
  auto plan = std::make_unique<CachedPlan>(key, program);
  const int64_t deadline_ns = PrepareDeadlineNs();
  COTUNE_TRY(plan->caller, MakeCaller(job_.groups(), plan->program, key.problem, choice));
  COTUNE_RETURN_IF_ERROR(plan->caller->Precompile(deadline_ns));
  COTUNE_RETURN_IF_ERROR(PrepareForGraphs(*plan, deadline_ns));
  return plan;
}

std::vector<NearbyChoice> Dispatcher::WinnersFor(const PlanKey& key, const Program& program) const {
  const ChoiceId& id = ChosenBy(key);
  std::vector<NearbyChoice> winners;
  if (key.table == nullptr) {
    auto agreed = FindAgreedSteps(program, key.problem, id);
    if (agreed) winners.push_back(*std::move(agreed));
  } else {
    winners = WinnersOf(job_.groups(), program, *key.table, key.problem);
  }
  if (!winners.empty() || !MayRunUnlisted(key)) return winners;
  // Its backend may list it as refused here, because it is not worth trying, and run it. A program
  // that has no such form at this size does not.
  Choice unlisted{.id = id};
  if (key.table != nullptr) {
    if (!HasForm(job_.groups(), program, key.problem, id)) return winners;
    if (const auto measured = AtMeasuredSize(*key.table, program, key.problem)) {
      unlisted = FindChoice(job_.groups(), program, *measured, id).value_or(std::move(unlisted));
    }
  }
  winners.push_back({std::move(unlisted), false});
  return winners;
}

bool Dispatcher::MayRunUnlisted(const PlanKey& key) const {
  // The agreement has asked the backend of each of its choices.
  if (key.table == nullptr) return true;
  // A database of an older version, say, names a choice that its backend lists no more. Yet only a
  // list applies the rule of numerics, and has no choice that cannot run this dtype or place.
  if (job_.groups().numerics() != NumericsRule::kAny) return false;
  return key.table->Find(DispatchKey::Of(key.problem.cls)) != nullptr;
}

// That a choice of the table does not run a call follows from the problem alone, and the choices
// that are tried after it from the table, which is the same on all ranks. So all ranks go on alike,
// without a word to each other.
Result<std::vector<Attempt>> Dispatcher::AttemptsFor(const PlanKey& key, const Program& program,
                                                     std::string& refused) const {
  std::vector<Attempt> attempts;
  if (key.choice_index != DispatchTable::kNoChoice) {
    const std::string id = ChosenBy(key).text();
    std::vector<NearbyChoice> winners = WinnersFor(key, program);
    // No other choice follows one that is listed for the call (Try), and to list others takes time.
    const bool is_last =
        !winners.empty() && winners.front().is_listed_here && winners.front().next_size_bytes == 0;
    if (is_last) {
      attempts.push_back({std::move(winners.front())});
      return attempts;
    }
    if (winners.empty()) {
      refused = fmt::format("{}: {}", id,
                            FindRefusal(job_.groups(), program, key.problem, ChosenBy(key))
                                .value_or("no backend offers it for this call"));
    }
    if (key.table != nullptr) {
      attempts = AttemptsOf(job_.groups(), program, *key.table, key.problem, std::move(winners));
    } else {
      for (NearbyChoice& each : winners) attempts.push_back({std::move(each)});
    }
    const bool has_listed_before =
        !attempts.empty() && attempts.front().kind == Attempt::Kind::kNextBest && refused.empty();
    if (has_listed_before) {
      refused = fmt::format("{}: its backend does not list it for a call of this size", id);
    }
  }
  COTUNE_TRY(Choice fallback, job_.DefaultChoice(program, key.problem));
  attempts.push_back({{std::move(fallback), true}, Attempt::Kind::kDefault});
  return attempts;
}

Result<std::unique_ptr<Dispatcher::CachedPlan>> Dispatcher::Try(const PlanKey& key,
                                                                const Program& program,
                                                                const Attempt& attempt,
                                                                std::string& refused) {
  using Kind = Attempt::Kind;
  const Choice& choice = attempt.nearby.choice;
  Result<std::unique_ptr<CachedPlan>> plan = PrepareChoice(key, program, choice);
  if (plan) {
    (*plan)->next_size_bytes = attempt.nearby.next_size_bytes;
    (*plan)->is_next_best = attempt.kind == Kind::kNextBest;
    if (attempt.kind != Kind::kWinner) (*plan)->table_choice_refused = refused;
    return plan;
  }
  if (attempt.kind == Kind::kDefault) return plan;
  // Ranks with other programs around an agreed collective run its choice, which its backend has
  // taken.
  const bool others_may_run_it = attempt.nearby.is_listed_here || key.table == nullptr;
  if (others_may_run_it || EndsTheGroup(plan.error().code)) {
    return tl::make_unexpected(RefusedAlone(choice.id, key.table != nullptr, plan.error()));
  }
  if (attempt.kind == Kind::kWinner) {
    refused = fmt::format("{}: {}", choice.id.text(), plan.error().ToText());
  }
  return nullptr;
}

Result<std::unique_ptr<Dispatcher::CachedPlan>> Dispatcher::Prepare(const PlanKey& key,
                                                                    const Program& program) {
  std::string refused;
  COTUNE_TRY(const std::vector<Attempt> attempts, AttemptsFor(key, program, refused));
  for (const Attempt& each : attempts) {
    COTUNE_TRY(std::unique_ptr<CachedPlan> plan, Try(key, program, each, refused));
    if (plan != nullptr) return plan;
  }
  return Fail(ErrorCode::kInternal, "a default choice was neither made ready nor refused",
              ToText(key.problem));
}

}  // namespace cotune
