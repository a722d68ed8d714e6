// The setting force_choice: custom operators of PyTorch, and the options of a group.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "integration/settings/settings.h"

namespace cotune {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ForcedSettingsTest, OperatorsOfPyTorchInForceAreLeftToPython) {
  using Find = std::function<Result<ResolvedSettings>(const std::string&)>;
  const Find of_variable = [](const std::string& given) {
    SettingSources sources;
    sources.environment = {{"COTUNE_FORCE", given}};
    return ResolveSettings(sources);
  };
  const Find of_flag = [](const std::string& given) {
    SettingSources sources;
    sources.flags = {{"force_choice", given}};
    return ResolveSettings(sources);
  };
  for (const Find& find : {of_variable, of_flag}) {
    const auto texts_of = [&](const std::string& given) {
      const Result<ResolvedSettings> resolved = find(given);
      return resolved ? resolved->values.force.text() + " | " + resolved->forced_operators
                      : resolved.error().ToText();
    };
    EXPECT_EQ(texts_of("lib::op=python/ring?chunk=4"), " | lib::op=python/ring?chunk=4");
    EXPECT_EQ(texts_of("lib::op = body, all_reduce=host/ring"),
              "all_reduce=host/ring | lib::op=body");
    EXPECT_EQ(texts_of("all_reduce=host/ring,lib::op.two=python/ring,broadcast=nccl/auto"),
              "all_reduce=host/ring,broadcast=nccl/auto | lib::op.two=python/ring");
    for (const auto& [given, wrong] : std::vector<std::pair<std::string, std::string>>{
             {"all_reduce=host/ring,lib::op=body,", "element 3 of the list is empty"},
             {"lib::op=body,,lib::two=body", "element 2 of the list is empty"},
             {"lib::op", "\"lib::op\" names no choice: it has no '='"},
             {"all_reduce=host/ring,lib::op= ", "\"lib::op=\" names no choice: nothing follows"},
             {"lib::op=body,all_reduce=host/ring, lib::op = python/ring",
              "lib::op stands twice: with body and with python/ring"},
             {"lib::op=body,all_reduce", "\"all_reduce\" names no choice: it has no '='"},
             {"::=x", "\"::\" is no name of an operator: give lib::op"},
             {"all_reduce=host/ring,lib::=x", "\"lib::\" is no name of an operator: give lib::op"},
             {"::op=x", "\"::op\" is no name of an operator: give lib::op"},
             {"lib op::x=y", "\"lib op::x\" is no name of an operator: give lib::op"},
             {"lib:: op=y", "\"lib:: op\" is no name of an operator: give lib::op"},
             {"lib::op\tx=y", "\"lib::op\tx\" is no name of an operator: give lib::op"},
             {"lib:op=body", "\"lib:op\" is no collective"},
             {"all_reduce=lib::op", "is no id of a choice"}}) {
      EXPECT_THAT(texts_of(given), HasSubstr(wrong)) << given;
      const Result<ResolvedSettings> resolved = find(given);
      ASSERT_FALSE(resolved) << given;
      const Error& error = resolved.error();
      EXPECT_EQ(error.code, ErrorCode::kUsage);
      EXPECT_THAT(error.where, AnyOf("COTUNE_FORCE", "--force-choice"));
      EXPECT_NE(error.next_step, "");
    }
  }
}

TEST(ForcedSettingsTest, NamesOfOperatorsHaveTwoParts) {
  for (const char* name : {"a::b::c", "::op", "lib::", "a::::b"}) {
    SettingSources sources;
    sources.environment = {{"COTUNE_FORCE", fmt::format("{}=body", name)}};
    const auto resolved = ResolveSettings(sources);
    ASSERT_FALSE(resolved) << name;
    EXPECT_THAT(resolved.error().cause,
                HasSubstr(fmt::format("\"{}\" is no name of an operator: give lib::op", name)));
  }
}

TEST(ForcedSettingsTest, AnotherSourceReplacesForcedOperators) {
  SettingSources sources;
  sources.environment = {{"COTUNE_FORCE_CHOICE", "all_reduce=host/ring,lib::op=body"}};
  const SettingSpec& spec = *FindSetting("force_choice");
  ResolvedSettings resolved = ResolveSettings(sources).value();
  EXPECT_EQ(TextOfSetting(spec, resolved), "all_reduce=host/ring,lib::op=body");
  sources.flags = {{"force_choice", "lib::two=body"}};
  resolved = ResolveSettings(sources).value();
  EXPECT_EQ(TextOfSetting(spec, resolved), "lib::two=body");
  sources.flags = {{"force_choice", "broadcast=nccl/auto"}};
  resolved = ResolveSettings(sources).value();
  EXPECT_EQ(TextOfSetting(spec, resolved), "broadcast=nccl/auto");
  // Both names with other operators contradict each other.
  sources.environment["COTUNE_FORCE"] = "all_reduce=host/ring,lib::op=python/ring";
  EXPECT_THAT(ResolveSettings(sources).error().what,
              HasSubstr("lib::op=body, and its alias force is"));
}

TEST(ForcedSettingsTest, TheOrderOfForcedOperatorsDoesNotCount) {
  SettingSources sources;
  sources.environment = {{"COTUNE_FORCE", "lib::a=x,lib::c=z,lib::b=y"},
                         {"COTUNE_FORCE_CHOICE", "lib::b=y, lib::a=x ,lib::c=z"}};
  const Result<ResolvedSettings> resolved = ResolveSettings(sources);
  ASSERT_TRUE(resolved) << resolved.error().ToText();
  EXPECT_EQ(resolved->forced_operators, "lib::a=x,lib::b=y,lib::c=z");
  sources.environment["COTUNE_FORCE"] = "lib::a=y,lib::b=x,lib::c=z";
  EXPECT_EQ(ResolveSettings(sources).error().what,
            "force_choice is lib::a=x,lib::b=y,lib::c=z, and its alias force is "
            "lib::a=y,lib::b=x,lib::c=z");
}

TEST(ForcedSettingsTest, TheHelpOfForcedChoicesNamesOperators) {
  const SettingSpec& spec = *FindSetting("force_choice");
  EXPECT_THAT(HelpText(spec), HasSubstr("custom operators of PyTorch"));
}

TEST(ForcedSettingsTest, TheOptionForceOfAGroupRefusesAsItsSettingsDo) {
  SettingValues values;
  ASSERT_TRUE(AssignForceOfGroup("broadcast=nccl/auto", "options.force", values));
  EXPECT_EQ(values.force.text(), "broadcast=nccl/auto");
  for (const char* const text :
       {"lib::op=body", "all_reduce=host/ring,lib::op=body", "lib::op=", "lib::=x",
        "all_reduce=host/ring,", "all_reduce=host/ring,all_gather", "all_reducee=host/ring"}) {
    const Status assigned = AssignForceOfGroup(text, "options.force", values);
    ASSERT_FALSE(assigned) << text;
    SettingSources sources;
    sources.flags_origin = "options.force";
    sources.flags = {{"force", text}};
    const Error error = ResolveSettings(sources).error();
    EXPECT_EQ(assigned.error().code, ErrorCode::kUsage);
    EXPECT_EQ(assigned.error().ToText(), error.ToText());
    // A group takes no operators, so that no advice names one.
    EXPECT_THAT(error.next_step, Not(HasSubstr("lib::op"))) << text;
  }
  EXPECT_EQ(values.force.text(), "broadcast=nccl/auto") << "a refused text changes nothing";
}

TEST(ForcedSettingsTest, AGroupForcesNoOperatorsOfPyTorch) {
  SettingSources sources;
  sources.flags_origin = "option settings of the group";
  sources.flags = {{"force", "lib::op=body"}};
  const Error error = ResolveSettings(sources).error();
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_EQ(error.what, "force_choice has \"lib::op=body\"");
  EXPECT_EQ(error.where, "option settings of the group");
  EXPECT_THAT(error.cause, HasSubstr("a custom operator of PyTorch"));
  // The variable is shared with cotune.torch.
  sources.flags = {{"budget", "1s"}};
  sources.environment = {{"COTUNE_FORCE", "lib::op=body"}};
  EXPECT_EQ(ResolveSettings(sources).value().forced_operators, "lib::op=body");
}

}  // namespace
}  // namespace cotune
