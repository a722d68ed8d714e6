#include "plugins/cuda/kernel_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace cotune::cuda {
namespace {

namespace fs = std::filesystem;
using border::Result;

class KernelCacheTest : public ::testing::Test {
 protected:
  KernelCacheTest() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~KernelCacheTest() override { fs::remove_all(folder_); }
  // The code of `key`; compiling gives `text` and is counted.
  std::string Get(const KernelCache& cache, const std::string& key, const std::string& text) {
    return cache
        .Get(key,
             [&]() -> Result<std::string> {
               ++compiled_;
               return text;
             })
        .value();
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".cubin") files.push_back(entry.path());
    }
    return files;
  }

  std::string folder_;
  std::atomic<int> compiled_{0};
};

TEST_F(KernelCacheTest, CompilesOnceAndKeepsWhatDiffersApart) {
  EXPECT_EQ(Get(KernelCache(folder_), "a", "code of a"), "code of a");
  EXPECT_EQ(Get(KernelCache(folder_), "a", "other"), "code of a");
  EXPECT_EQ(Get(KernelCache(folder_), "b", "code of b"), "code of b");
  EXPECT_EQ(compiled_, 2);
}

TEST_F(KernelCacheTest, AFileThatWasCutOffOrChangedIsMadeAnew) {
  Get(KernelCache(folder_), "a", "code of a");
  ASSERT_EQ(Files().size(), 1u);
  fs::resize_file(Files()[0], fs::file_size(Files()[0]) - 1);
  EXPECT_EQ(Get(KernelCache(folder_), "a", "again"), "again");
  std::fstream(Files()[0], std::ios::in | std::ios::out | std::ios::binary).seekp(26).put('X');
  EXPECT_EQ(Get(KernelCache(folder_), "a", "third"), "third");
  EXPECT_EQ(Get(KernelCache(folder_), "a", "not compiled"), "third");
  EXPECT_EQ(compiled_, 3);
}

TEST_F(KernelCacheTest, AFailureIsNotKept) {
  const KernelCache cache(folder_);
  const auto failed =
      cache.Get("a", []() -> Result<std::string> { return border::Fail(COTUNE_INTERNAL, "no"); });
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message, "no");
  EXPECT_EQ(Get(cache, "a", "yes"), "yes");
}

TEST_F(KernelCacheTest, WhoeverWantsTheSameAtTheSameTimeWaits) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [&] { right += Get(KernelCache(folder_), "a", "code") == "code" ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(compiled_, 1);
}

TEST_F(KernelCacheTest, WithoutAFolderEverythingIsCompiled) {
  EXPECT_EQ(Get(KernelCache(""), "a", "one"), "one");
  EXPECT_EQ(Get(KernelCache(""), "a", "two"), "two");
  EXPECT_EQ(Get(KernelCache("/proc/no/such/folder"), "a", "three"), "three");
}

TEST_F(KernelCacheTest, TheFolderIsTheUsers) {
  EXPECT_EQ(KernelCache::DefaultFolder({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}),
            "/x/cotune/kernels");
  EXPECT_EQ(KernelCache::DefaultFolder({{"HOME", "/h"}}), "/h/.cache/cotune/kernels");
  EXPECT_EQ(KernelCache::DefaultFolder({}), "");
}

}  // namespace
}  // namespace cotune::cuda
