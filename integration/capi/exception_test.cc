// Exceptions inside a call, here those that a caller's callback throws against its contract: the
// group is stopped, because the exception may have left this rank behind its peers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/database/tuned_database.h"
#include "integration/capi/cotune.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ExceptionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/cotune.XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    const std::string plugin = folder_ + "/cotune_host.so";
    std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"), plugin);
    std::filesystem::permissions(plugin, std::filesystem::perms(0755));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("COTUNE_DATABASE", Database().c_str(), 1);
    group_ = Create();
    ASSERT_NE(group_, nullptr);
  }

  void TearDown() override {
    cotune_group_destroy(group_);
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string Database() const { return folder_ + "/tuned.tdb"; }

  // A group of this process alone, whose log throws when `throws_` begins a line.
  cotune_group* Create() {
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    options.plugin_path = folder_.c_str();
    options.log = [](void* throws, int32_t, const char* text) {
      const std::string& begin = *static_cast<std::string*>(throws);
      if (!begin.empty() && std::string(text).starts_with(begin))
        throw std::runtime_error("thrown");
    };
    options.log_context = &throws_;
    cotune_group* group = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_SUCCESS) << error.text;
    return group;
  }

  cotune_group* Split(cotune_group* parent, const char* name) {
    const int32_t own = 0;
    cotune_group* part = nullptr;
    split_result_ = cotune_group_split(parent, name, &own, 1, &part, nullptr);
    return part;
  }

  using Progress = int32_t (*)(void* context, int32_t cell, int32_t cells, const char* what);
  cotune_result Tune(const char* path, Progress progress = nullptr) {
    constexpr uint64_t kBytes = 4096;
    cotune_tune_options options{};
    options.struct_size = sizeof(options);
    options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
    options.sizes_bytes = &kBytes;
    options.size_count = 1;
    options.database_path = path;
    options.progress = progress;
    return cotune_tune(group_, &options, nullptr);
  }

  static cotune_result Reduce(cotune_group* group) {
    const float sent = 3;
    float received = 0;
    return cotune_all_reduce(group, &sent, &received, 1, COTUNE_F32, COTUNE_REDUCE_SUM);
  }

  static void ExpectStopped(cotune_group* group, const std::string& why) {
    EXPECT_EQ(Reduce(group), COTUNE_ERROR_INTERNAL);
    EXPECT_THAT(cotune_last_error(group), HasSubstr(why));
    EXPECT_EQ(cotune_group_check(group), COTUNE_ERROR_INTERNAL);
    EXPECT_THAT(cotune_last_error(group), HasSubstr(why));
  }

  std::string folder_;
  std::string throws_;
  cotune_group* group_ = nullptr;
  cotune_result split_result_ = COTUNE_SUCCESS;
};

TEST_F(ExceptionTest, InATuneStopsTheGroupAndThoseSplitFromIt) {
  cotune_group* const part = Split(group_, "part");
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(Tune(nullptr,
                 [](void*, int32_t, int32_t, const char*) -> int32_t { throw std::bad_alloc(); }),
            COTUNE_ERROR_INTERNAL);
  EXPECT_THAT(cotune_last_error(group_),
              AllOf(HasSubstr("a call failed inside cotune"), HasSubstr("bad_alloc")));
  ExpectStopped(group_, "bad_alloc");
  ExpectStopped(part, "bad_alloc");
  cotune_group_destroy(part);
}

TEST_F(ExceptionTest, OfAnyTypeStopsTheGroup) {
  EXPECT_EQ(Tune(nullptr, [](void*, int32_t, int32_t, const char*) -> int32_t { throw 3; }),
            COTUNE_ERROR_INTERNAL);
  ExpectStopped(group_, "no std::exception");
}

TEST_F(ExceptionTest, InACallStopsItsGroupAlone) {
  cotune_group* const part = Split(group_, "part");
  ASSERT_NE(part, nullptr);
  throws_ = "calls run";
  EXPECT_EQ(Reduce(group_), COTUNE_ERROR_INTERNAL);
  EXPECT_THAT(cotune_last_error(group_), HasSubstr("thrown"));
  throws_ = "";
  ExpectStopped(group_, "thrown");
  EXPECT_EQ(Reduce(part), COTUNE_SUCCESS) << cotune_last_error(part);
  cotune_group_destroy(part);
}

// The log throws between the ranks' agreement on a table and its use.
TEST_F(ExceptionTest, InALoadOrASplitStopsTheGroup) {
  ASSERT_EQ(Tune(""), COTUNE_SUCCESS) << cotune_last_error(group_);
  const Result<TunedDatabase> stored = TunedDatabase::Load(Database());
  ASSERT_TRUE(stored) << stored.error().ToText();
  TunedDatabase changed;
  const Result<std::vector<DatabaseEntry>> entries = stored->entries();
  ASSERT_TRUE(entries);
  for (DatabaseEntry entry : *entries) {
    entry.winner.id = *ChoiceId::Parse("host/gone");
    for (Verdict& verdict : entry.cell.verdicts) verdict.id = entry.winner.id;
    changed.Put(std::move(entry));
  }
  ASSERT_TRUE(changed.Save(Database()));
  for (const bool splits : {false, true}) {
    cotune_group_destroy(group_);
    group_ = Create();
    throws_ = "an entry of the tuned database is left out";
    if (splits) {
      EXPECT_EQ(Split(group_, "part"), nullptr);
      EXPECT_EQ(split_result_, COTUNE_ERROR_INTERNAL);
    } else {
      EXPECT_EQ(cotune_load(group_, Database().c_str()), COTUNE_ERROR_INTERNAL);
    }
    EXPECT_THAT(cotune_last_error(group_), HasSubstr("thrown"));
    throws_ = "";
    ExpectStopped(group_, "thrown");
  }
}

}  // namespace
}  // namespace cotune
