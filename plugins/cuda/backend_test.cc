// The backend on a machine without a GPU: it loads, and says why it offers nothing.
#include "plugins/cuda/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/driver/cuda_driver.h"

namespace cotune::cuda {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(BackendTest, RefusesAMachineWithoutAGpu) {
  cotune_host_t host{};
  host.struct_size = sizeof(host);
  cotune_backend_t* backend = nullptr;
  cotune_error_t error{};
  error.struct_size = sizeof(error);
  EXPECT_EQ(BackendApi()->create(&host, -1, &backend, &error), COTUNE_UNSUPPORTED);
  EXPECT_THAT(error.message, HasSubstr("GPUs only"));
  if (gpu::CudaDriver::Open()) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(BackendApi()->create(&host, 0, &backend, &error), COTUNE_UNSUPPORTED);
  EXPECT_THAT(error.message, AnyOf(HasSubstr("no NVIDIA driver"), HasSubstr("cuInit")));
  EXPECT_EQ(backend, nullptr);
}

TEST(BackendTest, WorksOnGpuMemoryAlone) {
  EXPECT_STREQ(BackendApi()->name, "cuda");
  EXPECT_EQ(BackendApi()->memory_kinds, 1u << COTUNE_MEMORY_CUDA);
}

}  // namespace
}  // namespace cotune::cuda
