#include "plugins/loader/backend_adapter.h"

#include <cstring>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "plugins/loader/backend_host.h"
#include "plugins/loader/call_guard.h"
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

constexpr char kNoMemory[] = "memory extension not offered: it works on plain buffers only";
constexpr char kNoFusion[] = "fusion extension not offered: it runs single collectives only";

// What the objects of one group share. Held by each, so that a plan may outlive its group object's
// members while it is destroyed.
struct GroupContext {
  GroupContext(const cotune_backend_api_t& table_of_backend,
               const cotune_memory_v1_t* memory_extension, GroupParameters group_parameters,
               bool check_threads)
      : table(table_of_backend),
        memory(memory_extension),
        parameters(std::move(group_parameters)),
        guard(check_threads,
              fmt::format("group {} of backend {}", parameters.name, table_of_backend.name)) {}
  const cotune_backend_api_t& table;
  const cotune_memory_v1_t* const memory;  // nullptr: not offered
  const GroupParameters parameters;
  CallGuard guard;
};

class AdaptedPlan final : public Plan {
 public:
  AdaptedPlan(std::shared_ptr<GroupContext> context, cotune_plan_t* plan, MemoryKind memory)
      : context_(std::move(context)), plan_(plan), memory_(memory) {}

  AdaptedPlan(const AdaptedPlan&) = delete;
  AdaptedPlan& operator=(const AdaptedPlan&) = delete;
  ~AdaptedPlan() override {
    const CallGuard::Scope scope(context_->guard, "plan_destroy");
    context_->table.plan_destroy(plan_);
  }

  Status Launch(const LaunchArguments& arguments) override {
    cotune_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.send = arguments.send;
    launch.recv = arguments.recv;
    launch.stream.kind = memory_ == MemoryKind::kCuda ? COTUNE_STREAM_CUDA : COTUNE_STREAM_HOST;
    launch.stream.device = context_->parameters.device;
    launch.stream.handle = arguments.stream;
    launch.deadline_ns = arguments.deadline_ns;
    cotune_error_t error = EmptyError();
    const CallGuard::Scope scope(context_->guard, "launch");
    const cotune_status_t status = context_->table.launch(plan_, &launch, &error);
    if (status < 0) return Failure(status, error, "launch");
    return {};
  }

  Result<bool> Progress(int64_t until_ns) override {
    cotune_error_t error = EmptyError();
    const CallGuard::Scope scope(context_->guard, "progress");
    const cotune_status_t status = context_->table.progress(plan_, until_ns, &error);
    if (status < 0) return Failure(status, error, "progress");
    return status == COTUNE_OK;
  }

 private:
  tl::unexpected<Error> Failure(cotune_status_t status, const cotune_error_t& error,
                                const char* call) const {
    return ToError(status, error, call, context_->table.name, context_->parameters.job_ranks);
  }

  std::shared_ptr<GroupContext> context_;
  cotune_plan_t* plan_;
  MemoryKind memory_;
};

class AdaptedGroup final : public BackendGroup {
 public:
  AdaptedGroup(std::shared_ptr<GroupContext> context, cotune_group_t* group)
      : context_(std::move(context)), group_(group) {}

  AdaptedGroup(const AdaptedGroup&) = delete;
  AdaptedGroup& operator=(const AdaptedGroup&) = delete;
  ~AdaptedGroup() override {
    const CallGuard::Scope scope(context_->guard, "group_destroy");
    context_->table.group_destroy(group_);
  }

  Result<std::unique_ptr<Plan>> Prepare(const Program& program, const Problem& problem,
                                        const Choice& choice, int64_t deadline_ns) override {
    const cotune_backend_api_t& table = context_->table;
    if (!program.is_single_collective()) {
      return Fail(ErrorCode::kUnsupported, kNoFusion, fmt::format("backend {}", table.name));
    }
    const cotune_problem_t abi_problem = ToAbi(problem);
    const std::string name(choice.id.choice_name());
    cotune_plan_t* plan = nullptr;
    cotune_error_t error = EmptyError();
    const CallGuard::Scope scope(context_->guard, "prepare");
    const cotune_status_t status =
        table.prepare(group_, &abi_problem, name.c_str(), deadline_ns, &plan, &error);
    if (status != COTUNE_OK || plan == nullptr) {
      return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "prepare", table.name,
                     context_->parameters.job_ranks);
    }
    return std::make_unique<AdaptedPlan>(context_, plan, problem.cls.memory);
  }

  Status RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns) override {
    if (context_->memory == nullptr) {
      return Fail(ErrorCode::kUnsupported, kNoMemory,
                  fmt::format("backend {}", context_->table.name));
    }
    cotune_error_t error = EmptyError();
    const CallGuard::Scope scope(context_->guard, "memory_register");
    const cotune_status_t status =
        context_->memory->memory_register(group_, data, bytes, deadline_ns, &error);
    if (status == COTUNE_OK) return {};
    return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "memory_register",
                   context_->table.name, context_->parameters.job_ranks);
  }

  void UnregisterMemory(void* data) override {
    if (context_->memory == nullptr) return;
    const CallGuard::Scope scope(context_->guard, "memory_unregister");
    context_->memory->memory_unregister(group_, data);
  }

  Status Health() override {
    cotune_error_t error = EmptyError();
    const cotune_status_t status = context_->table.group_health(group_, &error);
    if (status != COTUNE_OK) {
      return ToError(status, error, "group_health", context_->table.name,
                     context_->parameters.job_ranks);
    }
    return {};
  }

  void Abort() override { context_->table.group_abort(group_); }

 private:
  std::shared_ptr<GroupContext> context_;
  cotune_group_t* group_;
};

// The extension as far as it can be used; nullptr when the backend has none.
Result<const cotune_memory_v1_t*> MemoryExtensionOf(const cotune_backend_api_t& table,
                                                    const cotune_backend_t* backend,
                                                    const std::string& where) {
  const auto* memory =
      static_cast<const cotune_memory_v1_t*>(table.get_extension(backend, COTUNE_MEMORY_EXTENSION));
  if (memory == nullptr) return nullptr;
  const char* missing = nullptr;
  if (!COTUNE_HAS_FIELD(cotune_memory_v1_t, memory, memory_unregister)) {
    missing = "its struct_size is too small";
  } else if (memory->memory_register == nullptr) {
    missing = "memory_register is NULL";
  } else if (memory->memory_unregister == nullptr) {
    missing = "memory_unregister is NULL";
  }
  if (missing == nullptr) return memory;
  return Fail(ErrorCode::kPluginRefused, "plugin refused at step 'extension cotune.memory/1'",
              where, missing, "rebuild the plugin against this version's cotune_backend_v1.h");
}

class AdaptedBackend final : public Backend {
 public:
  AdaptedBackend(const cotune_backend_api_t& table, const cotune_memory_v1_t* memory,
                 std::unique_ptr<BackendHost> host, cotune_backend_t* backend, bool check_threads)
      : table_(table),
        memory_(memory),
        host_(std::move(host)),
        backend_(backend, table.destroy),
        name_(table.name),
        version_(table.version),
        check_threads_(check_threads) {}

  const std::string& name() const override { return name_; }
  const std::string& version() const override { return version_; }

  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    if (!program.is_single_collective()) return ChoiceList{{}, {{name_, kNoFusion}}};
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
      return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "group_create", name_,
                     parameters.job_ranks);
    }
    return std::make_unique<AdaptedGroup>(
        std::make_shared<GroupContext>(table_, memory_, parameters, check_threads_), group);
  }

 private:
  const cotune_backend_api_t& table_;
  const cotune_memory_v1_t* const memory_;
  const std::unique_ptr<BackendHost> host_;  // outlives backend_
  const std::unique_ptr<cotune_backend_t, void (*)(cotune_backend_t*)> backend_;
  const std::string name_;
  const std::string version_;
  const bool check_threads_;
};

}  // namespace

Result<std::unique_ptr<Backend>> AdoptBackend(const cotune_backend_api_t* table,
                                              const cotune_host_t& host, int32_t device,
                                              const std::string& where,
                                              const AdoptOptions& options) {
  if (Status checked = CheckTable(table, where); !checked)
    return tl::make_unexpected(checked.error());
  auto backend_host = std::make_unique<BackendHost>(host, table->name);
  cotune_backend_t* backend = nullptr;
  cotune_error_t error = EmptyError();
  const cotune_status_t status = table->create(&backend_host->table(), device, &backend, &error);
  if (status == COTUNE_UNSUPPORTED) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("backend {} offers nothing on this machine", table->name), where,
                TextOf(error, "create"), "run on a machine that has what it needs");
  }
  if (status != COTUNE_OK || backend == nullptr) {
    return Fail(ErrorCode::kPluginRefused, "plugin refused at step 'create'", where,
                TextOf(error, "create"), "check the backend's settings and its documentation");
  }
  const Result<const cotune_memory_v1_t*> memory = MemoryExtensionOf(*table, backend, where);
  if (!memory) {
    table->destroy(backend);
    return tl::make_unexpected(memory.error());
  }
  return std::make_unique<AdaptedBackend>(*table, *memory, std::move(backend_host), backend,
                                          options.check_threads);
}

}  // namespace cotune
