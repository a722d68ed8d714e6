// The table of functions of a backend, made of three classes: the backend, its groups, their plans.
#ifndef COTUNE_PLUGINS_SDK_BACKEND_SHELL_H_
#define COTUNE_PLUGINS_SDK_BACKEND_SHELL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::sdk {

// Whether groups of the backend must be on one host; true where it does not say.
template <class Backend>
constexpr bool NeedsOneHost() {
  if constexpr (requires { Backend::kNeedsOneHost; }) {
    return Backend::kNeedsOneHost;
  } else {
    return true;
  }
}

// Stands for the parts of a backend without parts, and for the regions of one without regions.
struct NoProgramPlan {};

// The class of a backend's parts, and that of a group's regions.
template <class Backend>
struct PartOfBackend {
  using Type = NoProgramPlan;
};
template <class Backend>
requires requires { typename Backend::Part; }
struct PartOfBackend<Backend> {
  using Type = typename Backend::Part;
};
template <class Group>
struct RegionOfGroup {
  using Type = NoProgramPlan;
};
template <class Group>
requires requires { typename Group::Region; }
struct RegionOfGroup<Group> {
  using Type = typename Group::Region;
};

// BackendShell<Backend>::Table() is what the exported symbol returns. The shell ends exceptions,
// writes failures into the caller's struct, checks what holds for every backend and converts; it
// adds no state: the handles of the ABI are pointers to objects of the three classes.
//
//   class Backend {
//     using Group = ...;  using Problem = ...;  // a problem as CheckProblem gives it
//     static constexpr char kName[] = "tiny";   // of the table, as kVersion
//     static constexpr char kVersion[] = "1.0.0";
//     static constexpr uint32_t kMemoryKind = COTUNE_MEMORY_HOST;
//     static constexpr int kRanksMax = 64;      // of a group
//     // Left out or true: groups over several hosts are refused. CheckProblem of the SDK refuses
//     // their problems; a backend that can run them has a check of its own.
//     static constexpr bool kNeedsOneHost = false;
//     // COTUNE_UNSUPPORTED: nothing can run on this machine. device: -1 for host memory.
//     static Result<std::unique_ptr<Backend>> Create(const cotune_host_t& host, int32_t device);
//     int32_t device() const;                   // that of Create
//     // sdk::CheckProblem with the backend's limits, as a rule. Pure.
//     static Result<Problem> CheckProblem(const cotune_problem_t& problem);
//     // Entries as ChoiceEntry makes them.
//     Result<std::vector<cotune_choice_t>> ListChoices(const Problem& problem) const;
//     // Collective.
//     Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& params);
//     // Left out: no parts of programs. Part is a class of the backend's own.
//     using Part = ...;
//     Result<std::unique_ptr<Part>> PreparePart(const Program& part, int64_t deadline_ns);
//     // Left out, as PrepareRegion of the group then is: no regions, which are collectives with
//     // local operations around them. Entries as of ListChoices; COTUNE_UNSUPPORTED refuses the
//     region.
//     // Pure. `region` has a collective.
//     Result<std::vector<cotune_choice_t>> ListRegion(const Program& region) const;
//     // Only of backends that offer cotune.libraries/1: "NCCL 2.28.9".
//     std::string LibrariesText() const;
//   };
//   class Group {
//     using Plan = ...;
//     int world_size() const;
//     std::optional<Failure> Health();  // the failure that made the group unusable
//     void Abort();
//     Result<std::unique_ptr<Plan>> Prepare(const Problem& problem, std::string_view choice,
//                                           int64_t deadline_ns);
//     // Only of backends that run regions. Region is a class of the backend's own.
//     using Region = ...;
//     Result<std::unique_ptr<Region>> PrepareRegion(const Program& region, std::string_view choice,
//                                                   int64_t deadline_ns);
//     // Only of backends that offer cotune.memory/1.
//     Result<void> RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns);
//     void UnregisterMemory(void* data);
//     // Only of backends that offer cotune.connections/1: how this rank sends to another one.
//     std::string ConnectionText(int peer);
//   };
//   class Plan {
//     Result<void> Launch(const cotune_launch_t& launch);
//     // Only of host memory; true: the operation is complete.
//     Result<bool> Progress(int64_t until_ns);
//   };
//   class Part {
//     // On host memory it does all of the work.
//     Result<void> Launch(const cotune_program_launch_t& launch);
//   };
//   class Region {  // as Plan; the shell has checked the operands
//     Result<void> Launch(const cotune_program_launch_t& launch);
//     Result<bool> Progress(int64_t until_ns);
//   };
//
// The rules for threads are the ABI's; the shell does not enforce them. The ABI has no place for a
// failure of Abort or UnregisterMemory: an exception of theirs ends in the shell without a word.
template <class Backend>
class BackendShell {
 public:
  static const cotune_backend_api_t* Table() {
    static constexpr cotune_backend_api_t kTable = {
        .struct_size = sizeof(cotune_backend_api_t),
        .abi_minor = COTUNE_ABI_MINOR,
        .build_flags = BuildFlags(),
        .memory_kinds = 1u << Backend::kMemoryKind,
        .name = Backend::kName,
        .version = Backend::kVersion,
        .create = Create,
        .destroy = Destroy,
        .get_extension = GetExtension,
        .list_choices = ListChoices,
        .group_create = GroupCreate,
        .group_health = GroupHealth,
        .group_abort = GroupAbort,
        .group_destroy = GroupDestroy,
        .prepare = Prepare,
        .launch = Launch,
        .progress = Progress,
        .plan_destroy = PlanDestroy,
    };
    return &kTable;
  }

  // The objects behind the ABI's handles.
  static Backend& Of(cotune_backend_t* backend) { return *reinterpret_cast<Backend*>(backend); }
  static const Backend& Of(const cotune_backend_t* backend) {
    return *reinterpret_cast<const Backend*>(backend);
  }
  static auto& Of(cotune_group_t* group) { return *reinterpret_cast<Group*>(group); }
  static auto& Of(cotune_plan_t* plan) { return *reinterpret_cast<Plan*>(plan); }
  // nullptr: the plan is none of a part, or none of a region.
  static auto* PartOf(cotune_program_plan_t* plan) {
    const auto* part = std::get_if<std::unique_ptr<Part>>(&ProgramPlanOf(plan).runs);
    return part == nullptr ? nullptr : part->get();
  }
  static auto* RegionOf(cotune_program_plan_t* plan) {
    const auto* region = std::get_if<std::unique_ptr<Region>>(&ProgramPlanOf(plan).runs);
    return region == nullptr ? nullptr : region->get();
  }

 private:
  using Group = typename Backend::Group;
  using Plan = typename Group::Plan;
  using Part = typename PartOfBackend<Backend>::Type;
  // A type apart from Part also if there is neither.
  struct NoRegion {};
  using Region =
      std::conditional_t<std::is_same_v<typename RegionOfGroup<Group>::Type, NoProgramPlan>,
                         NoRegion, typename RegionOfGroup<Group>::Type>;

  static constexpr bool kHasDevice = Backend::kMemoryKind != COTUNE_MEMORY_HOST;

  template <class Body>
  static cotune_status_t Run(cotune_error_t* error, Body body) {
    return Guard(Backend::kName, error, body);
  }
  // Runs a body that makes an object, and gives it to the caller as a handle.
  template <class Handle, class Body>
  static cotune_status_t Make(Handle** handle, cotune_error_t* error, Body body) {
    return Run(error, [&]() -> Result<void> {
      COTUNE_TRY(auto made, body());
      *handle = reinterpret_cast<Handle*>(made.release());
      return {};
    });
  }

  static cotune_status_t Create(const cotune_host_t* host, int32_t device,
                                cotune_backend_t** backend, cotune_error_t* error) {
    return Make(backend, error, [&]() -> Result<std::unique_ptr<Backend>> {
      COTUNE_RETURN_IF_ERROR(CheckHost(*host, kHasDevice, device));
      return Backend::Create(*host, device);
    });
  }
  static void Destroy(cotune_backend_t* backend) { delete reinterpret_cast<Backend*>(backend); }

  static cotune_status_t ListChoices(const cotune_backend_t* backend,
                                     const cotune_problem_t* problem, cotune_choice_t* first,
                                     uint32_t stride, uint32_t capacity, uint32_t* count,
                                     cotune_error_t* error) {
    return Run(error, [&]() -> Result<void> {
      COTUNE_TRY(const auto checked, Backend::CheckProblem(*problem));
      COTUNE_TRY(const auto choices, Of(backend).ListChoices(checked));
      return WriteChoices(choices, first, stride, capacity, count);
    });
  }

  static cotune_status_t GroupCreate(cotune_backend_t* backend, const cotune_group_params_t* params,
                                     cotune_group_t** group, cotune_error_t* error) {
    return Make(group, error, [&]() -> Result<std::unique_ptr<Group>> {
      COTUNE_RETURN_IF_ERROR(CheckGroupParams(*params, Backend::kRanksMax, Of(backend).device()));
      if constexpr (NeedsOneHost<Backend>()) {
        COTUNE_RETURN_IF_ERROR(CheckOneHost(*params));
      }
      return Of(backend).Join(*params);
    });
  }
  static cotune_status_t GroupHealth(cotune_group_t* group, cotune_error_t* error) {
    return Run(error, [&]() -> Result<void> {
      if (auto failure = Of(group).Health()) return tl::unexpected(std::move(*failure));
      return {};
    });
  }
  static void GroupAbort(cotune_group_t* group) {
    Run(nullptr, [&]() -> Result<void> {
      Of(group).Abort();
      return {};
    });
  }
  static void GroupDestroy(cotune_group_t* group) { delete reinterpret_cast<Group*>(group); }

  static cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                                 const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                                 cotune_error_t* error) {
    return Make(plan, error, [&]() -> Result<std::unique_ptr<Plan>> {
      COTUNE_TRY(const auto checked, Backend::CheckProblem(*problem));
      COTUNE_RETURN_IF_ERROR(CheckWorldSize(problem->world_size, Of(group).world_size()));
      return Of(group).Prepare(checked, choice_name, deadline_ns);
    });
  }

  // Stands behind the handle of every plan of a program: a part or a region, with the program that
  // it was made of, by which its operands are checked.
  struct ProgramPlan {
    ProgramPlan(Program checked, std::unique_ptr<Part> part)
        : program(std::move(checked)), runs(std::move(part)) {}
    ProgramPlan(Program checked, std::unique_ptr<Region> region)
        : program(std::move(checked)), runs(std::move(region)) {}
    Program program;
    LaunchedOperands operands;
    std::variant<std::unique_ptr<Part>, std::unique_ptr<Region>> runs;
  };
  static ProgramPlan& ProgramPlanOf(cotune_program_plan_t* plan) {
    return *reinterpret_cast<ProgramPlan*>(plan);
  }

  static constexpr bool kRegistersMemory = requires(Group & group, void* data) {
    group.UnregisterMemory(data);
  };
  static constexpr bool kHasParts = requires(Backend & backend, const Program& part) {
    backend.PreparePart(part, int64_t{});
  };
  static constexpr bool kListsRegions = requires(const Backend& backend, const Program& region) {
    backend.ListRegion(region);
  };
  static constexpr bool kHasRegions = requires(Group & group, const Program& region) {
    group.PrepareRegion(region, std::string_view(), int64_t{});
  };
  static_assert(kListsRegions == kHasRegions, "ListRegion and PrepareRegion come together");

  static Result<Program> CheckRegion(const cotune_program_t& program) {
    COTUNE_TRY(auto region, CheckProgram(program, {.memory_kind = Backend::kMemoryKind,
                                                   .ranks_max = Backend::kRanksMax,
                                                   .takes_symmetric = kRegistersMemory,
                                                   .needs_one_host = NeedsOneHost<Backend>()}));
    if (region.is_part()) {
      return Fail(COTUNE_INVALID_ARGUMENT, "a region has a collective, and this program has none");
    }
    return region;
  }
  static cotune_status_t ListRegion(const cotune_backend_t* backend,
                                    const cotune_program_t* program, cotune_choice_t* first,
                                    uint32_t stride, uint32_t capacity, uint32_t* count,
                                    cotune_error_t* error) {
    return Run(error, [&]() -> Result<void> {
      COTUNE_TRY(const auto region, CheckRegion(*program));
      COTUNE_TRY(const auto choices, Of(backend).ListRegion(region));
      return WriteChoices(choices, first, stride, capacity, count);
    });
  }
  static cotune_status_t PrepareRegion(cotune_group_t* group, const cotune_program_t* program,
                                       const char* choice_name, int64_t deadline_ns,
                                       cotune_program_plan_t** plan, cotune_error_t* error) {
    return Make(plan, error, [&]() -> Result<std::unique_ptr<ProgramPlan>> {
      COTUNE_TRY(auto checked, CheckRegion(*program));
      COTUNE_RETURN_IF_ERROR(CheckWorldSize(program->world_size, Of(group).world_size()));
      COTUNE_TRY(std::unique_ptr<Region> region,
                 Of(group).PrepareRegion(checked, choice_name, deadline_ns));
      return std::make_unique<ProgramPlan>(std::move(checked), std::move(region));
    });
  }
  static cotune_status_t PreparePart(cotune_backend_t* backend, const cotune_program_t* program,
                                     int64_t deadline_ns, cotune_program_plan_t** plan,
                                     cotune_error_t* error) {
    return Make(plan, error, [&]() -> Result<std::unique_ptr<ProgramPlan>> {
      COTUNE_TRY(auto checked, CheckProgram(*program, {.memory_kind = Backend::kMemoryKind,
                                                       .ranks_max = Backend::kRanksMax}));
      if (!checked.is_part()) {
        return Fail(COTUNE_INVALID_ARGUMENT, "a part has no collective, and this program has one");
      }
      COTUNE_TRY(std::unique_ptr<Part> part, Of(backend).PreparePart(checked, deadline_ns));
      return std::make_unique<ProgramPlan>(std::move(checked), std::move(part));
    });
  }
  static cotune_status_t LaunchProgram(cotune_program_plan_t* plan,
                                       const cotune_program_launch_t* launch,
                                       cotune_error_t* error) {
    return Run(error, [&]() -> Result<void> {
      ProgramPlan& launched = ProgramPlanOf(plan);
      COTUNE_RETURN_IF_ERROR(launched.operands.Check(launched.program, *launch));
      if (launch->stream.kind != StreamKindFor(Backend::kMemoryKind)) {
        return Fail(COTUNE_INVALID_ARGUMENT, "the stream is of another kind than the memory");
      }
      if constexpr (kHasRegions) {
        if (Region* const region = RegionOf(plan)) return region->Launch(*launch);
      }
      if constexpr (kHasParts) {
        if (Part* const part = PartOf(plan)) return part->Launch(*launch);
      }
      return {};
    });
  }
  static cotune_status_t ProgressProgram(cotune_program_plan_t* plan, int64_t until_ns,
                                         cotune_error_t* error) {
    if constexpr (kHasRegions) {
      if (Region* const region = RegionOf(plan)) return ProgressOf(*region, until_ns, error);
    }
    // The launch of a part has done all of its work.
    return COTUNE_OK;
  }
  static void DestroyProgramPlan(cotune_program_plan_t* plan) {
    delete reinterpret_cast<ProgramPlan*>(plan);
  }

  static cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch,
                                cotune_error_t* error) {
    return Run(error, [&]() -> Result<void> {
      if (launch->stream.kind != StreamKindFor(Backend::kMemoryKind)) {
        return WrongStreamKind(*launch, Backend::kMemoryKind);
      }
      return Of(plan).Launch(*launch);
    });
  }
  static cotune_status_t Progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
    return ProgressOf(Of(plan), until_ns, error);
  }
  // A plan or a region.
  template <class Operation>
  static cotune_status_t ProgressOf(Operation& operation, int64_t until_ns, cotune_error_t* error) {
    bool is_complete = true;
    const cotune_status_t status = Run(error, [&]() -> Result<void> {
      if constexpr (requires { operation.Progress(until_ns); }) {
        COTUNE_TRY(const bool done, operation.Progress(until_ns));
        is_complete = done;
        return {};
      } else {
        return NothingToProgress();
      }
    });
    return status == COTUNE_OK && !is_complete ? COTUNE_IN_PROGRESS : status;
  }
  static void PlanDestroy(cotune_plan_t* plan) { delete reinterpret_cast<Plan*>(plan); }

  static cotune_status_t MemoryRegister(cotune_group_t* group, void* data, uint64_t bytes,
                                        int64_t deadline_ns, cotune_error_t* error) {
    return Run(error, [&] { return Of(group).RegisterMemory(data, bytes, deadline_ns); });
  }
  static void MemoryUnregister(cotune_group_t* group, void* data) {
    Run(nullptr, [&]() -> Result<void> {
      Of(group).UnregisterMemory(data);
      return {};
    });
  }

  static constexpr bool kTellsConnections = requires(Group & group, int peer) {
    group.ConnectionText(peer);
  };

  static cotune_status_t ConnectionText(cotune_group_t* group, int32_t peer, char* text,
                                        uint32_t capacity, cotune_error_t* error) {
    return Run(error, [&]() -> Result<void> {
      if (peer < 0 || peer >= Of(group).world_size()) {
        return Fail(COTUNE_INVALID_ARGUMENT, "the peer is no rank of the group");
      }
      return WriteText(Of(group).ConnectionText(peer), text, capacity);
    });
  }

  static constexpr bool kTellsLibraries = requires(const Backend& backend) {
    backend.LibrariesText();
  };

  static cotune_status_t LibrariesText(const cotune_backend_t* backend, char* text,
                                       uint32_t capacity, cotune_error_t* error) {
    return Run(error, [&]() -> Result<void> {
      return WriteText(Of(backend).LibrariesText(), text, capacity);
    });
  }

  static const cotune_program_v1_t& ProgramTable() {
    static constexpr cotune_program_v1_t kProgram = [] {
      cotune_program_v1_t table{.struct_size = sizeof(cotune_program_v1_t),
                                .flags = 0,
                                .list_choices = nullptr,
                                .prepare = nullptr,
                                .part_prepare = nullptr,
                                .launch = LaunchProgram,
                                .progress = ProgressProgram,
                                .plan_destroy = DestroyProgramPlan};
      if constexpr (kHasRegions) {
        table.list_choices = ListRegion;
        table.prepare = PrepareRegion;
      }
      if constexpr (kHasParts) table.part_prepare = PreparePart;
      return table;
    }();
    return kProgram;
  }

  static const void* GetExtension(const cotune_backend_t* /*backend*/, const char* id) {
    if constexpr (kRegistersMemory) {
      static constexpr cotune_memory_v1_t kMemory = {.struct_size = sizeof(cotune_memory_v1_t),
                                                     .flags = 0,
                                                     .memory_register = MemoryRegister,
                                                     .memory_unregister = MemoryUnregister};
      if (std::string_view(id) == COTUNE_MEMORY_EXTENSION) return &kMemory;
    }
    if constexpr (kHasParts || kHasRegions) {
      if (std::string_view(id) == COTUNE_PROGRAM_EXTENSION) return &ProgramTable();
    }
    if constexpr (kTellsConnections) {
      static constexpr cotune_connections_v1_t kConnections = {
          .struct_size = sizeof(cotune_connections_v1_t),
          .flags = 0,
          .connection_text = ConnectionText};
      if (std::string_view(id) == COTUNE_CONNECTIONS_EXTENSION) return &kConnections;
    }
    if constexpr (kTellsLibraries) {
      static constexpr cotune_libraries_v1_t kLibraries = {
          .struct_size = sizeof(cotune_libraries_v1_t),
          .flags = 0,
          .libraries_text = LibrariesText};
      if (std::string_view(id) == COTUNE_LIBRARIES_EXTENSION) return &kLibraries;
    }
    return nullptr;
  }
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_BACKEND_SHELL_H_
