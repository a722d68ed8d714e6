// NVIDIA's own library, where one is installed (COTUNE_NCCL_LIBRARY, Python environments, the
// system): it can be loaded and asked for its version without a GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/driver/cuda_driver.h"
#include "gpu/driver/library_search.h"
#include "plugins/nccl/nccl_library.h"
#include "plugins/nccl/testing/fakes.h"

namespace cotune::nccl {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

bool IsLoaded() { return dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

TEST(RealNcclTest, WithoutGpuTheBackendSaysWhy) {
  if (gpu::CudaDriver::Open()) GTEST_SKIP() << "there is a GPU";
  const bool was_loaded = IsLoaded();
  JobForTest job;
  cotune_backend_t* backend = nullptr;
  cotune_error_t error = EmptyError();
  EXPECT_EQ(LoadPlugin().create(&job.host(), 0, &backend, &error), COTUNE_UNSUPPORTED);
  EXPECT_THAT(error.message, AnyOf(HasSubstr("no NVIDIA driver"), HasSubstr("cuInit")));
  EXPECT_EQ(IsLoaded(), was_loaded) << "a large library is not read for nothing";
}

TEST(RealNcclTest, LoadsAndTellsItsVersion) {
  const auto nccl = NcclLibrary::Open("", gpu::OwnEnvironment());
  if (!nccl) GTEST_SKIP() << nccl.error().message;
  EXPECT_GE(nccl->version(), kOldestVersion);
  EXPECT_THAT(VersionText(nccl->version()), MatchesRegex("2\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(nccl->path(), HasSubstr("libnccl.so"));
  EXPECT_EQ(nccl->has_windows(), nccl->version() >= kOldestWindowVersion);
  EXPECT_THAT(nccl->Check(kNcclInvalidUsage, "x", nullptr).error().message,
              HasSubstr("invalid usage"));
  RecordProperty("version", VersionText(nccl->version()));
}

}  // namespace
}  // namespace cotune::nccl
