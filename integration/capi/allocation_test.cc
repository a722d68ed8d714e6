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

TEST(AllocationTest, NoneWithACachedPlan) {
  char folder[] = "/tmp/cotune.XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string plugin = std::string(folder) + "/cotune_host.so";
  std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"), plugin);
  std::filesystem::permissions(plugin, std::filesystem::perms(0755));
  setenv("XDG_RUNTIME_DIR", folder, 1);
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.world_size = 1;
  options.plugin_path = folder;
  cotune_group* group = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  ASSERT_EQ(cotune_group_create(&options, &group, &error), COTUNE_SUCCESS) << error.text;
  EXPECT_GT(AllocationsOf(group, 64, 1), 0);  // makes the plan; shows that counting works
  EXPECT_GT(AllocationsOf(group, 32, 1), 0);
  EXPECT_EQ(AllocationsOf(group, 64, 1000), 0);
  EXPECT_EQ(AllocationsOf(group, 32, 1000), 0);
  cotune_group_destroy(group);
  std::filesystem::remove_all(folder);
}

}  // namespace
