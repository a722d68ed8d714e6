// Functions of the caller that a group cannot be created with, and the text of the error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "integration/capi/cotune.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

cotune_result Nothing(void* /*context*/, cotune_function_group* /*group*/,
                      cotune_function_call* /*call*/, char* /*reason*/, size_t /*size*/) {
  return COTUNE_SUCCESS;
}
cotune_result Open(void* /*context*/, const cotune_function_group_info* /*info*/,
                   cotune_function_group** /*group*/, char* /*reason*/, size_t /*size*/) {
  return COTUNE_SUCCESS;
}

class CallerFunctionsUsageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
    const std::string plugin = folder_ + "/cotune_host.so";
    std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"), plugin);
    std::filesystem::permissions(plugin, std::filesystem::perms(0755));
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    for (cotune_function& each : functions_) {
      each.struct_size = sizeof(each);
      each.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
      each.run = Nothing;
    }
    functions_[0].name = "a";
    functions_[1].name = "b?size=4";
    table_.struct_size = sizeof(table_);
    table_.functions = functions_.data();
    table_.function_count = functions_.size();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // "": the group was created.
  std::string Refusal(const char* backends = nullptr) const {
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.world_size = 1;
    options.plugin_path = folder_.c_str();
    options.backends = backends;
    options.functions = &table_;
    cotune_group* group = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    const cotune_result result = cotune_group_create(&options, &group, &error);
    cotune_group_destroy(group);
    if (result == COTUNE_SUCCESS) return "";
    EXPECT_EQ(result, COTUNE_ERROR_USAGE);
    EXPECT_EQ(group, nullptr);
    return error.text;
  }

  std::string folder_;
  std::array<cotune_function, 2> functions_{};
  cotune_functions table_{};
};

TEST_F(CallerFunctionsUsageTest, FunctionsThatAreRightAreTaken) {
  EXPECT_EQ(Refusal(), "");
  EXPECT_EQ(Refusal("caller"), "");
  EXPECT_EQ(Refusal("host"), "");
  table_.name = "mine_2";
  table_.function_stride = sizeof(cotune_function);
  EXPECT_EQ(Refusal("host,mine_2"), "");
}

TEST_F(CallerFunctionsUsageTest, TheTableIsChecked) {
  table_.name = "Mine";
  EXPECT_THAT(Refusal(), HasSubstr("'Mine' cannot be the name of functions"));
  table_.name = "a_name_that_is_longer_than_a_backend_may_have";
  EXPECT_THAT(Refusal(), HasSubstr("cannot be the name of functions"));
  table_.name = "host";
  EXPECT_THAT(Refusal(), HasSubstr("there is a backend 'host' already"));
  table_.name = nullptr;
  table_.open = Open;
  EXPECT_THAT(Refusal(), HasSubstr("one of open and close is NULL"));
  table_.open = nullptr;
  table_.close = [](void*, cotune_function_group*) {};
  EXPECT_THAT(Refusal(), HasSubstr("one of open and close is NULL"));
  table_.close = nullptr;
  table_.function_stride = sizeof(cotune_function) - 8;
  EXPECT_THAT(Refusal(), HasSubstr("function_stride is"));
  table_.function_stride = 0;
  table_.struct_size = sizeof(table_) + 8;
  EXPECT_THAT(Refusal(), HasSubstr("struct_size is"));
  table_.struct_size = sizeof(table_);
  table_.function_count = 0;
  EXPECT_THAT(Refusal(), HasSubstr("there is no function"));
  table_.function_count = 2;
  table_.functions = nullptr;
  EXPECT_THAT(Refusal(), HasSubstr("there is no function"));
}

TEST_F(CallerFunctionsUsageTest, EachFunctionIsChecked) {
  cotune_function& second = functions_[1];
  const cotune_function right = second;
  const auto refusal_of = [&](auto member, auto value) {
    second.*member = value;
    std::string refusal = Refusal();
    second = right;
    return refusal;
  };
  using F = cotune_function;
  EXPECT_THAT(refusal_of(&F::name, nullptr), HasSubstr("name or run of function 1 is NULL"));
  EXPECT_THAT(refusal_of(&F::run, nullptr), HasSubstr("name or run of function 1 is NULL"));
  for (const char* name : {"", "B", "a b", "other/b", "b?size", "b?=4", "?size=4"}) {
    EXPECT_THAT(refusal_of(&F::name, name), HasSubstr("cannot be the name of a choice")) << name;
  }
  EXPECT_THAT(refusal_of(&F::name, "a"), HasSubstr("two functions have the name caller/a"));
  EXPECT_THAT(refusal_of(&F::struct_size, 0u), HasSubstr("struct_size is 0"));
  for (const uint32_t bits : {0u, 1u, 1u << 6 | 2u}) {
    EXPECT_THAT(refusal_of(&F::collectives, bits),
                HasSubstr("function caller/b?size=4 has the collectives 0x"));
  }
  for (const uint32_t bits : {1u, 1u << 11}) {
    EXPECT_THAT(refusal_of(&F::dtypes, bits), HasSubstr("has the dtypes 0x"));
  }
  for (const uint32_t bits : {1u, 1u << 6}) {
    EXPECT_THAT(refusal_of(&F::reductions, bits), HasSubstr("has the reductions 0x"));
  }
  EXPECT_THAT(refusal_of(&F::flags, 4u), HasSubstr("has the flags 0x4"));
}

TEST_F(CallerFunctionsUsageTest, AnUnknownBackendIsNamedBesideTheFunctions) {
  EXPECT_THAT(Refusal("callers"), HasSubstr("unknown backend 'callers'"));
}

}  // namespace
}  // namespace cotune
