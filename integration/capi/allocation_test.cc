// A call whose plan is cached allocates nothing, from the C border to the backend and back.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <new>
#include <string>

#include "integration/capi/cotune.h"

namespace {

// Counts in the calling thread only: the control channel's own thread may allocate at any time.
thread_local bool is_counting = false;
thread_local int64_t allocation_count = 0;

void* Allocate(std::size_t size) {
  if (is_counting) ++allocation_count;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

int64_t AllocationsOf(cotune_group* group, uint64_t count, int calls) {
  float x[64] = {1, 2, 3};
  float y[64] = {};
  allocation_count = 0;
  is_counting = true;
  for (int i = 0; i < calls; ++i) {
    const cotune_result result =
        cotune_all_reduce(group, x, y, count, COTUNE_F32, COTUNE_REDUCE_SUM);
    if (result != COTUNE_SUCCESS) break;
  }
  is_counting = false;
  EXPECT_EQ(cotune_last_result(group), COTUNE_SUCCESS) << cotune_last_error(group);
  EXPECT_EQ(y[0], 1);
  return allocation_count;
}

// Calls of a program at `rows` rows of 8.
int64_t AllocationsOf(cotune_group* group, const cotune_program* program, int64_t rows, int calls) {
  float x[64] = {-1, 2, 3};
  float y[64] = {};
  const int64_t shape[] = {rows, 8};
  const cotune_tensor input{sizeof(cotune_tensor), COTUNE_F32, x, 2, 0, shape};
  const cotune_tensor output{sizeof(cotune_tensor), COTUNE_F32, y, 2, 0, shape};
  allocation_count = 0;
  is_counting = true;
  for (int i = 0; i < calls; ++i) {
    if (cotune_program_run(group, program, &input, 1, &output, 1) != COTUNE_SUCCESS) break;
  }
  is_counting = false;
  EXPECT_EQ(cotune_last_result(group), COTUNE_SUCCESS) << cotune_last_error(group);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[2], 3);
  return allocation_count;
}

class AllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_), nullptr);
    const std::string plugin = std::string(folder_) + "/cotune_host.so";
    std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"), plugin);
    std::filesystem::permissions(plugin, std::filesystem::perms(0755));
    setenv("XDG_RUNTIME_DIR", folder_, 1);
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    options.plugin_path = folder_;
    cotune_error error{};
    error.struct_size = sizeof(error);
    ASSERT_EQ(cotune_group_create(&options, &group_, &error), COTUNE_SUCCESS) << error.text;
  }
  void TearDown() override {
    cotune_group_destroy(group_);
    std::filesystem::remove_all(folder_);
  }

  cotune_group* group_ = nullptr;

 private:
  char folder_[32] = "/tmp/cotune.XXXXXX";
};

TEST_F(AllocationTest, NoneWithACachedPlan) {
  EXPECT_GT(AllocationsOf(group_, 64, 1), 0);  // makes the plan; shows that counting works
  EXPECT_GT(AllocationsOf(group_, 32, 1), 0);
  EXPECT_EQ(AllocationsOf(group_, 64, 1000), 0);
  EXPECT_EQ(AllocationsOf(group_, 32, 1000), 0);
}

TEST_F(AllocationTest, NoneWithACachedPlanOfAProgram) {
  const std::string text =
      "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%y = relu %s\nreturn %y\n";
  cotune_program* program = nullptr;
  ASSERT_EQ(cotune_program_parse(text.data(), text.size(), &program, nullptr), COTUNE_SUCCESS);
  EXPECT_GT(AllocationsOf(group_, program, 4, 1), 0);
  EXPECT_GT(AllocationsOf(group_, program, 8, 1), 0);
  EXPECT_EQ(AllocationsOf(group_, program, 4, 1000), 0);
  EXPECT_EQ(AllocationsOf(group_, program, 8, 1000), 0);
  cotune_program_free(program);
}

}  // namespace
