// Which UCX is taken, and what is said of those that are not.
#include "plugins/ucx/ucx_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "gpu/driver/library_search.h"
#include "plugins/ucx/context.h"

namespace cotune::ucx {
namespace {

using ::testing::HasSubstr;

std::string Fake(const std::string& name) {
  return std::filesystem::absolute("plugins/ucx/lib" + name + ".so");
}

std::string RefusalOf(const std::string& file) {
  const auto opened = UcxLibrary::Open(file, {});
  if (opened) return "";
  EXPECT_EQ(opened.error().status, COTUNE_UNSUPPORTED);
  return opened.error().message;
}

// No copy of UCX may be in the process yet: the tests with stand-ins come first in this file.
TEST(UcxLibraryTest, AFileThatIsNotThereIsNamed) {
  EXPECT_THAT(RefusalOf("/nowhere/libucp.so.0"),
              HasSubstr("the setting ucx.library names no UCX that can be loaded: /nowhere/"));
  const auto by_variable = UcxLibrary::Open("", {{"COTUNE_UCX_LIBRARY", "/nowhere/libucp.so.0"}});
  ASSERT_FALSE(by_variable);
  EXPECT_THAT(by_variable.error().message, HasSubstr("COTUNE_UCX_LIBRARY names no UCX"));
}

TEST(UcxLibraryTest, AnOldOneIsRefusedByItsVersion) {
  EXPECT_THAT(RefusalOf(Fake("old_ucp")), HasSubstr("UCX 1.12.0 at "));
  EXPECT_THAT(RefusalOf(Fake("old_ucp")), HasSubstr("1.13 or newer of major version 1 is needed"));
}

TEST(UcxLibraryTest, ADamagedOneIsRefusedByWhatItLacks) {
  EXPECT_THAT(RefusalOf(Fake("damaged_ucp")),
              HasSubstr("says that it is UCX 1.99.0 but lacks ucp_config_read"));
}

// The process has the services of another copy.
TEST(UcxLibraryTest, PartsOfTwoCopiesAreRefusedAndBothAreNamed) {
  const std::string other_copy = std::string(std::getenv("TEST_TMPDIR")) + "/libucs.so.0";
  std::filesystem::copy_file(std::filesystem::canonical("plugins/ucx/libucs.so.0"), other_copy);
  void* services = dlopen(other_copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(services, nullptr) << dlerror();
  const std::string refusal = RefusalOf(Fake("whole_ucp"));
  EXPECT_EQ(dlclose(services), 0);
  EXPECT_THAT(refusal, HasSubstr("UCX is mixed: libucp is "));
  EXPECT_THAT(refusal, HasSubstr("libwhole_ucp.so and libucs is " + other_copy));
}

TEST(UcxLibraryTest, WithoutItsServicesItIsDamaged) {
  EXPECT_THAT(RefusalOf(Fake("whole_ucp")), HasSubstr("lacks ucs_status_string: a damaged file"));
}

TEST(UcxLibraryTest, AnotherLibraryIsNotUcx) {
  EXPECT_THAT(RefusalOf(Fake("other")), HasSubstr("is not UCX: it does not tell its version"));
}

// From here on the real one.
TEST(UcxLibraryTest, ZTheRealOneOpensAndAnotherIsRefusedAfterwards) {
  const auto opened = UcxLibrary::Open("", gpu::OwnEnvironment());
  if (!opened) GTEST_SKIP() << opened.error().message;
  EXPECT_EQ(opened->version().major, 1u);
  EXPECT_GE(opened->version().minor, 13u);
  EXPECT_EQ(opened->StatusText(UCS_ERR_NO_MEMORY), "Out of memory");
  EXPECT_THAT(RefusalOf(Fake("old_ucp")), HasSubstr("two copies do not work together"));
}

// A context with this setting ucx.rndv_thresh, "" for none; null: there is no UCX.
std::unique_ptr<Context> OpenWith(const std::string& rndv_thresh) {
  cotune_host_t host{};
  host.struct_size = sizeof(host);
  host.context = const_cast<char*>(rndv_thresh.c_str());
  host.setting = [](void* context, const char* key) -> const char* {
    const char* const value = static_cast<const char*>(context);
    return std::string(key) == "rndv_thresh" && *value != 0 ? value : nullptr;
  };
  auto opened = Context::Open(sdk::Settings(host, "ucx"));
  return opened ? std::move(*opened) : nullptr;
}

TEST(ContextTest, ZWithoutDevicesThatFetchDataNoMessageWaitsForARendezvous) {
  if (std::filesystem::exists("/sys/class/infiniband")) GTEST_SKIP() << "there may be devices";
  unsetenv("UCX_RNDV_THRESH");
  const auto by_itself = OpenWith("");
  if (by_itself == nullptr) GTEST_SKIP() << "no UCX is here";
  EXPECT_TRUE(by_itself->has_own_threshold());
  EXPECT_FALSE(OpenWith("inf")->has_own_threshold());
  // A rank whose host has such devices shares a group with this one; one with a setting does not.
  EXPECT_EQ(by_itself->configuration_digest(), OpenWith("auto")->configuration_digest());
  EXPECT_NE(by_itself->configuration_digest(), OpenWith("inf")->configuration_digest());
  setenv("UCX_RNDV_THRESH", "auto", 1);
  EXPECT_FALSE(OpenWith("")->has_own_threshold());
  unsetenv("UCX_RNDV_THRESH");
}

TEST(ContextTest, ZAValueThatUcxDoesNotTakeIsNamed) {
  cotune_host_t host{};
  host.struct_size = sizeof(host);
  host.setting = [](void*, const char* key) -> const char* {
    return std::string(key) == "rndv_thresh" ? "often" : nullptr;
  };
  const auto opened = Context::Open(sdk::Settings(host, "ucx"));
  ASSERT_FALSE(opened);
  if (opened.error().status == COTUNE_UNSUPPORTED) GTEST_SKIP() << opened.error().message;
  EXPECT_EQ(opened.error().status, COTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(opened.error().message, HasSubstr("setting ucx.rndv_thresh is 'often'"));
}

// Returns the refusal of this value of ucx.net_devices; "": it is taken, or there is no UCX.
std::string RefusalOfDevices(const std::string& value) {
  cotune_host_t host{};
  host.struct_size = sizeof(host);
  host.context = const_cast<char*>(value.c_str());
  host.setting = [](void* context, const char* key) -> const char* {
    return std::string(key) == "net_devices" ? static_cast<const char*>(context) : nullptr;
  };
  const auto opened = Context::Open(sdk::Settings(host, "ucx"));
  if (opened || opened.error().status == COTUNE_UNSUPPORTED) return "";
  EXPECT_EQ(opened.error().status, COTUNE_INVALID_ARGUMENT);
  return opened.error().message;
}

TEST(ContextTest, ZADeviceThatIsNotThereIsNamedWithThoseThatAre) {
  if (OpenWith("") == nullptr) GTEST_SKIP() << "no UCX is here";
  for (const char* value : {"eth77", "eth78,eth77:1"}) {
    const std::string refusal = RefusalOfDevices(value);
    EXPECT_THAT(refusal, HasSubstr("which names no network device of this host; it has "));
    EXPECT_THAT(refusal, HasSubstr(value));
    EXPECT_THAT(refusal.substr(refusal.find("it has ")), HasSubstr("lo"));
  }
  for (const char* value : {"lo", "all", "^eth77", "eth7*", "eth[7-8]"}) {
    EXPECT_EQ(RefusalOfDevices(value), "") << value;
  }
}

TEST(ContextTest, ZWithoutATransportTheBackendSaysWhy) {
  cotune_host_t host{};
  host.struct_size = sizeof(host);
  host.setting = [](void*, const char* key) -> const char* {
    return std::string(key) == "tls" ? "none_such" : nullptr;
  };
  const auto opened = Context::Open(sdk::Settings(host, "ucx"));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().status, COTUNE_UNSUPPORTED);
}

}  // namespace
}  // namespace cotune::ucx
