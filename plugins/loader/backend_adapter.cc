#include "plugins/loader/backend_adapter.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "plugins/loader/choice_listing.h"

namespace cotune {
namespace {

ErrorCode CodeOf(cotune_status_t status) {
  switch (status) {
    case COTUNE_INVALID_ARGUMENT:
      return ErrorCode::kUsage;
    case COTUNE_UNSUPPORTED:
      return ErrorCode::kUnsupported;
    case COTUNE_OUT_OF_RESOURCES:
      return ErrorCode::kEnvironment;
    case COTUNE_DEADLINE_EXCEEDED:
      return ErrorCode::kDeadline;
    case COTUNE_ABORTED:
      return ErrorCode::kAborted;
    case COTUNE_PEER_FAILED:
      return ErrorCode::kRankLost;
    default:
      return ErrorCode::kInternal;
  }
}

cotune_error_t EmptyError() {
  cotune_error_t error{};
  error.struct_size = sizeof(error);
  error.failed_rank = -1;
  return error;
}

std::string TextOf(const cotune_error_t& error, const char* call) {
  const size_t size = strnlen(error.message, sizeof(error.message));
  if (size == 0) return fmt::format("{} failed without a message", call);
  return std::string(error.message, size);
}

// job_ranks: of the group, to name the rank that failed; empty before there is a group.
tl::unexpected<Error> ToError(cotune_status_t status, const cotune_error_t& error, const char* call,
                              const std::string& backend, const std::vector<int32_t>& job_ranks) {
  Error result{CodeOf(status), TextOf(error, call), "backend " + backend, "", "", {}};
  if (error.failed_rank >= 0 && error.failed_rank < static_cast<int32_t>(job_ranks.size())) {
    result.ranks.push_back(job_ranks[error.failed_rank]);
  }
  return tl::make_unexpected(std::move(result));
}

// A handle of the plugin with the function that frees it.
template <typename Handle>
using Owned = std::unique_ptr<Handle, void (*)(Handle*)>;

class AdaptedPlan final : public Plan {
 public:
  AdaptedPlan(const cotune_backend_api_t& table, cotune_plan_t* plan,
              const std::vector<int32_t>& job_ranks, MemoryKind memory, int32_t device)
      : table_(table),
        plan_(plan, table.plan_destroy),
        job_ranks_(job_ranks),
        memory_(memory),
        device_(device) {}

  Status Launch(const LaunchArguments& arguments) override {
    cotune_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.send = arguments.send;
    launch.recv = arguments.recv;
    launch.stream.kind = memory_ == MemoryKind::kCuda ? COTUNE_STREAM_CUDA : COTUNE_STREAM_HOST;
    launch.stream.device = device_;
    launch.stream.handle = arguments.stream;
    launch.deadline_ns = arguments.deadline_ns;
    cotune_error_t error = EmptyError();
    const cotune_status_t status = table_.launch(plan_.get(), &launch, &error);
    if (status < 0) return ToError(status, error, "launch", table_.name, job_ranks_);
    return {};
  }

  Result<bool> Progress(int64_t until_ns) override {
    cotune_error_t error = EmptyError();
    const cotune_status_t status = table_.progress(plan_.get(), until_ns, &error);
    if (status < 0) return ToError(status, error, "progress", table_.name, job_ranks_);
    return status == COTUNE_OK;
  }

 private:
  const cotune_backend_api_t& table_;
  Owned<cotune_plan_t> plan_;
  const std::vector<int32_t>& job_ranks_;
  MemoryKind memory_;
  int32_t device_;
};

class AdaptedGroup final : public BackendGroup {
 public:
  AdaptedGroup(const cotune_backend_api_t& table, cotune_group_t* group, GroupParameters parameters)
      : table_(table), group_(group, table.group_destroy), parameters_(std::move(parameters)) {}

  Result<std::unique_ptr<Plan>> Prepare(const Program& program, const Problem& problem,
                                        const Choice& choice, int64_t deadline_ns) override {
    if (!program.is_single_collective()) {
      return Fail(ErrorCode::kUnsupported, "the backend runs single collectives only", table_.name);
    }
    const cotune_problem_t abi_problem = ToAbi(problem);
    const std::string name(choice.id.choice_name());
    cotune_plan_t* plan = nullptr;
    cotune_error_t error = EmptyError();
    const cotune_status_t status =
        table_.prepare(group_.get(), &abi_problem, name.c_str(), deadline_ns, &plan, &error);
    if (status != COTUNE_OK || plan == nullptr) {
      return ToError(status == COTUNE_OK ? COTUNE_INTERNAL : status, error, "prepare", table_.name,
                     parameters_.job_ranks);
    }
    return std::make_unique<AdaptedPlan>(table_, plan, parameters_.job_ranks, problem.cls.memory,
                                         parameters_.device);
  }

  Status Health() override {
    cotune_error_t error = EmptyError();
    const cotune_status_t status = table_.group_health(group_.get(), &error);
    if (status != COTUNE_OK)
      return ToError(status, error, "group_health", table_.name, parameters_.job_ranks);
    return {};
  }

  void Abort() override { table_.group_abort(group_.get()); }

 private:
  const cotune_backend_api_t& table_;
  Owned<cotune_group_t> group_;
  GroupParameters parameters_;
};

class AdaptedBackend final : public Backend {
 public:
  AdaptedBackend(const cotune_backend_api_t& table, cotune_backend_t* backend)
      : table_(table),
        backend_(backend, table.destroy),
        name_(table.name),
        version_(table.version) {}

  const std::string& name() const override { return name_; }
  const std::string& version() const override { return version_; }

  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    if (!program.is_single_collective()) {
      return ChoiceList{{}, {{name_, "it runs single collectives only"}}};
    }
    return ListTableChoices(table_, backend_.get(), problem);
  }

  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override {
    cotune_group_params_t params{};
    params.struct_size = sizeof(params);
    params.name = parameters.name.c_str();
    params.rank = parameters.rank;
    params.world_size = static_cast<int32_t>(parameters.job_ranks.size());
    params.job_ranks = parameters.job_ranks.data();
    params.device = parameters.device;
    params.deadline_ns = parameters.deadline_ns;
    cotune_group_t* group = nullptr;
    cotune_error_t error = EmptyError();
    const cotune_status_t status = table_.group_create(backend_.get(), &params, &group, &error);
    if (status != COTUNE_OK || group == nullptr) {
      return ToError(status == COTUNE_OK ? COTUNE_INTERNAL : status, error, "group_create", name_,
                     parameters.job_ranks);
    }
    return std::make_unique<AdaptedGroup>(table_, group, parameters);
  }

 private:
  const cotune_backend_api_t& table_;
  Owned<cotune_backend_t> backend_;
  std::string name_;
  std::string version_;
};

}  // namespace

Result<std::unique_ptr<Backend>> AdoptBackend(const cotune_backend_api_t* table,
                                              const cotune_host_t& host, int32_t device,
                                              const std::string& where) {
  if (Status checked = CheckTable(table, where); !checked)
    return tl::make_unexpected(checked.error());
  cotune_backend_t* backend = nullptr;
  cotune_error_t error = EmptyError();
  const cotune_status_t status = table->create(&host, device, &backend, &error);
  if (status == COTUNE_UNSUPPORTED) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("backend {} offers nothing on this machine", table->name), where,
                TextOf(error, "create"));
  }
  if (status != COTUNE_OK || backend == nullptr) {
    return Fail(ErrorCode::kPluginRefused, "plugin refused at step 'create'", where,
                TextOf(error, "create"), "ask the vendor of the plugin");
  }
  return std::make_unique<AdaptedBackend>(*table, backend);
}

}  // namespace cotune
