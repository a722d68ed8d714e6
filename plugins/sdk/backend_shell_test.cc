// Callers of a backend's table see the results, failures and exceptions of the classes behind it.
#include "plugins/sdk/backend_shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/sdk/problem.h"

namespace cotune::sdk {
namespace {

using ::testing::HasSubstr;

enum class Throws { kNothing, kStandard, kNoMemory, kInt };

// The behaviour of the backend below, and what is left of it.
struct ProbeState {
  Throws throws = Throws::kNothing;
  Result<void> answer;
  bool is_complete = true;
  int objects = 0;
  int aborts = 0;
  void* registered = nullptr;
  int part_launches = 0;
  int region_launches = 0;
  std::string region_choice;
  std::string part_text;
  int64_t part_deadline_ns = 0;
};
ProbeState probe;

Result<void> Answer() {
  switch (probe.throws) {
    case Throws::kNothing:
      break;
    case Throws::kStandard:
      throw std::runtime_error("out of luck");
    case Throws::kNoMemory:
      throw std::bad_alloc();
    case Throws::kInt:
      throw 42;
  }
  return probe.answer;
}

struct Counted {
  Counted() { ++probe.objects; }
  ~Counted() { --probe.objects; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

template <class Object>
Result<std::unique_ptr<Object>> MakeOrFail() {
  COTUNE_RETURN_IF_ERROR(Answer());
  return std::make_unique<Object>();
}

struct HostPlan : Counted {
  static Result<void> Launch(const cotune_launch_t& /*launch*/) { return Answer(); }
  static Result<bool> Progress(int64_t /*until_ns*/) {
    COTUNE_RETURN_IF_ERROR(Answer());
    return probe.is_complete;
  }
};

// Operations on a stream are complete when the stream is.
struct StreamPlan : Counted {
  static Result<void> Launch(const cotune_launch_t& /*launch*/) { return Answer(); }
};

template <class PlanOfGroup>
struct ProbeGroup : Counted {
  using Plan = PlanOfGroup;

  static int world_size() { return 2; }
  static std::optional<Failure> Health() {
    auto answer = Answer();
    return answer ? std::nullopt : std::optional<Failure>(answer.error());
  }
  static void Abort() {
    ++probe.aborts;
    static_cast<void>(Answer());
  }
  static Result<std::unique_ptr<Plan>> Prepare(const Problem& /*problem*/,
                                               std::string_view /*choice*/,
                                               int64_t /*deadline_ns*/) {
    return MakeOrFail<Plan>();
  }
};

struct RegisteringGroup : ProbeGroup<StreamPlan> {
  static Result<void> RegisterMemory(void* data, uint64_t /*bytes*/, int64_t /*deadline_ns*/) {
    if (auto answer = Answer(); !answer) return answer;
    probe.registered = data;
    return {};
  }
  static void UnregisterMemory(void* /*data*/) { probe.registered = nullptr; }
  static std::string ConnectionText(int peer) { return "wire/" + std::to_string(peer); }
};

template <class GroupOfBackend, uint32_t kKind>
struct ProbeBackend : Counted {
  using Group = GroupOfBackend;
  using Problem = sdk::Problem;

  static constexpr char kName[] = "probe";
  static constexpr char kVersion[] = "7";
  static constexpr uint32_t kMemoryKind = kKind;
  static constexpr int kRanksMax = 4;

  static Result<std::unique_ptr<ProbeBackend>> Create(const cotune_host_t& /*host*/,
                                                      int32_t /*device*/) {
    return MakeOrFail<ProbeBackend>();
  }
  static int32_t device() { return kKind == COTUNE_MEMORY_HOST ? -1 : 3; }
  static std::string LibrariesText() requires(kKind == COTUNE_MEMORY_CUDA) { return "libwire 2.1"; }
  static Result<Problem> CheckProblem(const cotune_problem_t& problem) {
    return sdk::CheckProblem(problem, {.memory_kind = kKind, .ranks_max = kRanksMax});
  }
  static Result<std::vector<cotune_choice_t>> ListChoices(const Problem& /*problem*/) {
    COTUNE_RETURN_IF_ERROR(Answer());
    return std::vector{ChoiceEntry("good", "", 2, COTUNE_CHOICE_DEFAULT, "own.order"),
                       ChoiceEntry("bad", "not here", 1, COTUNE_CHOICE_REPRODUCIBLE, "")};
  }
  static Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& /*params*/) {
    return MakeOrFail<Group>();
  }
};

using HostBackend = ProbeBackend<ProbeGroup<HostPlan>, COTUNE_MEMORY_HOST>;
using CudaBackend = ProbeBackend<RegisteringGroup, COTUNE_MEMORY_CUDA>;

struct ProbePart : Counted {
  static Result<void> Launch(const cotune_program_launch_t& /*launch*/) {
    ++probe.part_launches;
    return Answer();
  }
};

// The same backend, and it runs parts.
struct PartsBackend : HostBackend {
  using Part = ProbePart;

  static Result<std::unique_ptr<PartsBackend>> Create(const cotune_host_t& /*host*/,
                                                      int32_t /*device*/) {
    return MakeOrFail<PartsBackend>();
  }
  static Result<std::unique_ptr<Part>> PreparePart(const Program& part, int64_t deadline_ns) {
    probe.part_text = part.text;
    probe.part_deadline_ns = deadline_ns;
    return MakeOrFail<Part>();
  }
};

struct ProbeRegion : Counted {
  static Result<void> Launch(const cotune_program_launch_t& /*launch*/) {
    ++probe.region_launches;
    return Answer();
  }
  static Result<bool> Progress(int64_t until_ns) { return HostPlan::Progress(until_ns); }
};

struct RegionGroup : ProbeGroup<HostPlan> {
  using Region = ProbeRegion;
  static Result<std::unique_ptr<Region>> PrepareRegion(const Program& region,
                                                       std::string_view choice,
                                                       int64_t deadline_ns) {
    probe.part_text = region.text;
    probe.part_deadline_ns = deadline_ns;
    probe.region_choice = choice;
    return MakeOrFail<Region>();
  }
};

// A backend that runs regions, and no parts.
struct RegionsBackend : ProbeBackend<RegionGroup, COTUNE_MEMORY_HOST> {
  static Result<std::unique_ptr<RegionsBackend>> Create(const cotune_host_t& /*host*/,
                                                        int32_t /*device*/) {
    return MakeOrFail<RegionsBackend>();
  }
  static Result<std::vector<cotune_choice_t>> ListRegion(const Program& region) {
    probe.part_text = region.text;
    COTUNE_RETURN_IF_ERROR(Answer());
    return std::vector{ChoiceEntry("fused", "", 2, COTUNE_CHOICE_DEFAULT, "own.order")};
  }
};

// The same, with parts.
struct ProgramsBackend : RegionsBackend {
  using Part = ProbePart;

  static Result<std::unique_ptr<ProgramsBackend>> Create(const cotune_host_t& /*host*/,
                                                         int32_t /*device*/) {
    return MakeOrFail<ProgramsBackend>();
  }
  static Result<std::unique_ptr<Part>> PreparePart(const Program& part, int64_t deadline_ns) {
    return PartsBackend::PreparePart(part, deadline_ns);
  }
};

// One backend with one group and one plan, through its table.
class Handles {
 public:
  Handles(const cotune_backend_api_t& api, int32_t device) : api_(api) {
    host_.struct_size = sizeof(host_);
    error_.struct_size = sizeof(error_);
    params_.struct_size = sizeof(params_);
    params_.name = "g";
    params_.world_size = 2;
    params_.job_ranks = kJobRanks;
    params_.device = device;
    problem_.struct_size = sizeof(problem_);
    problem_.collective = COTUNE_ALL_REDUCE;
    problem_.reduction = COTUNE_SUM;
    problem_.memory_kind = device < 0 ? COTUNE_MEMORY_HOST : COTUNE_MEMORY_CUDA;
    problem_.dtype = {COTUNE_DTYPE_FLOAT, 32, 1};
    problem_.count = 1;
    problem_.bytes = 4;
    problem_.world_size = 2;
    problem_.ranks_per_node = 2;
    launch_.struct_size = sizeof(launch_);
    launch_.stream = {device < 0 ? COTUNE_STREAM_HOST : COTUNE_STREAM_CUDA, device, nullptr};
  }
  ~Handles() {
    api_.plan_destroy(plan_);
    api_.group_destroy(group_);
    api_.destroy(backend_);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  cotune_status_t Create() { return api_.create(&host_, params_.device, &backend_, &error_); }
  cotune_status_t Join() { return api_.group_create(backend_, &params_, &group_, &error_); }
  cotune_status_t Prepare() { return api_.prepare(group_, &problem_, "good", 0, &plan_, &error_); }
  cotune_status_t List() {
    return api_.list_choices(backend_, &problem_, choices_, sizeof(choices_[0]), 2, &count_,
                             &error_);
  }
  cotune_status_t Launch() { return api_.launch(plan_, &launch_, &error_); }
  cotune_status_t Progress() { return api_.progress(plan_, 0, &error_); }
  cotune_status_t Health() { return api_.group_health(group_, &error_); }
  void Abort() { api_.group_abort(group_); }
  void MakeAll() {
    ASSERT_EQ(Create(), COTUNE_OK) << error_.message;
    ASSERT_EQ(Join(), COTUNE_OK) << error_.message;
    ASSERT_EQ(Prepare(), COTUNE_OK) << error_.message;
  }
  std::string message() const { return error_.message; }

  static constexpr int32_t kJobRanks[] = {4, 5};
  const cotune_backend_api_t& api_;
  cotune_host_t host_{};
  cotune_error_t error_{};
  cotune_group_params_t params_{};
  cotune_problem_t problem_{};
  cotune_launch_t launch_{};
  cotune_choice_t choices_[2] = {};
  uint32_t count_ = 0;
  cotune_backend_t* backend_ = nullptr;
  cotune_group_t* group_ = nullptr;
  cotune_plan_t* plan_ = nullptr;
};

class BackendShellTest : public ::testing::Test {
 protected:
  BackendShellTest() { probe = {}; }
  ~BackendShellTest() override { EXPECT_EQ(probe.objects, 0) << "objects that nobody destroyed"; }

  const cotune_backend_api_t& host_ = *BackendShell<HostBackend>::Table();
  const cotune_backend_api_t& cuda_ = *BackendShell<CudaBackend>::Table();
  const cotune_backend_api_t& parts_ = *BackendShell<PartsBackend>::Table();
  const cotune_backend_api_t& regions_ = *BackendShell<RegionsBackend>::Table();
  const cotune_backend_api_t& programs_ = *BackendShell<ProgramsBackend>::Table();
};

TEST_F(BackendShellTest, TheTableHasTheBackendsNames) {
  EXPECT_EQ(host_.struct_size, sizeof(cotune_backend_api_t));
  EXPECT_STREQ(host_.name, "probe");
  EXPECT_STREQ(host_.version, "7");
  EXPECT_EQ(host_.memory_kinds, 1u << COTUNE_MEMORY_HOST);
  EXPECT_EQ(cuda_.memory_kinds, 1u << COTUNE_MEMORY_CUDA);
}

TEST_F(BackendShellTest, HandlesAreTheObjectsOfTheBackend) {
  Handles handles(host_, -1);
  handles.MakeAll();
  EXPECT_EQ(probe.objects, 3);
  EXPECT_EQ(handles.Launch(), COTUNE_OK);
  probe.is_complete = false;
  EXPECT_EQ(handles.Progress(), COTUNE_IN_PROGRESS);
  probe.is_complete = true;
  EXPECT_EQ(handles.Progress(), COTUNE_OK);
  EXPECT_EQ(handles.Health(), COTUNE_OK);
  handles.Abort();
  EXPECT_EQ(probe.aborts, 1);
}

TEST_F(BackendShellTest, ChoicesAreListedWithReasonsForThoseThatAreRefused) {
  Handles handles(host_, -1);
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  ASSERT_EQ(handles.List(), COTUNE_OK);
  ASSERT_EQ(handles.count_, 2u);
  EXPECT_STREQ(handles.choices_[0].name, "good");
  EXPECT_EQ(handles.choices_[0].status, COTUNE_OK);
  EXPECT_EQ(handles.choices_[0].flags, COTUNE_CHOICE_DEFAULT);
  EXPECT_EQ(handles.choices_[0].cost_us, 2);
  EXPECT_STREQ(handles.choices_[0].numerics, "own.order");
  EXPECT_STREQ(handles.choices_[1].numerics, "");
  EXPECT_EQ(handles.choices_[1].status, COTUNE_UNSUPPORTED);
  EXPECT_EQ(handles.choices_[1].flags, 0u) << "flags of what can run";
  EXPECT_STREQ(handles.choices_[1].reason, "not here");
}

TEST_F(BackendShellTest, EntriesAreMadeOfABackendsOwnChoices) {
  struct Own {
    std::string name;
    std::string reason;
    double cost_us;
    bool is_default;
    std::string numerics;
  };
  const auto entries =
      ChoiceEntries(std::vector<Own>{{"a", "", 1, true, "exact"},
                                     {"b", "", 2, false, std::string(40, 'o')},
                                     {std::string(200, 'c'), "no", 3, true, "exact"}},
                    COTUNE_CHOICE_REPRODUCIBLE);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].flags, COTUNE_CHOICE_REPRODUCIBLE | COTUNE_CHOICE_DEFAULT);
  EXPECT_EQ(entries[1].flags, uint32_t{COTUNE_CHOICE_REPRODUCIBLE});
  EXPECT_STREQ(entries[0].numerics, "exact");
  // Too long for the struct: it is not cut to another text, and the host refuses it.
  EXPECT_EQ(std::string_view(entries[1].numerics, sizeof(entries[1].numerics)),
            std::string(32, 'o'));
  EXPECT_EQ(entries[1].cost_us, 2);
  EXPECT_EQ(entries[2].flags, 0u);
  EXPECT_EQ(std::string(entries[2].name).size(), sizeof(entries[2].name) - 1);
}

TEST_F(BackendShellTest, ChoicesThatSayNothingOfTheirNumericsCompileAndAreUnknown) {
  struct Own {
    std::string name;
    std::string reason;
    double cost_us;
    bool is_default;
  };
  const auto entries = ChoiceEntries(std::vector<Own>{{"a", "", 1, true}}, 0);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_STREQ(entries[0].numerics, "");
  EXPECT_STREQ(ChoiceEntry("b", "", 2, 0).numerics, "");
}

// Each function that can fail, and that it makes nothing then.
TEST_F(BackendShellTest, FailuresAreWrittenIntoTheCallersStruct) {
  Handles handles(host_, -1);
  const auto expect_failure = [&](cotune_status_t status, const char* call) {
    EXPECT_EQ(status, COTUNE_OUT_OF_RESOURCES) << call;
    EXPECT_EQ(handles.message(), "no room") << call;
    EXPECT_EQ(handles.error_.native_code, 12) << call;
    EXPECT_EQ(handles.error_.failed_rank, 1) << call;
    handles.error_ = {};
    handles.error_.struct_size = sizeof(handles.error_);
  };
  const Result<void> failure = Fail(COTUNE_OUT_OF_RESOURCES, "no room", 12, 1);
  probe.answer = failure;
  expect_failure(handles.Create(), "create");
  EXPECT_EQ(handles.backend_, nullptr);
  probe.answer = {};
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  probe.answer = failure;
  expect_failure(handles.List(), "list_choices");
  expect_failure(handles.Join(), "group_create");
  EXPECT_EQ(handles.group_, nullptr);
  probe.answer = {};
  ASSERT_EQ(handles.Join(), COTUNE_OK);
  probe.answer = failure;
  expect_failure(handles.Health(), "group_health");
  expect_failure(handles.Prepare(), "prepare");
  EXPECT_EQ(handles.plan_, nullptr);
  probe.answer = {};
  ASSERT_EQ(handles.Prepare(), COTUNE_OK);
  probe.answer = failure;
  expect_failure(handles.Launch(), "launch");
  expect_failure(handles.Progress(), "progress");
  EXPECT_EQ(host_.launch(handles.plan_, &handles.launch_, nullptr), COTUNE_OUT_OF_RESOURCES);
}

TEST_F(BackendShellTest, NoExceptionGetsOut) {
  Handles handles(host_, -1);
  handles.MakeAll();
  cotune_backend_t* backend = nullptr;
  const std::function<cotune_status_t()> calls[] = {
      [&] { return host_.create(&handles.host_, -1, &backend, &handles.error_); },
      [&] { return handles.List(); },
      [&] { return handles.Join(); },
      [&] { return handles.Health(); },
      [&] { return handles.Prepare(); },
      [&] { return handles.Launch(); },
      [&] { return handles.Progress(); }};
  for (const auto& call : calls) {
    probe.throws = Throws::kStandard;
    EXPECT_EQ(call(), COTUNE_INTERNAL);
    EXPECT_EQ(handles.message(), "probe: out of luck");
    probe.throws = Throws::kNoMemory;
    EXPECT_EQ(call(), COTUNE_OUT_OF_RESOURCES);
    EXPECT_EQ(handles.message(), "probe: out of memory");
    probe.throws = Throws::kInt;
    EXPECT_EQ(call(), COTUNE_INTERNAL);
    EXPECT_THAT(handles.message(), HasSubstr("no std::exception"));
  }
  EXPECT_EQ(backend, nullptr);
  EXPECT_NO_THROW(handles.Abort());
}

TEST_F(BackendShellTest, ArgumentsThatFitNoBackendAreRefused) {
  Handles handles(host_, -1);
  EXPECT_EQ(host_.create(&handles.host_, 0, &handles.backend_, &handles.error_),
            COTUNE_UNSUPPORTED);
  EXPECT_THAT(handles.message(), HasSubstr("use -1"));
  handles.host_.struct_size = 16;
  EXPECT_EQ(handles.Create(), COTUNE_INVALID_ARGUMENT);
  handles.host_.struct_size = sizeof(cotune_host_t);
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  handles.params_.device = 1;
  EXPECT_EQ(handles.Join(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(handles.message(), "group 'g' is on device 1, this backend on device -1");
  handles.params_.device = -1;
  handles.params_.rank = 2;
  EXPECT_EQ(handles.Join(), COTUNE_INVALID_ARGUMENT);
  handles.params_.rank = 0;
  const int32_t apart[] = {0, 1};
  handles.params_.host_of_rank = apart;
  EXPECT_EQ(handles.Join(), COTUNE_UNSUPPORTED);
  EXPECT_THAT(handles.error_.message, HasSubstr("on 2 hosts"));
  const int32_t together[] = {0, 0};
  handles.params_.host_of_rank = together;
  ASSERT_EQ(handles.Join(), COTUNE_OK);
  handles.problem_.world_size = handles.problem_.ranks_per_node = 3;
  EXPECT_EQ(handles.Prepare(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(handles.message(), "a problem of 3 ranks in a group of 2");
  handles.problem_.world_size = handles.problem_.ranks_per_node = 2;
  handles.problem_.memory_kind = COTUNE_MEMORY_CUDA;
  EXPECT_EQ(handles.Prepare(), COTUNE_UNSUPPORTED);
  EXPECT_EQ(handles.List(), COTUNE_UNSUPPORTED);
  handles.problem_.memory_kind = COTUNE_MEMORY_HOST;
  ASSERT_EQ(handles.Prepare(), COTUNE_OK);
  handles.launch_.stream.kind = COTUNE_STREAM_CUDA;
  EXPECT_EQ(handles.Launch(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(handles.message(), "stream kind 2: this backend needs a host stream");
}

TEST_F(BackendShellTest, PlansOnStreamsHaveNothingToProgress) {
  Handles handles(cuda_, 3);
  handles.MakeAll();
  EXPECT_EQ(handles.Launch(), COTUNE_OK);
  EXPECT_EQ(handles.Progress(), COTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(handles.message(), HasSubstr("nothing to progress"));
}

TEST_F(BackendShellTest, MemoryIsAnExtensionOfGroupsThatRegisterSome) {
  Handles handles(cuda_, 3);
  handles.MakeAll();
  EXPECT_EQ(host_.get_extension(nullptr, COTUNE_MEMORY_EXTENSION), nullptr);
  EXPECT_EQ(cuda_.get_extension(handles.backend_, "cotune.memory/2"), nullptr);
  const auto* memory = static_cast<const cotune_memory_v1_t*>(
      cuda_.get_extension(handles.backend_, COTUNE_MEMORY_EXTENSION));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->struct_size, sizeof(cotune_memory_v1_t));
  int data = 0;
  EXPECT_EQ(memory->memory_register(handles.group_, &data, 4, 0, &handles.error_), COTUNE_OK);
  EXPECT_EQ(probe.registered, &data);
  memory->memory_unregister(handles.group_, &data);
  EXPECT_EQ(probe.registered, nullptr);
  probe.answer = Fail(COTUNE_UNSUPPORTED, "not this");
  EXPECT_EQ(memory->memory_register(handles.group_, &data, 4, 0, &handles.error_),
            COTUNE_UNSUPPORTED);
  EXPECT_EQ(handles.message(), "not this");
}

TEST_F(BackendShellTest, ConnectionsAreAnExtensionOfGroupsThatTellThem) {
  Handles handles(cuda_, 3);
  handles.MakeAll();
  EXPECT_EQ(host_.get_extension(nullptr, COTUNE_CONNECTIONS_EXTENSION), nullptr);
  const auto* connections = static_cast<const cotune_connections_v1_t*>(
      cuda_.get_extension(handles.backend_, COTUNE_CONNECTIONS_EXTENSION));
  ASSERT_NE(connections, nullptr);
  EXPECT_EQ(connections->struct_size, sizeof(cotune_connections_v1_t));
  const auto text_of = [&](int32_t peer, char* text, uint32_t capacity) {
    return connections->connection_text(handles.group_, peer, text, capacity, &handles.error_);
  };
  char text[8] = "xxxxxxx";
  EXPECT_EQ(text_of(1, text, sizeof(text)), COTUNE_OK);
  EXPECT_STREQ(text, "wire/1");
  EXPECT_EQ(text_of(1, text, 4), COTUNE_OK);
  EXPECT_STREQ(text, "wir");
  EXPECT_EQ(text_of(1, text, 0), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(text_of(-1, text, sizeof(text)), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(text_of(2, text, sizeof(text)), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(handles.message(), "the peer is no rank of the group");
}

TEST_F(BackendShellTest, LibrariesAreAnExtensionOfBackendsThatTellThem) {
  Handles handles(cuda_, 3);
  handles.MakeAll();
  EXPECT_EQ(host_.get_extension(nullptr, COTUNE_LIBRARIES_EXTENSION), nullptr);
  const auto* libraries = static_cast<const cotune_libraries_v1_t*>(
      cuda_.get_extension(handles.backend_, COTUNE_LIBRARIES_EXTENSION));
  ASSERT_NE(libraries, nullptr);
  EXPECT_EQ(libraries->struct_size, sizeof(cotune_libraries_v1_t));
  char text[16] = "";
  EXPECT_EQ(libraries->libraries_text(handles.backend_, text, sizeof(text), &handles.error_),
            COTUNE_OK);
  EXPECT_STREQ(text, "libwire 2.1");
  EXPECT_EQ(libraries->libraries_text(handles.backend_, text, 4, &handles.error_), COTUNE_OK);
  EXPECT_STREQ(text, "lib");
}

// %0 = input f32 [R, 4]; %1 = add %0, 1; the output overwrites nothing.
struct ProgramCall {
  explicit ProgramCall(const Handles& handles)
      : extension(*static_cast<const cotune_program_v1_t*>(
            handles.api_.get_extension(handles.backend_, COTUNE_PROGRAM_EXTENSION))),
        backend(handles.backend_),
        group(handles.group_) {
    for (cotune_value_t& value : values) {
      value.struct_size = sizeof(value);
      value.dtype = {COTUNE_DTYPE_FLOAT, 32, 1};
      value.rows_kind = COTUNE_ROWS_ALL;
      value.rows = 2;
      value.columns = 4;
    }
    node.struct_size = sizeof(node);
    node.kind = COTUNE_NODE_ADD;
    node.operand_count = 2;
    node.operands[1] = COTUNE_OPERAND_LITERAL;
    program.struct_size = sizeof(program);
    program.memory_kind = COTUNE_MEMORY_HOST;
    program.world_size = program.ranks_per_node = 2;
    program.values = values;
    program.value_stride = sizeof(cotune_value_t);
    program.input_count = program.node_count = program.output_count = 1;
    program.nodes = &node;
    program.node_stride = sizeof(node);
    program.outputs = &output;
    program.output_into = &into;
    program.text = "the text";
    launch.struct_size = sizeof(launch);
    launch.inputs = &from;
    launch.outputs = &to;
    launch.stream = {COTUNE_STREAM_HOST, -1, nullptr};
    error.struct_size = sizeof(error);
  }
  ~ProgramCall() { extension.plan_destroy(plan); }
  ProgramCall(const ProgramCall&) = delete;
  ProgramCall& operator=(const ProgramCall&) = delete;

  void MakeCollective() {
    node = {};
    node.struct_size = sizeof(node);
    node.kind = COTUNE_NODE_COLLECTIVE;
    node.collective = COTUNE_ALL_REDUCE;
    node.reduction = COTUNE_SUM;
    node.operand_count = 1;
  }
  cotune_status_t Prepare() { return extension.part_prepare(backend, &program, 77, &plan, &error); }
  cotune_status_t List() {
    return extension.list_choices(backend, &program, &choice, sizeof(choice), 1, &count, &error);
  }
  cotune_status_t PrepareRegion() {
    return extension.prepare(group, &program, "fused", 77, &plan, &error);
  }
  cotune_status_t Launch() { return extension.launch(plan, &launch, &error); }
  cotune_status_t Progress() { return extension.progress(plan, 0, &error); }
  std::string message() const { return error.message; }

  const cotune_program_v1_t& extension;
  cotune_backend_t* const backend;
  cotune_group_t* const group;
  cotune_value_t values[2] = {};
  cotune_node_t node{};
  int32_t output = 1;
  int32_t into = -1;
  cotune_program_t program{};
  float data[16] = {};
  const void* from = &data[0];
  void* to = &data[8];
  cotune_program_launch_t launch{};
  cotune_error_t error{};
  cotune_choice_t choice{};
  uint32_t count = 0;
  cotune_program_plan_t* plan = nullptr;
};

TEST_F(BackendShellTest, ProgramsAreAnExtensionOfBackendsThatRunParts) {
  Handles handles(parts_, -1);
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  EXPECT_EQ(host_.get_extension(nullptr, COTUNE_PROGRAM_EXTENSION), nullptr);
  EXPECT_EQ(parts_.get_extension(handles.backend_, "cotune.program/2"), nullptr);
  ProgramCall call(handles);
  EXPECT_EQ(call.extension.struct_size, sizeof(cotune_program_v1_t));
  EXPECT_EQ(call.extension.flags, 0u);
  EXPECT_EQ(call.extension.list_choices, nullptr) << "the backend runs no regions";
  EXPECT_EQ(call.extension.prepare, nullptr);
  ASSERT_EQ(call.Prepare(), COTUNE_OK) << call.message();
  EXPECT_EQ(probe.part_text, "the text");
  EXPECT_EQ(probe.part_deadline_ns, 77);
  EXPECT_EQ(probe.objects, 2) << "the backend and the part";
  EXPECT_EQ(call.Launch(), COTUNE_OK) << call.message();
  EXPECT_EQ(probe.part_launches, 1);
  EXPECT_EQ(call.Progress(), COTUNE_OK);
  call.extension.plan_destroy(call.plan);
  call.plan = nullptr;
  EXPECT_EQ(probe.objects, 1);
}

TEST_F(BackendShellTest, RegionsAreListedPreparedAndRun) {
  Handles handles(regions_, -1);
  handles.MakeAll();
  ProgramCall call(handles);
  EXPECT_EQ(call.extension.part_prepare, nullptr) << "the backend runs no parts";
  call.MakeCollective();
  ASSERT_EQ(call.List(), COTUNE_OK) << call.message();
  EXPECT_EQ(call.count, 1u);
  EXPECT_STREQ(call.choice.name, "fused");
  EXPECT_EQ(probe.part_text, "the text");
  ASSERT_EQ(call.PrepareRegion(), COTUNE_OK) << call.message();
  EXPECT_EQ(probe.region_choice, "fused");
  EXPECT_EQ(probe.part_deadline_ns, 77);
  EXPECT_EQ(probe.objects, 4) << "backend, group, plan and region";
  ASSERT_EQ(call.Launch(), COTUNE_OK) << call.message();
  EXPECT_EQ(probe.region_launches, 1);
  probe.is_complete = false;
  EXPECT_EQ(call.Progress(), COTUNE_IN_PROGRESS);
  probe.is_complete = true;
  EXPECT_EQ(call.Progress(), COTUNE_OK);
  call.extension.plan_destroy(call.plan);
  call.plan = nullptr;
  EXPECT_EQ(probe.objects, 3);
}

TEST_F(BackendShellTest, PartsAndRegionsOfOneBackendGoThroughTheSameFunctions) {
  Handles handles(programs_, -1);
  handles.MakeAll();
  ProgramCall part(handles);
  ProgramCall region(handles);
  region.MakeCollective();
  ASSERT_EQ(part.Prepare(), COTUNE_OK) << part.message();
  ASSERT_EQ(region.PrepareRegion(), COTUNE_OK) << region.message();
  EXPECT_EQ(probe.objects, 5);
  ASSERT_EQ(region.Launch(), COTUNE_OK) << region.message();
  ASSERT_EQ(part.Launch(), COTUNE_OK) << part.message();
  EXPECT_EQ(probe.part_launches, 1);
  EXPECT_EQ(probe.region_launches, 1);
  probe.is_complete = false;
  EXPECT_EQ(region.Progress(), COTUNE_IN_PROGRESS) << "the operation of the region still runs";
  EXPECT_EQ(part.Progress(), COTUNE_OK) << "the part does not";
}

TEST_F(BackendShellTest, RegionsThatFitNoBackendAreRefused) {
  Handles handles(regions_, -1);
  handles.MakeAll();
  ProgramCall call(handles);
  EXPECT_EQ(call.List(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(call.message(), "a region has a collective, and this program has none");
  EXPECT_EQ(call.PrepareRegion(), COTUNE_INVALID_ARGUMENT);
  call.MakeCollective();
  call.program.flags = COTUNE_PROGRAM_SYMMETRIC;
  EXPECT_EQ(call.List(), COTUNE_UNSUPPORTED) << "the backend registers no memory";
  call.program.flags = 0;
  call.program.ranks_per_node = 1;
  EXPECT_EQ(call.List(), COTUNE_UNSUPPORTED);
  call.program.world_size = call.program.ranks_per_node = 3;
  EXPECT_EQ(call.PrepareRegion(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(call.message(), "a problem of 3 ranks in a group of 2");
  EXPECT_EQ(call.plan, nullptr);
  EXPECT_EQ(probe.part_text, "") << "the backend was asked all the same";
}

TEST_F(BackendShellTest, FailuresOfRegionsEndInTheShell) {
  Handles handles(regions_, -1);
  handles.MakeAll();
  ProgramCall call(handles);
  call.MakeCollective();
  const auto expect_all = [&](const std::function<cotune_status_t()>& run) {
    probe.answer = Fail(COTUNE_UNSUPPORTED, "no such operation here", 12, 1);
    EXPECT_EQ(run(), COTUNE_UNSUPPORTED);
    EXPECT_EQ(call.message(), "no such operation here");
    EXPECT_EQ(call.error.failed_rank, 1);
    probe.answer = {};
    probe.throws = Throws::kStandard;
    EXPECT_EQ(run(), COTUNE_INTERNAL);
    probe.throws = Throws::kNothing;
  };
  expect_all([&] { return call.List(); });
  expect_all([&] { return call.PrepareRegion(); });
  EXPECT_EQ(call.plan, nullptr);
  ASSERT_EQ(call.PrepareRegion(), COTUNE_OK) << call.message();
  expect_all([&] { return call.Launch(); });
  expect_all([&] { return call.Progress(); });
}

TEST_F(BackendShellTest, PartsThatFitNoBackendAreRefused) {
  Handles handles(parts_, -1);
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  ProgramCall call(handles);
  call.program.memory_kind = COTUNE_MEMORY_CUDA;
  EXPECT_EQ(call.Prepare(), COTUNE_UNSUPPORTED);
  EXPECT_THAT(call.message(), HasSubstr("memory kind 2"));
  call.program.memory_kind = COTUNE_MEMORY_HOST;
  call.program.flags = 1u << 31;
  EXPECT_EQ(call.Prepare(), COTUNE_UNSUPPORTED);
  EXPECT_THAT(call.message(), HasSubstr("program flags 0x80000000"));
  call.program.flags = 0;
  call.node.operands[0] = 1;
  EXPECT_EQ(call.Prepare(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(call.message(), "value 1: operand 1 is not defined before");
  call.MakeCollective();
  EXPECT_EQ(call.Prepare(), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(call.message(), "a part has no collective, and this program has one");
  EXPECT_EQ(call.plan, nullptr);
  EXPECT_EQ(probe.part_text, "") << "the backend was asked all the same";
}

TEST_F(BackendShellTest, OperandsOfPartsAreChecked) {
  Handles handles(parts_, -1);
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  ProgramCall call(handles);
  ASSERT_EQ(call.Prepare(), COTUNE_OK) << call.message();
  const auto expect_refused = [&](const std::string& message) {
    EXPECT_EQ(call.Launch(), COTUNE_INVALID_ARGUMENT) << message;
    EXPECT_EQ(call.message(), message);
  };
  call.from = nullptr;
  expect_refused("input 0 is null");
  call.from = reinterpret_cast<const char*>(call.data) + 2;
  expect_refused("input 0 is not aligned to its elements");
  call.from = &call.data[0];
  call.to = &call.data[4];
  expect_refused("output 0 overlaps input 0");
  call.to = &call.data[8];
  call.launch.outputs = nullptr;
  expect_refused("the launch has no operands");
  call.launch.outputs = &call.to;
  call.launch.stream.kind = COTUNE_STREAM_CUDA;
  expect_refused("the stream is of another kind than the memory");
  call.launch.stream.kind = COTUNE_STREAM_HOST;
  EXPECT_EQ(probe.part_launches, 0);
  EXPECT_EQ(call.Launch(), COTUNE_OK) << call.message();
}

TEST_F(BackendShellTest, FailuresAndExceptionsOfPartsEndInTheShell) {
  Handles handles(parts_, -1);
  ASSERT_EQ(handles.Create(), COTUNE_OK);
  ProgramCall call(handles);
  const auto expect_all = [&](const std::function<cotune_status_t()>& run) {
    probe.answer = Fail(COTUNE_UNSUPPORTED, "no such operation here", 12, 1);
    EXPECT_EQ(run(), COTUNE_UNSUPPORTED);
    EXPECT_EQ(call.message(), "no such operation here");
    EXPECT_EQ(call.error.native_code, 12);
    probe.answer = {};
    probe.throws = Throws::kStandard;
    EXPECT_EQ(run(), COTUNE_INTERNAL);
    EXPECT_EQ(call.message(), "probe: out of luck");
    probe.throws = Throws::kNoMemory;
    EXPECT_EQ(run(), COTUNE_OUT_OF_RESOURCES);
    probe.throws = Throws::kInt;
    EXPECT_EQ(run(), COTUNE_INTERNAL);
    probe.throws = Throws::kNothing;
  };
  expect_all([&] { return call.Prepare(); });
  EXPECT_EQ(call.plan, nullptr);
  ASSERT_EQ(call.Prepare(), COTUNE_OK) << call.message();
  expect_all([&] { return call.Launch(); });
}

}  // namespace
}  // namespace cotune::sdk
