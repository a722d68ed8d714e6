#include "core/problem/tuning_settings.h"

#include "gtest/gtest.h"

namespace cotune {
namespace {

TEST(FusionTypesTest, AreWordsInOneOrder) {
  EXPECT_EQ(FusionTypesText(kAllFusionTypes), "epilogue,prologue,cross_subgraph");
  EXPECT_EQ(FusionTypesText(6, "+"), "prologue+cross_subgraph");
  EXPECT_EQ(FusionTypesText(0), "none");
}

TEST(FusionRulesTest, TheirDifferencesAreWhatDecidesOtherwiseThanTheDefaults) {
  const auto text = [](auto change) {
    FusionRules rules;
    change(rules);
    return rules.DifferencesText();
  };
  EXPECT_EQ(text([](FusionRules&) {}), "");
  EXPECT_EQ(text([](FusionRules& rules) { rules.enabled = false; }), "off");
  EXPECT_EQ(text([](FusionRules& rules) { rules.types = 0; }), "off");
  EXPECT_EQ(text([](FusionRules& rules) {
              rules.enabled = false;
              rules.max_depth = 2;
            }),
            "off");
  EXPECT_EQ(text([](FusionRules& rules) { rules.benchmarks_epilogues = false; }),
            "prologue+cross_subgraph");
  EXPECT_EQ(text([](FusionRules& rules) {
              rules.types = 1;
              rules.benchmarks_epilogues = false;
            }),
            "off");
  EXPECT_EQ(text([](FusionRules& rules) { rules.max_depth = 2; }), "all depth=2");
  EXPECT_EQ(text([](FusionRules& rules) { rules.is_recursive = false; }), "all depth=1");
  EXPECT_EQ(text([](FusionRules& rules) {
              rules.types = 1;
              rules.speedup_threshold = 1.1;
            }),
            "epilogue threshold=1.1");
}

TEST(TuningSettingsTest, RanksCompareEveryRuleOfFusion) {
  const auto base = TuningSettings{}.AgreedValues();
  const auto differs = [&](auto change) {
    TuningSettings settings;
    change(settings.fusion);
    return settings.AgreedValues() != base;
  };
  EXPECT_TRUE(differs([](FusionRules& rules) { rules.enabled = false; }));
  EXPECT_TRUE(differs([](FusionRules& rules) { rules.types = 1; }));
  EXPECT_TRUE(differs([](FusionRules& rules) { rules.benchmarks_epilogues = false; }));
  EXPECT_TRUE(differs([](FusionRules& rules) { rules.is_recursive = false; }));
  EXPECT_TRUE(differs([](FusionRules& rules) { rules.max_depth = 3; }));
  EXPECT_TRUE(differs([](FusionRules& rules) { rules.speedup_threshold = 1.1; }));
}

}  // namespace
}  // namespace cotune
