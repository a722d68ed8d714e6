// Each way to be wrong has an error of its own: what a vendor sees.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "core/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/loader/backend_adapter.h"
#include "plugins/loader/host_services.h"
#include "plugins/loader/load_plugin.h"
#include "sync/exchange/local_exchange.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

std::string PathOf(const std::string& way) {
  return std::filesystem::canonical("tests/broken_plugins/" + way + ".so").string();
}

// A folder of this test's own that only its user can write to.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::string pattern = std::string(std::getenv("TEST_TMPDIR")) + "/pluginsXXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~PrivateFolder() { std::filesystem::remove_all(path_); }
  std::string Copy(const std::string& way) const {
    const std::string to = path_ + "/" + way + ".so";
    std::filesystem::copy_file(PathOf(way), to);
    chmod(to.c_str(), 0644);
    return to;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Error Refusal(const std::string& path) {
  const auto table = LoadPlugin(path, nullptr);
  if (table) {
    ADD_FAILURE() << path << " was loaded";
    return {};
  }
  EXPECT_EQ(table.error().code, ErrorCode::kPluginRefused);
  EXPECT_EQ(table.error().where, path);
  EXPECT_FALSE(table.error().cause.empty());
  return table.error();
}

TEST(BrokenPluginsTest, EachWayHasItsStepAndCause) {
  struct Way {
    const char* name;
    const char* step;
    const char* cause;
  };
  std::set<std::string> texts;
  for (const Way& way : {
           Way{"undefined_symbol", "dlopen", "function_that_is_nowhere"},
           Way{"symbol", "symbol", "it does not export cotune_backend_query_v1"},
           Way{"other_major", "symbol", "it speaks ABI version 2, this cotune speaks version 1"},
           Way{"query_null", "query", "the plugin refused without a reason"},
           Way{"query_refuses", "query", "this plugin needs a newer driver"},
           Way{"size_unset", "table size", "struct_size is 0: the plugin never set it"},
           Way{"size_too_small", "table size", "struct_size is 64, version 1.0 has"},
           Way{"function", "required functions", "prepare is NULL"},
           Way{"name", "name", "'Not-A-Name' is not a backend name"},
           Way{"name_missing", "name", "'' is not a backend name"},
           Way{"version", "version", "the version is missing"},
           Way{"sanitizer", "sanitizers", "the plugin was built with"},
       }) {
    const Error refusal = Refusal(PathOf(way.name));
    EXPECT_EQ(refusal.what, std::string("plugin refused at step '") + way.step + "'") << way.name;
    EXPECT_THAT(refusal.cause, HasSubstr(way.cause)) << way.name;
    EXPECT_TRUE(texts.insert(refusal.what + refusal.cause).second)
        << "not its own error: " << way.name;
  }
}

TEST(BrokenPluginsTest, PathsThatCannotBeTrusted) {
  EXPECT_EQ(Refusal("tests/broken_plugins/good.so").cause, "the path is not absolute");
  EXPECT_THAT(Refusal("/nowhere/at/all.so").cause, HasSubstr("No such file"));
  const PrivateFolder folder;
  EXPECT_EQ(Refusal(folder.path()).cause, "it is not a regular file");
  // Nobody writes to the pipe: opening it must not wait.
  const std::string pipe = folder.path() + "/pipe.so";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Refusal(pipe).cause, "it is not a regular file");
  const std::string text = folder.path() + "/text.so";
  std::ofstream(text) << "this is not a library";
  EXPECT_EQ(Refusal(text).what, "plugin refused at step 'dlopen'");
  const std::string copy = folder.Copy("good");
  chmod(copy.c_str(), 0646);
  EXPECT_EQ(Refusal(copy).cause, "everybody may write to it");
  chmod(copy.c_str(), 0664);
  EXPECT_EQ(Refusal(copy).cause, "group " + std::to_string(getegid()) + " may write to it");
  chmod(copy.c_str(), 0);
  EXPECT_EQ(Refusal(copy).cause, geteuid() == 0 ? "nobody may read it" : "Permission denied");
  chmod(copy.c_str(), 0644);
  chmod(folder.path().c_str(), 0777);
  EXPECT_THAT(Refusal(copy).cause, HasSubstr("everybody may write to it"));
  chmod(folder.path().c_str(), 0700);
  EXPECT_TRUE(LoadPlugin(copy, nullptr).has_value());
}

TEST(BrokenPluginsTest, TablesFromTheFutureLoad) {
  const auto table = LoadPlugin(PathOf("larger_table"), nullptr);
  ASSERT_TRUE(table.has_value()) << table.error().ToText();
  EXPECT_EQ((*table)->abi_minor, COTUNE_ABI_MINOR + 7);
}

Result<std::unique_ptr<Backend>> Adopt(const std::string& way, const HostServices& services) {
  COTUNE_TRY(const auto table, LoadPlugin(PathOf(way), nullptr));
  return AdoptBackend(table, services.table(), -1, PathOf(way));
}

class BrokenBackendsTest : public ::testing::Test {
 protected:
  MonotonicClock clock_;
  std::vector<std::unique_ptr<RankExchange>> exchanges_ = sync::MakeLocalExchanges(1, clock_);
  HostServices services_{*exchanges_[0], clock_, {}, nullptr};

  ChoiceList List(const std::string& way) {
    ProblemClass cls;
    cls.reduction = Reduction::kSum;
    const auto backend = Adopt(way, services_);
    return (*backend)->ListChoices(*Program::SingleCollective(cls), Problem{cls, 4, 0});
  }
};

TEST_F(BrokenBackendsTest, CreateSaysWhy) {
  const auto fails = Adopt("create_fails", services_);
  ASSERT_FALSE(fails.has_value());
  EXPECT_EQ(fails.error().code, ErrorCode::kPluginRefused);
  EXPECT_EQ(fails.error().cause, "the licence has run out");
  const auto unsupported = Adopt("create_unsupported", services_);
  ASSERT_FALSE(unsupported.has_value());
  EXPECT_EQ(unsupported.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(unsupported.error().cause, "there is no such device here");
}

TEST_F(BrokenBackendsTest, EntriesThatBreakTheRulesAreRefusedAndTheRestIsUsed) {
  const ChoiceList list = List("list");
  ASSERT_EQ(list.choices.size(), 1u);
  EXPECT_EQ(list.choices[0].id.text(), "broken/good");
  EXPECT_TRUE(list.choices[0].is_default);
  ASSERT_EQ(list.refusals.size(), 5u);
  EXPECT_EQ(list.refusals[0].reason, "its plugin lists this name twice");
  EXPECT_THAT(list.refusals[1].reason, HasSubstr("without a proper name"));
  EXPECT_THAT(list.refusals[2].reason, HasSubstr("does not end with NUL"));
  EXPECT_THAT(list.refusals[3].reason, HasSubstr("which this cotune does not know"));
  EXPECT_EQ(list.refusals[4].choice, "broken/second");
}

TEST_F(BrokenBackendsTest, AListWithoutDefaultOrWithoutEnd) {
  const ChoiceList list = List("good");
  ASSERT_EQ(list.choices.size(), 2u);
  EXPECT_TRUE(list.choices[0].is_default);
  const ChoiceList endless = List("list_too_long");
  EXPECT_TRUE(endless.choices.empty());
  ASSERT_EQ(endless.refusals.size(), 1u);
  EXPECT_THAT(endless.refusals[0].reason, HasSubstr("choices, then"));
}

TEST_F(BrokenBackendsTest, SuccessWithoutAHandleIsAnError) {
  const auto backend = Adopt("good", services_);
  GroupParameters parameters;
  parameters.name = "g";
  parameters.job_ranks = {0};
  const auto group = (*backend)->CreateGroup(parameters);
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().what, "group_create failed without a message");
}

}  // namespace
}  // namespace cotune
