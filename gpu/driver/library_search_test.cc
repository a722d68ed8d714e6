#include "gpu/driver/library_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace cotune::gpu {
namespace {

using ::testing::ElementsAre;
namespace fs = std::filesystem;

class LibrarySearchTest : public ::testing::Test {
 protected:
  LibrarySearchTest() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~LibrarySearchTest() override { fs::remove_all(root_); }
  std::string Make(const std::string& path) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "x";
    return file;
  }
  std::vector<std::string> Find(std::map<std::string, std::string> environment,
                                const std::string& named = "") {
    return LibraryCandidates({named, {"libx.so.2", "libx.so.1"}}, environment);
  }

  fs::path root_;
};

TEST_F(LibrarySearchTest, WhatTheUserNamedCountsAlone) {
  Make("env/lib/python3.11/site-packages/nvidia/x/lib/libx.so.2");
  EXPECT_THAT(Find({{"VIRTUAL_ENV", root_ / "env"}}, "/named/libx.so"),
              ElementsAre("/named/libx.so"));
}

TEST_F(LibrarySearchTest, PythonThenToolkitThenSystem) {
  const std::string venv = Make("env/lib/python3.12/site-packages/nvidia/cu13/lib/libx.so.2");
  const std::string toolkit = Make("cuda/lib64/libx.so.1");
  EXPECT_THAT(Find({{"VIRTUAL_ENV", root_ / "env"}, {"CUDA_HOME", root_ / "cuda"}}),
              ElementsAre(venv, toolkit, "libx.so.2", "libx.so.1"));
}

TEST_F(LibrarySearchTest, OtherFoldersOfPythonPackagesAreLookedAt) {
  const std::string other = Make("env/lib/python3.12/site-packages/libx/lib/libx.so.2");
  EXPECT_THAT(Find({{"VIRTUAL_ENV", root_ / "env"}}), ElementsAre("libx.so.2", "libx.so.1"));
  EXPECT_THAT(
      LibraryCandidates({.named = "", .sonames = {"libx.so.2"}, .python_folders = {"libx/lib"}},
                        {{"VIRTUAL_ENV", root_ / "env"}}),
      ElementsAre(other, "libx.so.2"));
}

TEST_F(LibrarySearchTest, ThePythonOnThePathBelongsToItsVirtualEnvironment) {
  // bin/python3 of the environment is a link to that of the system.
  Make("usr/bin/python3");
  Make("usr/lib/python3.11/dist-packages/nvidia/x/lib/libx.so.1");
  Make("env/pyvenv.cfg");
  fs::create_directories(root_ / "env/bin");
  fs::create_symlink(root_ / "usr/bin/python3", root_ / "env/bin/python3");
  const std::string in_venv = Make("env/lib/python3.11/site-packages/nvidia/x/lib/libx.so.1");
  EXPECT_THAT(Find({{"PATH", "/nowhere:" + (root_ / "env/bin").string()}}),
              ElementsAre(in_venv, "libx.so.2", "libx.so.1"));
  EXPECT_THAT(
      Find({{"PATH", root_ / "usr/bin"}}),
      ElementsAre((root_ / "usr/lib/python3.11/dist-packages/nvidia/x/lib/libx.so.1").string(),
                  "libx.so.2", "libx.so.1"));
}

TEST_F(LibrarySearchTest, AFolderThatIsNamedTwiceCountsOnce) {
  const std::string toolkit = Make("cuda/lib64/libx.so.1");
  EXPECT_THAT(Find({{"CUDA_HOME", root_ / "cuda"}, {"CUDA_PATH", root_ / "cuda"}}),
              ElementsAre(toolkit, "libx.so.2", "libx.so.1"));
}

}  // namespace
}  // namespace cotune::gpu
