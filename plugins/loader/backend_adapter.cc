#include "plugins/loader/backend_adapter.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/backend/call_watchdog.h"
#include "fmt/format.h"
#include "plugins/loader/adapted_group.h"
#include "plugins/loader/adapted_part.h"
#include "plugins/loader/adapted_region.h"
#include "plugins/loader/backend_extensions.h"
#include "plugins/loader/backend_host.h"
#include "plugins/loader/choice_listing.h"
#include "plugins/loader/plugin_call.h"
#include "plugins/loader/plugin_status.h"
#include "plugins/loader/program_listing.h"

namespace cotune {
namespace {

constexpr uint32_t kTextBytesMax = 256;  // of what a backend says of its libraries

// Asks for an extension; nullptr when the backend has none.
Result<const void*> ExtensionOf(const BackendContext& context, const cotune_backend_t* backend,
                                const char* id) {
  const void* found = nullptr;
  COTUNE_RETURN_IF_ERROR(InvokeApart(context, context.subject, "get_extension",
                                     context.DeadlineOfCall(), nullptr, [&]() -> cotune_status_t {
                                       found = context.table.get_extension(backend, id);
                                       return COTUNE_OK;
                                     }));
  return found;
}

// All of them, as far as they can be used.
Result<BackendExtensions> ExtensionsOf(const BackendContext& context,
                                       const cotune_backend_t* backend, const std::string& where) {
  BackendExtensions extensions;
  for (const char* id : BackendExtensions::kIds) {
    COTUNE_TRY(const void* found, ExtensionOf(context, backend, id));
    COTUNE_RETURN_IF_ERROR(extensions.Take(id, found, where));
  }
  return extensions;
}

// The libraries that the backend uses, with their versions; "" when it does not tell them.
Result<std::string> LibrariesOf(const BackendContext& context, const BackendExtensions& extensions,
                                const cotune_backend_t* backend, const std::string& where) {
  if (extensions.libraries == nullptr) return std::string();
  std::array<char, kTextBytesMax> text{};
  cotune_error_t error = EmptyError();
  const Result<cotune_status_t> status = InvokeApart(
      context, context.subject, "libraries_text", context.DeadlineOfCall(), nullptr, [&] {
        return extensions.libraries->libraries_text(backend, text.data(), kTextBytesMax, &error);
      });
  const std::string told(text.data(), strnlen(text.data(), text.size() - 1));
  std::string why;
  if (!status || *status != COTUNE_OK) {
    why = status ? TextOf(error, "libraries_text") : status.error().what;
  } else if (told.size() == text.size() - 1) {
    why = fmt::format("its text fills the {} bytes that it was given", text.size());
  } else if (std::any_of(told.begin(), told.end(),
                         [](char c) { return c == 0x7f || (c >= 0 && c < 0x20); })) {
    why = "its text holds a control character";
  } else {
    return told;
  }
  return Fail(ErrorCode::kPluginRefused,
              fmt::format("plugin refused at step 'extension {}'", COTUNE_LIBRARIES_EXTENSION),
              where, why, "leave the backend out, or report it to whoever ships the plugin");
}

void DestroyBackend(const BackendContext& context, cotune_backend_t* backend) {
  InvokeWithoutAnswer(context, context.subject, "destroy", [&] { context.table.destroy(backend); });
}

class AdaptedBackend final : public Backend {
 public:
  AdaptedBackend(std::shared_ptr<const BackendContext> context, const BackendExtensions& extensions,
                 std::string libraries, cotune_backend_t* backend, int32_t device)
      : context_(std::move(context)),
        extensions_(extensions),
        backend_(backend),
        device_(device),
        name_(context_->table.name),
        version_(context_->table.version),
        libraries_(std::move(libraries)) {}
  AdaptedBackend(const AdaptedBackend&) = delete;
  AdaptedBackend& operator=(const AdaptedBackend&) = delete;
  ~AdaptedBackend() override { DestroyBackend(*context_, backend_); }

  const std::string& name() const override { return name_; }
  const std::string& version() const override { return version_; }
  std::string libraries() const override { return libraries_; }

  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    const bool is_region = !program.is_single_collective();
    if (is_region && !extensions_.has_regions()) return ChoiceList{{}, {{name_, kNoFusion}}};
    ChoiceList list;
    const Result<cotune_status_t> listed = InvokeApart(
        *context_, context_->subject, "list_choices", context_->DeadlineOfCall(), nullptr,
        [&]() -> cotune_status_t {
          list = is_region ? ListExtensionChoices(name_, *extensions_.program, backend_,
                                                  ToAbi(RegionOf(program, problem)).program())
                           : ListTableChoices(context_->table, backend_, problem);
          return COTUNE_OK;
        });
    if (!listed) return ChoiceList{{}, {{name_, listed.error().ToText()}}};
    return list;
  }

  bool has_parts() const override {
    return extensions_.program != nullptr && extensions_.program->part_prepare != nullptr;
  }

  Result<std::unique_ptr<Plan>> PreparePart(const PartRequest& request,
                                            int64_t deadline_ns) override {
    if (!has_parts()) return Backend::PreparePart(request, deadline_ns);
    const AbiProgram abi(request.part, request.rows,
                         {request.memory, request.world_size, request.world_size}, 0,
                         request.rounds_values);
    auto subject = std::make_unique<CallSubject>(context_->subject);
    subject->text +=
        fmt::format(", a part of a program with {} operations", request.part.nodes().size());
    cotune_program_plan_t* plan = nullptr;
    cotune_error_t error = EmptyError();
    COTUNE_TRY(const cotune_status_t status,
               InvokeApart(*context_, *subject, "part_prepare", deadline_ns, nullptr, [&] {
                 return extensions_.program->part_prepare(backend_, &abi.program(), deadline_ns,
                                                          &plan, &error);
               }));
    if (status != COTUNE_OK || plan == nullptr) {
      return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "part_prepare", name_, {});
    }
    return AdaptPart(context_, *extensions_.program, std::move(subject), plan, request.memory,
                     device_);
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
    if (!parameters.host_of_rank.empty()) params.host_of_rank = parameters.host_of_rank.data();
    cotune_group_t* group = nullptr;
    cotune_error_t error = EmptyError();
    COTUNE_TRY(const cotune_status_t status,
               InvokeApart(*context_, context_->subject, "group_create", parameters.deadline_ns,
                           nullptr, [&] {
                             return context_->table.group_create(backend_, &params, &group, &error);
                           }));
    if (status != COTUNE_OK || group == nullptr) {
      return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "group_create", name_,
                     parameters.job_ranks);
    }
    return AdaptGroup(context_, extensions_, parameters, group);
  }

 private:
  const std::shared_ptr<const BackendContext> context_;
  const BackendExtensions extensions_;
  cotune_backend_t* const backend_;
  const int32_t device_;
  const std::string name_;
  const std::string version_;
  const std::string libraries_;
};

}  // namespace

Result<std::unique_ptr<Backend>> AdoptBackend(const cotune_backend_api_t* table,
                                              const cotune_host_t& host, int32_t device,
                                              const std::string& where,
                                              const AdoptOptions& options) {
  COTUNE_RETURN_IF_ERROR(CheckTable(table, where));
  const auto context = std::make_shared<const BackendContext>(
      *table, std::make_unique<BackendHost>(host, table->name), where, options.watchdog,
      options.check_threads);
  cotune_backend_t* backend = nullptr;
  cotune_error_t error = EmptyError();
  const Result<cotune_status_t> status =
      InvokeApart(*context, context->subject, "create", context->DeadlineOfCall(), nullptr,
                  [&] { return table->create(&context->host->table(), device, &backend, &error); });
  if (status && *status == COTUNE_UNSUPPORTED) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("backend {} cannot be used on this machine", table->name), where,
                TextOf(error, "create"),
                "to use this backend, provide what the cause names, or run cotune on a machine "
                "that has it");
  }
  if (!status || *status != COTUNE_OK || backend == nullptr) {
    // The host hands over only the user's settings, so a wrong argument is a wrong setting.
    const bool is_usage = status && *status == COTUNE_INVALID_ARGUMENT;
    return Fail(is_usage ? ErrorCode::kUsage : ErrorCode::kPluginRefused,
                "plugin refused at step 'create'", where,
                status ? TextOf(error, "create") : status.error().what,
                "check the backend's settings and its documentation");
  }
  const Result<BackendExtensions> extensions = ExtensionsOf(*context, backend, where);
  if (!extensions) {
    DestroyBackend(*context, backend);
    return Propagate(extensions);
  }
  Result<std::string> libraries = LibrariesOf(*context, *extensions, backend, where);
  if (!libraries) {
    DestroyBackend(*context, backend);
    return Propagate(libraries);
  }
  return std::make_unique<AdaptedBackend>(context, *extensions, std::move(*libraries), backend,
                                          device);
}

}  // namespace cotune
