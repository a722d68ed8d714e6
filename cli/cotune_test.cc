// The real program, end to end: tune, and what the other commands make of it.
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

class CotuneTest : public CotuneProgramTest {};

TEST_F(CotuneTest, TunesThenStartsFromTheDatabase) {
  const ProgramEnd first = TuneSmall(database_);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(first.out.starts_with("all_reduce sum f32, 2 ranks, host memory, out of place\n"))
      << first.out;
  EXPECT_NE(first.out.find("host/"), std::string::npos);
  EXPECT_NE(first.err.find("2 cells to measure: "), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("[2/2] all_reduce f32 8K: host/"), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("saved " + database_), std::string::npos) << first.err;
  const std::string bytes = ReadFileForTest(database_);
  EXPECT_FALSE(bytes.empty());

  const ProgramEnd second = TuneSmall(database_);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.err.find("0 cells to measure, 2 known from " + database_), std::string::npos)
      << second.err;
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(ReadFileForTest(database_), bytes);

  const ProgramEnd forced = TuneSmall(database_, {"--force"});
  ASSERT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_NE(forced.err.find("2 cells to measure: "), std::string::npos) << forced.err;
}

TEST_F(CotuneTest, RoundedSizesAreSaidOnce) {
  const std::string note =
      "cotune: note: sizes are rounded down to whole elements, the same number for every rank: "
      "all_gather f32 1001 -> 1000\n";
  const std::vector<std::vector<std::string>> commands = {
      {"tune", "--ranks", "2", "--collective", "all_gather", "--sizes", "1001", "--db", database_},
      {"bench", "--ranks", "2", "--collective", "all_gather", "--sizes", "1001"},
      {"explain", "all_gather", "1001", "f32", "--ranks", "2", "--db", database_}};
  for (const std::vector<std::string>& command : commands) {
    const ProgramEnd end = Run(command);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const size_t first = end.err.find(note);
    EXPECT_NE(first, std::string::npos) << end.err;
    EXPECT_EQ(end.err.find("rounded", first + note.size()), std::string::npos) << end.err;
  }
}

TEST_F(CotuneTest, JsonHoldsTheWholeTune) {
  const ProgramEnd end = TuneSmall(database_, {"--json", "-q"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  // Tests beside this one may keep the processors busy, which is the one thing to be told.
  EXPECT_TRUE(end.err.empty() ||
              (end.err.starts_with("cotune: warning: ranks often started late") &&
               std::count(end.err.begin(), end.err.end(), '\n') == 1))
      << end.err;
  const nlohmann::json document = Document(end);
  EXPECT_EQ(document["result"]["measured_cells"], 2);
  EXPECT_EQ(document["result"]["database"], database_);
  ASSERT_EQ(document["result"]["entries"].size(), 2u);
  for (const nlohmann::json& entry : document["result"]["entries"]) {
    EXPECT_GT(entry["winner"]["time_us"].get<double>(), 0);
    for (const nlohmann::json& choice : entry["choices"]) EXPECT_EQ(choice["wrong"], 0);
  }
}

TEST_F(CotuneTest, TheTimesOfTheStagesArePartsOfTheWhole) {
  const ProgramEnd end = Run({"tune", "--ranks", "2", "--collective", "all_reduce,broadcast",
                              "--sizes", "1K,8K", "--json", "-v", "--db", database_});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const nlohmann::json result = Document(end)["result"];
  const nlohmann::json& times = result["times"];
  double sum_us = 0;
  for (const char* stage :
       {"choices_us", "compile_us", "warm_us", "sync_us", "measure_us", "agree_us", "save_us"}) {
    EXPECT_GT(times[stage].get<double>(), 0) << stage;
    sum_us += times[stage].get<double>();
  }
  EXPECT_LE(sum_us, result["elapsed_us"].get<double>());
  ASSERT_EQ(times["nodes"].size(), 2u);
  double measured_us = 0;
  for (const nlohmann::json& node : times["nodes"]) {
    EXPECT_GT(node["choices_us"].get<double>(), 0) << node;
    EXPECT_GT(node["compile_us"].get<double>(), 0) << node;
    measured_us += node["measure_us"].get<double>();
  }
  EXPECT_NEAR(measured_us, times["measure_us"].get<double>(), 1e-3);
  EXPECT_NE(end.err.find("times: choices "), std::string::npos) << end.err;

  const ProgramEnd known = Run({"tune", "--ranks", "2", "--collective", "all_reduce,broadcast",
                                "--sizes", "1K,8K", "--json", "--db", database_});
  ASSERT_EQ(known.exit_code, 0) << known.err;
  EXPECT_EQ(Document(known)["result"]["times"]["measure_us"], 0.0);
  EXPECT_EQ(known.err.find("times: "), std::string::npos) << known.err;
}

TEST_F(CotuneTest, ImmediateModeSyncsForEachNode) {
  const auto pre_syncs = [&](const char* mode) {
    const ProgramEnd end = Run({"tune", "--ranks", "2", "--sizes", "1K", "--mode", mode, "--json",
                                "--db", folder_.path() + "/" + mode});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return Document(end)["result"]["pre_syncs"].get<int>();
  };
  EXPECT_EQ(pre_syncs("deferred"), 1);
  EXPECT_EQ(pre_syncs("immediate"), 7);
}

TEST_F(CotuneTest, TheDefaultDatabaseIsFoundAgain) {
  const std::vector<std::string> tune = {
      "tune", "--ranks", "2", "--sizes", "1K", "--dtype", "f64", "--collective", "broadcast"};
  ASSERT_EQ(Run(tune).exit_code, 0);
  const ProgramEnd explained = Run({"explain", "broadcast", "1K", "f64", "--ranks", "2"});
  EXPECT_EQ(explained.exit_code, 0);
  EXPECT_NE(explained.out.find("  why: "), std::string::npos) << explained.out;
  EXPECT_NE(explained.out.find(folder_.path() + "/cache/cotune/"), std::string::npos);
}

TEST_F(CotuneTest, ExplainKnowsWinnersLosersAndRefusals) {
  ASSERT_EQ(TuneSmall(database_).exit_code, 0);
  const ProgramEnd end =
      Run({"explain", "all_reduce", "8K", "f32", "--ranks", "2", "--db", database_, "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const nlohmann::json result = Document(end)["result"];
  const std::string winner = result["entry"]["winner"]["choice"];
  EXPECT_EQ(result["runs"]["choice"], winner);
  EXPECT_GT(result["entry"]["choices"].size(), 1u);
  for (const nlohmann::json& choice : result["entry"]["choices"]) {
    EXPECT_EQ(choice["why_it_lost"].is_null(), choice["choice"] == winner) << choice;
  }
  const ProgramEnd untuned =
      Run({"explain", "all_reduce", "8K", "f32", "--ranks", "3", "--db", database_});
  EXPECT_EQ(untuned.exit_code, 0);
  EXPECT_NE(untuned.out.find("an entry is for a group of 2 ranks"), std::string::npos)
      << untuned.out;
  EXPECT_NE(untuned.out.find("to tune it: cotune tune --ranks 3"), std::string::npos);
}

TEST_F(CotuneTest, BenchPrintsEveryChoiceAndWritesNothing) {
  const ProgramEnd end = Run({"bench", "--ranks", "2", "--collective", "all_gather", "--sizes",
                              "4K", "--dtype", "bf16", "-q"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(end.out.starts_with("bytes  count  dtype  redop  time_us  algbw  busbw  wrong"))
      << end.out;
  EXPECT_NE(end.out.find("\n 4096   1024  bf16   none"), std::string::npos) << end.out;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/cache"));
  const ProgramEnd tuned = Run({"bench", "--ranks", "2", "--collective", "all_gather", "--sizes",
                                "4K", "--tuned", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const nlohmann::json entry = Document(tuned)["result"]["entries"][0];
  ASSERT_EQ(entry["choices"].size(), 1u);
  EXPECT_EQ(entry["choices"][0]["is_default"], true);
}

TEST_F(CotuneTest, DatabasesAreShownAndMerged) {
  const std::string other = folder_.path() + "/other.tdb";
  const std::string merged = folder_.path() + "/merged.tdb";
  ASSERT_EQ(TuneSmall(database_).exit_code, 0);
  ASSERT_EQ(TuneSmall(other, {"--dtype", "f64"}).exit_code, 0);
  const ProgramEnd end = Run({"db", "merge", merged, database_, other, "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(Document(end)["result"]["entries"], 4);
  EXPECT_EQ(Document(end)["result"]["changed"], true);
  const std::string bytes = ReadFileForTest(merged);
  const ProgramEnd again = Run({"db", "merge", merged, other});
  EXPECT_EQ(again.out, merged + ": 4 entries, nothing new\n");
  EXPECT_EQ(ReadFileForTest(merged), bytes);

  const nlohmann::json shown = Document(Run({"db", "show", merged, "--json"}))["result"];
  ASSERT_EQ(shown["entries"].size(), 4u);
  for (const nlohmann::json& entry : shown["entries"]) EXPECT_EQ(entry["valid_here"], true);
  const ProgramEnd text = Run({"db", "show", merged});
  EXPECT_NE(text.out.find("\n  valid here\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("all_reduce sum f64, 2 ranks"), std::string::npos);
}

TEST_F(CotuneTest, WithoutAFileTheDatabaseOfThisMachineIsShown) {
  const ProgramEnd none = Run({"db", "show"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_NE(none.err.find(folder_.path() + "/cache/cotune/"), std::string::npos) << none.err;
  const ProgramEnd tuned =
      Run({"tune", "--ranks", "2", "--collective", "all_reduce", "--sizes", "1K", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const nlohmann::json shown = Document(Run({"db", "show", "--json"}))["result"];
  EXPECT_EQ(shown["database"], Document(tuned)["result"]["database"]);
  EXPECT_EQ(shown["entries"].size(), 1u);
  // The setting names another place than the default one.
  const nlohmann::json asked = Document(Run({"db", "show", "--db", database_, "--json"}));
  EXPECT_EQ(asked["error"]["exit_code"], 3) << asked;
}

TEST_F(CotuneTest, PluginsAreListedWithTheReasonOfRefusal) {
  const std::string broken = environment_["COTUNE_PLUGIN_PATH"] + "/cotune_broken.so";
  WriteFileForTest(broken, "no library");
  const ProgramEnd end = Run({"plugin", "list", "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const nlohmann::json plugins = Document(end)["result"]["plugins"];
  ASSERT_EQ(plugins.size(), 2u);
  EXPECT_EQ(plugins[0]["path"], broken);
  EXPECT_EQ(plugins[0]["loaded"], false);
  EXPECT_NE(plugins[0]["reason"], "");
  EXPECT_EQ(plugins[1]["name"], "host");
  EXPECT_EQ(plugins[1]["abi"], "1.4");
  EXPECT_EQ(plugins[1]["memory_kinds"], nlohmann::json({"host"}));
  EXPECT_EQ(plugins[1]["loaded"], true);
  const ProgramEnd text = Run({"plugin", "list"});
  EXPECT_NE(text.out.find("refused"), std::string::npos);
}

TEST_F(CotuneTest, ConfigShowNamesOrigins) {
  environment_["COTUNE_COLLECTIVE_BENCHMARK_NRUNS"] = "30";
  WriteFileForTest(folder_.path() + "/c.toml", "noise_percent = 3\n[host]\nslot_bytes = 128K\n");
  const ProgramEnd end =
      Run({"config", "show", "--config", folder_.path() + "/c.toml", "--budget", "9s", "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  std::map<std::string, std::string> origins;
  const nlohmann::json result = Document(end)["result"];
  for (const nlohmann::json& row : result["settings"]) origins[row["name"]] = row["origin"];
  EXPECT_EQ(origins["noise_percent"], folder_.path() + "/c.toml:1");
  EXPECT_EQ(origins["budget"], "--budget");
  EXPECT_EQ(origins["collective_benchmark_nruns"], "COTUNE_COLLECTIVE_BENCHMARK_NRUNS");
  EXPECT_EQ(origins["warm_timeout"], "default");
  EXPECT_EQ(result["backend_settings"][0]["origin"], folder_.path() + "/c.toml:3");
}

TEST_F(CotuneTest, AnAliasOfASettingIsAFlagOfItsOwn) {
  const ProgramEnd shown = Run({"config", "show", "--enable-custom-op-fusion", "off", "--json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  const nlohmann::json result = Document(shown)["result"];
  for (const nlohmann::json& row : result["settings"]) {
    if (row["name"] != "collective_fusion_enabled") continue;
    EXPECT_EQ(row["value"], "off");
    EXPECT_EQ(row["origin"], "--enable-custom-op-fusion");
  }
  const ProgramEnd both = Run(
      {"config", "show", "--enable-custom-op-fusion", "off", "--collective-fusion-enabled", "on"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.err.find("(--collective-fusion-enabled and --enable-custom-op-fusion)"),
            std::string::npos)
      << both.err;
  // The program that `run` starts reads variables.
  const ProgramEnd run = Run({"run", "--ranks", "1", "--max-autotune-gemm-threads", "3", "--",
                              "/bin/sh", "-c", "echo $COTUNE_MAX_AUTOTUNE_GEMM_THREADS"});
  EXPECT_EQ(run.out, "3\n") << run.err;
}

TEST_F(CotuneTest, RunStartsAnyProgramAsRanks) {
  const ProgramEnd end = Run({"run", "--ranks", "3", "--", "/bin/sh", "-c",
                              "echo $COTUNE_RANK of $COTUNE_WORLD_SIZE $NCCL_NVLS_ENABLE"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "0 of 3 0\n");
  EXPECT_NE(end.err.find("[rank 1] 1 of 3 0\n"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("[rank 2] 2 of 3 0\n"), std::string::npos) << end.err;
  EXPECT_EQ(Run({"run", "--ranks", "2", "--", "/bin/sh", "-c", "exit 9"}).exit_code, 9);
}

TEST_F(CotuneTest, RanksOfALauncherJoinWithoutSpawning) {
  const auto rank_environment = [&](const char* rank) {
    std::map<std::string, std::string> environment = environment_;
    environment["RANK"] = environment["LOCAL_RANK"] = rank;
    environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = "2";
    environment["TORCHELASTIC_RUN_ID"] = "test";
    environment["MASTER_ADDR"] = "localhost";
    environment["MASTER_PORT"] = "29400";
    return environment;
  };
  const std::vector<std::string> command =
      Command({"tune", "--sizes", "1K", "--collective", "broadcast", "--db", database_});
  ProgramRun rank_0(command, rank_environment("0"));
  ProgramRun rank_1(command, rank_environment("1"));
  const ProgramEnd end_0 = rank_0.Wait();
  const ProgramEnd end_1 = rank_1.Wait();
  EXPECT_EQ(end_0.exit_code, 0) << end_0.err;
  EXPECT_EQ(end_1.exit_code, 0) << end_1.err;
  EXPECT_TRUE(end_0.out.starts_with("broadcast f32, 2 ranks")) << end_0.out;
  EXPECT_EQ(end_1.out, "");
  EXPECT_EQ(end_1.err, "");
}

TEST_F(CotuneTest, AnInterruptedTuneGoesOnWhereItStopped) {
  const std::vector<std::string> command =
      Command({"tune", "--ranks", "2", "--collective", "all_reduce", "--sizes", "4:4096:+4", "--db",
               database_});
  ProgramRun run(command, environment_);
  ASSERT_TRUE(run.WaitForError("[2/1024]"));
  ASSERT_EQ(kill(run.pid(), SIGINT), 0);
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_EQ(end.out, "");
  EXPECT_NE(end.err.find("cotune: error 130 (interrupted): the tune was interrupted; what was "
                         "measured is kept in " +
                         database_ + ".journal"),
            std::string::npos)
      << end.err;

  // All that was measured is known now: only the rest is left.
  size_t measured = 0;
  while (end.err.find("[" + std::to_string(measured + 1) + "/1024]") != std::string::npos) {
    ++measured;
  }
  EXPECT_GE(measured, 2u);
  EXPECT_LT(measured, 1024u);
  ProgramRun resumed(command, environment_);
  EXPECT_TRUE(resumed.WaitForError(std::to_string(1024 - measured) + " cells to measure, " +
                                   std::to_string(measured) + " known"));
  ASSERT_EQ(kill(resumed.pid(), SIGINT), 0);
  const ProgramEnd second_end = resumed.Wait();
  EXPECT_EQ(second_end.exit_code, 130) << second_end.err;
}

TEST_F(CotuneTest, AnInterruptedBenchIsCalledOne) {
  ProgramRun run(Command({"bench", "-v", "--ranks", "2", "--collective", "all_reduce", "--sizes",
                          "4:4096:+4"}),
                 environment_);
  ASSERT_TRUE(run.WaitForError("[2/1024]"));
  ASSERT_EQ(kill(run.pid(), SIGINT), 0);
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_NE(end.err.find("a third interrupt stops at once\n"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("(interrupted): the bench was interrupted; nothing of it is kept\n"),
            std::string::npos)
      << end.err;
}

TEST_F(CotuneTest, EverySignalThatStopsATuneIsAnswered) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ProgramRun run(Command({"tune", "--ranks", "2", "--collective", "all_reduce", "--sizes",
                            "4:4096:+4", "--db", database_ + std::to_string(signal)}),
                   environment_);
    ASSERT_TRUE(run.WaitForError("[2/1024]"));
    ASSERT_EQ(kill(run.pid(), signal), 0);
    const ProgramEnd end = run.Wait();
    EXPECT_EQ(end.exit_code, 130) << end.err;
    EXPECT_NE(end.err.find("cotune: stopping after the cell that is being measured"),
              std::string::npos)
        << strsignal(signal) << end.err;
    EXPECT_NE(end.err.find("cotune: error 130 (interrupted)"), std::string::npos) << end.err;
  }
}

TEST_F(CotuneTest, AReaderThatLeavesEndsTheProgramInSilence) {
  // A pipe whose reading end is closed before the program starts: opened for both, then reduced.
  const std::string fifo = folder_.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string script =
      "exec 3<>" + fifo + " 1>" + fifo + " 3>&-; exec " + Command({}).front() + " --help";
  const ProgramEnd end = ProgramRun({"/bin/sh", "-c", script}, environment_).Wait();
  EXPECT_EQ(end.exit_code, 141);
  EXPECT_EQ(end.err, "");
}

TEST_F(CotuneTest, VersionAndHelp) {
  const ProgramEnd version = Run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("cotune ")) << version.out;
  EXPECT_EQ(Document(Run({"--version", "--json"}))["result"]["abi"], "1.4");
  const ProgramEnd help = Run({"tune", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("Exit codes: 0 ok"), std::string::npos);
}

}  // namespace
}  // namespace cotune::cli
