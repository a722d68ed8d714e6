#include "integration/torch/group_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "integration/torch/operator_error.h"

namespace cotune::torch_operators {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Registers a plain group for each name and device that it is asked for, and counts.
struct Resolver {
  GroupRegistry registry;
  std::vector<std::pair<std::string, int32_t>> asked;
  bool refuses = false;
  bool registers = true;

  Resolver() { registry.SetResolver(Resolve, this); }

  void Register(const std::string& name, int32_t device) {
    registry.Put(std::make_shared<NamedGroup>(name, device, nullptr, TuneWishes{}));
  }

  static cotune_result Resolve(void* context, const char* name, int32_t device,
                               cotune_error* error) {
    auto& self = *static_cast<Resolver*>(context);
    self.asked.emplace_back(name, device);
    if (self.refuses) {
      std::snprintf(error->text, sizeof(error->text), "there is no such process group");
      return COTUNE_ERROR_ENVIRONMENT;
    }
    if (self.registers) self.Register(name, device);
    return COTUNE_SUCCESS;
  }
};

TEST(GroupRegistryTest, HasAGroupForEachDevice) {
  Resolver resolver;
  GroupRegistry& registry = resolver.registry;
  const auto first = registry.Get("0", 0);
  const auto second = registry.Get("0", 1);
  const auto host = registry.Get("0", -1);
  EXPECT_EQ(first->device(), 0);
  EXPECT_EQ(second->device(), 1);
  EXPECT_EQ(host->device(), -1);
  EXPECT_THAT(resolver.asked,
              ElementsAre(std::pair("0", 0), std::pair("0", 1), std::pair("0", -1)));
  EXPECT_EQ(registry.Get("0", 0), first);
  EXPECT_EQ(registry.Get("0", 1), second);
  EXPECT_EQ(registry.Get("0", -1), host);
  EXPECT_EQ(resolver.asked.size(), 3U);
}

TEST(GroupRegistryTest, FindsNothingOnADeviceOnWhichNothingIsRegistered) {
  Resolver resolver;
  resolver.Register("0", 1);
  EXPECT_EQ(resolver.registry.Find("0", 0), nullptr);
  EXPECT_EQ(resolver.registry.Find("0", -1), nullptr);
  EXPECT_EQ(resolver.registry.Find("1", 1), nullptr);
  EXPECT_NE(resolver.registry.Find("0", 1), nullptr);
}

TEST(GroupRegistryTest, ReplacesTheGroupOfOneDeviceOnly) {
  Resolver resolver;
  resolver.Register("0", 0);
  resolver.Register("0", 1);
  const auto first = resolver.registry.Find("0", 0);
  const auto second = resolver.registry.Find("0", 1);
  resolver.Register("0", 1);
  EXPECT_EQ(resolver.registry.Find("0", 0), first);
  EXPECT_NE(resolver.registry.Find("0", 1), second);
}

TEST(GroupRegistryTest, RemovesANameFromAllDevices) {
  Resolver resolver;
  for (const int32_t device : {-1, 0, 1, 7}) resolver.Register("1", device);
  for (const char* const other : {"0", "10", "2"}) resolver.Register(other, 0);
  const auto removed = resolver.registry.Find("1", 7);
  resolver.registry.Remove("1");
  for (const int32_t device : {-1, 0, 1, 7}) {
    EXPECT_EQ(resolver.registry.Find("1", device), nullptr) << device;
  }
  for (const char* const other : {"0", "10", "2"}) {
    EXPECT_NE(resolver.registry.Find(other, 0), nullptr) << other;
  }
  // A holder of a group that was removed cannot call it.
  EXPECT_THROW(removed->Run([](cotune_group*) { return COTUNE_SUCCESS; }), OperatorError);
  resolver.registry.Remove("nothing");
  EXPECT_THAT(resolver.asked, IsEmpty());
}

TEST(GroupRegistryTest, NamesTheDeviceInErrors) {
  Resolver resolver;
  const auto error_of = [&](int32_t device) -> std::string {
    try {
      resolver.registry.Get("0", device);
    } catch (const OperatorError& error) {
      return error.what();
    }
    return "none";
  };
  resolver.registers = false;
  EXPECT_THAT(error_of(1), HasSubstr("has not registered the group \"0\" on CUDA device 1"));
  resolver.refuses = true;
  EXPECT_THAT(error_of(0), HasSubstr("cannot be made on CUDA device 0: there is no such process"));
  resolver.registry.SetResolver(nullptr, nullptr);
  EXPECT_THAT(error_of(-1), HasSubstr("no group is registered under \"0\" on the host"));
}

TEST(GroupRegistryTest, TakesARegistrationForOneDevice) {
  ASSERT_EQ(cotune_torch_group_register("two", 1, nullptr, nullptr), COTUNE_SUCCESS);
  EXPECT_EQ(cotune_torch_group_is_plain("two", 1), 1);
  EXPECT_EQ(cotune_torch_group_is_plain("two", 0), -1);
  EXPECT_EQ(cotune_torch_group_is_plain("two", -1), -1);
  cotune_torch_group_unregister("two");
  EXPECT_EQ(cotune_torch_group_is_plain("two", 1), -1);
}

}  // namespace
}  // namespace cotune::torch_operators
