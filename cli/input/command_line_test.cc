#include "cli/input/command_line.h"

#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

using Words = std::vector<std::string>;

template <typename Flags>
Flags Parsed(const Words& arguments) {
  const Result<CommandLine> line = ParseCommandLine(arguments);
  if (!line.has_value()) {
    ADD_FAILURE() << line.error().ToText();
    return {};
  }
  return std::get<Flags>(line->flags);
}

Error ErrorOf(const Words& arguments) {
  const Result<CommandLine> line = ParseCommandLine(arguments);
  if (line.has_value()) {
    ADD_FAILURE() << "parsed";
    return {};
  }
  EXPECT_EQ(line.error().code, ErrorCode::kUsage);
  return line.error();
}

TEST(CommandLineTest, TuneTakesWhatTheGuideShows) {
  const TuneFlags flags = Parsed<TuneFlags>({"tune",
                                             "--ranks",
                                             "4",
                                             "--collective",
                                             "all",
                                             "--sizes",
                                             "1K:4M:x2",
                                             "--dtype",
                                             "f32,bf16",
                                             "--reduction=sum,max",
                                             "--in-place",
                                             "--budget",
                                             "60s",
                                             "--db",
                                             "x.tdb",
                                             "--backend",
                                             "host,fake",
                                             "--plugin",
                                             "/a.so",
                                             "--plugin",
                                             "/b.so",
                                             "--set",
                                             "host.slot_bytes=1M",
                                             "--mode",
                                             "immediate",
                                             "--force",
                                             "--json",
                                             "-q",
                                             "-v"});
  EXPECT_EQ(flags.ranks, 4);
  EXPECT_EQ(flags.problems.collectives, Words{"all"});
  EXPECT_EQ(flags.problems.dtypes, (Words{"f32", "bf16"}));
  EXPECT_EQ(flags.problems.reductions, (Words{"sum", "max"}));
  EXPECT_EQ(flags.problems.sizes, "1K:4M:x2");
  EXPECT_EQ(flags.problems.in_place, "yes");
  EXPECT_EQ(flags.settings.values.at("budget"), "60s");
  EXPECT_EQ(flags.settings.values.at("database"), "x.tdb");
  EXPECT_EQ(flags.settings.values.at("enable_collective_multitemplate"), "off");
  EXPECT_EQ(flags.settings.backend_values, Words{"host.slot_bytes=1M"});
  EXPECT_EQ(flags.plugins.backends, (Words{"host", "fake"}));
  EXPECT_EQ(flags.plugins.plugins, (Words{"/a.so", "/b.so"}));
  EXPECT_TRUE(flags.force);
}

TEST(CommandLineTest, NothingSaidIsNothingSet) {
  const TuneFlags flags = Parsed<TuneFlags>({"tune"});
  EXPECT_EQ(flags.ranks, 0);
  EXPECT_TRUE(flags.problems.collectives.empty());
  EXPECT_TRUE(flags.settings.values.empty());
  EXPECT_FALSE(flags.settings.settings_file.has_value());
  EXPECT_FALSE(flags.force);
}

TEST(CommandLineTest, EverySettingHasAFlag) {
  const ConfigShowFlags flags = Parsed<ConfigShowFlags>(
      {"config", "show", "--collective-benchmark-nruns", "7", "--database", "d", "--config", "f"});
  EXPECT_EQ(flags.settings.values.at("collective_benchmark_nruns"), "7");
  EXPECT_EQ(flags.settings.values.at("database"), "d");
  EXPECT_EQ(flags.settings.settings_file, "f");
}

TEST(CommandLineTest, OtherCommandsTakeTheirArguments) {
  const ExplainFlags explain = Parsed<ExplainFlags>(
      {"explain", "all_reduce", "256K", "bf16", "--ranks", "2", "--reduction", "max"});
  EXPECT_EQ(explain.collective, "all_reduce");
  EXPECT_EQ(explain.size, "256K");
  EXPECT_EQ(explain.dtype, "bf16");
  EXPECT_EQ(explain.ranks, 2);
  EXPECT_EQ(explain.reduction, "max");
  const DbMergeFlags merge = Parsed<DbMergeFlags>({"db", "merge", "out", "a", "b"});
  EXPECT_EQ(merge.output, "out");
  EXPECT_EQ(merge.inputs, (Words{"a", "b"}));
  EXPECT_EQ(Parsed<DbShowFlags>({"db", "show", "x"}).file, "x");
  EXPECT_TRUE(Parsed<BenchFlags>({"bench", "--tuned"}).tuned);
  Parsed<PluginListFlags>({"plugin", "list"});
}

TEST(CommandLineTest, RunPassesEverythingBehindTheDashesOn) {
  const RunFlags flags =
      Parsed<RunFlags>({"run", "--ranks", "3", "--", "./program", "--json", "-x", "--", "y"});
  EXPECT_EQ(flags.ranks, 3);
  EXPECT_EQ(flags.program, (Words{"./program", "--json", "-x", "--", "y"}));
  EXPECT_FALSE(ParseCommandLine({"run", "--", "p", "--json"})->output.json);
}

TEST(CommandLineTest, NamesTheCommandAndTheOutput) {
  const CommandLine line = ParseCommandLine({"db", "show", "f", "--json"}).value();
  EXPECT_EQ(line.command, "db show");
  EXPECT_TRUE(line.output.json);
  EXPECT_TRUE(ParseCommandLine({"--json", "config", "show"})->output.json);
  EXPECT_EQ(ParseCommandLine({"--version", "--json"})->command, "version");
}

TEST(CommandLineTest, HelpNamesFlagsAndExitCodes) {
  const std::string text = Parsed<HelpFlags>({"tune", "--help"}).text;
  EXPECT_NE(text.find("--collective-pre-sync-timeout"), std::string::npos);
  EXPECT_NE(text.find("--sizes"), std::string::npos);
  EXPECT_NE(text.find("Usage: cotune tune [OPTIONS]"), std::string::npos) << text;
  const std::string show = Parsed<HelpFlags>({"db", "show", "--help"}).text;
  EXPECT_NE(show.find("Usage: cotune db show [OPTIONS] [FILE]"), std::string::npos) << show;
  EXPECT_NE(text.find("5 rank_lost, deadline or disagreement"), std::string::npos);
  EXPECT_NE(text.find("141 the reader"), std::string::npos);
  EXPECT_NE(text.find("127 if it cannot be started"), std::string::npos);
  EXPECT_EQ(Parsed<HelpFlags>({"help", "db", "show"}).text, show);
  const std::string top = Parsed<HelpFlags>({"--help"}).text;
  EXPECT_EQ(Parsed<HelpFlags>({"help"}).text, top);
  EXPECT_NE(top.find("explain"), std::string::npos);
  EXPECT_NE(top.find("Usage: cotune [OPTIONS]"), std::string::npos) << top;
}

TEST(CommandLineTest, UnknownFlagsNameTheNearest) {
  Error error = ErrorOf({"tune", "--colective", "all"});
  EXPECT_EQ(error.what, "unknown flag --colective");
  EXPECT_EQ(error.where, "cotune tune");
  EXPECT_EQ(error.cause, "did you mean --collective?");
  EXPECT_EQ(error.next_step, "see `cotune tune --help`");
  error = ErrorOf({"tune", "--rnks=4"});
  EXPECT_EQ(error.what, "unknown flag --rnks");
  EXPECT_EQ(error.cause, "did you mean --ranks?");
  error = ErrorOf({"run", "--xyzzyxyzzyxyzzy", "--", "p"});
  EXPECT_TRUE(error.cause.starts_with("known: --")) << error.cause;
  // A flag that `run` refuses is no advice.
  EXPECT_EQ(error.cause.find("--json"), std::string::npos) << error.cause;
  EXPECT_EQ(error.cause.find("--quiet"), std::string::npos) << error.cause;
  EXPECT_EQ(ErrorOf({"--jsn"}).what, "unknown flag --jsn");
  // A required argument is missing too: the flag is what is wrong.
  EXPECT_EQ(ErrorOf({"explain", "--rnks", "4"}).what, "unknown flag --rnks");
  // Its value is taken for the program.
  EXPECT_EQ(ErrorOf({"run", "--rank", "2", "--", "./all_reduce"}).what, "unknown flag --rank");
}

TEST(CommandLineTest, FlagsOfOtherCommandsNameThose) {
  EXPECT_EQ(ErrorOf({"bench", "--force"}).cause, "it is a flag of `cotune tune`");
  EXPECT_EQ(ErrorOf({"run", "--sizes", "1K", "--", "p"}).cause,
            "it is a flag of `cotune tune`, `cotune bench`");
  EXPECT_EQ(ErrorOf({"db", "merge", "out", "in", "--tuned"}).cause,
            "it is a flag of `cotune bench`");
}

TEST(CommandLineTest, UnknownCommandsNameTheNearest) {
  Error error = ErrorOf({"tnue", "--ranks", "4"});
  EXPECT_EQ(error.what, "unknown command \"tnue\"");
  EXPECT_EQ(error.where, "cotune");
  EXPECT_TRUE(error.cause.ends_with("did you mean tune?")) << error.cause;
  error = ErrorOf({"db", "mrege"});
  EXPECT_EQ(error.what, "unknown command \"mrege\"");
  EXPECT_EQ(error.where, "cotune db");
  EXPECT_EQ(error.cause, "known: show, merge; did you mean merge?");
  EXPECT_EQ(ErrorOf({}).what, "a command is missing");
  EXPECT_TRUE(ErrorOf({}).cause.ends_with(", help")) << ErrorOf({}).cause;
  EXPECT_EQ(ErrorOf({"plugin"}).what, "a command is missing");
  EXPECT_EQ(ErrorOf({"plugin"}).cause, "known: list");
}

TEST(CommandLineTest, WrongValuesAndMissingOnesAreUsageErrors) {
  EXPECT_NE(ErrorOf({"tune", "--ranks", "many"}).what.find("--ranks"), std::string::npos);
  EXPECT_NE(ErrorOf({"tune", "--ranks", "0"}).what.find("--ranks"), std::string::npos);
  EXPECT_NE(ErrorOf({"tune", "--ranks"}).what.find("--ranks"), std::string::npos);
  EXPECT_NE(ErrorOf({"tune", "--mode", "later"}).what.find("--mode"), std::string::npos);
  EXPECT_NE(ErrorOf({"run"}).what.find("PROGRAM"), std::string::npos);
  EXPECT_EQ(ErrorOf({"tune", "extra"}).what, "unexpected argument \"extra\"");
  const Error force = ErrorOf({"tune", "--force", "all_reduce=host/ring"});
  EXPECT_EQ(force.what, "--force takes no value, and \"all_reduce=host/ring\" is given");
  EXPECT_EQ(force.cause, "did you mean --force-choice? --force measures again");
  EXPECT_EQ(ErrorOf({"tune", "--force=all_reduce=host/ring"}).ToText(), force.ToText());
  const Error place = ErrorOf({"explain", "all_reduce", "64K", "f32", "--in-place", "yes"});
  EXPECT_EQ(place.what, "--in-place takes no value, and \"yes\" is given");
  EXPECT_EQ(place.cause,
            "without --in-place the call out of place is explained; to tune either: cotune tune "
            "--in-place yes|no|both");
  EXPECT_EQ(ErrorOf({"explain", "all_reduce", "64K", "f32", "yes"}).what,
            "unexpected argument \"yes\"");
}

TEST(CommandLineTest, GuessesTheOutputOfWhatDoesNotParse) {
  EXPECT_TRUE(GuessCommandLine({"tune", "--json", "--x"}).output.json);
  EXPECT_EQ(GuessCommandLine({"db", "merge", "--x"}).command, "db merge");
  EXPECT_EQ(GuessCommandLine({"program", "recipes", "--x"}).command, "program recipes");
  EXPECT_EQ(GuessCommandLine({"nothing"}).command, "");
  EXPECT_FALSE(GuessCommandLine({"run", "--", "p", "--json"}).output.json);
}

}  // namespace
}  // namespace cotune::cli
