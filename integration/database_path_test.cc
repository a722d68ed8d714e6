#include "integration/database_path.h"

#include <sys/stat.h>

#include <cstdlib>

#include "gtest/gtest.h"

namespace cotune {
namespace {

Fingerprint Machine(const char* cpu_model) {
  return {{{"cores", "2"}, {"cpu_model", cpu_model}}, {{"host", "1"}}, "eager"};
}

TEST(DatabasePathTest, NameIsReadableAndTellsMachinesApart) {
  const std::string name = MachineFileName(Machine("Intel(R) Xeon(R) CPU @ 2.20GHz"));
  EXPECT_TRUE(name.starts_with("intel-r-xeon-r-cpu-2-20ghz-")) << name;
  EXPECT_EQ(name.size(), std::string("intel-r-xeon-r-cpu-2-20ghz-").size() + 8);
  Fingerprint other = Machine("Intel(R) Xeon(R) CPU @ 2.20GHz");
  other.machine["cores"] = "4";
  EXPECT_NE(MachineFileName(other), name);
  // Versions of backends share a file.
  other = Machine("Intel(R) Xeon(R) CPU @ 2.20GHz");
  other.backends["host"] = "2";
  EXPECT_EQ(MachineFileName(other), name);
  EXPECT_TRUE(MachineFileName({}).starts_with("machine-"));
  EXPECT_TRUE(MachineFileName(Machine("///")).starts_with("machine-"));
}

TEST(DatabasePathTest, TheUserDecidesThenTheEnvironment) {
  const Fingerprint here = Machine("m");
  const std::string file = "/cotune/" + MachineFileName(here) + ".tdb";
  EXPECT_EQ(DatabasePath("x.tdb", {}, here).value(), "x.tdb");
  EXPECT_EQ(DatabasePath("", {{"XDG_CACHE_HOME", "/c"}, {"HOME", "/h"}}, here).value(),
            "/c" + file);
  EXPECT_EQ(DatabasePath("", {{"HOME", "/h"}}, here).value(), "/h/.cache" + file);
  EXPECT_EQ(DatabasePath("", {{"XDG_CACHE_HOME", "c"}, {"HOME", "/h"}}, here).value(),
            "/h/.cache" + file);
  EXPECT_EQ(DatabasePath("", {{"HOME", "h"}}, here).error().where, "HOME=h");
  const Error error = DatabasePath("", {}, here).error();
  EXPECT_EQ(error.code, ErrorCode::kEnvironment);
  EXPECT_EQ(error.next_step, "name a file with --db or COTUNE_DATABASE");
}

TEST(DatabasePathTest, FoldersAreMadeForTheUserOnly) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/a/b";
  EXPECT_TRUE(MakeFolderOf(folder + "/x.tdb").has_value());
  struct stat status {};
  ASSERT_EQ(stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_TRUE(MakeFolderOf(folder + "/x.tdb").has_value());
  EXPECT_EQ(MakeFolderOf("/dev/null/x/y.tdb").error().code, ErrorCode::kEnvironment);
}

}  // namespace
}  // namespace cotune
