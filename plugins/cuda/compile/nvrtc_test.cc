#include "plugins/cuda/compile/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gpu/driver/library_search.h"
#include "plugins/cuda/compile/kernel_spec.h"

namespace cotune::cuda {
namespace {

using ::testing::HasSubstr;

TEST(NvrtcTest, SaysWhatItTriedWhenItIsNotThere) {
  const auto missing = Nvrtc::Open("/no/such/libnvrtc.so", {});
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().status, COTUNE_UNSUPPORTED);
  EXPECT_THAT(missing.error().message, HasSubstr("/no/such/libnvrtc.so"));
  const auto other = Nvrtc::Open("libm.so.6", {});
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message, HasSubstr("is not NVRTC"));
}

class CompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Nvrtc::Open("", gpu::OwnEnvironment());
    if (!opened) GTEST_SKIP() << opened.error().message;
    nvrtc_ = *opened;
  }
  Nvrtc nvrtc_;
};

// nvrtc_compile_test compiles the kernels of all files.
TEST_F(CompilerTest, TheCodeOfEachGenerationIsAnElfImage) {
  for (const std::string architecture : {"sm_80", "sm_90", "sm_100"}) {
    KernelSpec spec;
    spec.source = "broadcast.cu";
    spec.transport = "escape";
    spec.collective = sdk::Collective::kBroadcast;
    spec.type = sdk::ElementType::kBf16;
    spec.world_size = 3;
    spec.uses_pdl = architecture != "sm_80";
    const auto code = nvrtc_.Compile(SourceOf(spec), architecture, NvrtcOptions(spec));
    ASSERT_TRUE(code.has_value()) << code.error().message;
    EXPECT_THAT(*code, HasSubstr("ELF"));
  }
}

TEST_F(CompilerTest, TheFirstErrorIsTold) {
  const auto code =
      nvrtc_.Compile({"broken.cu", "__device__ int f() { return nothing; }", {}}, "sm_90", {});
  ASSERT_FALSE(code.has_value());
  EXPECT_THAT(code.error().message, HasSubstr("broken.cu"));
  EXPECT_THAT(code.error().message, HasSubstr("nothing"));
}

}  // namespace
}  // namespace cotune::cuda
