#include "plugins/ucx/backend.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/backend_shell.h"
#include "plugins/sdk/settings.h"
#include "plugins/ucx/choice_list.h"
#include "plugins/ucx/context.h"
#include "plugins/ucx/group.h"
#include "plugins/ucx/operation.h"
#include "plugins/ucx/sdk_names.h"

namespace cotune::ucx {
namespace {

class UcxPlan {
 public:
  UcxPlan(Group& group, Schedule schedule, std::string_view choice)
      : group_(group), operation_(group, std::move(schedule), choice) {}
  // The peers cannot complete without this rank; better they learn it now than at the deadline.
  ~UcxPlan() {
    if (!in_flight_) return;
    group_.Abort();
    const auto lock = group_.UseWorker();
    operation_.Cancel();
    group_.EndCall();
  }
  UcxPlan(const UcxPlan&) = delete;
  UcxPlan& operator=(const UcxPlan&) = delete;

  Result<void> Launch(const cotune_launch_t& launch) {
    const auto lock = group_.UseWorker();
    if (group_.HasFailed()) return tl::unexpected(*group_.Health());
    const Problem& problem = operation_.schedule().problem;
    auto fits = sdk::CheckBuffers(problem, group_.rank(), launch.send, launch.recv);
    if (!fits) return fits;
    if (problem.collective == Collective::kAllToAll && !problem.in_place &&
        launch.send == launch.recv && problem.count > 0 && problem.world_size > 1) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  "send and receive buffers are the same, and the problem does not say in place");
    }
    if (in_flight_ || !group_.BeginCall(operation_.call(), &operation_)) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  "another operation of the group is in flight; call progress "
                  "until it is complete");
    }
    in_flight_ = true;
    operation_.Start(launch.send, launch.recv, launch.deadline_ns);
    return {};
  }

  Result<bool> Progress(int64_t until_ns) {
    const auto lock = group_.UseWorker();
    if (!in_flight_) {
      if (auto failure = group_.Health()) return tl::unexpected(*failure);
      return Fail(COTUNE_INVALID_ARGUMENT, "progress of a plan that was not launched");
    }
    const Advance advance = operation_.Run(until_ns);
    if (advance == Advance::kInProgress) return false;
    in_flight_ = false;
    group_.EndCall();
    if (advance == Advance::kComplete) return true;
    return tl::unexpected(*group_.Health());
  }

 private:
  Group& group_;
  Operation operation_;
  bool in_flight_ = false;
};

class UcxGroup {
 public:
  using Plan = UcxPlan;

  explicit UcxGroup(std::unique_ptr<Group> ranks) : ranks_(std::move(ranks)) {}

  int world_size() const { return ranks_->world_size(); }
  std::optional<Failure> Health() const { return ranks_->Health(); }
  void Abort() { ranks_->Abort(); }
  std::string ConnectionText(int peer) { return ranks_->TransportsTo(peer); }

  Result<std::unique_ptr<Plan>> Prepare(const Problem& problem, std::string_view choice,
                                        int64_t /*deadline_ns*/) {
    if (auto failure = Health()) return tl::unexpected(*failure);
    COTUNE_TRY(auto schedule, ScheduleOf(problem, choice, ranks_->rank()));
    return std::make_unique<UcxPlan>(*ranks_, std::move(schedule), choice);
  }

 private:
  std::unique_ptr<Group> ranks_;
};

class Backend {
 public:
  using Group = UcxGroup;
  using Problem = sdk::Problem;

  static constexpr char kName[] = "ucx";
  static constexpr char kVersion[] = "1.0.0";
  static constexpr uint32_t kMemoryKind = COTUNE_MEMORY_HOST;
  static constexpr int kRanksMax = ucx::kRanksMax;
  static constexpr bool kNeedsOneHost = false;

  static Result<std::unique_ptr<Backend>> Create(const cotune_host_t& host, int32_t /*device*/) {
    COTUNE_TRY(auto context, Context::Open(sdk::Settings(host, kName)));
    if (host.log != nullptr) {
      const std::string text =
          fmt::format("UCX {} from {}", context->ucx().version().Text(), context->ucx().path());
      host.log(host.context, 0, text.c_str());
      for (const auto& [variable, setting] : context->deciding_variables()) {
        constexpr int32_t kWarning = 2;
        const std::string warning = fmt::format(
            "the variable {} changes what is measured, but a tuned database does not record it; "
            "use the setting {} instead",
            variable, setting);
        host.log(host.context, kWarning, warning.c_str());
      }
    }
    return std::unique_ptr<Backend>(new Backend(host, std::move(context)));
  }

  int32_t device() const { return -1; }
  std::string LibrariesText() const { return "UCX " + context_->ucx().version().Text(); }

  static Result<Problem> CheckProblem(const cotune_problem_t& problem) {
    return sdk::CheckProblem(
        problem, {.memory_kind = kMemoryKind, .ranks_max = kRanksMax, .needs_one_host = false});
  }

  Result<std::vector<cotune_choice_t>> ListChoices(const Problem& problem) const {
    return sdk::ChoiceEntries(ucx::ListChoices(problem), COTUNE_CHOICE_REPRODUCIBLE);
  }

  Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& params) {
    COTUNE_TRY(auto ranks, ucx::Group::Join(host_, params, context_));
    return std::make_unique<UcxGroup>(std::move(ranks));
  }

 private:
  Backend(const cotune_host_t& host, std::shared_ptr<const Context> context)
      : host_(host), context_(std::move(context)) {}

  const cotune_host_t& host_;
  const std::shared_ptr<const Context> context_;
};

}  // namespace

const cotune_backend_api_t* BackendApi() { return sdk::BackendShell<Backend>::Table(); }

}  // namespace cotune::ucx
