// Tests the checks of a backend's table, on copies of the fake backend's that are wrong in one
// place.
#include <cstddef>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/loader/backend_adapter.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

cotune_backend_api_t Table() { return *fake::BackendApi(); }

TEST(CheckTableTest, EachFieldThatIsWrongHasItsStep) {
  const auto refused = [](const cotune_backend_api_t* table) {
    const Status checked = CheckTable(table, "here");
    EXPECT_FALSE(checked.has_value());
    if (checked) return std::string();
    EXPECT_EQ(checked.error().code, ErrorCode::kPluginRefused);
    EXPECT_EQ(checked.error().where, "here");
    return checked.error().what + ": " + checked.error().cause;
  };
  EXPECT_EQ(refused(nullptr), "plugin refused at step 'table': the table of functions is NULL");
  cotune_backend_api_t table = Table();
  EXPECT_TRUE(CheckTable(&table, "here").has_value());
  // Exactly version 1.0, and a table from the future.
  table.struct_size = offsetof(cotune_backend_api_t, plan_destroy) + sizeof(void*);
  EXPECT_TRUE(CheckTable(&table, "here").has_value());
  table.struct_size -= 1;
  EXPECT_THAT(refused(&table), HasSubstr("step 'table size': struct_size is"));
  table.struct_size = 4096;
  table.abi_minor = 12;
  EXPECT_TRUE(CheckTable(&table, "here").has_value());
  for (const char* name : {"", "Fake", "1st", "a-b", "a/b", "abcdefghijklmnopqrstuvwxyz_123456"}) {
    table = Table();
    table.name = name;
    EXPECT_THAT(refused(&table), HasSubstr("step 'name': '" + std::string(name) + "' is not"));
  }
  table = Table();
  table.build_flags ^= COTUNE_BUILD_ASAN;
  EXPECT_THAT(refused(&table), HasSubstr("step 'sanitizers': the plugin was built with"));
  table = Table();
  table.build_flags ^= COTUNE_BUILD_UBSAN;  // needs no agreement
  EXPECT_TRUE(CheckTable(&table, "here").has_value());
  table = Table();
  table.version = nullptr;
  EXPECT_THAT(refused(&table), HasSubstr("step 'version'"));
}

// Sets one function of the table to NULL and says which the refusal names.
template <typename Function>
std::string WithoutFunction(Function cotune_backend_api_t::*function) {
  cotune_backend_api_t table = Table();
  table.*function = nullptr;
  const Status checked = CheckTable(&table, "here");
  return checked ? "" : checked.error().cause;
}

// Rebuilding would not help.
TEST(CheckTableTest, TheNextStepIsAboutTheFieldThatIsWrong) {
  const auto next_step = [](const cotune_backend_api_t& table) {
    const Status checked = CheckTable(&table, "here");
    return checked ? "" : checked.error().next_step;
  };
  cotune_backend_api_t table = Table();
  table.group_health = nullptr;
  EXPECT_EQ(next_step(table), "set group_health in the plugin's table");
  table = Table();
  table.name = "My-Backend";
  EXPECT_EQ(next_step(table), "choose a name of a-z, 0-9 and _ that begins with a letter");
  table = Table();
  table.version = "";
  EXPECT_EQ(next_step(table), "set version in the plugin's table to a text such as \"1.0\"");
  table = Table();
  table.struct_size = 8;
  EXPECT_EQ(next_step(table), "rebuild the plugin against this version's cotune_backend_v1.h");
}

TEST(CheckTableTest, EveryFunctionIsRequired) {
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::create), "create is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::destroy), "destroy is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::get_extension), "get_extension is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::list_choices), "list_choices is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::group_create), "group_create is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::group_health), "group_health is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::group_abort), "group_abort is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::group_destroy), "group_destroy is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::prepare), "prepare is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::launch), "launch is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::progress), "progress is NULL");
  EXPECT_EQ(WithoutFunction(&cotune_backend_api_t::plan_destroy), "plan_destroy is NULL");
}

}  // namespace
}  // namespace cotune
