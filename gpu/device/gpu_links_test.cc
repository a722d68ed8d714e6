#include "gpu/device/gpu_links.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/testing/scripted_ranks.h"

namespace cotune::gpu {
namespace {

// The GPU of a rank, and those that its process sees.
struct GpuOfTest {
  int ordinal = 0;
  std::vector<int> visible = {0, 1, 2, 3};
};

class GpuLinksTest : public ::testing::Test {
 protected:
  GpuLinksTest() {
    // A search for libcuda.so.1 or libnvidia-ml.so.1 finds these from here on.
    for (const char* name : {"linked_libcuda.so", "linked_libnvidia_ml.so"}) {
      const std::string path = std::filesystem::absolute(std::string("gpu/device/") + name);
      void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      EXPECT_NE(library, nullptr) << dlerror();
      if (show_ == nullptr) show_ = reinterpret_cast<Show>(dlsym(library, "linked_driver_show"));
    }
  }

  // The text on every rank, which is the same.
  std::string Links(const std::vector<GpuOfTest>& gpus) {
    HubForTest hub(static_cast<int>(gpus.size()));
    std::vector<std::string> texts(gpus.size());
    std::vector<std::thread> ranks;
    for (size_t rank = 0; rank < gpus.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        show_(gpus[rank].visible.data(), gpus[rank].visible.size());
        const auto exchange = MakeExchangeForTest(hub, static_cast<int>(rank));
        const Result<std::string> text = LinksOfRanks(gpus[rank].ordinal, *exchange, INT64_MAX);
        texts[rank] = text ? *text : text.error().ToText();
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
    return texts[0];
  }

 private:
  using Show = void (*)(const int* gpus, size_t count);
  Show show_ = nullptr;
};

TEST_F(GpuLinksTest, TwoRanksOnAFastAndOnASlowPairDiffer) {
  EXPECT_EQ(Links({{0}, {1}}), "performance rank 0 between all ranks");
  EXPECT_EQ(Links({{0}, {2}}), "performance rank 1 between all ranks");
  // CUDA_VISIBLE_DEVICES=0,1 and 0,2.
  EXPECT_EQ(Links({{0, {0, 1}}, {1, {0, 1}}}), "performance rank 0 between all ranks");
  EXPECT_EQ(Links({{0, {0, 2}}, {1, {0, 2}}}), "performance rank 1 between all ranks");
}

TEST_F(GpuLinksTest, FourRanksNameBothKindsOfPairs) {
  EXPECT_EQ(Links({{0}, {1}, {2}, {3}}),
            "performance rank 0 (4 of 12 pairs, as 0 to 1), performance rank 1 (8 of 12 pairs, as "
            "0 to 2)");
}

TEST_F(GpuLinksTest, WhereEachProcessSeesItsOwnGpuTheManagementLibraryKnows) {
  EXPECT_EQ(Links({{0, {0}}, {0, {1}}}), "NVLink between all ranks");
  EXPECT_EQ(Links({{0, {0}}, {0, {2}}}), "no NVLink between all ranks");
}

TEST_F(GpuLinksTest, RanksThatShareAGpuSaySo) {
  EXPECT_EQ(Links({{3}, {3}}), "one GPU between all ranks");
}

TEST_F(GpuLinksTest, OneRankHasNoLinksAndAnUnknownGpuIsNoError) {
  EXPECT_EQ(Links({{0}}), "");
  EXPECT_EQ(Links({{7}, {0}}), "");
}

}  // namespace
}  // namespace cotune::gpu
