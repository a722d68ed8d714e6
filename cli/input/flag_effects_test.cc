#include "cli/input/flag_effects.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "integration/settings/setting_table.h"

namespace cotune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

CommandLine Parsed(const Words& arguments) {
  const Result<CommandLine> line = ParseCommandLine(arguments);
  if (!line) ADD_FAILURE() << line.error().ToText();
  return line ? *line : CommandLine{};
}

struct Refused {
  Words arguments;
  std::string flag;
  std::string cause;
};

TEST(FlagEffectsTest, AFlagWithoutAMeaningIsRefusedByName) {
  const std::vector<Refused> cases = {
      {{"explain", "all_reduce", "1K", "f32", "--rows", "3"}, "--rows", "only programs have rows"},
      {{"explain", "broadcast", "1K", "f32", "--reduction", "max"},
       "--reduction",
       "broadcast does not reduce"},
      {{"explain", "--program", "p", "--rows", "3", "--reduction", "max"},
       "--reduction",
       "the text of the program defines it"},
      {{"explain", "--program", "p", "--rows", "3", "--in-place"},
       "--in-place",
       "the text of the program defines it"},
      {{"tune", "--collective", "all_gather", "--reduction", "max"},
       "--reduction",
       "all_gather does not reduce"},
      {{"bench", "--collective", "all_gather,broadcast", "--reduction", "max"},
       "--reduction",
       "all_gather and the others do not"},
      {{"tune", "--sizes", "1K", "--collective-multi-kernel-hints", "2K"},
       "--collective-multi-kernel-hints",
       "--sizes names the sizes"},
      {{"bench", "--sizes", "1K", "--collective-multi-kernel-hints", "2K"},
       "--collective-multi-kernel-hints",
       "--sizes names the sizes"},
      {{"tune", "--program", "p", "--rows", "4", "--collective-multi-kernel-hints", "2K"},
       "--collective-multi-kernel-hints",
       "--rows gives the size of the programs"},
      {{"db", "show", "x.tdb", "--db", "y.tdb"}, "--db", "FILE names the database"},
  };
  for (const Refused& each : cases) {
    const Status status = CheckFlagsAct(Parsed(each.arguments));
    ASSERT_FALSE(status) << ::testing::PrintToString(each.arguments);
    const Error& error = status.error();
    EXPECT_EQ(error.code, ErrorCode::kUsage);
    EXPECT_EQ(error.what, each.flag + " has no effect here");
    EXPECT_EQ(error.where, each.flag);
    EXPECT_THAT(error.cause, HasSubstr(each.cause));
    EXPECT_NE(error.next_step, "");
  }
}

TEST(FlagEffectsTest, FlagsThatActAreTaken) {
  const std::vector<Words> cases = {
      {"explain", "all_reduce", "1K", "f32", "--reduction", "max", "--in-place"},
      {"explain", "--program", "p", "--rows", "3", "--buffers", "plain"},
      // The command reports the name, with the nearest one.
      {"explain", "broadcats", "1K", "f32", "--reduction", "max"},
      {"tune", "--collective", "all", "--reduction", "max"},
      {"tune", "--collective", "broadcast,all_reduce", "--reduction", "max"},
      {"tune", "--reduction", "max"},
      {"db", "show", "--db", "y.tdb"},
      {"db", "show", "x.tdb"},
      {"tune", "--collective-multi-kernel-hints", "2K"},
      {"tune", "--program", "p", "--collective-multi-kernel-hints", "2K"},
      // The hints are for the collective.
      {"bench", "--program", "p", "--rows", "4", "--collective", "broadcast",
       "--collective-multi-kernel-hints", "2K"},
  };
  for (const Words& arguments : cases) {
    const Status status = CheckFlagsAct(Parsed(arguments));
    EXPECT_TRUE(status) << status.error().ToText();
  }
}

// The effect of a setting on each command: '+' if the command uses it, and otherwise the letter of
// a note in kNotes.
struct Row {
  std::string_view setting;
  std::string_view value;
  std::string_view effects;  // in the order of kCommands
};

const std::vector<Words> kCommands = {{"tune"},
                                      {"bench"},
                                      {"explain", "all_reduce", "1K", "f32"},
                                      {"plugin", "list"},
                                      {"db", "show"},
                                      {"doctor"},
                                      {"program", "recipes", "p"},
                                      {"config", "show"},
                                      {"run"}};

const std::map<char, std::string> kNotes = {
    {'m', "this command measures nothing"},
    {'c', "this command runs no collective"},
    {'l', "this command lists no choices"},
    {'t', "this command lists every form, also slower ones"},
    {'b', "every choice is measured"},
    {'w', "this command names no winner of a call"},
    {'r', "this command reads no database"},
    {'p', "programs that link cotune use it"}};

constexpr std::array kRows = {
    //  tune, bench, explain, plugin list, db show, doctor, program recipes, config show, run
    Row{"collective_autotune_timeout", "1s", /*               */ "+++++++++"},
    Row{"collective_benchmark_nruns", "10", /*                */ "++mmmmm++"},
    Row{"collective_pre_sync_timeout", "1s", /*               */ "++mmmmm++"},
    Row{"enable_collective_multitemplate", "on", /*           */ "++mmmmm++"},
    Row{"collective_multi_kernel_hints", "1K", /*             */ "++mmmmm++"},
    Row{"precompile_threads", "1", /*                         */ "++mmmmm++"},
    Row{"max_autotune_gemm_threads", "1", /*                  */ "++mmmmm++"},
    Row{"warm_timeout", "1s", /*                              */ "+++++++++"},
    Row{"budget", "1s", /*                                    */ "++mmmmm++"},
    Row{"min_rounds", "9", /*                                 */ "++mmmmm++"},
    Row{"noise_percent", "1", /*                              */ "++mmmmm++"},
    Row{"keep_unsteady", "on", /*                             */ "++mmmmm++"},
    Row{"sample_time", "1ms", /*                              */ "++mmmmm++"},
    Row{"neighbour_pruning", "off", /*                        */ "+bmmmmm++"},
    Row{"numerics", "same", /*                                */ "+++l+++++"},
    Row{"collective_fusion_enabled", "off", /*                */ "+++l+++++"},
    Row{"enable_custom_op_fusion", "off", /*                  */ "+++l+++++"},
    Row{"custom_op_fusion_types", "none", /*                  */ "+++l+++++"},
    Row{"benchmark_collective_epilogue_fusion", "off", /*     */ "+++l+++++"},
    Row{"enable_recursive_fusion", "off", /*                  */ "+++l+++++"},
    Row{"max_fusion_depth", "2", /*                           */ "+++l+++++"},
    Row{"fusion_speedup_threshold", "2", /*                   */ "+++l++t++"},
    Row{"force_choice", "all_reduce=host/ring", /*            */ "+b+wwww++"},
    Row{"memory", "host", /*                                  */ "+++++++++"},
    Row{"plugin_path", "/p", /*                               */ "+++++++++"},
    Row{"database", "/d", /*                                  */ "+++r++r++"},
    Row{"load_database", "off", /*                            */ "ppppppp++"},
    Row{"exit_when_stuck", "on", /*                           */ "ppppppp++"},
    Row{"check_calls", "on", /*                               */ "++ccccc++"},
};

TEST(FlagEffectsTest, EachSettingActsOnEachCommandOrIsNamed) {
  std::set<std::string_view> rows;
  for (const Row& row : kRows) {
    rows.insert(row.setting);
    ASSERT_EQ(row.effects.size(), kCommands.size());
    for (size_t i = 0; i < kCommands.size(); ++i) {
      Words arguments = kCommands[i];
      arguments.insert(arguments.end(), {FlagName(row.setting), std::string(row.value)});
      if (kCommands[i].front() == "run") arguments.insert(arguments.end(), {"--", "x"});
      const CommandLine line = Parsed(arguments);
      Words expected;
      if (row.effects[i] != '+') {
        expected.push_back(fmt::format("{} has no effect on `cotune {}`: {}", FlagName(row.setting),
                                       line.command, kNotes.at(row.effects[i])));
      }
      EXPECT_EQ(IdleSettings(line), expected) << row.setting << " of " << line.command;
    }
  }
  // Every setting and every alias that is a flag has a row.
  for (const SettingSpec& spec : AllSettings()) {
    EXPECT_TRUE(rows.contains(spec.name)) << spec.name;
    EXPECT_TRUE(UseOfSetting(spec.name)) << spec.name;
  }
  for (const SettingAlias& alias : AllAliases()) {
    EXPECT_TRUE(alias.name == "force" || rows.contains(alias.name)) << alias.name;
  }
}

TEST(FlagEffectsTest, AForcedOperatorOfPyTorchIsNamedIfTheCommandDoesNotStartPyTorch) {
  const auto warnings = [](Words arguments, const char* force) {
    const auto program = std::find(arguments.begin(), arguments.end(), "--");
    arguments.insert(program, {"--force-choice", force});
    return IdleSettings(Parsed(arguments));
  };
  const char* const mixed = "all_reduce=host/ring,lib::op = python/ring";
  EXPECT_THAT(warnings({"tune"}, mixed),
              ElementsAre("--force-choice for lib::op=python/ring has no effect on `cotune tune`: "
                          "PyTorch runs custom operators, and this command does not start it; see "
                          "`cotune run`"));
  EXPECT_THAT(warnings({"explain", "all_reduce", "1K", "f32"}, "lib::op=body"),
              ElementsAre(HasSubstr("lib::op=body has no effect on `cotune explain`")));
  EXPECT_THAT(warnings({"bench"}, mixed), ElementsAre(HasSubstr("every choice is measured")));
  EXPECT_THAT(warnings({"doctor"}, mixed), ElementsAre(HasSubstr("names no winner of a call")));
  EXPECT_THAT(warnings({"run", "--", "x"}, mixed), IsEmpty());
  EXPECT_THAT(warnings({"config", "show"}, mixed), IsEmpty());
  // The setting itself refuses a text that cannot be read.
  EXPECT_THAT(warnings({"tune"}, "lib::op="), IsEmpty());
}

TEST(FlagEffectsTest, FlagsThatContradictAreRefusedByTheParser) {
  EXPECT_THAT(
      ParseCommandLine({"tune", "--mode", "immediate", "--enable-collective-multitemplate", "on"})
          .error()
          .what,
      HasSubstr("--mode"));
  const Error version = ParseCommandLine({"--version", "tune"}).error();
  EXPECT_EQ(version.code, ErrorCode::kUsage);
  EXPECT_EQ(version.what, "--version has no effect on a command");
}

}  // namespace
}  // namespace cotune::cli
