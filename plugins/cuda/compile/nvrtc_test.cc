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

using enum sdk::Collective;

struct KernelOfFile {
  const char* source;
  const char* transport;
  sdk::Collective collective;
};

constexpr KernelOfFile kKernels[] = {
    {"all_reduce_one_shot.cu", "escape", kAllReduce},
    {"all_reduce_two_shot.cu", "escape", kAllReduce},
    {"all_reduce_two_shot_flagged.cu", "flagged", kAllReduce},
    {"all_reduce_two_shot_zero_copy.cu", "zero_copy", kAllReduce},
    {"blocks.cu", "escape", kAllGather},
    {"blocks.cu", "escape", kAllToAll},
    {"blocks_flagged.cu", "flagged", kAllGather},
    {"blocks_flagged.cu", "flagged", kReduceScatter},
    {"blocks_flagged.cu", "flagged", kAllToAll},
    {"blocks_zero_copy.cu", "zero_copy", kAllGather},
    {"blocks_zero_copy.cu", "zero_copy", kReduceScatter},
    {"blocks_zero_copy.cu", "zero_copy", kAllToAll},
    {"broadcast.cu", "escape", kBroadcast},
    {"broadcast_flagged.cu", "flagged", kBroadcast},
    {"broadcast_two_shot.cu", "escape", kBroadcast},
    {"broadcast_zero_copy.cu", "zero_copy", kBroadcast},
    {"reduce_scatter.cu", "escape", kReduceScatter},
};

TEST_F(CompilerTest, KernelsForEachGeneration) {
  for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
    for (const KernelOfFile& kernel : kKernels) {
      KernelSpec spec;
      spec.source = kernel.source;
      spec.transport = kernel.transport;
      spec.collective = kernel.collective;
      spec.type = sdk::ElementType::kBf16;
      spec.world_size = 3;
      spec.unroll = 2;
      spec.uses_pdl = std::string(architecture) != "sm_80";
      const auto code = nvrtc_.Compile(SourceOf(spec), architecture, NvrtcOptions(spec));
      ASSERT_TRUE(code.has_value()) << code.error().message;
      EXPECT_THAT(*code, HasSubstr("ELF"));
    }
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
