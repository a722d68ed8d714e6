#include "cli/input/flag_effects.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

using ::testing::HasSubstr;
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
  };
  for (const Words& arguments : cases) {
    const Status status = CheckFlagsAct(Parsed(arguments));
    EXPECT_TRUE(status) << status.error().ToText();
  }
}

struct Idle {
  Words command;
  Words flags;
  std::string warning;  // "": none
};

TEST(FlagEffectsTest, ASettingThatTheCommandDoesNotUseIsNamed) {
  const std::vector<Idle> cases = {
      {{"tune"},
       {"--load-database", "off"},
       "--load-database has no effect on `cotune tune`: programs that link cotune use it"},
      {{"tune"},
       {"--exit-when-stuck", "off"},
       "--exit-when-stuck has no effect on `cotune tune`: programs that link cotune use it"},
      {{"tune"}, {"--force-choice", "all_reduce=host/ring"}, ""},
      {{"tune"}, {"--budget", "1s"}, ""},
      {{"bench"},
       {"--force-choice", "all_reduce=host/ring"},
       "--force-choice has no effect on `cotune bench`: every choice is measured"},
      {{"bench"}, {"--max-autotune-gemm-threads", "2"}, ""},
      {{"explain", "all_reduce", "1K", "f32"},
       {"--budget", "1s"},
       "--budget has no effect on `cotune explain`: this command measures nothing"},
      {{"explain", "all_reduce", "1K", "f32"}, {"--numerics", "same"}, ""},
      {{"explain", "all_reduce", "1K", "f32"}, {"--force-choice", "all_reduce=host/ring"}, ""},
      {{"doctor"},
       {"--max-autotune-gemm-threads", "2"},
       "--max-autotune-gemm-threads has no effect on `cotune doctor`: this command measures "
       "nothing"},
      {{"doctor"}, {"--db", "x"}, ""},
      {{"db", "show"},
       {"--force-choice", "all_reduce=host/ring"},
       "--force-choice has no effect on `cotune db show`: this command names no winner of a call"},
      {{"plugin", "list"},
       {"--db", "x"},
       "--database has no effect on `cotune plugin list`: this command reads no database"},
      {{"program", "recipes", "p"},
       {"--database", "x"},
       "--database has no effect on `cotune program recipes`: this command reads no database"},
      {{"config", "show"}, {"--budget", "1s"}, ""},
      {{"run"}, {"--load-database", "off", "--", "x"}, ""},
  };
  for (const Idle& each : cases) {
    Words arguments = each.command;
    arguments.insert(arguments.end(), each.flags.begin(), each.flags.end());
    const Words warnings = IdleSettings(Parsed(arguments));
    EXPECT_EQ(warnings, each.warning.empty() ? Words{} : Words{each.warning});
  }
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
