// One choice for one program at one size: made ready once, then launched.
#ifndef COTUNE_CORE_CHOICE_CHOICE_CALLER_H_
#define COTUNE_CORE_CHOICE_CHOICE_CALLER_H_

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/backend_groups.h"
#include "core/backend/device.h"
#include "core/recipe/recipe.h"

namespace cotune {

// Identity plus a cached plan. Precompile is thread-safe and idempotent; the rest is for one
// thread.
class ChoiceCaller {
 public:
  // members: of the backends that run the backend steps of the choice's recipe, in order. program,
  // members and support outlive the caller; support has a source of recipes, unless the program is
  // a single collective. recipe: the choice's, which the first plan is made of; without it, and for
  // later plans, the source is asked.
  ChoiceCaller(const Program& program, const Problem& problem, Choice choice,
               std::vector<BackendMember*> members, const ProgramSupport& support = {},
               std::optional<Recipe> recipe = std::nullopt)
      : program_(program),
        problem_(problem),
        choice_(std::move(choice)),
        members_(std::move(members)),
        support_(support),
        recipe_(std::move(recipe)) {}

  const ChoiceId& id() const { return choice_.id; }
  const Choice& choice() const { return choice_; }
  const Problem& problem() const { return problem_; }
  // Each may be there more than once.
  const std::vector<BackendMember*>& members() const { return members_; }
  bool Uses(const BackendMember& member) const;
  // Returns true if the backend that runs the parts of programs runs a backend step as well.
  bool UsesPartBackend() const;
  // Aborts the groups of all members.
  void Abort() const;

  // Prepares the plan. A failure is a value and is remembered: later calls give the same answer
  // until a member's group is made anew.
  Status Precompile(int64_t deadline_ns);
  // One call on the device, or calls to be timed many times; Precompile must have succeeded. Timed
  // calls go before Reset.
  Result<TimedSpan> RunOnce(Device& device, const LaunchArguments& arguments);
  Result<std::unique_ptr<TimedCalls>> PrepareTimed(Device& device,
                                                   std::span<const LaunchArguments> arguments,
                                                   int32_t repetitions);
  // Starts one call, and for host memory waits for it.
  Status Launch(const LaunchArguments& arguments, const Clock& clock);
  // Whether calls can be captured in a CUDA graph; Precompile must have succeeded.
  bool is_capturable() const { return plan_->is_capturable(); }
  // Forgets plan and failure; before a member's group is made anew.
  void Reset();

 private:
  Result<std::unique_ptr<Plan>> Prepare(int64_t deadline_ns);
  Result<Recipe> TakeRecipe();

  const Program& program_;
  const Problem problem_;
  const Choice choice_;
  const std::vector<BackendMember*> members_;
  const ProgramSupport support_;
  std::mutex mutex_;
  std::optional<Recipe> recipe_;  // until a plan is made of it
  std::unique_ptr<Plan> plan_;
  std::optional<Error> failure_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_CHOICE_CALLER_H_
