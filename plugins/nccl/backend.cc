#include "plugins/nccl/backend.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/driver/library_search.h"
#include "plugins/nccl/call_record.h"
#include "plugins/nccl/choice_list.h"
#include "plugins/nccl/group.h"
#include "plugins/nccl/nccl_library.h"
#include "plugins/nccl/process_settings.h"
#include "plugins/nccl/sdk_names.h"
#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/backend_shell.h"
#include "plugins/sdk/gpu/gpu.h"
#include "plugins/sdk/settings.h"

namespace cotune::nccl {
namespace {

MissingFeatures MissingIn(const NcclLibrary& nccl, const std::string& why_no_tuner) {
  MissingFeatures missing;
  if (nccl.version() < kOldestTunerVersion) {
    missing.tuner = fmt::format("NCCL {} cannot be told an algorithm; 2.22 or newer can",
                                VersionText(nccl.version()));
  } else {
    missing.tuner = why_no_tuner;
  }
  if (!nccl.has_windows()) {
    missing.windows = fmt::format("NCCL {} has no symmetric memory; 2.27 or newer has",
                                  VersionText(nccl.version()));
  }
  return missing;
}

class NcclPlan {
 public:
  NcclPlan(Group& group, int32_t device, const Problem& problem, const CallMethod& method,
           const CallRecord& record)
      : group_(group), device_(device), problem_(problem), method_(method), record_(record) {}

  Result<void> Launch(const cotune_launch_t& launch) {
    if (launch.stream.device != device_) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  fmt::format("the stream is on device {}, the group on device {}",
                              launch.stream.device, device_));
    }
    auto fits = sdk::CheckBuffers(problem_, group_.rank(), launch.send, launch.recv);
    if (!fits) return fits;
    if (problem_.collective == Collective::kAllToAll && problem_.world_size > 1 &&
        problem_.count > 0 && launch.send == launch.recv) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  "send and receive buffers are the same, and the problem does not say in place");
    }
    return group_.Launch(problem_, method_, record_, {launch.send, launch.recv},
                         static_cast<gpu::CuStream>(launch.stream.handle), launch.deadline_ns);
  }

 private:
  Group& group_;
  const int32_t device_;
  const Problem problem_;
  const CallMethod method_;
  const CallRecord record_;
};

class NcclGroup {
 public:
  using Plan = NcclPlan;

  // A plan needs these of the backend: its GPU, and what its NCCL cannot do.
  NcclGroup(int32_t device, const MissingFeatures& missing, std::unique_ptr<Group> ranks)
      : device_(device), missing_(missing), ranks_(std::move(ranks)) {}

  int world_size() const { return ranks_->world_size(); }
  std::optional<Failure> Health() { return ranks_->HealthOfCompleteCalls(); }
  void Abort() { ranks_->Abort(); }
  Result<void> RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns) {
    return ranks_->RegisterMemory(data, bytes, deadline_ns);
  }
  void UnregisterMemory(void* data) { ranks_->UnregisterMemory(data); }

  Result<std::unique_ptr<Plan>> Prepare(const Problem& problem, std::string_view choice,
                                        int64_t /*deadline_ns*/) {
    if (auto failure = ranks_->Health()) return tl::unexpected(*failure);
    COTUNE_TRY(auto method, MethodOf(problem, missing_, choice));
    COTUNE_RETURN_IF_ERROR(ranks_->CheckMethod(problem, method));
    ranks_->WatchLaunches();
    return std::make_unique<NcclPlan>(*ranks_, device_, problem, method, RecordOf(problem, choice));
  }

 private:
  const int32_t device_;
  const MissingFeatures& missing_;
  std::unique_ptr<Group> ranks_;
};

class Backend {
 public:
  using Group = NcclGroup;
  using Problem = sdk::Problem;

  static constexpr char kName[] = "nccl";
  static constexpr char kVersion[] = "1.0.0";
  static constexpr uint32_t kMemoryKind = COTUNE_MEMORY_CUDA;
  static constexpr int kRanksMax = 64;
  // NCCL itself can do more; the comparison of calls and the listing of choices have been tried
  // within one host only.
  static constexpr bool kNeedsOneHost = true;

  static Result<std::unique_ptr<Backend>> Create(const cotune_host_t& host, int32_t device) {
    const sdk::Settings settings(host, kName);
    COTUNE_TRY(const auto compares_calls, settings.Switch("check_calls", false));
    // The GPU first: without one a large library need not be read.
    COTUNE_TRY(auto gpu, Gpu::Open(device));
    COTUNE_TRY(auto why_no_tuner, ApplyProcessSettings());
    COTUNE_TRY(auto nccl,
               NcclLibrary::Open(settings.Text("library").value_or(""), gpu::OwnEnvironment()));
    if (host.log != nullptr) {
      const std::string text =
          fmt::format("NCCL {} from {}", VersionText(nccl.version()), nccl.path());
      host.log(host.context, 0, text.c_str());
    }
    MissingFeatures missing = MissingIn(nccl, why_no_tuner);
    return std::unique_ptr<Backend>(
        new Backend(host, std::move(gpu), std::move(nccl), std::move(missing), compares_calls));
  }

  int32_t device() const { return gpu_->ordinal(); }
  std::string LibrariesText() const { return "NCCL " + VersionText(nccl_.version()); }

  // sdk::CheckProblem, and what NCCL adds.
  static Result<Problem> CheckProblem(const cotune_problem_t& abi) {
    auto problem = sdk::CheckProblem(
        abi, {.memory_kind = kMemoryKind, .ranks_max = kRanksMax, .takes_symmetric = true});
    if (problem && problem->collective == Collective::kAllToAll && problem->in_place &&
        problem->world_size > 1) {
      return Fail(COTUNE_UNSUPPORTED,
                  "all_to_all in place: NCCL would send from the buffer while it receives into it");
    }
    return problem;
  }

  Result<std::vector<cotune_choice_t>> ListChoices(const Problem& problem) const {
    return sdk::ChoiceEntries(nccl::ListChoices(problem, missing_),
                              COTUNE_CHOICE_CAPTURABLE | COTUNE_CHOICE_REPRODUCIBLE);
  }

  Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& params) {
    COTUNE_TRY(auto ranks, nccl::Group::Join(host_, params, *gpu_, nccl_, compares_calls_));
    return std::make_unique<NcclGroup>(device(), missing_, std::move(ranks));
  }

 private:
  Backend(const cotune_host_t& host, std::unique_ptr<Gpu> gpu, NcclLibrary nccl,
          MissingFeatures missing, bool compares_calls)
      : host_(host),
        gpu_(std::move(gpu)),
        nccl_(std::move(nccl)),
        missing_(std::move(missing)),
        compares_calls_(compares_calls) {}

  const cotune_host_t& host_;
  const std::unique_ptr<Gpu> gpu_;
  const NcclLibrary nccl_;
  const MissingFeatures missing_;
  const bool compares_calls_;
};

}  // namespace

const cotune_backend_api_t* BackendApi() { return sdk::BackendShell<Backend>::Table(); }

}  // namespace cotune::nccl
