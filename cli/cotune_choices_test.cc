// The real program on choices that fail, refuse and win as a script tells them to.
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <utility>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

class ChoicesTest : public CotuneProgramTest {
 protected:
  ChoicesTest() { environment_["COTUNE_PLUGIN_PATH"] = FolderWith("plugins/fake/cotune_fake.so"); }

  // A folder that holds a copy of this plugin alone.
  std::string FolderWith(const std::string& built) const {
    namespace fs = std::filesystem;
    const std::string name = fs::path(built).filename();
    const std::string folder = folder_.path() + "/with_" + name;
    fs::create_directory(folder);
    fs::copy_file(fs::canonical(built), folder + "/" + name);
    fs::permissions(folder + "/" + name, fs::perms(0755));
    return folder;
  }

  // One cell of two ranks with this script.
  ProgramEnd Small(const std::string& command, const std::string& script,
                   std::vector<std::string> more) const {
    std::vector<std::string> arguments = {command,        "--ranks",    "2",
                                          "--collective", "all_reduce", "--sizes",
                                          "1K",           "--set",      "fake.script=" + script};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
};

// The fake backend by its file, which fails in create.
TEST_F(ChoicesTest, ANamedPluginThatIsRefusedIsAnError) {
  const std::string file = environment_["COTUNE_PLUGIN_PATH"] + "/cotune_fake.so";
  const std::vector<std::string> broken = {
      "--plugin", file, "--set", "fake.script=create_fails no luck today; choice a default"};
  const auto end_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), broken.begin(), broken.end());
    return Run(arguments);
  };
  const ProgramEnd tune = end_of({"tune", "--ranks", "2", "--collective", "broadcast"});
  EXPECT_EQ(tune.exit_code, 8) << tune.err;
  EXPECT_NE(tune.err.find("error 8 (plugin_refused): plugin refused at step 'create' ("),
            std::string::npos)
      << tune.err;
  EXPECT_NE(tune.err.find("no luck today"), std::string::npos) << tune.err;
  const ProgramEnd listed = end_of({"plugin", "list"});
  EXPECT_EQ(listed.exit_code, 8) << listed.err;
  EXPECT_NE(listed.out.find("refused"), std::string::npos) << listed.out;
  EXPECT_NE(listed.err.find("error 8 (plugin_refused): a plugin that was named is refused"),
            std::string::npos)
      << listed.err;
  const ProgramEnd missing = Run({"plugin", "list", "--plugin", folder_.path() + "/nope.so"});
  EXPECT_EQ(missing.exit_code, 8) << missing.err;
  EXPECT_NE(missing.out.find("nope.so"), std::string::npos) << missing.out;
}

TEST_F(ChoicesTest, TheFasterChoiceWinsAndExplainSaysWhyOthersLost) {
  const std::string script =
      "choice slow default cost_us=40000; choice fast cost_us=20; "
      "choice never refuse=needs_a_switch; choice bad wrong_on=1";
  const ProgramEnd tuned = Small("tune", script, {"--db", database_});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(tuned.out.find("fake/fast"), std::string::npos) << tuned.out;
  EXPECT_NE(tuned.out.find("dropped at 1K: fake/bad (wrong_result, "), std::string::npos)
      << tuned.out;
  const ProgramEnd explained = Run({"explain", "all_reduce", "1K", "f32", "--ranks", "2", "--db",
                                    database_, "--set", "fake.script=" + script, "--json"});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  const nlohmann::json entry = Document(explained)["result"]["entry"];
  EXPECT_EQ(entry["winner"]["choice"], "fake/fast");
  EXPECT_EQ(entry["winner"]["default"], "fake/slow");
  EXPECT_GE(entry["winner"]["default_time_us"], 40000);
  ASSERT_EQ(entry["choices"].size(), 3u);
  for (const nlohmann::json& choice : entry["choices"]) {
    if (choice["choice"] != "fake/bad") continue;
    EXPECT_EQ(choice["outcome"], "wrong_result");
    EXPECT_GE(choice["wrong"], 1);
  }
  ASSERT_EQ(entry["refusals"].size(), 1u);
  EXPECT_EQ(entry["refusals"][0]["choice"], "fake/never");
  EXPECT_NE(entry["refusals"][0]["reason"].get<std::string>().find("needs a switch"),
            std::string::npos);
}

// A tune of one backend says nothing of how the others would have done.
TEST_F(ChoicesTest, WhatOneBackendWasTunedAloneForIsMeasuredAgainWithAll) {
  environment_["COTUNE_PLUGIN_PATH"] += ":" + FolderWith("plugins/host/cotune_host.so");
  const std::string script = "choice slow default cost_us=20000";
  const auto tune = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--db", database_, "--json"});
    const ProgramEnd end = Small("tune", script, more);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return std::pair(Document(end)["result"], end.err);
  };
  const auto winner = [](const nlohmann::json& result) {
    return result["winners"][0]["choice"].get<std::string>();
  };
  const auto [alone, alone_lines] = tune({"--backend", "fake"});
  EXPECT_EQ(alone["measured_cells"], 1);
  EXPECT_EQ(winner(alone), "fake/slow");
  const auto [all, all_lines] = tune({});
  EXPECT_EQ(all["measured_cells"], 1) << all;
  EXPECT_EQ(winner(all).substr(0, 5), "host/") << all;
  // Both are kept, and each counts where it was measured.
  const auto [alone_again, alone_again_lines] = tune({"--backend", "fake"});
  EXPECT_EQ(alone_again["known_cells"], 1) << alone_again;
  EXPECT_EQ(winner(alone_again), "fake/slow");
  const auto [all_again, all_again_lines] = tune({});
  EXPECT_EQ(all_again["known_cells"], 1) << all_again;
  EXPECT_EQ(winner(all_again).substr(0, 5), "host/") << all_again;
}

// As when a plugin is installed later.
TEST_F(ChoicesTest, ABackendThatIsNewIsRacedInTheNextTune) {
  const std::string fake = environment_["COTUNE_PLUGIN_PATH"];
  const std::string host = FolderWith("plugins/host/cotune_host.so");
  const std::string script = "choice slow default cost_us=20000";
  environment_["COTUNE_PLUGIN_PATH"] = host;
  const ProgramEnd before = Run(
      {"tune", "--ranks", "2", "--collective", "all_reduce", "--sizes", "1K", "--db", database_});
  ASSERT_EQ(before.exit_code, 0) << before.err;
  environment_["COTUNE_PLUGIN_PATH"] = fake + ":" + host;
  const std::vector<std::string> explain = {
      "explain", "all_reduce", "1K",      "f32",   "--ranks",
      "2",       "--db",       database_, "--set", "fake.script=" + script};
  const std::string note =
      "note: this was measured without fake; a tune measures it again where that can run";
  EXPECT_NE(Run(explain).out.find(note), std::string::npos) << Run(explain).out;
  const ProgramEnd tuned = Small("tune", script, {"--db", database_, "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(tuned.err.find("1 cell of the database was measured without fake: measured again"),
            std::string::npos)
      << tuned.err;
  EXPECT_EQ(Document(tuned)["result"]["measured_cells"], 1);
  EXPECT_EQ(Run(explain).out.find(note), std::string::npos) << Run(explain).out;
}

// The differences are larger than what a busy processor and a sanitizer add to a call.
constexpr char kOrders[] =
    "choice ring default cost_us=60000 numerics=ring; choice tree cost_us=20 numerics=tree; "
    "choice slow cost_us=60000 numerics=rank_order_f32; "
    "choice order cost_us=15000 numerics=rank_order_f32; choice silent cost_us=60000";

TEST_F(ChoicesTest, BySameNumericsOneOrderOfAdditionsRacesAndTheOthersAreRefused) {
  const ProgramEnd tuned =
      Small("tune", kOrders, {"--db", database_, "--numerics", "same", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const nlohmann::json winners = Document(tuned)["result"]["winners"];
  ASSERT_EQ(winners.size(), 1u);
  EXPECT_EQ(winners[0]["choice"], "fake/order");
  EXPECT_EQ(winners[0]["numerics"], "rank_order_f32");
  const ProgramEnd explained =
      Run({"explain", "all_reduce", "1K", "f32", "--ranks", "2", "--db", database_, "--numerics",
           "same", "--set", std::string("fake.script=") + kOrders, "--json"});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  const nlohmann::json entry = Document(explained)["result"]["entry"];
  EXPECT_EQ(entry["winner"]["numerics"], "rank_order_f32");
  EXPECT_EQ(entry["measuring_mode"], "eager, numerics=same");
  ASSERT_EQ(entry["choices"].size(), 2u) << entry;
  std::map<std::string, std::string> refusals;
  for (const nlohmann::json& refusal : entry["refusals"]) {
    refusals[refusal["choice"]] = refusal["reason"];
  }
  EXPECT_EQ(refusals["fake/ring"], "numerics=same: adds in another order (ring)");
  EXPECT_EQ(refusals["fake/tree"], "numerics=same: adds in another order (tree)");
  EXPECT_EQ(refusals["fake/silent"],
            "numerics=same: its backend does not say in which order it combines elements");
}

TEST_F(ChoicesTest, WhatWonByAnyNumericsIsNotTakenForSame) {
  const auto tune = [&](const char* numerics) {
    return Document(Small("tune", kOrders, {"--db", database_, "--numerics", numerics, "--json"}));
  };
  const auto explained = [&](const char* numerics) {
    return Document(
        Run({"explain", "all_reduce", "1K", "f32", "--ranks", "2", "--db", database_, "--numerics",
             numerics, "--set", std::string("fake.script=") + kOrders, "--json"}))["result"];
  };
  EXPECT_EQ(tune("any")["result"]["winners"][0]["choice"], "fake/tree");
  const nlohmann::json before = explained("same");
  EXPECT_TRUE(before["entry"].is_null()) << before;
  EXPECT_NE(before.dump().find("measuring_mode: 'eager' in the file"), std::string::npos) << before;
  const nlohmann::json same = tune("same")["result"];
  EXPECT_EQ(same["measured_cells"], 1) << same;
  EXPECT_EQ(same["winners"][0]["choice"], "fake/order");
  // Both are kept, and each is known to its own rule.
  for (const auto& [numerics, winner] :
       {std::pair("any", "fake/tree"), std::pair("same", "fake/order")}) {
    const nlohmann::json again = tune(numerics)["result"];
    EXPECT_EQ(again["known_cells"], 1) << again;
    EXPECT_EQ(again["winners"][0]["choice"], winner);
    EXPECT_EQ(explained(numerics)["entry"]["winner"]["choice"], winner);
  }
}

TEST_F(ChoicesTest, WithoutATableTheDefaultFollowsTheNumerics) {
  environment_["XDG_CACHE_HOME"] = folder_.path() + "/cache";
  const nlohmann::json untuned =
      Document(Run({"explain", "all_reduce", "1K", "f32", "--ranks", "2", "--numerics", "same",
                    "--set", std::string("fake.script=") + kOrders, "--json"}))["result"];
  EXPECT_EQ(untuned["default"], "fake/slow") << untuned;
  const ProgramEnd text = Run({"explain", "all_reduce", "1K", "f32", "--ranks", "2", "--numerics",
                               "same", "--set", std::string("fake.script=") + kOrders});
  EXPECT_NE(text.out.find("--dtype f32 --numerics same --db "), std::string::npos) << text.out;
}

TEST_F(ChoicesTest, RanksWithOtherNumericsShareNoGroup) {
  environment_["COTUNE_WORLD_SIZE"] = "2";
  environment_["COTUNE_JOB_ID"] = "numerics";
  const auto command = [&](const char* numerics) {
    return Command({"tune", "--collective", "all_reduce", "--sizes", "1K", "--db", database_,
                    "--numerics", numerics});
  };
  environment_["COTUNE_RANK"] = "0";
  ProgramRun rank_0(command("any"), environment_);
  environment_["COTUNE_RANK"] = "1";
  ProgramRun rank_1(command("same"), environment_);
  for (ProgramRun* rank : {&rank_0, &rank_1}) {
    const ProgramEnd end = rank->Wait();
    EXPECT_NE(end.exit_code, 0);
    EXPECT_NE(end.err.find("numerics=same"), std::string::npos) << end.err;
  }
  EXPECT_FALSE(std::filesystem::exists(database_));
}

TEST_F(ChoicesTest, ANumericsThatIsNoneIsAUsageError) {
  const ProgramEnd end = Small("tune", kOrders, {"--db", database_, "--numerics", "equal"});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_NE(end.err.find("bad value \"equal\" for numerics (--numerics): it is neither any nor "
                         "same; give any or same"),
            std::string::npos)
      << end.err;
}

TEST_F(ChoicesTest, WrongValuesEndABenchWithTheirOwnCode) {
  const ProgramEnd end = Small("bench", "choice good default; choice bad wrong_on=1", {});
  EXPECT_EQ(end.exit_code, 4) << end.err;
  EXPECT_NE(end.out.find("fake/bad"), std::string::npos) << end.out;
  EXPECT_NE(end.err.find("error 4 (wrong_result)"), std::string::npos) << end.err;
}

TEST_F(ChoicesTest, ACellWhereEveryChoiceIsWrongIsAnError) {
  const ProgramEnd end = Small("tune", "choice bad default wrong_on=0", {"--db", database_});
  EXPECT_EQ(end.exit_code, 4) << end.err;
  EXPECT_NE(end.err.find("no choice works in 1 of 1 cell"), std::string::npos) << end.err;
}

TEST_F(ChoicesTest, AProgramThatNoBackendRunsNamesTheBackendsReason) {
  const std::string path = folder_.path() + "/p.cotune";
  WriteFileForTest(path,
                   "program negated\n%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%y = neg %s\n"
                   "return %y\n");
  const auto tune = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "tune",
        "--ranks",
        "2",
        "--backend",
        "fake",
        "--program",
        path,
        "--rows",
        "1,8",
        "--db",
        database_,
        "--set",
        "fake.script=parts; refuse_all not today; choice usual default"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  const ProgramEnd end = tune({});
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_NE(end.err.find("error 3 (environment): no choice works in 2 of 2 cells (program negated "
                         "at 1 row): no backend offers a choice (fake: not today); "),
            std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find("no choice could be timed (program negated at 8 rows): no backend offers "
                         "a choice (fake: not today); "),
            std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find("0 measured, 0 known, 0 skipped, 2 that no choice runs in "),
            std::string::npos)
      << end.err;
  EXPECT_EQ(end.err.find("via="), std::string::npos) << "a recipe is no reason: " << end.err;
  EXPECT_EQ(end.err.find("world2x2"), std::string::npos) << "an internal key: " << end.err;
  const nlohmann::json result = Document(tune({"--json"}))["result"];
  EXPECT_EQ(result["measured_cells"], 0);
  EXPECT_EQ(result["cells_without_winner"], 2);
}

TEST_F(ChoicesTest, ACellThatEveryChoiceRefusesNamesTheReason) {
  const ProgramEnd end =
      Small("tune", "refuse_all not today; choice usual default", {"--db", database_});
  EXPECT_EQ(end.exit_code, 3) << end.err;
  EXPECT_NE(end.err.find("not today"), std::string::npos) << end.err;
}

TEST_F(ChoicesTest, RanksWithOtherChoiceListsDisagree) {
  const ProgramEnd end =
      Small("tune", "choice a default; choice b missing_on=1", {"--db", database_});
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_NE(end.err.find("rank 0 lists fake/b, rank 1 does not"), std::string::npos) << end.err;
  EXPECT_FALSE(std::filesystem::exists(database_));
}

TEST_F(ChoicesTest, AScriptThatCannotBeReadIsARefusedBackend) {
  const ProgramEnd end = Small("tune", "choise a", {"--db", database_});
  EXPECT_NE(end.exit_code, 0);
  EXPECT_NE(end.err.find("line 1"), std::string::npos) << end.err;
}

TEST_F(ChoicesTest, TheProposedTuneKeepsPluginAndBackend) {
  const std::string file = environment_["COTUNE_PLUGIN_PATH"] + "/cotune_fake.so";
  const ProgramEnd end = Run({"explain", "broadcast", "1K", "f32", "--plugin", file, "--backend",
                              "fake", "--set", "fake.script=choice a default"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.out.find(" --backend fake --plugin " + file + " --db "), std::string::npos)
      << end.out;
}

TEST_F(ChoicesTest, ABackendForGpusSaysWhyItOffersNothingHere) {
  if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "there is a GPU here";
  environment_["COTUNE_PLUGIN_PATH"] += ":" + FolderWith("plugins/cuda/cotune_cuda.so");
  const nlohmann::json listed = Document(
      Run({"plugin", "list", "--set", "fake.script=choice a default", "--json"}))["result"];
  ASSERT_EQ(listed["plugins"].size(), 2u) << listed;
  for (const nlohmann::json& plugin : listed["plugins"]) {
    EXPECT_EQ(plugin["loaded"], true) << plugin;
    if (plugin["name"] != "cuda") continue;
    EXPECT_NE(plugin["reason"].get<std::string>().find("cannot be used on this machine"),
              std::string::npos)
        << plugin;
  }
  const ProgramEnd asked_for = Run({"tune", "--backend", "cuda", "--sizes", "1K"});
  EXPECT_EQ(asked_for.exit_code, 3) << asked_for.err;
  EXPECT_NE(asked_for.err.find("where no GPU is visible"), std::string::npos) << asked_for.err;
}

TEST_F(ChoicesTest, ABackendThatCannotBeMadeIsListedAsRefused) {
  const std::vector<std::string> list = {"plugin", "list", "--set",
                                         "fake.script=create_fails no luck today; choice a default",
                                         "--json"};
  const ProgramEnd end = Run(list);
  EXPECT_EQ(end.exit_code, 3) << "nothing that is listed can be used: " << end.err;
  EXPECT_NE(end.err.find("no plugin can be used"), std::string::npos) << end.err;
  const nlohmann::json plugin = Document(end)["result"]["plugins"][0];
  EXPECT_EQ(plugin["loaded"], false);
  EXPECT_EQ(plugin["state"], "refused");
  const std::string reason = plugin["reason"];
  EXPECT_NE(reason.find("no luck today"), std::string::npos) << reason;
  EXPECT_NE(reason.find("check the backend's settings"), std::string::npos) << reason;
  const ProgramEnd text = Run({list.begin(), list.end() - 1});
  EXPECT_NE(text.out.find("refused"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find(" loaded "), std::string::npos) << text.out;
  // A machine without what a backend needs is no failure of the backend.
  const ProgramEnd idle =
      Run({"plugin", "list", "--set", "fake.script=create_unsupported no device; choice a default",
           "--json"});
  EXPECT_EQ(Document(idle)["result"]["plugins"][0]["state"], "idle") << idle.out;
  EXPECT_EQ(idle.exit_code, 3) << idle.err;
}

TEST_F(ChoicesTest, PluginsThatCouldNotBeTriedAreNotCalledLoaded) {
  environment_["XDG_RUNTIME_DIR"] = folder_.path() + "/no/such";
  const ProgramEnd end = Run({"plugin", "list", "--json"});
  EXPECT_EQ(end.exit_code, 3) << end.err;
  EXPECT_NE(end.err.find("cotune: error 3 (environment): "), std::string::npos) << end.err;
  const nlohmann::json plugin = Document(end)["result"]["plugins"][0];
  EXPECT_EQ(plugin["state"], "untried");
  EXPECT_EQ(plugin["loaded"], false);
  const std::string reason = plugin["reason"];
  EXPECT_NE(reason.find("set XDG_RUNTIME_DIR"), std::string::npos) << reason;
}

TEST_F(ChoicesTest, ABackendThatWasNamedAndIsRefusedSaysWhy) {
  const ProgramEnd end = Small("tune", "create_fails no luck today; choice a default",
                               {"--backend", "fake", "--db", database_});
  EXPECT_EQ(end.exit_code, 3) << end.err;
  EXPECT_NE(end.err.find("backend 'fake' cannot be used"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("no luck today"), std::string::npos) << end.err;
}

// No more than 5120 bytes fit into a file, which is less than the journal of seven cells.
TEST_F(ChoicesTest, AJournalThatCannotBeWrittenEndsTheTune) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer keeps its own memory in a file, which would be cut too";
#endif
  std::string command = "trap '' XFSZ; ulimit -f 10; exec";
  const std::vector<std::string> tune = {
      "tune",         "--ranks",    "2",
      "--collective", "all_reduce", "--sizes",
      "1K:64K:x2",    "--set",      "fake.script=choice a default",
      "--db",         database_};
  for (const std::string& word : Command(tune)) command += " '" + word + "'";
  const ProgramEnd end = ProgramRun({"/bin/sh", "-c", command}, environment_).Wait();
  EXPECT_EQ(end.exit_code, 3) << end.err;
  const std::regex last_line(
      "error 3 \\(environment\\): a measurement cannot be written to the journal \\(" + database_ +
      ".journal\\): .*; check free space and permissions; ([1-5]) of ([2-6]) measured cells are "
      "kept in " +
      database_ + ".journal, and the next tune continues from there\n$");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(end.err, found, last_line)) << end.err;
  const int kept = std::stoi(found[1]);
  const int measured = std::stoi(found[2]);
  EXPECT_EQ(measured, kept + 1);
  // No cell is measured after the one that could not be written.
  const auto has_cell = [&](int cell) {
    return end.err.find("[" + std::to_string(cell) + "/7] ") != std::string::npos;
  };
  EXPECT_TRUE(has_cell(measured)) << end.err;
  EXPECT_FALSE(has_cell(measured + 1)) << end.err;
  EXPECT_EQ(end.err.find("interrupted"), std::string::npos) << end.err;
  EXPECT_EQ(end.out, "");
  // A tune that has the space goes on from there.
  std::vector<std::string> as_json = tune;
  as_json.emplace_back("--json");
  const ProgramEnd again = Run(as_json);
  EXPECT_EQ(Document(again)["result"]["known_cells"], kept) << again.out << again.err;
}

TEST_F(ChoicesTest, AnEntryIsValidWhereItsBackendIs) {
  ASSERT_EQ(Small("tune", "choice a default", {"--db", database_}).exit_code, 0);
  const nlohmann::json shown =
      Document(Run({"db", "show", database_, "--set", "fake.script=choice a default", "--json"}));
  ASSERT_EQ(shown["result"]["entries"].size(), 1u);
  EXPECT_EQ(shown["result"]["entries"][0]["valid_here"], true);
  // With other settings its choices may do other things: it is measured again.
  const std::string other = "fake.script=choice a default; choice b";
  const nlohmann::json changed =
      Document(Run({"db", "show", database_, "--set", other, "--json"}))["result"]["entries"][0];
  EXPECT_EQ(changed["valid_here"], false);
  EXPECT_NE(changed["not_valid_because"].get<std::string>().find("choice b"), std::string::npos);
  const ProgramEnd again =
      Small("tune", "choice a default; choice b", {"--db", database_, "--json"});
  EXPECT_EQ(Document(again)["result"]["measured_cells"], 1) << again.out;
  // Another backend alone: the one that took part is missing.
  environment_["COTUNE_PLUGIN_PATH"] = folder_.path() + "/plugins";
  const nlohmann::json elsewhere = Document(Run({"db", "show", database_, "--json"}));
  EXPECT_EQ(elsewhere["result"]["entries"][0]["valid_here"], false);
  EXPECT_NE(elsewhere["result"]["entries"][0]["not_valid_because"].get<std::string>().find("fake"),
            std::string::npos);
}

}  // namespace
}  // namespace cotune::cli
