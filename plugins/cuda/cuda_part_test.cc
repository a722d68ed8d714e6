// Launches of parts on a driver that stands in for a GPU: what they enqueue, and that they allocate
// nothing.
#include "plugins/cuda/parts/cuda_part.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "plugins/cuda/testing/fake_driver.h"
#include "plugins/cuda/testing/part_cases.h"
#include "plugins/sdk/testing/part_builder.h"

namespace {

thread_local uint64_t allocations = 0;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace cotune::cuda {
namespace {

using sdk::PartBuilder;
using sdk::ValueDtype;

constexpr uint64_t kResidentBlocks = 6;

FakeDriverState& LoadFakeDriver() {
  const std::string path = std::filesystem::absolute("plugins/cuda/fake_libcuda.so");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return *reinterpret_cast<FakeDriverState* (*)()>(dlsym(library, "fake_driver_state"))();
}

class CudaPartTest : public ::testing::Test {
 protected:
  CudaPartTest() : driver_(LoadFakeDriver()), gpu_(Gpu::Open(0).value()) {}

  struct Enqueued {
    int kernels = 0;
    unsigned int blocks = 0;  // of the last one
    uint64_t allocations = 0;
  };
  // Nobody reads the operands.
  Enqueued LaunchOne(const sdk::Program& program, uint64_t resident_blocks = kResidentBlocks) {
    const PartStages stages = *StagesOf(program);
    CudaPart part(*gpu_, graphs_, program, stages, ShapeOf(program, stages), true, nullptr,
                  resident_blocks);
    std::vector<const void*> inputs(static_cast<size_t>(program.input_count));
    std::vector<void*> outputs(program.outputs.size());
    cotune_program_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.inputs = inputs.data();
    launch.outputs = outputs.data();
    launch.stream.kind = COTUNE_STREAM_CUDA;
    driver_.kernels = 0;
    const uint64_t before = allocations;
    const auto launched = part.Launch(launch);
    const uint64_t allocated = allocations - before;
    EXPECT_TRUE(launched) << launched.error().message;
    return {driver_.kernels, driver_.last_blocks, allocated};
  }

  FakeDriverState& driver_;
  std::unique_ptr<Gpu> gpu_;
  gpu::GraphUses graphs_;
};

TEST_F(CudaPartTest, ANormIsOneLaunchOfABlockARowWithoutAnAllocation) {
  const sdk::Program norm = ResidualNorm(ValueDtype::kBf16, 8192, false);
  for (const unsigned int rows : {1u, 5u, 1000u}) {
    const Enqueued enqueued = LaunchOne(WithRows(norm, rows, 0));
    EXPECT_EQ(enqueued.kernels, 1);
    EXPECT_EQ(enqueued.blocks, std::min<unsigned int>(rows, 2 * kResidentBlocks));
    EXPECT_EQ(enqueued.allocations, 0u);
  }
}

TEST_F(CudaPartTest, ElementsHaveMoreBlocksThanRows) {
  PartBuilder part(1);
  part.Output(part.Node(COTUNE_NODE_NEG, {part.Input(ValueDtype::kF32, 2048)}));
  // A block has 256 threads with 8 columns each.
  for (const unsigned int rows : {1u, 5u, 1000u}) {
    const Enqueued enqueued = LaunchOne(WithRows(part.program, rows, 0));
    EXPECT_EQ(enqueued.blocks, std::min<unsigned int>(rows, 8 * kResidentBlocks));
  }
}

TEST_F(CudaPartTest, TensorsHaveBlocksOfTheirOwn) {
  const std::vector<uint64_t> columns(16, 16384);
  for (const bool copies : {false, true}) {
    const sdk::Program part = Tensors(ValueDtype::kF32, columns, copies);
    const Enqueued enqueued = LaunchOne(part, 132);
    EXPECT_EQ(enqueued.kernels, 1);
    EXPECT_EQ(enqueued.blocks, 128u);
    EXPECT_EQ(enqueued.allocations, 0u);
    EXPECT_EQ(LaunchOne(part, 1).blocks, 8u);
  }
}

TEST_F(CudaPartTest, APartWithoutRowsIsNotLaunched) {
  const sdk::Program norm = ResidualNorm(ValueDtype::kBf16, 8192, false);
  EXPECT_EQ(LaunchOne(WithRows(norm, 0, 0)).kernels, 0);
}

TEST_F(CudaPartTest, WhatOtherBlocksReadIsOverwrittenByASecondLaunch) {
  PartBuilder part(4);
  const int x = part.Input(ValueDtype::kF32, 64);
  const int gamma = part.Input(ValueDtype::kF32, 64, COTUNE_ROWS_ONE);
  part.Output(part.Node(COTUNE_NODE_MUL, {x, gamma}));
  part.Output(part.Node(COTUNE_NODE_NEG, {gamma}), gamma);
  const Enqueued enqueued = LaunchOne(part.program);
  EXPECT_EQ(enqueued.kernels, 2);
  EXPECT_EQ(enqueued.allocations, 0u);
  // The rows are not there, and the one row is.
  EXPECT_EQ(LaunchOne(WithRows(part.program, 0, 0)).kernels, 1);
}

}  // namespace
}  // namespace cotune::cuda
