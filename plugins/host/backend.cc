#include "plugins/host/backend.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/host/bucket_cut.h"
#include "plugins/host/choice_list.h"
#include "plugins/host/element_program.h"
#include "plugins/host/fused_operations.h"
#include "plugins/host/group.h"
#include "plugins/host/operation.h"
#include "plugins/host/region_cut.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/backend_shell.h"
#include "plugins/sdk/call_record.h"
#include "plugins/sdk/settings.h"

namespace cotune::host {
namespace {

// An operation of a group with what the plans of collectives and of regions have in common.
class PlannedOperation {
 public:
  PlannedOperation(Group& group, Schedule schedule, const sdk::CallRecord& call,
                   FusedOperations* fused)
      : group_(group), operation_(group, std::move(schedule), call, fused) {}
  // The peers cannot complete without this rank; better they learn it now than at the deadline.
  ~PlannedOperation() {
    if (in_flight_) group_.Abort();
  }
  PlannedOperation(const PlannedOperation&) = delete;
  PlannedOperation& operator=(const PlannedOperation&) = delete;

  const Schedule& schedule() const { return operation_.schedule(); }

  // Start follows at once.
  Result<void> Begin() {
    if (!group_.BeginOperation(operation_.call())) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  "another operation of the group is in flight; call progress "
                  "until it is complete");
    }
    in_flight_ = true;
    return {};
  }
  void Start(const void* send, void* receive, int64_t deadline_ns) {
    operation_.Start(send, receive, deadline_ns);
  }

  Result<bool> Progress(int64_t until_ns) {
    if (group_.HasFailed()) return tl::unexpected(*group_.Health());
    if (!in_flight_) {
      return Fail(COTUNE_INVALID_ARGUMENT, "progress of a plan that was not launched");
    }
    switch (operation_.Run(until_ns)) {
      case Advance::kComplete:
        in_flight_ = false;
        group_.EndOperation();
        return true;
      case Advance::kInProgress:
        return false;
      case Advance::kFailed:
        break;
    }
    return tl::unexpected(*group_.Health());
  }

 private:
  Group& group_;
  Operation operation_;
  bool in_flight_ = false;
};

class HostPlan {
 public:
  HostPlan(Group& group, Schedule schedule, const sdk::CallRecord& call)
      : group_(group), operation_(group, std::move(schedule), call, nullptr) {}

  Result<void> Launch(const cotune_launch_t& launch) {
    if (group_.HasFailed()) return tl::unexpected(*group_.Health());
    const Schedule& schedule = operation_.schedule();
    const Problem& problem = schedule.problem;
    COTUNE_RETURN_IF_ERROR(CheckBuffers(problem, group_.rank(), launch.send, launch.recv));
    if (schedule.reads_peers && problem.collective == Collective::kAllToAll &&
        launch.send == launch.recv && problem.count > 0) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  "send and receive buffers are the same, and the problem does not say in place");
    }
    COTUNE_RETURN_IF_ERROR(operation_.Begin());
    operation_.Start(launch.send, launch.recv, launch.deadline_ns);
    return {};
  }
  Result<bool> Progress(int64_t until_ns) { return operation_.Progress(until_ns); }

 private:
  Group& group_;
  PlannedOperation operation_;
};

// A collective with local operations around it, or several. The shell has checked the operands.
class HostRegion {
 public:
  HostRegion(Group& group, Schedule schedule, const sdk::CallRecord& call,
             std::unique_ptr<FusedOperations> fused)
      : group_(group),
        fused_(std::move(fused)),
        operation_(group, std::move(schedule), call, fused_.get()) {}

  Result<void> Launch(const cotune_program_launch_t& launch) {
    if (group_.HasFailed()) return tl::unexpected(*group_.Health());
    COTUNE_RETURN_IF_ERROR(operation_.Begin());
    fused_->Begin(launch.inputs, launch.outputs);
    operation_.Start(fused_->operand(), fused_->value(), launch.deadline_ns);
    return {};
  }
  Result<bool> Progress(int64_t until_ns) { return operation_.Progress(until_ns); }

 private:
  Group& group_;
  std::unique_ptr<FusedOperations> fused_;
  PlannedOperation operation_;
};

class HostGroup {
 public:
  using Plan = HostPlan;
  using Region = HostRegion;

  explicit HostGroup(std::unique_ptr<Group> ranks) : ranks_(std::move(ranks)) {}

  int world_size() const { return ranks_->world_size(); }
  std::optional<Failure> Health() const { return ranks_->Health(); }
  void Abort() { ranks_->Abort(); }

  Result<std::unique_ptr<Plan>> Prepare(const Problem& problem, std::string_view choice,
                                        int64_t /*deadline_ns*/) {
    if (auto failure = Health()) return tl::unexpected(*failure);
    COTUNE_TRY(auto schedule, ScheduleFor(problem, choice, {}));
    return std::make_unique<HostPlan>(*ranks_, std::move(schedule), sdk::RecordOf(problem, choice));
  }

  Result<std::unique_ptr<Region>> PrepareRegion(const sdk::Program& region, std::string_view choice,
                                                int64_t /*deadline_ns*/) {
    if (auto failure = Health()) return tl::unexpected(*failure);
    COTUNE_TRY(auto cut, CutRegion(region));
    COTUNE_TRY(const RegionNeeds needs, NeedsOf(cut));
    COTUNE_TRY(auto schedule, ScheduleFor(cut.problem, choice, needs));
    const bool fits_any = FitsAnyRegion(cut.problem, choice, ranks_->slot_bytes(), needs);
    const sdk::CallRecord record =
        fits_any ? sdk::RecordOf(cut.problem, choice) : RecordOfRegion(region, cut, choice);
    COTUNE_TRY(auto fused, FusedOperations::Prepare(std::move(cut)));
    return std::make_unique<HostRegion>(*ranks_, std::move(schedule), record, std::move(fused));
  }

 private:
  // Ranks whose buckets lie differently in the packed value make different calls, even if the text
  // of the region leaves the sizes open.
  static sdk::CallRecord RecordOfRegion(const sdk::Program& region, const RegionCut& cut,
                                        std::string_view choice) {
    if (!cut.is_bucket()) return sdk::RecordOf(region, choice);
    Problem packed = cut.problem;
    packed.program_digest = sdk::RecordedDigestOf(region) ^ DigestOfPlaces(cut);
    return sdk::RecordOf(packed, choice);
  }

  // A schedule that can run in this group.
  Result<Schedule> ScheduleFor(const Problem& problem, std::string_view choice,
                               const RegionNeeds& needs) const {
    COTUNE_TRY(auto schedule,
               ScheduleOf(problem, choice, ranks_->rank(), ranks_->slot_bytes(), needs));
    if (schedule.reads_peers) {
      const std::string why = ranks_->WhyPeersAreUnreadable();
      if (!why.empty()) return Fail(COTUNE_UNSUPPORTED, why);
    }
    return schedule;
  }

  std::unique_ptr<Group> ranks_;
};

// A part of a program, which its launch runs to its end.
class HostPart {
 public:
  explicit HostPart(std::unique_ptr<ElementProgram> program) : program_(std::move(program)) {}

  Result<void> Launch(const cotune_program_launch_t& launch) {
    program_->Run(launch.inputs, launch.outputs);
    return {};
  }

 private:
  std::unique_ptr<ElementProgram> program_;
};

class Backend {
 public:
  using Group = HostGroup;
  using Part = HostPart;
  using Problem = sdk::Problem;

  static constexpr char kName[] = "host";
  static constexpr char kVersion[] = "1.3.0";
  static constexpr uint32_t kMemoryKind = COTUNE_MEMORY_HOST;
  static constexpr int kRanksMax = kMaxRanks;
  static constexpr bool kNeedsOneHost = true;  // shared memory

  static Result<std::unique_ptr<Backend>> Create(const cotune_host_t& host, int32_t /*device*/) {
    constexpr uint64_t kPageBytes = 4096;
    COTUNE_TRY(const auto slot_bytes, sdk::Settings(host, kName)
                                          .Bytes("slot_bytes", kDefaultSlotBytes,
                                                 {.smallest = kSmallestSlotBytes,
                                                  .largest = kLargestSlotBytes,
                                                  .multiple_of = 2 * kPageBytes}));
    return std::unique_ptr<Backend>(new Backend(host, slot_bytes));
  }

  int32_t device() const { return -1; }

  // Every choice shares memory of the group's ranks on one host.
  static Result<Problem> CheckProblem(const cotune_problem_t& problem) {
    return sdk::CheckProblem(problem, {.memory_kind = kMemoryKind, .ranks_max = kRanksMax});
  }

  Result<std::vector<cotune_choice_t>> ListChoices(const Problem& problem) const {
    // No workspace: slots belong to the group.
    return sdk::ChoiceEntries(host::ListChoices(problem, slot_bytes_), COTUNE_CHOICE_REPRODUCIBLE);
  }

  // The same choices run a region, unless they refuse its operations.
  Result<std::vector<cotune_choice_t>> ListRegion(const sdk::Program& region) const {
    COTUNE_TRY(const auto cut, CutRegion(region));
    COTUNE_TRY(const RegionNeeds needs, NeedsOf(cut));
    return sdk::ChoiceEntries(host::ListChoices(cut.problem, slot_bytes_, needs),
                              COTUNE_CHOICE_REPRODUCIBLE);
  }

  static Result<std::unique_ptr<Part>> PreparePart(const sdk::Program& part,
                                                   int64_t /*deadline_ns*/) {
    COTUNE_TRY(auto program, ElementProgram::Prepare(part));
    return std::make_unique<HostPart>(std::move(program));
  }

  Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& params) {
    COTUNE_TRY(auto ranks, host::Group::Join(host_, params, slot_bytes_));
    return std::make_unique<HostGroup>(std::move(ranks));
  }

 private:
  Backend(const cotune_host_t& host, uint64_t slot_bytes) : host_(host), slot_bytes_(slot_bytes) {}

  const cotune_host_t& host_;
  const uint64_t slot_bytes_;
};

}  // namespace

const cotune_backend_api_t* BackendApi() { return sdk::BackendShell<Backend>::Table(); }

}  // namespace cotune::host
