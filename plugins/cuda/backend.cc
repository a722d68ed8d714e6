#include "plugins/cuda/backend.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/driver/library_search.h"
#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/compile/kernel_library.h"
#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/fused/fused_plan.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/group/group.h"
#include "plugins/cuda/group/plan.h"
#include "plugins/cuda/memory/descriptor_socket.h"
#include "plugins/cuda/memory/gpu.h"
#include "plugins/cuda/memory/peer_memory.h"
#include "plugins/cuda/parts/cuda_part.h"
#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/backend_shell.h"
#include "plugins/sdk/problem.h"
#include "plugins/sdk/settings.h"

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Failure;
using sdk::Result;

class Backend;

class CudaPlan {
 public:
  virtual ~CudaPlan() = default;
  virtual Result<void> Launch(const cotune_launch_t& launch) = 0;
};

class PlainPlan final : public CudaPlan {
 public:
  PlainPlan(Group& group, Plan plan) : group_(group), plan_(std::move(plan)) {}

  Result<void> Launch(const cotune_launch_t& launch) override {
    if (group_.HasFailed()) {
      if (const auto failure = group_.Health()) return tl::unexpected(*failure);
    }
    return plan_.Launch(launch);
  }

 private:
  Group& group_;
  Plan plan_;
};

// A collective by itself by a choice of regions, beside ranks that run operations with it.
class BareRegionPlan final : public CudaPlan {
 public:
  BareRegionPlan(Group& group, const sdk::Problem& problem, FusedPlan plan)
      : rank_(group.rank()), problem_(problem), plan_(std::move(plan)) {}

  Result<void> Launch(const cotune_launch_t& launch) override {
    COTUNE_RETURN_IF_ERROR(sdk::CheckBuffers(problem_, rank_, launch.send, launch.recv));
    const void* const inputs[] = {launch.send};
    void* const outputs[] = {launch.recv};
    return plan_.Launch({.struct_size = sizeof(cotune_program_launch_t),
                         .flags = 0,
                         .inputs = inputs,
                         .outputs = outputs,
                         .stream = launch.stream,
                         .deadline_ns = launch.deadline_ns});
  }

 private:
  const int rank_;
  const sdk::Problem problem_;
  FusedPlan plan_;
};

class CudaGroup {
 public:
  using Plan = CudaPlan;
  using Region = FusedPlan;

  CudaGroup(Backend& backend, std::unique_ptr<Group> ranks)
      : backend_(backend), ranks_(std::move(ranks)) {}

  int world_size() const { return ranks_->world_size(); }
  std::optional<Failure> Health() const { return ranks_->Health(); }
  void Abort() { ranks_->Abort(); }
  Result<void> RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns) {
    return ranks_->RegisterMemory(data, bytes, deadline_ns);
  }
  void UnregisterMemory(void* data) { ranks_->UnregisterMemory(data); }
  Result<std::unique_ptr<Plan>> Prepare(const sdk::Problem& problem, std::string_view name,
                                        int64_t deadline_ns);
  Result<std::unique_ptr<Region>> PrepareRegion(const sdk::Program& program, std::string_view name,
                                                int64_t deadline_ns);

 private:
  Result<FusedPlan> PrepareLeaves(const LeafRegion& region, std::string_view name,
                                  int64_t deadline_ns);

  Backend& backend_;
  std::unique_ptr<Group> ranks_;
};

class Backend {
 public:
  using Group = CudaGroup;
  using Problem = sdk::Problem;
  using Part = CudaPart;

  static constexpr char kName[] = "cuda";
  static constexpr char kVersion[] = "1.11.0";
  static constexpr uint32_t kMemoryKind = COTUNE_MEMORY_CUDA;
  static constexpr int kRanksMax = cuda::kRanksMax;
  // Memory is mapped through descriptors that travel over a Unix socket.
  static constexpr bool kNeedsOneHost = true;

  static Result<std::unique_ptr<Backend>> Create(const cotune_host_t& host, int32_t device) {
    COTUNE_TRY(auto gpu, Gpu::Open(device, kOldestMajor));
    const auto named = sdk::Settings(host, kName).Text("nvrtc_library");
    const auto environment = gpu::OwnEnvironment();
    COTUNE_TRY(auto nvrtc, Nvrtc::Open(named.value_or(""), environment));
    return std::unique_ptr<Backend>(
        new Backend(host, std::move(gpu), std::move(nvrtc), environment));
  }

  // Graphs that may be replayed outlive it.
  ~Backend() {
    if (memory_.IsInUse()) kernels_.Abandon();
  }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  int32_t device() const { return gpu_->ordinal(); }
  KernelLibrary& kernels() { return kernels_; }
  ChoiceLimits limits() const { return {.has_pdl = has_pdl_}; }

  static Result<Problem> CheckProblem(const cotune_problem_t& problem) {
    return sdk::CheckProblem(
        problem, {.memory_kind = kMemoryKind, .ranks_max = kRanksMax, .takes_symmetric = true});
  }

  Result<std::vector<cotune_choice_t>> ListChoices(const Problem& problem) const {
    return sdk::ChoiceEntries(cuda::ListChoices(problem, limits()),
                              COTUNE_CHOICE_REPRODUCIBLE | COTUNE_CHOICE_CAPTURABLE);
  }

  Result<std::vector<cotune_choice_t>> ListRegion(const sdk::Program& program) const {
    COTUNE_TRY(const auto region, LeafRegionOf(program));
    COTUNE_TRY(const auto choices, ListFused(region, limits()));
    uint32_t flags = COTUNE_CHOICE_REPRODUCIBLE | COTUNE_CHOICE_CAPTURABLE;
    // Other ranks could not run the collectives of a bucket one by one beside it, nor exchange
    // leaves as those of rows do.
    if (!region.is_bucket() && !region.has_rows()) flags |= COTUNE_CHOICE_FITS_ANY_REGION;
    return sdk::ChoiceEntries(choices, flags);
  }

  Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& params) {
    COTUNE_TRY(auto ranks, cuda::Group::Join(host_, params, *gpu_, memory_, limits()));
    if (!ranks->limits().has_pdl) has_pdl_ = false;
    return std::make_unique<CudaGroup>(*this, std::move(ranks));
  }

  // A part runs on this rank alone, so that it has programmatic launch whatever other GPUs have.
  Result<std::unique_ptr<Part>> PreparePart(const sdk::Program& part, int64_t deadline_ns) {
    return CudaPart::Prepare(*gpu_, kernels_, part, deadline_ns);
  }

 private:
  Backend(const cotune_host_t& host, std::unique_ptr<Gpu> gpu, Nvrtc nvrtc,
          const std::map<std::string, std::string>& environment)
      : host_(host),
        gpu_(std::move(gpu)),
        memory_(*gpu_, DescriptorSocket::DefaultBases(environment)),
        kernels_(*gpu_, std::move(nvrtc), KernelCache::DefaultFolder(environment), host),
        has_pdl_(HasProgrammaticLaunch(gpu_->capability())) {}

  const cotune_host_t& host_;
  const std::unique_ptr<Gpu> gpu_;
  PeerMemory memory_;
  KernelLibrary kernels_;
  // GPUs of other ranks may lack what this one has. All ranks have to list the same choices, so
  // this is what the ranks of all groups so far have together; the first group of a job is that of
  // all.
  std::atomic<bool> has_pdl_;
};

Result<std::unique_ptr<CudaPlan>> CudaGroup::Prepare(const sdk::Problem& problem,
                                                     std::string_view name, int64_t deadline_ns) {
  if (auto failure = Health()) return tl::unexpected(*failure);
  if (IsFusedName(name)) {
    COTUNE_TRY(const auto region, BareLeafRegion(problem));
    COTUNE_TRY(auto plan, PrepareLeaves(region, name, deadline_ns));
    return std::make_unique<BareRegionPlan>(*ranks_, problem, std::move(plan));
  }
  COTUNE_TRY(auto choice, FindChoice(problem, name, backend_.limits()));
  const bool needs_memory =
      choice.family != nullptr && choice.family->peer_buffers != PeerBuffers::kNone;
  if (needs_memory && problem.count > 0 && ranks_->registered().is_empty()) {
    return Fail(COTUNE_UNSUPPORTED, "no memory is registered with this group");
  }
  gpu::CuFunction function = nullptr;
  if (!choice.is_copy) {
    COTUNE_TRY(const auto kernel, backend_.kernels().Get(UnitOf(choice.spec), deadline_ns));
    function = kernel;
  }
  return std::make_unique<PlainPlan>(*ranks_,
                                     cuda::Plan(*ranks_, problem, std::move(choice), function));
}

Result<FusedPlan> CudaGroup::PrepareLeaves(const LeafRegion& region, std::string_view name,
                                           int64_t deadline_ns) {
  COTUNE_TRY(const auto choice, FindFused(region, name, backend_.limits()));
  COTUNE_TRY(const auto kernel, backend_.kernels().Get(UnitOf(region, choice), deadline_ns));
  return FusedPlan(*ranks_, region, choice, kernel);
}

Result<std::unique_ptr<FusedPlan>> CudaGroup::PrepareRegion(const sdk::Program& program,
                                                            std::string_view name,
                                                            int64_t deadline_ns) {
  if (auto failure = Health()) return tl::unexpected(*failure);
  COTUNE_TRY(const auto region, LeafRegionOf(program));
  COTUNE_TRY(auto plan, PrepareLeaves(region, name, deadline_ns));
  return std::make_unique<FusedPlan>(std::move(plan));
}

}  // namespace

const cotune_backend_api_t* BackendApi() { return sdk::BackendShell<Backend>::Table(); }

}  // namespace cotune::cuda
