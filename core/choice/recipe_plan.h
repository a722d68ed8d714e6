// Runs the steps of a recipe as one plan.
#ifndef COTUNE_CORE_CHOICE_RECIPE_PLAN_H_
#define COTUNE_CORE_CHOICE_RECIPE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/backend_groups.h"
#include "core/backend/temporaries.h"
#include "core/base/status.h"
#include "core/problem/program.h"
#include "core/recipe/recipe.h"

namespace cotune {

// On CUDA memory a launch enqueues all steps on one stream; on host memory Progress runs one behind
// the other. Launches and Progress allocate nothing.
class RecipePlan final : public Plan {
 public:
  // The choice of a backend step, and the member of its backend.
  struct StepChoice {
    Choice choice;
    BackendMember* member = nullptr;
  };

  // The recipe runs the program. choices: one for each of its backend steps, in their order.
  // kUnsupported: a choice or the part backend refuses a step, with the reason.
  static Result<std::unique_ptr<Plan>> Prepare(const Program& program, const Problem& problem,
                                               const Recipe& recipe,
                                               std::span<const StepChoice> choices,
                                               const ProgramSupport& support, int64_t deadline_ns);

  bool is_capturable() const override { return is_capturable_; }
  Status Launch(const LaunchArguments& arguments) override;
  Result<bool> Progress(int64_t until_ns) override;
  void Abort() override { steps_[step_].plan->Abort(); }
  bool IsAborted() const override { return steps_[step_].plan->IsAborted(); }

 private:
  struct Step {
    std::unique_ptr<Plan> plan;
    bool has_buffers = false;  // a single collective, called with two buffers
    std::vector<SlotIndex> inputs;
    std::vector<SlotIndex> outputs;
    // The addresses of other operands in the call that runs.
    std::vector<const void*> input_addresses{};
    std::vector<void*> output_addresses{};
  };

  // The rows of an input that are this rank's.
  struct Share {
    size_t input = 0;
    uint64_t offset_bytes = 0;
  };

  RecipePlan() = default;
  Status LaunchStep(Step& step);
  void* At(SlotIndex slot) const { return slots_[static_cast<size_t>(slot)]; }

  std::vector<Step> steps_;
  std::vector<void*> slots_;  // as in Recipe
  std::vector<Share> shares_;
  size_t input_count_ = 0;
  std::vector<int32_t> into_;  // the input that each output overwrites, or -1
  MemoryKind memory_ = MemoryKind::kHost;
  bool is_capturable_ = true;
  LaunchArguments call_;  // that runs; without operands
  size_t step_ = 0;       // that runs
};

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_RECIPE_PLAN_H_
