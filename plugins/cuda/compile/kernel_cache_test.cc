#include "plugins/cuda/compile/kernel_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

namespace cotune::cuda {
namespace {

namespace fs = std::filesystem;
using sdk::Result;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecondNs = 1'000'000'000;

class KernelCacheTest : public ::testing::Test {
 protected:
  KernelCacheTest() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
    host_.struct_size = sizeof(host_);
    host_.context = this;
    host_.now_ns = [](void* context) { return static_cast<KernelCacheTest*>(context)->Tick(); };
    host_.log = [](void* context, int32_t, const char* text) {
      auto& test = *static_cast<KernelCacheTest*>(context);
      const std::lock_guard lock(test.mutex_);
      test.log_.emplace_back(text);
    };
  }
  ~KernelCacheTest() override { fs::remove_all(folder_); }

  // A cache asks for the time only while another process has its lock.
  int64_t Tick() {
    clock_asked_.fetch_add(1);
    clock_asked_.notify_all();
    return now_ns_.fetch_add(tick_ns_);
  }
  // The code of `key`; compiling gives `text` and is counted.
  std::string Get(const std::string& key, const std::string& text) {
    return Get(KernelCache(folder_, host_), key, text);
  }
  std::string Get(const KernelCache& cache, const std::string& key, const std::string& text) {
    return cache
        .Get(key, deadline_ns_,
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
  fs::path OnlyFile() const { return Files().at(0); }

  std::string folder_;
  cotune_host_t host_{};
  std::atomic<int64_t> now_ns_{0};
  int64_t tick_ns_ = 0;  // how far the clock goes on when it is asked
  int64_t deadline_ns_ = 100 * kSecondNs;
  std::atomic<int> clock_asked_{0};
  std::atomic<int> compiled_{0};
  std::mutex mutex_;
  std::vector<std::string> log_;
};

TEST_F(KernelCacheTest, CompilesOnceAndKeepsWhatDiffersApart) {
  EXPECT_EQ(Get("a", "code of a"), "code of a");
  EXPECT_EQ(Get("a", "other"), "code of a");
  EXPECT_EQ(Get("b", "code of b"), "code of b");
  EXPECT_EQ(compiled_, 2);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(KernelCacheTest, AFileThatWasCutOffOrChangedIsMadeAnew) {
  Get("a", "code");
  fs::resize_file(OnlyFile(), fs::file_size(OnlyFile()) - 1);
  EXPECT_EQ(Get("a", "again"), "again");
  fs::resize_file(OnlyFile(), 3);
  EXPECT_EQ(Get("a", "again"), "again");
  std::fstream(OnlyFile(), std::ios::in | std::ios::out | std::ios::binary).seekp(26).put('X');
  EXPECT_EQ(Get("a", "third"), "third");
  EXPECT_EQ(Get("a", "not compiled"), "third");
  EXPECT_EQ(compiled_, 4);
}

TEST_F(KernelCacheTest, AFailureIsNotKept) {
  const KernelCache cache(folder_, host_);
  const auto failed = cache.Get(
      "a", deadline_ns_, []() -> Result<std::string> { return sdk::Fail(COTUNE_INTERNAL, "no"); });
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message, "no");
  EXPECT_EQ(Get(cache, "a", "yes"), "yes");
}

TEST_F(KernelCacheTest, WhoeverWantsTheSameAtTheSameTimeWaits) {
  const KernelCache first(folder_, host_);
  const KernelCache second(folder_, host_);
  std::thread waits;
  const auto code = first.Get("a", deadline_ns_, [&]() -> Result<std::string> {
    waits = std::thread([&] { EXPECT_EQ(Get(second, "a", "compiled twice"), "code"); });
    clock_asked_.wait(0);  // by the other one, which has found the lock taken
    return "code";
  });
  waits.join();
  EXPECT_EQ(code.value(), "code");
  EXPECT_EQ(compiled_, 0);
}

// A process that was stopped while it compiles goes on when somebody continues it, or never.
TEST_F(KernelCacheTest, AStoppedProcessIsNotWaitedForBeyondTheDeadline) {
  Get("a", "code");
  const std::string lock = OnlyFile().string() + ".lock";
  fs::remove(OnlyFile());
  const pid_t holder = fork();
  ASSERT_GE(holder, 0);
  if (holder == 0) {
    const int file = open(lock.c_str(), O_RDWR | O_CLOEXEC);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) _exit(1);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(holder, &status, WUNTRACED), holder);
  ASSERT_TRUE(WIFSTOPPED(status));
  tick_ns_ = kSecondNs;
  deadline_ns_ = 20 * kSecondNs;
  EXPECT_EQ(Get("a", "without the lock"), "without the lock");
  EXPECT_EQ(compiled_, 2);
  EXPECT_GE(now_ns_, 9 * kSecondNs) << "it was waited for";
  EXPECT_LE(now_ns_, 12 * kSecondNs) << "time to compile is left";
  EXPECT_EQ(Get("a", "not compiled"), "without the lock");
  // However far the deadline is: whoever waits here does not hear of the job's end meanwhile.
  fs::remove(OnlyFile());
  now_ns_ = 0;
  deadline_ns_ = 3600 * kSecondNs;
  EXPECT_EQ(Get("a", "again"), "again");
  EXPECT_LE(now_ns_, 32 * kSecondNs);
  kill(holder, SIGKILL);
  EXPECT_EQ(waitpid(holder, &status, 0), holder);
}

TEST_F(KernelCacheTest, WithoutAFolderEverythingIsCompiled) {
  EXPECT_EQ(Get(KernelCache("", host_), "a", "one"), "one");
  EXPECT_EQ(Get(KernelCache("", host_), "a", "two"), "two");
  EXPECT_THAT(log_, IsEmpty());
  const KernelCache nowhere("/proc/no/such/folder", host_);
  EXPECT_EQ(Get(nowhere, "a", "three"), "three");
  EXPECT_EQ(Get(nowhere, "b", "four"), "four");
  EXPECT_THAT(log_, ElementsAre(HasSubstr("/proc/no/such/folder")));
}

TEST_F(KernelCacheTest, FoldersAndFilesAreForTheUserAlone) {
  const mode_t before = umask(0);
  EXPECT_EQ(Get(KernelCache(folder_ + "/x/kernels", host_), "a", "code"), "code");
  umask(before);
  const auto mode_of = [](const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  };
  EXPECT_EQ(mode_of(folder_ + "/x"), 0700u);
  EXPECT_EQ(mode_of(folder_ + "/x/kernels"), 0700u);
  for (const auto& entry : fs::directory_iterator(folder_ + "/x/kernels")) {
    EXPECT_EQ(mode_of(entry.path()), 0600u) << entry.path();
  }
}

// A file that is whole, but that somebody else may have written.
class UntrustedFileTest : public KernelCacheTest {
 protected:
  UntrustedFileTest() { Get("a", "forged"); }
  // Two caches, as of two processes: the first replaces the file.
  void ExpectMadeAnew(const std::string& why) {
    const KernelCache cache(folder_, host_);
    EXPECT_EQ(Get(cache, "a", "compiled"), "compiled");
    EXPECT_THAT(log_, ElementsAre(HasSubstr(why))) << "one line";
    EXPECT_EQ(Get("a", "not compiled"), "compiled");
    EXPECT_EQ(compiled_, 2);
  }
};

TEST_F(UntrustedFileTest, WrittenByAGroup) {
  fs::permissions(OnlyFile(), fs::perms::group_write, fs::perm_options::add);
  ExpectMadeAnew("may write to it");
}

TEST_F(UntrustedFileTest, WrittenByEverybody) {
  fs::permissions(OnlyFile(), fs::perms::others_write, fs::perm_options::add);
  ExpectMadeAnew("everybody may write to it");
}

TEST_F(UntrustedFileTest, OfAnotherUser) {
  if (chown(OnlyFile().c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root gives files away";
  ExpectMadeAnew("it belongs to user 12345");
}

TEST_F(UntrustedFileTest, BehindALink) {
  const fs::path file = OnlyFile();
  const fs::path target = folder_ + "/target";
  fs::rename(file, target);
  const auto bytes = fs::file_size(target);
  fs::create_symlink(target, file);
  ExpectMadeAnew("it is a symbolic link");
  EXPECT_EQ(fs::file_size(target), bytes) << "the link is not followed";
  EXPECT_FALSE(fs::is_symlink(file));
}

TEST_F(UntrustedFileTest, NoFileAtAll) {
  const fs::path file = OnlyFile();
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  ExpectMadeAnew("it is not a regular file");
}

TEST_F(UntrustedFileTest, OfMoreBytesThanAKernelHas) {
  fs::resize_file(OnlyFile(), (uint64_t{16} << 20) + 1);
  ExpectMadeAnew("more than the");
}

TEST_F(UntrustedFileTest, ALockBehindALinkIsNotTaken) {
  const fs::path file = OnlyFile();
  const fs::path target = folder_ + "/target";
  fs::remove(file);
  fs::remove(file.string() + ".lock");
  fs::create_symlink(target, file.string() + ".lock");
  EXPECT_EQ(Get("a", "compiled"), "compiled");
  EXPECT_FALSE(fs::exists(target));
}

// In a folder that others may write to, nothing is read, and nothing is written.
class UntrustedFolderTest : public KernelCacheTest {
 protected:
  void ExpectUnused(const std::string& path, const std::string& why) {
    const KernelCache cache(path, host_);
    EXPECT_EQ(Get(cache, "a", "compiled"), "compiled");
    EXPECT_EQ(Get(cache, "b", "compiled, too"), "compiled, too");
    EXPECT_THAT(log_, ElementsAre(HasSubstr(why))) << "one line";
  }
};

TEST_F(UntrustedFolderTest, WrittenByEverybody) {
  Get("a", "forged");
  fs::permissions(folder_, fs::perms::others_write, fs::perm_options::add);
  ExpectUnused(folder_, "everybody may write to it");
  fs::permissions(folder_, fs::perms::sticky_bit, fs::perm_options::add);
  log_.clear();
  ExpectUnused(folder_, "everybody may write to it");
}

TEST_F(UntrustedFolderTest, WrittenByAGroup) {
  Get("a", "forged");
  fs::permissions(folder_, fs::perms::group_write, fs::perm_options::add);
  ExpectUnused(folder_, "chmod 700");
}

TEST_F(UntrustedFolderTest, BelowOneThatEverybodyMayWriteTo) {
  Get(KernelCache(folder_ + "/x/kernels", host_), "a", "forged");
  fs::permissions(folder_ + "/x", fs::perms::all);
  ExpectUnused(folder_ + "/x/kernels", "everybody may write to it");
}

TEST_F(UntrustedFolderTest, OfAnotherUser) {
  Get("a", "forged");
  if (chown(folder_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root gives folders away";
  ExpectUnused(folder_, "it belongs to user 12345");
}

// Caches are often moved to another disk.
TEST_F(KernelCacheTest, AFolderOfTheUserBehindALinkIsFine) {
  fs::create_directory(folder_ + "/disk");
  fs::permissions(folder_ + "/disk", fs::perms::owner_all);
  fs::create_directory_symlink(folder_ + "/disk", folder_ + "/kernels");
  EXPECT_EQ(Get(KernelCache(folder_ + "/kernels", host_), "a", "code"), "code");
  EXPECT_EQ(Get(KernelCache(folder_ + "/kernels", host_), "a", "not compiled"), "code");
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(KernelCacheTest, TheFolderIsTheUsers) {
  EXPECT_EQ(KernelCache::DefaultFolder({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}),
            "/x/cotune/kernels");
  EXPECT_EQ(KernelCache::DefaultFolder({{"HOME", "/h"}}), "/h/.cache/cotune/kernels");
  EXPECT_EQ(KernelCache::DefaultFolder({}), "");
}

}  // namespace
}  // namespace cotune::cuda
