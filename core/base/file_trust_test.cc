#include "core/base/file_trust.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace cotune {
namespace {

struct stat With(uid_t user, gid_t group, mode_t mode) {
  struct stat info {};
  info.st_uid = user;
  info.st_gid = group;
  info.st_mode = mode;
  return info;
}

const uid_t kOwn = geteuid();
const gid_t kOwnGroup = getegid();
const uid_t kOther = kOwn + 1000;
const gid_t kOtherGroup = kOwnGroup + 1000;

TEST(FileTrustTest, AFileBelongsToThisUserOrRootAndNobodyElseWritesIt) {
  EXPECT_EQ(FileTrustMistake(With(kOwn, kOtherGroup, 0644)), "");
  EXPECT_EQ(FileTrustMistake(With(0, 0, 0755)), "");
  EXPECT_EQ(FileTrustMistake(With(kOther, kOwnGroup, 0600)),
            "it belongs to user " + std::to_string(kOther));
  EXPECT_EQ(FileTrustMistake(With(kOwn, kOwnGroup, 0602)), "everybody may write to it");
  EXPECT_EQ(FileTrustMistake(With(kOwn, kOwnGroup, 0620)),
            "group " + std::to_string(kOwnGroup) + " may write to it");
  EXPECT_NE(FileTrustMistake(With(kOwn, kOwnGroup, S_ISVTX | 0666)), "") << "no folder";
}

TEST(FileTrustTest, AFolderMayBeOneOfTheOwnGroupOrHaveTheStickyBit) {
  EXPECT_EQ(FolderTrustMistake(With(kOwn, kOwnGroup, 0775)), "");
  EXPECT_EQ(FolderTrustMistake(With(0, 0, S_ISVTX | 0777)), "");
  EXPECT_EQ(FolderTrustMistake(With(kOwn, kOtherGroup, 0775)),
            "group " + std::to_string(kOtherGroup) + " may write to it");
  EXPECT_EQ(FolderTrustMistake(With(kOwn, kOwnGroup, 0777)), "everybody may write to it");
  EXPECT_EQ(FolderTrustMistake(With(kOther, kOtherGroup, S_ISVTX | 0755)),
            "it belongs to user " + std::to_string(kOther));
}

TEST(FileTrustTest, EveryFolderAboveCounts) {
  std::string made = std::filesystem::canonical(testing::TempDir()).string() + "/trust_XXXXXX";
  const std::filesystem::path top = mkdtemp(made.data());
  const std::filesystem::path below = top / "a" / "b";
  std::filesystem::create_directories(below);
  EXPECT_EQ(FolderPathTrustMistake(below), "");
  ASSERT_EQ(chmod((top / "a").c_str(), 0777), 0);
  EXPECT_EQ(FolderPathTrustMistake(below),
            "folder " + (top / "a").string() + ": everybody may write to it");
  EXPECT_EQ(FolderPathTrustMistake(top / "absent"),
            "folder " + (top / "absent").string() + ": No such file or directory");
  std::filesystem::remove_all(top);
}

}  // namespace
}  // namespace cotune
