#include "plugins/loader/adapted_group.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "plugins/loader/adapted_region.h"
#include "plugins/loader/choice_listing.h"
#include "plugins/loader/group_context.h"
#include "plugins/loader/group_plan.h"
#include "plugins/loader/plugin_status.h"
#include "plugins/loader/thread_rule_check.h"

namespace cotune {
namespace {

constexpr char kNoMemory[] = "memory extension not offered: it works on plain buffers only";
constexpr uint32_t kTextBytesMax = 256;  // the longest text about a connection

// The ABI grants operations the same patience as the code that runs them.
static_assert(LatestEndNs(0, 800) == COTUNE_LATEST_END_NS(INT64_C(0), INT64_C(800)));
static_assert(LatestEndNs(7, INT64_C(3600) << 30) ==
              COTUNE_LATEST_END_NS(INT64_C(7), INT64_C(3600) << 30));
static_assert(kAbortEndNs == COTUNE_ABORT_END_NS);

// A plan of the table.
class TableHandle {
 public:
  TableHandle(const cotune_backend_api_t& table, cotune_plan_t* plan)
      : table_(table), plan_(plan) {}

  cotune_status_t Launch(const LaunchArguments& arguments, const cotune_stream_t& stream,
                         cotune_error_t* error) {
    cotune_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.send = arguments.send;
    launch.recv = arguments.recv;
    launch.stream = stream;
    launch.deadline_ns = arguments.deadline_ns;
    return table_.launch(plan_, &launch, error);
  }
  cotune_status_t Progress(int64_t until_ns, cotune_error_t* error) {
    return table_.progress(plan_, until_ns, error);
  }
  void Destroy() { table_.plan_destroy(plan_); }

 private:
  const cotune_backend_api_t& table_;
  cotune_plan_t* const plan_;
};

using AdaptedPlan = GroupPlan<TableHandle>;

class AdaptedGroup final : public BackendGroup {
 public:
  explicit AdaptedGroup(std::shared_ptr<GroupContext> context) : context_(std::move(context)) {
    context_->slot =
        std::make_unique<CallSlot>(context_->backend->watchdog, GroupContext::AbortOf(context_));
  }

  AdaptedGroup(const AdaptedGroup&) = delete;
  AdaptedGroup& operator=(const AdaptedGroup&) = delete;
  ~AdaptedGroup() override { context_->Destroy(); }

  Result<std::unique_ptr<Plan>> Prepare(const Program& program, const Problem& problem,
                                        const Choice& choice, int64_t deadline_ns) override {
    // A call that is given up may come back when this object is gone.
    const std::shared_ptr<GroupContext> context = context_;
    const cotune_backend_api_t& table = context->table();
    if (!program.is_single_collective()) {
      return PrepareRegion(context, program, problem, choice, deadline_ns);
    }
    cotune_problem_t abi_problem = ToAbi(problem);
    abi_problem.program_digest = problem.cls.program_digest;
    const std::string name(choice.id.choice_name());
    auto subject = std::make_unique<const CallSubject>(
        CallSubject::OfChoice(table.name, context->backend->plugin, choice.id, problem));
    cotune_plan_t* plan = nullptr;
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context->guard, "prepare");
    COTUNE_TRY(const cotune_status_t status,
               InvokeApart(*context->backend, *subject, "prepare", deadline_ns,
                           GroupContext::AbortOf(context), [&] {
                             return table.prepare(context->handle, &abi_problem, name.c_str(),
                                                  deadline_ns, &plan, &error);
                           }));
    if (status != COTUNE_OK || plan == nullptr) {
      return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "prepare", table.name,
                     context->parameters.job_ranks);
    }
    return std::make_unique<AdaptedPlan>(context, std::move(subject), TableHandle(table, plan),
                                         problem.cls.memory, choice.is_capturable);
  }

  Status RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns) override {
    if (context_->extensions.memory == nullptr) {
      return Fail(ErrorCode::kUnsupported, kNoMemory,
                  fmt::format("backend {}", context_->table().name));
    }
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "memory_register");
    COTUNE_TRY(const cotune_status_t status,
               InvokeApart(*context_->backend, context_->backend->subject, "memory_register",
                           deadline_ns, GroupContext::AbortOf(context_), [&] {
                             return context_->extensions.memory->memory_register(
                                 context_->handle, data, bytes, deadline_ns, &error);
                           }));
    if (status == COTUNE_OK) return {};
    return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "memory_register",
                   context_->table().name, context_->parameters.job_ranks);
  }

  void UnregisterMemory(void* data) override {
    if (context_->extensions.memory == nullptr) return;
    const ThreadRuleCheck::Scope scope(context_->guard, "memory_unregister");
    InvokeWithoutAnswer(*context_->backend, context_->backend->subject, "memory_unregister", [&] {
      context_->extensions.memory->memory_unregister(context_->handle, data);
    });
  }

  Status Health() override {
    cotune_error_t error = EmptyError();
    COTUNE_TRY(const cotune_status_t status,
               InvokeApart(*context_->backend, context_->backend->subject, "group_health",
                           context_->backend->DeadlineOfCall(), nullptr, [&] {
                             return context_->table().group_health(context_->handle, &error);
                           }));
    if (status == COTUNE_OK) return {};
    return ToError(status, error, "group_health", context_->table().name,
                   context_->parameters.job_ranks);
  }

  std::vector<std::string> Connections() override {
    if (context_->extensions.connections == nullptr) return {};
    const auto& job_ranks = context_->parameters.job_ranks;
    std::vector<std::string> texts;
    for (int32_t peer = 0; static_cast<size_t>(peer) < job_ranks.size(); ++peer) {
      const bool is_self = peer == context_->parameters.rank;
      texts.push_back(is_self ? "" : ConnectionTo(peer));
    }
    return texts;
  }

  void Abort() override { context_->Abort(); }

 private:
  std::string ConnectionTo(int32_t peer) {
    std::array<char, kTextBytesMax> text{};
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "connection_text");
    const Result<cotune_status_t> status =
        InvokeApart(*context_->backend, context_->backend->subject, "connection_text",
                    context_->backend->DeadlineOfCall(), nullptr, [&] {
                      return context_->extensions.connections->connection_text(
                          context_->handle, peer, text.data(), kTextBytesMax, &error);
                    });
    // Only people read it: a failure is told there, too.
    if (!status) return "not known: " + status.error().what;
    if (*status != COTUNE_OK) return "not known: " + TextOf(error, "connection_text");
    return {text.data(), strnlen(text.data(), text.size() - 1)};
  }

  std::shared_ptr<GroupContext> context_;
};

}  // namespace

std::unique_ptr<BackendGroup> AdaptGroup(std::shared_ptr<const BackendContext> backend,
                                         const BackendExtensions& extensions,
                                         const GroupParameters& parameters, cotune_group_t* group) {
  return std::make_unique<AdaptedGroup>(
      std::make_shared<GroupContext>(std::move(backend), extensions, parameters, group));
}

}  // namespace cotune
