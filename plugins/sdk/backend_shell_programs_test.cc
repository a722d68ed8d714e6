// Parts and regions of programs through a backend's table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/sdk/backend_shell.h"
#include "plugins/sdk/program.h"
#include "plugins/sdk/testing/probe_backend.h"

namespace cotune::sdk {
namespace {

using ::testing::HasSubstr;

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

class BackendShellTest : public ProbeTest {
 protected:
  const cotune_backend_api_t& host_ = *BackendShell<HostBackend>::Table();
  const cotune_backend_api_t& parts_ = *BackendShell<PartsBackend>::Table();
  const cotune_backend_api_t& regions_ = *BackendShell<RegionsBackend>::Table();
  const cotune_backend_api_t& programs_ = *BackendShell<ProgramsBackend>::Table();
};

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
