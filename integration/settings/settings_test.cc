#include "integration/settings/settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "integration/settings/settings_file.h"

namespace cotune {
namespace {

class SettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }

  std::string WriteFile(const std::string& name, const std::string& content) const {
    std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << content;
    return path;
  }

  std::string folder_;
};

TEST_F(SettingsTest, DefaultsAreThoseOfTheTuningSettings) {
  const ResolvedSettings resolved = ResolveSettings({}).value();
  EXPECT_EQ(resolved.values.AgreedValues(), TuningSettings{}.AgreedValues());
  for (const SettingSpec& spec : AllSettings()) {
    EXPECT_EQ(resolved.origins.at(std::string(spec.name)), "default") << spec.name;
  }
}

TEST_F(SettingsTest, TheTableHoldsTogether) {
  SettingValues values;
  for (const SettingSpec& spec : AllSettings()) {
    EXPECT_EQ(FindSetting(spec.name), &spec);
    EXPECT_FALSE(spec.help.empty());
    const std::string text = FormatSetting(spec, values);
    EXPECT_TRUE(AssignSetting(spec, text, "test", values).has_value()) << spec.name << text;
    EXPECT_EQ(FormatSetting(spec, values), text);
  }
  const SettingSpec* spec = FindSetting("collective_pre_sync_timeout");
  EXPECT_EQ(VariableName(spec->name), "COTUNE_COLLECTIVE_PRE_SYNC_TIMEOUT");
  EXPECT_EQ(FlagName(spec->name), "--collective-pre-sync-timeout");
  EXPECT_EQ(FindSetting("no_such"), nullptr);
  for (const SettingAlias& alias : AllAliases()) {
    const SettingSpec* named = FindSetting(alias.name);
    ASSERT_NE(named, nullptr) << alias.name;
    EXPECT_EQ(named->name, alias.setting);
    EXPECT_EQ(AliasesOf(*named), std::vector<std::string_view>{alias.name});
    EXPECT_TRUE(HelpText(*named).ends_with(fmt::format("(also named {})", alias.name)));
  }
  EXPECT_EQ(HelpText(*spec), spec->help);
}

TEST_F(SettingsTest, FusionHasTheDefaultsOfItsRulesAndReadsEveryOne) {
  SettingSources sources;
  EXPECT_EQ(ResolveSettings(sources).value().values.fusion, FusionRules{});
  sources.settings_file = WriteFile("a.toml",
                                    "collective_fusion_enabled = off\n"
                                    "custom_op_fusion_types = \"prologue,epilogue\"\n"
                                    "max_fusion_depth = 8\n");
  sources.environment = {{"COTUNE_BENCHMARK_COLLECTIVE_EPILOGUE_FUSION", "off"},
                         {"COTUNE_MAX_FUSION_DEPTH", "3"}};
  sources.flags = {{"enable_recursive_fusion", "off"}, {"fusion_speedup_threshold", "1.1"}};
  const ResolvedSettings resolved = ResolveSettings(sources).value();
  const FusionRules expected{.enabled = false,
                             .types = 3,
                             .benchmarks_epilogues = false,
                             .is_recursive = false,
                             .max_depth = 3,
                             .speedup_threshold = 1.1};
  EXPECT_EQ(resolved.values.fusion, expected);
  EXPECT_EQ(resolved.origins.at("max_fusion_depth"), "COTUNE_MAX_FUSION_DEPTH");
  EXPECT_EQ(FormatSetting(*FindSetting("custom_op_fusion_types"), resolved.values),
            "epilogue,prologue");
}

TEST_F(SettingsTest, KindsOfFusionAreASetOfWords) {
  const auto types = [](const char* text) {
    SettingSources sources;
    sources.flags = {{"custom_op_fusion_types", text}};
    return ResolveSettings(sources).value().values.fusion.types;
  };
  EXPECT_EQ(types(""), 0);
  EXPECT_EQ(types("none"), 0);
  EXPECT_EQ(types("epilogue"), 1);
  EXPECT_EQ(types("cross_subgraph,epilogue,epilogue"), 5);
  EXPECT_EQ(types(" cross_subgraph, epilogue "), 5);
  EXPECT_EQ(types(" "), 0);
  EXPECT_EQ(types("epilogue,prologue,cross_subgraph"), kAllFusionTypes);
  EXPECT_EQ(FormatSetting(*FindSetting("custom_op_fusion_types"), SettingValues{}),
            "epilogue,prologue,cross_subgraph");
}

TEST_F(SettingsTest, AnAliasIsTakenFromEverySource) {
  SettingSources sources;
  sources.settings_file = WriteFile("a.toml", "max_autotune_gemm_threads = 3\n");
  EXPECT_EQ(ResolveSettings(sources).value().values.precompile_threads, 3);
  EXPECT_EQ(ResolveSettings(sources).value().origins.at("precompile_threads"),
            *sources.settings_file + ":1");
  sources.environment = {{"COTUNE_MAX_AUTOTUNE_GEMM_THREADS", "4"}};
  EXPECT_EQ(ResolveSettings(sources).value().values.precompile_threads, 4);
  sources.flags = {{"max_autotune_gemm_threads", "5"}};
  EXPECT_EQ(ResolveSettings(sources).value().values.precompile_threads, 5);
  EXPECT_EQ(ResolveSettings(sources).value().origins.at("precompile_threads"),
            "--max-autotune-gemm-threads");
  sources.flags = {{"max_autotune_gemm_threads", "many"}};
  EXPECT_EQ(ResolveSettings(sources).error().ToText(),
            "bad value \"many\" for max_autotune_gemm_threads (--max-autotune-gemm-threads): it is "
            "not a number; give a whole number from 0 to 1024");
}

TEST_F(SettingsTest, ASettingAndItsAliasMustNotDifferInOneSource) {
  SettingSources sources;
  sources.settings_file =
      WriteFile("a.toml", "collective_fusion_enabled = on\nenable_custom_op_fusion = off\n");
  const Error error = ResolveSettings(sources).error();
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_EQ(error.ToText(),
            fmt::format("collective_fusion_enabled is on, and its alias enable_custom_op_fusion is "
                        "off ({0}:1 and {0}:2): both are names of one setting; remove one of them, "
                        "or give both one value",
                        *sources.settings_file));
  sources.settings_file.reset();
  sources.environment = {{"COTUNE_ENABLE_CUSTOM_OP_FUSION", "off"},
                         {"COTUNE_COLLECTIVE_FUSION_ENABLED", "on"}};
  EXPECT_EQ(ResolveSettings(sources).error().code, ErrorCode::kUsage);
  sources.environment["COTUNE_ENABLE_CUSTOM_OP_FUSION"] = "true";
  EXPECT_TRUE(ResolveSettings(sources).value().values.fusion.enabled) << "they agree";
}

// A later source counts more under either name.
TEST_F(SettingsTest, ALaterSourceOverridesTheOtherName) {
  SettingSources sources;
  sources.settings_file = WriteFile("a.toml", "collective_fusion_enabled = on\n");
  sources.environment = {{"COTUNE_ENABLE_CUSTOM_OP_FUSION", "off"}};
  EXPECT_FALSE(ResolveSettings(sources).value().values.fusion.enabled);
  EXPECT_EQ(ResolveSettings(sources).value().origins.at("collective_fusion_enabled"),
            "COTUNE_ENABLE_CUSTOM_OP_FUSION");
  sources.flags = {{"collective_fusion_enabled", "on"}};
  EXPECT_TRUE(ResolveSettings(sources).value().values.fusion.enabled);
}

TEST_F(SettingsTest, EachSourceOverridesTheOneBefore) {
  SettingSources sources;
  sources.settings_file = WriteFile("a.toml",
                                    "# settings\n"
                                    "budget = 10s\n"
                                    "min_rounds = 9   # few\n"
                                    "noise_percent = \"3.5\"\n"
                                    "\n"
                                    "[host]\n"
                                    "slot_bytes = '1M'\n");
  sources.environment = {{"COTUNE_BUDGET", "20s"}, {"COTUNE_MIN_ROUNDS", "10"}};
  sources.flags = {{"budget", "1m"}};
  const ResolvedSettings resolved = ResolveSettings(sources).value();
  EXPECT_EQ(resolved.values.budget_ns, 60'000'000'000);
  EXPECT_EQ(resolved.origins.at("budget"), "--budget");
  EXPECT_EQ(resolved.values.min_rounds, 10);
  EXPECT_EQ(resolved.origins.at("min_rounds"), "COTUNE_MIN_ROUNDS");
  EXPECT_DOUBLE_EQ(resolved.values.noise_percent, 3.5);
  EXPECT_EQ(resolved.origins.at("noise_percent"), *sources.settings_file + ":4");
  EXPECT_EQ(resolved.backend_values.at("host.slot_bytes"), "1M");
  EXPECT_EQ(resolved.backend_origins.at("host.slot_bytes"), *sources.settings_file + ":7");
  EXPECT_EQ(resolved.settings_file, *sources.settings_file);

  sources.backend_flags = {"host.slot_bytes=2M=x"};
  const ResolvedSettings with_set = ResolveSettings(sources).value();
  EXPECT_EQ(with_set.backend_values.at("host.slot_bytes"), "2M=x");
  EXPECT_EQ(with_set.backend_origins.at("host.slot_bytes"), "--set");
}

TEST_F(SettingsTest, EveryTypeIsRead) {
  SettingSources sources;
  sources.flags = {{"collective_autotune_timeout", "500ms"},
                   {"collective_benchmark_nruns", "12"},
                   {"enable_collective_multitemplate", "off"},
                   {"collective_multi_kernel_hints", "1K:4K:x2,64K"},
                   {"precompile_threads", "3"},
                   {"sample_time", "50us"},
                   {"force_choice", "broadcast=nccl/auto,all_reduce=host/ring?chunk=65536"},
                   {"plugin_path", "/a:/b"},
                   {"database", "/tmp/x.tdb"}};
  const ResolvedSettings resolved = ResolveSettings(sources).value();
  EXPECT_EQ(resolved.values.collective_autotune_timeout_ns, 500'000'000);
  EXPECT_EQ(resolved.values.collective_benchmark_nruns, 12);
  EXPECT_FALSE(resolved.values.enable_collective_multitemplate);
  EXPECT_EQ(resolved.values.collective_multi_kernel_hints_bytes,
            (std::vector<uint64_t>{1024, 2048, 4096, 65536}));
  EXPECT_EQ(resolved.values.precompile_threads, 3);
  EXPECT_EQ(resolved.values.sample_ns, 50'000);
  EXPECT_EQ(resolved.values.force.text(), "all_reduce=host/ring?chunk=65536,broadcast=nccl/auto");
  EXPECT_EQ(resolved.values.plugin_path, "/a:/b");
  EXPECT_EQ(resolved.values.database, "/tmp/x.tdb");
}

TEST_F(SettingsTest, BadValuesNameOriginValueAndWhatIsAllowed) {
  struct Case {
    const char* name;
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"min_rounds", "0",
       "bad value \"0\" for min_rounds (--min-rounds): it is outside the limits; give a whole "
       "number from 1 to 10000"},
      {"min_rounds", "2.5",
       "bad value \"2.5\" for min_rounds (--min-rounds): it is not a whole number; give a whole "
       "number from 1 to 10000"},
      {"min_rounds", "99999999999",
       "bad value \"99999999999\" for min_rounds (--min-rounds): it is too large; give a whole "
       "number from 1 to 10000"},
      {"noise_percent", "nan",
       "bad value \"nan\" for noise_percent (--noise-percent): it is outside the limits; give a "
       "number from 0 to 50"},
      {"noise_percent", "2%",
       "bad value \"2%\" for noise_percent (--noise-percent): it is not a number; give a number "
       "from 0 to 50"},
      {"enable_collective_multitemplate", "maybe",
       "bad value \"maybe\" for enable_collective_multitemplate "
       "(--enable-collective-multitemplate): it is neither on nor off; give on or off"},
      {"numerics", "Same",
       "bad value \"Same\" for numerics (--numerics): it is neither any nor same; give any or "
       "same"},
      {"custom_op_fusion_types", "epilogue,,prologue",
       "bad value \"epilogue,,prologue\" for custom_op_fusion_types (--custom-op-fusion-types): "
       "\"\" is none of the words; give none, or words of epilogue, prologue, cross_subgraph with "
       "commas between them"},
      {"custom_op_fusion_types", "none,epilogue",
       "bad value \"none,epilogue\" for custom_op_fusion_types (--custom-op-fusion-types): "
       "\"none\" "
       "is none of the words; give none, or words of epilogue, prologue, cross_subgraph with "
       "commas "
       "between them"},
      {"force_choice", "all_reduc=host/ring",
       "bad value \"all_reduc=host/ring\" for force_choice (--force-choice): \"all_reduc\" is no "
       "collective: known: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast; did you "
       "mean all_reduce?; give collectives and their choices, such as "
       "all_reduce=nccl/auto,all_gather=host/ring?chunk=65536, or custom operators of PyTorch, "
       "such as lib::op=python/ring"},
      {"force_choice", "all_reduce=host/ring,",
       "bad value \"all_reduce=host/ring,\" for force_choice (--force-choice): element 2 of the "
       "list is empty; give collectives and their choices, such as "
       "all_reduce=nccl/auto,all_gather=host/ring?chunk=65536, or custom operators of PyTorch, "
       "such as lib::op=python/ring"},
      {"force_choice", "lib::op=",
       "bad value \"lib::op=\" for force_choice (--force-choice): \"lib::op=\" names no choice: "
       "nothing follows its '='; give collectives and their choices, such as "
       "all_reduce=nccl/auto,all_gather=host/ring?chunk=65536, or custom operators of PyTorch, "
       "such as lib::op=python/ring"},
      {"max_fusion_depth", "9",
       "bad value \"9\" for max_fusion_depth (--max-fusion-depth): it is outside the limits; give "
       "a whole number from 1 to 8"},
      {"fusion_speedup_threshold", "0.99",
       "bad value \"0.99\" for fusion_speedup_threshold (--fusion-speedup-threshold): it is "
       "outside the limits; give a number from 1 to 10"},
      {"enable_custom_op_fusion", "maybe",
       "bad value \"maybe\" for enable_custom_op_fusion (--enable-custom-op-fusion): it is neither "
       "on nor off; give on or off"},
      {"collective_pre_sync_timeout", "1d",
       "bad value \"1d\" for collective_pre_sync_timeout (--collective-pre-sync-timeout): unknown "
       "unit \"d\"; known: ns, us, ms, s, m, h; give a duration from 1ms to 1h, for example 500ms"},
      {"collective_pre_sync_timeout", "1us",
       "bad value \"1us\" for collective_pre_sync_timeout (--collective-pre-sync-timeout): it is "
       "outside the limits; give a duration from 1ms to 1h, for example 500ms"},
      {"warm_timeout", "-3s",
       "bad value \"-3s\" for warm_timeout (--warm-timeout): it is negative; give a duration from "
       "1ms to 24h, for example 500ms"},
      {"collective_multi_kernel_hints", "1K,2Q",
       "bad value \"1K,2Q\" for collective_multi_kernel_hints (--collective-multi-kernel-hints): "
       "character 5: unknown suffix 'Q'; known: K, M, G, T; give sizes such as 1K:16M:x2 or 4K,1M"},
  };
  for (const Case& expected : cases) {
    SettingSources sources;
    sources.flags = {{expected.name, expected.text}};
    const auto resolved = ResolveSettings(sources);
    ASSERT_FALSE(resolved.has_value()) << expected.text;
    EXPECT_EQ(resolved.error().code, ErrorCode::kUsage);
    EXPECT_EQ(resolved.error().ToText(), expected.message);
  }
}

TEST_F(SettingsTest, BadValuesOfTheEnvironmentNameTheVariable) {
  SettingSources sources;
  sources.environment = {{"COTUNE_BUDGET", "later"}};
  EXPECT_EQ(ResolveSettings(sources).error().where, "COTUNE_BUDGET");
  sources.environment = {{"COTUNE_BUDGET", ""}};
  EXPECT_EQ(ResolveSettings(sources).value().origins.at("budget"), "default");
}

TEST_F(SettingsTest, UnknownVariablesWarnWithTheNearestName) {
  SettingSources sources;
  sources.environment = {{"COTUNE_BUDGTE", "1s"},
                         {"COTUNE_WORLD_SIZE", "4"},
                         {"COTUNE_QQQQQQQQQQQQQQQQQQQQQQQQQQQQ", "1"},
                         {"OTHER_BUDGET", "x"}};
  const ResolvedSettings resolved = ResolveSettings(sources).value();
  EXPECT_EQ(
      resolved.warnings,
      (std::vector<std::string>{
          "unknown variable COTUNE_BUDGTE is ignored; did you mean COTUNE_BUDGET?",
          "unknown variable COTUNE_QQQQQQQQQQQQQQQQQQQQQQQQQQQQ is ignored; no setting has a name "
          "like it; see `cotune config show`"}));
  EXPECT_EQ(resolved.values.budget_ns, 0);
  sources.environment = {{"COTUNE_ENABLE_CUSTOM_OP_FUSIONS", "1"}};
  EXPECT_EQ(ResolveSettings(sources).value().warnings.at(0),
            "unknown variable COTUNE_ENABLE_CUSTOM_OP_FUSIONS is ignored; did you mean "
            "COTUNE_ENABLE_CUSTOM_OP_FUSION?");
}

TEST_F(SettingsTest, UnknownKeysOfAFileAreErrorsWithLineAndNearestName) {
  SettingSources sources;
  sources.settings_file = WriteFile("a.toml", "\n\nmin_round = 9\n");
  const Error error = ResolveSettings(sources).error();
  EXPECT_EQ(error.what, "unknown setting \"min_round\"");
  EXPECT_EQ(error.where, *sources.settings_file + ":3");
  EXPECT_TRUE(error.cause.ends_with("did you mean min_rounds?")) << error.cause;
}

TEST_F(SettingsTest, AKeyThatStandsTwiceIsAnError) {
  SettingSources sources;
  sources.settings_file = WriteFile("a.toml", "budget = 1s\nmin_rounds = 9\nbudget = 2s\n");
  const Error error = ResolveSettings(sources).error();
  EXPECT_EQ(error.where, *sources.settings_file + ":3");
  EXPECT_EQ(error.cause, "the first is in line 1");
}

TEST_F(SettingsTest, LinesAreFlagsOfOnePlace) {
  SettingSources sources;
  sources.environment = {{"COTUNE_BUDGET", "7s"}};
  sources.flags_origin = "options";
  sources.flags = ParseSettingLines("budget=5s\n\nforce=all_reduce=host/ring", "options").value();
  const ResolvedSettings resolved = ResolveSettings(sources).value();
  EXPECT_EQ(resolved.values.budget_ns, 5'000'000'000);
  EXPECT_EQ(resolved.values.force.text(), "all_reduce=host/ring");
  EXPECT_EQ(resolved.origins.at("budget"), "options");
}

TEST_F(SettingsTest, RefusesLinesThatAreNoSettings) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"budget", "\"budget\" is not a setting (options): it is not of the form NAME=VALUE"},
           {"bugdet=5s",
            "unknown setting \"bugdet\" (options): did you mean budget?; see `cotune config show`"},
           {"budget=1s\nbudget=1s", "\"budget\" stands twice among the settings (options)"}}) {
    const auto parsed = ParseSettingLines(text, "options");
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error().ToText(), ::testing::HasSubstr(expected));
  }
}

TEST_F(SettingsTest, FindsTheFileOfTheUser) {
  WriteFile("cotune/config.toml", "budget = 7s\n");
  SettingSources sources;
  sources.environment = {{"XDG_CONFIG_HOME", folder_}};
  EXPECT_EQ(ResolveSettings(sources).value().origins.at("budget"),
            folder_ + "/cotune/config.toml:1");

  sources.environment["COTUNE_CONFIG"] = WriteFile("b.toml", "budget = 8s\n");
  EXPECT_EQ(ResolveSettings(sources).value().values.budget_ns, 8'000'000'000);

  sources.settings_file = WriteFile("c.toml", "budget = 9s\n");
  EXPECT_EQ(ResolveSettings(sources).value().values.budget_ns, 9'000'000'000);

  WriteFile(".config/cotune/config.toml", "budget = 6s\n");
  EXPECT_EQ(ResolveSettings({{{"HOME", folder_}}, std::nullopt, {}, {}}).value().values.budget_ns,
            6'000'000'000);
}

TEST_F(SettingsTest, AFileThatCannotBeReadIsAnError) {
  SettingSources sources;
  sources.settings_file = folder_ + "/missing.toml";
  EXPECT_EQ(ResolveSettings(sources).error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(ResolveSettings(sources).error().ToText(),
            "cannot read the settings file (" + folder_ +
                "/missing.toml): No such file or directory; give another file with --config or "
                "COTUNE_CONFIG");
  sources.settings_file = folder_;
  EXPECT_EQ(ResolveSettings(sources).error().cause, "it is not a regular file");
  sources.settings_file = WriteFile("large.toml", std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(ResolveSettings(sources).error().cause, "it is larger than 1 MiB");
}

TEST_F(SettingsTest, LinesThatCannotBeReadNameLineAndCause) {
  const auto cause = [](const char* line) {
    const auto entries = ParseSettingsFile(std::string("# one\n") + line, "f");
    if (entries.has_value()) return std::string("read");
    EXPECT_EQ(entries.error().where, "f:2");
    return entries.error().cause;
  };
  EXPECT_EQ(cause("budget"), "there is no '='");
  EXPECT_EQ(cause("= 3"), "\"\" is not a key");
  EXPECT_EQ(cause("a b = 3"), "\"a b\" is not a key");
  EXPECT_EQ(cause("budget = "), "the value is missing");
  EXPECT_EQ(cause("budget = # none"), "the value is missing");
  EXPECT_EQ(cause("budget = \"3"), "the closing quote is missing");
  EXPECT_EQ(cause("budget = \"3\" 4"), "something follows the closing quote");
  EXPECT_EQ(cause("budget = \"\\n\""), "only \\\\ and \\\" are known behind a backslash");
  EXPECT_EQ(cause("[host"), "a section is written [name]");
  EXPECT_EQ(cause("[]"), "a section is written [name]");
  EXPECT_EQ(cause("["), "a section is written [name]");
}

TEST_F(SettingsTest, QuotesKeepBlanksHashesAndEscapes) {
  const auto entries =
      ParseSettingsFile("a = \" #1 \\\"x\\\\ \" # c\r\n b='\\n'\n[s] # t\nc=d e", "f").value();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].value, " #1 \"x\\ ");
  EXPECT_EQ(entries[1].key, "b");
  EXPECT_EQ(entries[1].value, "\\n");
  EXPECT_EQ(entries[2].section, "s");
  EXPECT_EQ(entries[2].value, "d e");
  EXPECT_EQ(entries[2].line, 4);
}

TEST_F(SettingsTest, BackendSettingsNeedTheirForm) {
  for (const char* text : {"slot_bytes=1", "host.slot_bytes", "host.=1", ".a=1", "Host.a=1",
                           "host.a?b=1", "=host.a"}) {
    SettingSources sources;
    sources.backend_flags = {text};
    const auto resolved = ResolveSettings(sources);
    ASSERT_FALSE(resolved.has_value()) << text;
    EXPECT_EQ(resolved.error().where, "--set");
    EXPECT_EQ(resolved.error().next_step, "write for example host.slot_bytes=1M");
  }
}

TEST_F(SettingsTest, DefaultRoundsGiveWayAndContradictionsAreErrors) {
  SettingSources sources;
  sources.flags = {{"collective_benchmark_nruns", "3"}};
  EXPECT_EQ(ResolveSettings(sources).value().values.min_rounds, 3);
  EXPECT_EQ(ResolveSettings(sources).value().origins.at("min_rounds"),
            "collective_benchmark_nruns");
  sources.flags = {{"min_rounds", "80"}};
  EXPECT_EQ(ResolveSettings(sources).value().values.collective_benchmark_nruns, 80);
  sources.flags = {{"min_rounds", "8"}, {"collective_benchmark_nruns", "4"}};
  const Error error = ResolveSettings(sources).error();
  EXPECT_EQ(error.where, "--min-rounds and --collective-benchmark-nruns");
}

}  // namespace
}  // namespace cotune
