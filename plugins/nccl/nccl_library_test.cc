// Which copy of NCCL is taken, and which are refused. Each case has a process of its own, because
// what a process has loaded decides.
#include "plugins/nccl/nccl_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "plugins/nccl/testing/fakes.h"

namespace cotune::nccl {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

class NcclLibraryDeathTest : public ::testing::Test {
 protected:
  NcclLibraryDeathTest() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~NcclLibraryDeathTest() override { fs::remove_all(root_); }

  // A copy of one of the built libraries, at this place under the test's folder.
  std::string Copy(const std::string& to, const std::string& name = kFakeNccl) {
    const fs::path file = root_ / to;
    fs::create_directories(file.parent_path());
    fs::copy_file(LibraryForTest(name), file);
    return file;
  }

  fs::path root_;
};

std::string PathOf(const std::string& named, const Environment& environment) {
  const auto opened = NcclLibrary::Open(named, environment);
  return opened ? opened->path() : "refused: " + opened.error().message;
}

std::string Refusal(const std::string& named, const Environment& environment = {}) {
  const auto opened = NcclLibrary::Open(named, environment);
  if (opened) return "opened " + opened->path();
  EXPECT_EQ(opened.error().status, COTUNE_UNSUPPORTED);
  return opened.error().message;
}

bool IsLoaded() { return dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

TEST_F(NcclLibraryDeathTest, TheCopyOfTheProcessGoesFirst) {
  const std::string loaded = Copy("loaded/libnccl.so.2");
  Copy("venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
  IN_CHILD({
    LoadFakeNccl(loaded);
    EXPECT_EQ(PathOf("", {{"VIRTUAL_ENV", root_ / "venv"}}), loaded);
  });
}

TEST_F(NcclLibraryDeathTest, TheSettingGoesBeforeTheVariableAndThatBeforePython) {
  const std::string setting = Copy("a/libnccl.so.2");
  const std::string variable = Copy("b/libnccl.so.2");
  const std::string python = Copy("venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
  const Environment with_python = {{"VIRTUAL_ENV", root_ / "venv"}};
  Environment with_both = with_python;
  with_both["COTUNE_NCCL_LIBRARY"] = variable;
  IN_CHILD(EXPECT_EQ(PathOf(setting, with_both), setting));
  IN_CHILD(EXPECT_EQ(PathOf("", with_both), variable));
  IN_CHILD(EXPECT_EQ(PathOf("", with_python), python));
}

TEST_F(NcclLibraryDeathTest, ThePythonOfThePathIsLookedAt) {
  Copy("usr/bin/python3");  // any file
  const std::string found = Copy("usr/lib/python3.11/dist-packages/nvidia/nccl/lib/libnccl.so.2");
  IN_CHILD(EXPECT_EQ(PathOf("", {{"PATH", root_ / "usr/bin"}}), found));
}

TEST_F(NcclLibraryDeathTest, AnotherCopyThanThatOfTheProcessIsRefused) {
  const std::string loaded = Copy("a/libnccl.so.2");
  const std::string named = Copy("b/libnccl.so.2");
  fs::create_symlink(loaded, root_ / "link.so");
  IN_CHILD({
    LoadFakeNccl(loaded);
    const std::string by_setting = Refusal(named);
    EXPECT_THAT(by_setting, HasSubstr("nccl.library"));
    EXPECT_THAT(by_setting, HasSubstr(loaded));
    EXPECT_THAT(by_setting, HasSubstr(named));
    EXPECT_THAT(Refusal("", {{"COTUNE_NCCL_LIBRARY", named}}), HasSubstr("COTUNE_NCCL_LIBRARY"));
    EXPECT_EQ(PathOf(root_ / "link.so", {}), loaded) << "the same file by another name";
  });
}

TEST_F(NcclLibraryDeathTest, VersionsOutsideOfTheRangeAreRefusedAndNotKept) {
  const std::string path = Copy("a/libnccl.so.2");
  for (const auto& [code, text] :
       {std::pair("21805", "2.18.5"), {"2708", "2.7.8"}, {"30000", "3.0.0"}}) {
    IN_CHILD({
      setenv("FAKE_NCCL_VERSION", code, 1);
      const std::string refusal = Refusal(path);
      EXPECT_THAT(refusal, HasSubstr(text));
      EXPECT_THAT(refusal, HasSubstr(path));
      EXPECT_FALSE(IsLoaded());
    });
  }
  IN_CHILD({
    setenv("FAKE_NCCL_VERSION", "21903", 1);
    EXPECT_EQ(PathOf(path, {}), path);
    EXPECT_TRUE(IsLoaded());
  });
}

TEST_F(NcclLibraryDeathTest, TheVersionIsAskedBeforeOtherSymbols) {
  const std::string path = Copy("a/libnccl.so.2", kFakeNcclWithoutSplit);
  IN_CHILD({
    setenv("FAKE_NCCL_VERSION", "21604", 1);
    EXPECT_THAT(Refusal(path), HasSubstr("2.16.4"));
  });
  IN_CHILD({
    const std::string refusal = Refusal(path);
    EXPECT_THAT(refusal, HasSubstr("lacks ncclCommSplit"));
    EXPECT_THAT(refusal, HasSubstr("2.28.9"));
    EXPECT_THAT(refusal, HasSubstr(path));
    EXPECT_FALSE(IsLoaded());
  });
}

TEST_F(NcclLibraryDeathTest, WhatIsNoNcclIsRefused) {
  const std::string other = Copy("a/libnccl.so.2", kFakeCuda);
  IN_CHILD(EXPECT_THAT(Refusal(other), HasSubstr("does not tell its version")));
  const std::string missing = root_ / "missing.so";
  IN_CHILD(EXPECT_THAT(Refusal(missing), HasSubstr(missing)));
}

TEST_F(NcclLibraryDeathTest, WindowsCameWithTwoTwentySeven) {
  const std::string path = Copy("a/libnccl.so.2");
  const auto has_windows = [&](const char* version) {
    setenv("FAKE_NCCL_VERSION", version, 1);
    return NcclLibrary::Open(path, {})->has_windows();
  };
  IN_CHILD(EXPECT_FALSE(has_windows("22605")));
  IN_CHILD(EXPECT_TRUE(has_windows("22703")));
}

TEST_F(NcclLibraryDeathTest, ResultsBecomeFailuresOfOneLine) {
  const std::string path = Copy("a/libnccl.so.2");
  IN_CHILD({
    const auto nccl = NcclLibrary::Open(path, {});
    EXPECT_TRUE(nccl->Check(kNcclSuccess, "x", nullptr));
    EXPECT_TRUE(nccl->Check(kNcclInProgress, "x", nullptr));
    const auto lost = nccl->Check(kNcclRemoteError, "ncclX", nullptr);
    EXPECT_EQ(lost.error().status, COTUNE_PEER_FAILED);
    EXPECT_EQ(lost.error().native_code, kNcclRemoteError);
    EXPECT_EQ(lost.error().message,
              "ncclX of NCCL 2.28.9 failed: remote process exited, last words");
    EXPECT_EQ(nccl->Check(kNcclInternalError, "x", nullptr).error().status, COTUNE_INTERNAL);
    EXPECT_EQ(nccl->Check(kNcclInvalidUsage, "x", nullptr).error().status, COTUNE_INVALID_ARGUMENT);
  });
}

}  // namespace
}  // namespace cotune::nccl
