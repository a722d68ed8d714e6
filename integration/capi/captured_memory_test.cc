// Memory that calls use which are captured in CUDA graphs, with a driver that stands in for a GPU's
// and a backend that has nothing to do.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "gpu/driver/cuda_driver.h"
#include "gpu/driver/testing/graph_driver.h"
#include "integration/capi/cotune.h"
#include "integration/capi/group_state.h"
#include "plugins/fake/fake_backend.h"

namespace cotune::capi {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::set<void*> registered_with_backend;

cotune_status_t ListChoices(const cotune_backend_t*, const cotune_problem_t*,
                            cotune_choice_t* first, uint32_t, uint32_t capacity, uint32_t* count,
                            cotune_error_t*) {
  *count = 1;
  if (capacity == 0) return COTUNE_OK;
  cotune_choice_t choice{};
  choice.struct_size = sizeof(choice);
  choice.cost_us = -1;
  choice.flags = COTUNE_CHOICE_CAPTURABLE | COTUNE_CHOICE_DEFAULT;
  std::snprintf(choice.name, sizeof(choice.name), "only");
  std::memcpy(first, &choice, sizeof(choice));
  return COTUNE_OK;
}

const cotune_backend_api_t* Table() {
  static int anything = 0;
  static const cotune_memory_v1_t memory = {
      .struct_size = sizeof(memory),
      .flags = 0,
      .memory_register =
          [](cotune_group_t*, void* data, uint64_t, int64_t, cotune_error_t*) {
            registered_with_backend.insert(data);
            return cotune_status_t{COTUNE_OK};
          },
      .memory_unregister = [](cotune_group_t*,
                              void* data) { registered_with_backend.erase(data); }};
  static const cotune_backend_api_t table = [] {
    cotune_backend_api_t made{};
    made.struct_size = sizeof(made);
    made.abi_minor = COTUNE_ABI_MINOR;
    made.build_flags = fake::BackendApi()->build_flags;
    made.memory_kinds = 1u << COTUNE_MEMORY_CUDA;
    made.name = "idle";
    made.version = "1";
    made.create = [](const cotune_host_t*, int32_t, cotune_backend_t** created, cotune_error_t*) {
      *created = reinterpret_cast<cotune_backend_t*>(&anything);
      return cotune_status_t{COTUNE_OK};
    };
    made.destroy = [](cotune_backend_t*) {};
    made.get_extension = [](const cotune_backend_t*, const char* name) -> const void* {
      return std::strcmp(name, COTUNE_MEMORY_EXTENSION) == 0 ? &memory : nullptr;
    };
    made.list_choices = ListChoices;
    made.group_create = [](cotune_backend_t*, const cotune_group_params_t*, cotune_group_t** group,
                           cotune_error_t*) {
      *group = reinterpret_cast<cotune_group_t*>(&anything);
      return cotune_status_t{COTUNE_OK};
    };
    made.group_health = [](cotune_group_t*, cotune_error_t*) { return cotune_status_t{COTUNE_OK}; };
    made.group_abort = [](cotune_group_t*) {};
    made.group_destroy = [](cotune_group_t*) {};
    made.prepare = [](cotune_group_t*, const cotune_problem_t*, const char*, int64_t,
                      cotune_plan_t** plan, cotune_error_t*) {
      *plan = reinterpret_cast<cotune_plan_t*>(&anything);
      return cotune_status_t{COTUNE_OK};
    };
    made.launch = [](cotune_plan_t*, const cotune_launch_t*, cotune_error_t*) {
      return cotune_status_t{COTUNE_OK};
    };
    made.progress = [](cotune_plan_t*, int64_t, cotune_error_t*) {
      return cotune_status_t{COTUNE_OK};
    };
    made.plan_destroy = [](cotune_plan_t*) {};
    return made;
  }();
  return &table;
}

class CapturedMemoryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 8192;

  CapturedMemoryTest() {
    // From here on dlopen("libcuda.so.1") finds it.
    const std::string path = std::filesystem::absolute("gpu/driver/graph_libcuda.so");
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    state_ = reinterpret_cast<gpu::GraphDriverState* (*)()>(dlsym(library, "graph_driver_state"))();
    driver_ = *gpu::CudaDriver::Open();
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
    JobOptions options;
    options.context.launcher = "test";
    options.context.job_id = "job";
    options.context.socket_path = folder_ + "/s";
    options.memory = MemoryKind::kCuda;
    options.catalogue.tables = {Table()};
    group_ = new cotune_group;
    group_->node = std::make_shared<JobNode>();
    group_->node->log = std::make_shared<CallerLog>(cotune_group_options{});
    Result<std::unique_ptr<Job>> job = Job::Join(options);
    EXPECT_TRUE(job) << job.error().ToText();
    group_->node->job = std::move(*job);
    group_->dispatcher = std::make_unique<Dispatcher>(group_->job());
    group_->call_timeout_ns = 1'000'000'000;
    group_->has_said_table = true;
  }
  ~CapturedMemoryTest() override {
    cotune_group_destroy(group_);
    std::filesystem::remove_all(folder_);
  }

  void* Allocate() {
    void* data = nullptr;
    EXPECT_EQ(cotune_memory_allocate(group_, kBytes, &data), COTUNE_SUCCESS)
        << cotune_last_error(group_);
    return data;
  }
  void Free(void* data) {
    EXPECT_EQ(cotune_memory_free(group_, data), COTUNE_SUCCESS) << cotune_last_error(group_);
  }
  // One call that is captured, in place, some way into the memory.
  gpu::CuGraphExec Capture(void* data) {
    (*driver_)->StreamBeginCapture(nullptr, gpu::kCuCaptureThreadLocal);
    auto* operand = static_cast<std::byte*>(data) + 64;
    EXPECT_EQ(cotune_all_reduce(group_, operand, operand, 16, COTUNE_F32, COTUNE_REDUCE_SUM),
              COTUNE_SUCCESS)
        << cotune_last_error(group_);
    gpu::CuGraph graph = nullptr;
    gpu::CuGraphExec exec = nullptr;
    (*driver_)->StreamEndCapture(nullptr, &graph);
    (*driver_)->GraphInstantiate(&exec, graph, 0);
    (*driver_)->GraphDestroy(graph);
    return exec;
  }
  void Destroy(gpu::CuGraphExec exec) { (*driver_)->GraphExecDestroy(exec); }
  bool IsMapped(void* data) const {
    return state_->mapped.contains(reinterpret_cast<gpu::CuDevicePointer>(data));
  }

  gpu::GraphDriverState* state_ = nullptr;
  std::optional<gpu::CudaDriver> driver_;
  std::string folder_;
  cotune_group* group_ = nullptr;
};

TEST_F(CapturedMemoryTest, MemoryThatNoGraphUsesIsFreedAtOnce) {
  void* const data = Allocate();
  EXPECT_EQ(cotune_all_reduce(group_, data, data, 16, COTUNE_F32, COTUNE_REDUCE_SUM),
            COTUNE_SUCCESS);
  Free(data);
  EXPECT_FALSE(IsMapped(data));
  EXPECT_THAT(registered_with_backend, IsEmpty());
  EXPECT_EQ(Allocate(), data) << "the driver gives the addresses out again";
}

TEST_F(CapturedMemoryTest, FreedMemoryOfACapturedCallIsNotGivenOutAgainWhileTheGraphLives) {
  void* const data = Allocate();
  gpu::CuGraphExec const exec = Capture(data);
  Free(data);
  EXPECT_TRUE(IsMapped(data));
  EXPECT_TRUE(registered_with_backend.contains(data)) << "captured calls use the registration";
  EXPECT_FALSE(group_->job().groups().IsRegistered(data, 16)) << "for later calls it is gone";
  void* const other = Allocate();
  EXPECT_NE(other, data);
  EXPECT_EQ(cotune_memory_free(group_, data), COTUNE_ERROR_USAGE) << "it was freed before";
  Destroy(exec);
  Free(other);
  EXPECT_FALSE(IsMapped(data));
  EXPECT_THAT(registered_with_backend, IsEmpty());
}

TEST_F(CapturedMemoryTest, MemoryWaitsForTheLastOfItsGraphs) {
  void* const data = Allocate();
  void* const other = Allocate();
  gpu::CuGraphExec const first = Capture(data);
  gpu::CuGraphExec const second = Capture(data);
  Free(other);
  EXPECT_FALSE(IsMapped(other)) << "no graph uses it";
  Free(data);
  Destroy(second);
  Free(nullptr);
  EXPECT_TRUE(IsMapped(data));
  Destroy(first);
  EXPECT_TRUE(IsMapped(data)) << "the driver is asked by no thread of its own";
  Free(nullptr);
  EXPECT_FALSE(IsMapped(data));
}

TEST_F(CapturedMemoryTest, ACallOfASubgroupKeepsTheMemoryOfItsParent) {
  cotune_group* subgroup = nullptr;
  const int32_t ranks[] = {0};
  ASSERT_EQ(cotune_group_split(group_, "sub", ranks, 1, &subgroup, nullptr), COTUNE_SUCCESS)
      << cotune_last_error(group_);
  void* const data = Allocate();
  std::swap(group_, subgroup);
  gpu::CuGraphExec const exec = Capture(data);
  std::swap(group_, subgroup);
  Free(data);
  EXPECT_TRUE(IsMapped(data));
  cotune_group_destroy(subgroup);
  Free(nullptr);
  EXPECT_TRUE(IsMapped(data)) << "the graph lives on";
  Destroy(exec);
  Free(nullptr);
  EXPECT_FALSE(IsMapped(data));
}

TEST_F(CapturedMemoryTest, ARegistrationOfTheCallersMemoryEndsWithTheGraph) {
  alignas(256) static char own[kBytes];
  ASSERT_EQ(cotune_memory_register(group_, own, kBytes), COTUNE_SUCCESS);
  gpu::CuGraphExec exec = Capture(own);
  EXPECT_EQ(cotune_memory_unregister(group_, own), COTUNE_SUCCESS);
  EXPECT_TRUE(registered_with_backend.contains(own));
  EXPECT_EQ(cotune_memory_unregister(group_, own), COTUNE_ERROR_USAGE);
  // The memory is the caller's: it may be registered again.
  ASSERT_EQ(cotune_memory_register(group_, own, kBytes), COTUNE_SUCCESS)
      << cotune_last_error(group_);
  EXPECT_EQ(cotune_memory_unregister(group_, own), COTUNE_SUCCESS);
  EXPECT_FALSE(registered_with_backend.contains(own)) << "no graph was captured since";
  Destroy(exec);
}

// The addresses of memory that its owner has freed while a graph lived.
TEST_F(CapturedMemoryTest, ARegistrationOfTheCallersMemoryEndsWhereNewMemoryIsAllocated) {
  void* const place = Allocate();
  Free(place);
  const auto address = reinterpret_cast<gpu::CuDevicePointer>(place);
  state_->reserved[address] = kBytes;  // the caller's own mapping
  ASSERT_EQ(cotune_memory_register(group_, place, kBytes), COTUNE_SUCCESS)
      << cotune_last_error(group_);
  gpu::CuGraphExec const exec = Capture(place);
  EXPECT_EQ(cotune_memory_unregister(group_, place), COTUNE_SUCCESS);
  EXPECT_TRUE(registered_with_backend.contains(place)) << "the graph lives";
  state_->reserved.erase(address);
  void* const data = Allocate();
  ASSERT_EQ(data, place) << "the driver gives the addresses out again";
  EXPECT_TRUE(registered_with_backend.contains(data));
  EXPECT_TRUE(group_->job().groups().IsRegistered(data, kBytes));
  Free(data);
  EXPECT_FALSE(IsMapped(data)) << "the graph does not use the new memory";
  EXPECT_THAT(registered_with_backend, IsEmpty());
  Destroy(exec);
}

TEST_F(CapturedMemoryTest, AGroupThatGoesLeavesToTheProcessWhatAGraphUses) {
  void* const data = Allocate();
  void* const other = Allocate();
  gpu::CuGraphExec const exec = Capture(data);
  void* const freed = Allocate();
  gpu::CuGraphExec const second = Capture(freed);
  Free(freed);
  cotune_group_destroy(group_);
  group_ = nullptr;
  EXPECT_TRUE(IsMapped(data));
  EXPECT_TRUE(IsMapped(freed));
  EXPECT_FALSE(IsMapped(other));
  Destroy(exec);
  Destroy(second);
}

TEST_F(CapturedMemoryTest, WhatTheDriverCannotHoldForAGraphStays) {
  void* const data = Allocate();
  state_->refuses_user_objects = true;
  gpu::CuGraphExec const exec = Capture(data);
  state_->refuses_user_objects = false;
  Destroy(exec);
  Free(data);
  EXPECT_TRUE(IsMapped(data));
}

// The program has no local operations, as there is no backend for them here.
TEST_F(CapturedMemoryTest, ValuesBetweenTheStepsOfACapturedProgramStayWithItsGraph) {
  const std::string text =
      "%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = all_reduce max %s\nreturn %y\n";
  cotune_program* program = nullptr;
  ASSERT_EQ(cotune_program_parse(text.data(), text.size(), &program, nullptr), COTUNE_SUCCESS);
  float x[64] = {};
  float y[64] = {};
  const int64_t shape[] = {16, 4};
  const cotune_tensor input{sizeof(cotune_tensor), COTUNE_F32, x, 2, 0, shape};
  const cotune_tensor output{sizeof(cotune_tensor), COTUNE_F32, y, 2, 0, shape};
  const auto run = [&] {
    EXPECT_EQ(cotune_program_run(group_, program, &input, 1, &output, 1), COTUNE_SUCCESS)
        << cotune_last_error(group_);
  };
  run();
  ASSERT_GT(group_->job().temporaries()->bytes(), 0u);
  const size_t allocated = state_->allocated.size();
  (*driver_)->StreamBeginCapture(nullptr, gpu::kCuCaptureThreadLocal);
  run();
  gpu::CuGraph graph = nullptr;
  (*driver_)->StreamEndCapture(nullptr, &graph);
  cotune_group_destroy(group_);
  group_ = nullptr;
  EXPECT_EQ(state_->allocated.size(), allocated);
  (*driver_)->GraphDestroy(graph);
  cotune_program_free(program);
}

}  // namespace
}  // namespace cotune::capi
