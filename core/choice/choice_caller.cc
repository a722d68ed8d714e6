#include "core/choice/choice_caller.h"

#include <algorithm>
#include <exception>

#include "core/base/check.h"
#include "core/choice/recipe_plan.h"
#include "core/recipe/recipe_id.h"
#include "core/recipe/recipe_source.h"

namespace cotune {
namespace {

// A function of its own, so that calls need no space for the error.
[[gnu::cold]] Status NotPrecompiled(const ChoiceId& id) {
  return Fail(ErrorCode::kInternal, "choice was not precompiled", id.text());
}

}  // namespace

Status ChoiceCaller::Precompile(int64_t deadline_ns) {
  const std::lock_guard lock(mutex_);
  if (failure_) return tl::make_unexpected(*failure_);
  if (plan_ != nullptr) return {};
  const auto has_no_group = [](const BackendMember* member) { return member->group == nullptr; };
  if (std::any_of(members_.begin(), members_.end(), has_no_group)) {
    failure_ = Error{ErrorCode::kAborted, "its backend has no group", id().text(), "", "", {}};
    return tl::make_unexpected(*failure_);
  }
  Result<std::unique_ptr<Plan>> plan = Prepare(deadline_ns);
  if (!plan) {
    failure_ = plan.error();
    return tl::make_unexpected(*failure_);
  }
  plan_ = std::move(*plan);
  return {};
}

// An exception would end the process where a thread of its own makes the plan ready.
Result<std::unique_ptr<Plan>> ChoiceCaller::Prepare(int64_t deadline_ns) {
  try {
    if (program_.is_single_collective()) {
      return members_.front()->group->Prepare(program_, problem_, choice_, deadline_ns);
    }
    COTUNE_CHECK(support_.recipes != nullptr, "a program with several steps has a recipe");
    COTUNE_TRY(const Recipe recipe, TakeRecipe());
    COTUNE_TRY(const std::vector<ChoiceId> ids, ChoicesOfSteps(recipe, choice_.id));
    std::vector<RecipePlan::StepChoice> steps;
    for (size_t i = 0; i < members_.size(); ++i) {
      steps.push_back({choice_, members_[i]});
      steps.back().choice.id = ids.at(i).WithoutHostKeys();
    }
    return RecipePlan::Prepare(program_, problem_, recipe, steps, support_, deadline_ns);
  } catch (const std::exception& exception) {
    return Fail(ErrorCode::kInternal, "preparing it threw an exception", id().text(),
                exception.what());
  } catch (...) {
    return Fail(ErrorCode::kInternal, "preparing it threw an exception", id().text(),
                "it is no std::exception");
  }
}

Result<Recipe> ChoiceCaller::TakeRecipe() {
  if (!recipe_) return support_.recipes->RecipeOf(program_.graph(), choice_.id);
  Recipe made = std::move(*recipe_);
  recipe_.reset();
  return made;
}

Result<TimedSpan> ChoiceCaller::RunOnce(Device& device, const LaunchArguments& arguments) {
  if (plan_ == nullptr) return Propagate(NotPrecompiled(id()));
  return device.RunOnce(*plan_, arguments);
}

Result<std::unique_ptr<TimedCalls>> ChoiceCaller::PrepareTimed(
    Device& device, std::span<const LaunchArguments> arguments, int32_t repetitions) {
  if (plan_ == nullptr) return Propagate(NotPrecompiled(id()));
  return device.Prepare(*plan_, arguments, repetitions);
}

Status ChoiceCaller::Launch(const LaunchArguments& arguments, const Clock& clock) {
  if (plan_ == nullptr) return NotPrecompiled(id());
  if (problem_.cls.memory == MemoryKind::kHost) return plan_->Run(arguments, clock);
  return plan_->Launch(arguments);
}

bool ChoiceCaller::Uses(const BackendMember& member) const {
  return std::find(members_.begin(), members_.end(), &member) != members_.end();
}

bool ChoiceCaller::UsesPartBackend() const {
  if (support_.part_backend == nullptr) return false;
  return std::any_of(members_.begin(), members_.end(), [&](const BackendMember* member) {
    return member->backend == support_.part_backend;
  });
}

void ChoiceCaller::Abort() const {
  for (const BackendMember* member : members_) {
    if (member->group != nullptr) member->group->Abort();
  }
}

void ChoiceCaller::Reset() {
  const std::lock_guard lock(mutex_);
  plan_.reset();
  failure_.reset();
}

}  // namespace cotune
