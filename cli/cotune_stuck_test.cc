// The real program with backends that hang, crash and throw: it ends, says in which call, and the
// next tune goes on without the choice.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <sstream>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class StuckProgramTest : public CotuneProgramTest {
 protected:
  StuckProgramTest() {
    namespace fs = std::filesystem;
    const std::string folder = folder_.path() + "/fake";
    fs::create_directory(folder);
    fs::copy_file(fs::canonical("plugins/fake/cotune_fake.so"), folder + "/cotune_fake.so");
    fs::permissions(folder + "/cotune_fake.so", fs::perms(0755));
    environment_["COTUNE_PLUGIN_PATH"] = folder;
    environment_["COTUNE_WARM_TIMEOUT"] = "3s";
    environment_["COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT"] = "2s";
  }

  // Two ranks with a good choice, which is the default, and one that the script is about.
  std::vector<std::string> TuneOf(const std::string& script, const std::vector<std::string>& more,
                                  const std::string& sizes = "1K") const {
    std::vector<std::string> arguments = {"tune", "--ranks", "2", "--collective", "all_reduce"};
    const std::vector<std::string> rest = {
        "--sizes", sizes,   "--db",
        database_, "--set", "fake.script=choice good default; choice bad; " + script};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  ProgramEnd Tune(const std::string& script, const std::vector<std::string>& more = {},
                  const std::string& sizes = "1K") const {
    return Run(TuneOf(script, more, sizes));
  }

  void ExpectTheNextTuneLeavesItOut(const std::string& script) const {
    const ProgramEnd next = Tune(script);
    EXPECT_EQ(next.exit_code, 0) << next.err;
    EXPECT_TRUE(Has(next.err, "warning: fake/bad is left out for all_reduce/")) << next.err;
    EXPECT_TRUE(Has(next.err, "it has ended a tune at 1024 bytes: ")) << next.err;
    EXPECT_TRUE(Has(next.err, "use --force or remove " + database_ + ".journal to try it again"))
        << next.err;
    EXPECT_TRUE(Has(next.out, "fake/good")) << next.out;
  }
};

// ---- Calls that say "in progress" for ever, and are not deaf to anything else

TEST_F(StuckProgramTest, AChoiceThatIsNeverDoneIsDropped) {
  for (const std::string where : {"", " on=1"}) {
    const ProgramEnd end = Tune("breach progress never_done choice=bad" + where, {"--force"});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_TRUE(Has(end.out, "fake/good")) << end.out;
    EXPECT_TRUE(Has(end.out, "dropped at 1K: fake/bad (deadline): ")) << end.out;
    EXPECT_TRUE(Has(end.out, "still says that the call is in progress")) << end.out;
  }
}

TEST_F(StuckProgramTest, AStopEndsACallThatIsNeverDone) {
  environment_["COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT"] = "1h";
  ProgramRun run(Command(TuneOf("breach progress never_done choice=bad", {})), environment_);
  ASSERT_TRUE(run.WaitForError("scripted: progress begins to wait for ever"));
  ASSERT_EQ(kill(run.pid(), SIGTERM), 0);
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_TRUE(Has(end.err, "error 130 (interrupted)")) << end.err;
}

// ---- Calls that never return

struct Hang {
  std::string script;
  std::string named;          // in the error
  bool is_of_choice = false;  // the next tune leaves it out
};
void PrintTo(const Hang& hang, std::ostream* out) { *out << hang.script; }

class HangTest : public StuckProgramTest, public ::testing::WithParamInterface<Hang> {};

TEST_P(HangTest, EndsTheProgramWithTheNameOfTheCall) {
  const Hang& hang = GetParam();
  const ProgramEnd end = Tune(hang.script);
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_TRUE(Has(end.err, "error 5 (deadline): " + hang.named)) << end.err;
  EXPECT_TRUE(Has(end.err, "does not return")) << end.err;
  EXPECT_TRUE(Has(end.err, "cotune_fake.so")) << end.err;
  const char* const rank = Has(hang.script, "on=1") ? "(rank 1): " : "";
  EXPECT_TRUE(Has(end.err, rank)) << end.err;
  if (hang.is_of_choice) ExpectTheNextTuneLeavesItOut(hang.script);
}

const std::string kOfBad = " of choice fake/bad for all_reduce/";

INSTANTIATE_TEST_SUITE_P(
    Calls, HangTest,
    ::testing::Values(
        Hang{"breach prepare never_returns choice=bad", "prepare" + kOfBad, true},
        Hang{"breach prepare never_returns choice=bad on=1", "prepare" + kOfBad, true},
        Hang{"breach launch never_returns choice=bad", "launch" + kOfBad, true},
        Hang{"breach launch never_returns choice=bad on=0", "launch" + kOfBad, true},
        Hang{"breach launch never_returns choice=bad on=1", "launch" + kOfBad, true},
        Hang{"breach progress never_returns choice=bad", "progress" + kOfBad, true},
        Hang{"breach progress never_returns choice=bad on=1 at=5", "progress" + kOfBad, true},
        Hang{"breach plan_destroy never_returns choice=bad on=1", "plan_destroy" + kOfBad},
        Hang{"breach group_abort never_returns on=1; choice worse launch_fails_on=1",
             "group_abort of backend fake"},
        Hang{"breach group_abort never_returns on=1; breach launch never_returns choice=bad on=1",
             "launch" + kOfBad, true},
        Hang{"breach progress never_done choice=bad on=0; breach group_abort never_returns on=0",
             "group_abort of backend fake", true},
        Hang{"breach group_destroy never_returns on=1", "group_destroy of backend fake"},
        Hang{"breach destroy never_returns on=1", "destroy of backend fake"},
        Hang{"breach group_create never_returns on=1", "group_create of backend fake"},
        Hang{"breach list_choices never_returns on=1", "list_choices of backend fake"},
        Hang{"breach create never_returns", "create of backend fake"}));

// The launching process must not end a rank before the limit of the call has passed, which is
// longer than the time for a launch.
TEST_F(StuckProgramTest, ACallWithoutADeadlineIsNamedWhereLaunchesHaveLittleTime) {
  environment_["COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT"] = "1s";
  environment_["COTUNE_WARM_TIMEOUT"] = "10s";
  const ProgramEnd end = Tune("breach plan_destroy never_returns choice=bad on=1");
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_TRUE(Has(end.err, "error 5 (deadline): plan_destroy" + kOfBad)) << end.err;
}

TEST_F(StuckProgramTest, ACallThatIsStuckIsAnErrorInJsonToo) {
  const ProgramEnd end = Tune("breach launch never_returns choice=bad on=0", {"--json"});
  const nlohmann::json error = Document(end)["error"];
  EXPECT_EQ(error["exit_code"], 5) << error;
  EXPECT_EQ(error["ranks"], nlohmann::json({0})) << error;
  EXPECT_TRUE(Has(error["what"], "launch of choice fake/bad")) << error;
}

TEST_F(StuckProgramTest, AStopEndsACallThatNeverReturns) {
  environment_["COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT"] = "1h";
  ProgramRun run(Command(TuneOf("breach launch never_returns choice=bad", {})), environment_);
  ASSERT_TRUE(run.WaitForError("scripted: launch begins to wait for ever"));
  ASSERT_EQ(kill(run.pid(), SIGTERM), 0);
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_TRUE(Has(end.err, "error 130 (interrupted): launch of choice fake/bad")) << end.err;
}

// ---- Crashes

class CrashTest : public StuckProgramTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(CrashTest, NamesTheCallAndIsLeftOutByTheNextTune) {
  const std::string script = "breach " + GetParam();
  const std::string function = GetParam().substr(0, GetParam().find(' '));
  const ProgramEnd end = Tune(script);
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_TRUE(Has(end.err, "crashed: SIGSEGV in " + function + kOfBad)) << end.err;
  EXPECT_TRUE(Has(end.err, "1024 bytes (plugin ")) << end.err;
  const char* const rank = Has(script, "on=1") ? "rank 1 crashed" : "rank 0 crashed";
  EXPECT_TRUE(Has(end.err, rank) || !Has(script, "on=")) << end.err;
  ExpectTheNextTuneLeavesItOut(script);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CrashTest,
    ::testing::Values("launch crashes choice=bad on=0", "launch crashes choice=bad on=1",
                      "launch crashes choice=bad", "progress crashes choice=bad on=1 at=5",
                      "prepare crashes choice=bad on=1", "prepare overflows choice=bad on=1"));

class VanishTest : public StuckProgramTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(VanishTest, TwoEndsWithoutACauseLeaveTheChoiceOutAndNoOther) {
  const std::string script = "choice slow prepare_delay_ms=300; breach " + GetParam();
  for (int times = 1; times <= 2; ++times) {
    const ProgramEnd end = Tune(script);
    EXPECT_EQ(end.exit_code, 5) << end.err;
    EXPECT_FALSE(Has(end.err, "left out")) << end.err;
  }
  const ProgramEnd next = Tune(script, {"--json"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_TRUE(Has(next.err, "fake/bad is left out")) << next.err;
  EXPECT_TRUE(Has(next.err, "the processes of two tunes were gone")) << next.err;
  EXPECT_EQ(Document(next)["result"]["entries"][0]["choices"].size(), 2u) << next.out;
}

INSTANTIATE_TEST_SUITE_P(Calls, VanishTest,
                         ::testing::Values("prepare crashes_aside choice=bad on=0",
                                           "prepare crashes_aside choice=bad on=1",
                                           "prepare crashes_aside choice=bad",
                                           "prepare exits choice=bad",
                                           "prepare exits choice=bad on=1",
                                           "launch crashes_aside choice=bad on=1"));

TEST_F(StuckProgramTest, AChoiceWhoseAbortCrashesIsLeftOutByTheNextTune) {
  const std::string script =
      "breach launch never_returns choice=bad on=1; breach group_abort crashes on=1";
  const ProgramEnd end = Tune(script);
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_TRUE(Has(end.err, "rank 1 crashed: SIGSEGV in group_abort of backend fake")) << end.err;
  EXPECT_TRUE(Has(end.err, "which aborts choice fake/bad for all_reduce/")) << end.err;
  ExpectTheNextTuneLeavesItOut(script);
}

TEST_F(StuckProgramTest, ForceTriesAChoiceAgainThatHasEndedATune) {
  const std::string script = "breach launch crashes choice=bad on=1";
  ASSERT_EQ(Tune(script).exit_code, 5);
  // Once: it has ended this one too, and the next goes on without it.
  ASSERT_EQ(Tune(script, {"--force"}).exit_code, 5);
  const ProgramEnd resumed = Tune(script, {"--force"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(Has(resumed.err, "fake/bad is left out")) << resumed.err;
  EXPECT_TRUE(Has(resumed.err, "remove " + database_ + ".journal to try it again")) << resumed.err;
  // Other sizes are measured without it too; a mended backend is forgiven by force.
  const ProgramEnd larger = Tune(script, {}, "4K");
  EXPECT_EQ(larger.exit_code, 0) << larger.err;
  EXPECT_TRUE(Has(larger.err, "fake/bad is left out")) << larger.err;
  const ProgramEnd mended = Tune("", {"--force", "--json"});
  EXPECT_EQ(mended.exit_code, 0) << mended.err;
  EXPECT_EQ(Document(mended)["result"]["entries"][0]["choices"].size(), 2u) << mended.out;
  EXPECT_FALSE(std::filesystem::exists(database_ + ".journal"));
}

TEST_F(StuckProgramTest, ACrashKeepsWhatWasMeasured) {
  // 1 and 16 KB are measured first, and then the largest size, the only one at which the choice is
  // not refused: its first launch crashes.
  const std::string script = "choice late bytes_min=65536; breach launch crashes choice=late on=1";
  const std::string sizes = "1K:64K:x2";
  const ProgramEnd end = Tune(script, {}, sizes);
  ASSERT_EQ(end.exit_code, 5) << end.err;
  EXPECT_TRUE(Has(end.err, "[2/7]")) << end.err;
  EXPECT_FALSE(Has(end.err, "[3/7]")) << end.err;
  const ProgramEnd next = Tune(script, {}, sizes);
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_TRUE(Has(next.err, "2 known")) << next.err;
}

TEST_F(StuckProgramTest, ARankThatIsKilledBlamesNoChoice) {
  SetFault("benchmark@1:kill");
  ASSERT_EQ(Tune("").exit_code, 5);
  SetFault("");
  const ProgramEnd next = Tune("", {"--json"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_FALSE(Has(next.err, "left out")) << next.err;
  EXPECT_EQ(Document(next)["result"]["entries"][0]["choices"].size(), 2u) << next.out;
}

TEST_F(StuckProgramTest, APluginThatEndsEveryRankIsNoSuccess) {
  const ProgramEnd end = Tune("breach prepare exits choice=bad", {"--json"});
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_TRUE(Has(Document(end)["error"]["what"], "before it was done: a plugin may have called"))
      << end.out;
}

// Its code is that of an error of the database.
TEST_F(StuckProgramTest, APluginThatExitsWithACodeOfItsOwnIsALostRank) {
  for (const std::string where : {"", " on=1"}) {
    const ProgramEnd end = Tune("breach launch exits_with_7 choice=bad" + where);
    EXPECT_EQ(end.exit_code, 5) << end.err;
    EXPECT_TRUE(Has(end.err,
                    "ended with exit code 7 before it was done: a plugin may have called "
                    "exit()"))
        << end.err;
    EXPECT_TRUE(Has(end.err, "error 5 (rank_lost): ")) << end.err;
  }
}

// The processes that a process has started.
std::vector<pid_t> ChildrenOf(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid);
  std::istringstream text(ReadFileForTest(path + "/task/" + std::to_string(pid) + "/children"));
  return {std::istream_iterator<pid_t>(text), {}};
}

TEST_F(StuckProgramTest, ACrashSignalFromAnotherProcessBlamesNoChoice) {
  environment_["COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT"] = "1h";
  ProgramRun run(Command(TuneOf("breach launch never_returns choice=bad on=1", {})), environment_);
  ASSERT_TRUE(run.WaitForError("scripted: launch begins to wait for ever"));
  const std::vector<pid_t> ranks = ChildrenOf(run.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(kill(ranks[1], SIGABRT), 0);
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_TRUE(Has(end.err, "was ended by SIGABRT")) << end.err;
  EXPECT_FALSE(Has(end.err, "crashed: ")) << end.err;
  const ProgramEnd next = Tune("", {"--json"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_FALSE(Has(next.err, "left out")) << next.err;
  EXPECT_EQ(Document(next)["result"]["entries"][0]["choices"].size(), 2u) << next.out;
}

// ---- Winners that the database has

// Each tune prepares a choice once for each size that it measures, and once for each size that is
// known, where it has won.
class KnownWinnerTest : public StuckProgramTest, public ::testing::WithParamInterface<std::string> {
 protected:
  ProgramEnd TuneSizes(const std::string& sizes, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"tune", "--ranks", "2", "--collective", "all_reduce"};
    const std::string script =
        "choice bad default; choice slow cost_us=3000; breach prepare " + GetParam();
    const std::vector<std::string> rest = {"--sizes", sizes,   "--db",
                                           database_, "--set", "fake.script=" + script};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
};

TEST_P(KnownWinnerTest, ThatEndsATuneIsMeasuredAnewWithoutTheChoice) {
  ASSERT_EQ(TuneSizes("1K,2K").exit_code, 0);
  ASSERT_EQ(TuneSizes("4K,8K").exit_code, 0);
  const ProgramEnd end = TuneSizes("1K:8K:x2");
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_TRUE(Has(end.err, "prepare" + kOfBad)) << end.err;
  EXPECT_TRUE(Has(end.err, "run again: the next tune leaves the choice out")) << end.err;
  const ProgramEnd next = TuneSizes("1K:8K:x2", {"--json"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_TRUE(Has(next.err, "warning: fake/bad is left out for all_reduce/")) << next.err;
  const nlohmann::json entries = Document(next)["result"]["entries"];
  EXPECT_EQ(entries.size(), 4u);
  for (const nlohmann::json& entry : entries) {
    EXPECT_EQ(entry["winner"]["choice"], "fake/slow") << entry;
  }
  // Beside a size that is new, the known ones have good winners by now.
  const ProgramEnd larger = TuneSizes("1K:16K:x2");
  EXPECT_EQ(larger.exit_code, 0) << larger.err;
  EXPECT_TRUE(Has(larger.err, "1 measured, 4 known")) << larger.err;
}

TEST_P(KnownWinnerTest, IsLeftOutAlsoBesideASizeThatIsNew) {
  ASSERT_EQ(TuneSizes("1K,2K").exit_code, 0);
  const ProgramEnd end = TuneSizes("1K:4K:x2");
  ASSERT_EQ(end.exit_code, 5) << end.err;
  const ProgramEnd next = TuneSizes("1K:4K:x2");
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_TRUE(Has(next.err, "3 measured, 0 known")) << next.err;
}

INSTANTIATE_TEST_SUITE_P(Calls, KnownWinnerTest,
                         ::testing::Values("crashes choice=bad at=3 on=1",
                                           "never_returns choice=bad at=3"));

// ---- Processes that are no ranks

TEST_F(StuckProgramTest, APluginThatEndsTheProcessWhileItIsLoadedIsNamed) {
  namespace fs = std::filesystem;
  struct Fatal {
    std::string plugin;
    std::string named;
  };
  for (const Fatal& fatal :
       {Fatal{"constructor_crashes", "(rank_lost): the process crashed: SIGSEGV in dlopen"},
        Fatal{"query_crashes",
              "(rank_lost): the process crashed: SIGSEGV in cotune_backend_query_v1"},
        Fatal{"query_never_returns", "(deadline): cotune_backend_query_v1"}}) {
    const std::string folder = folder_.path() + "/" + fatal.plugin;
    const std::string plugin = folder + "/" + fatal.plugin + ".so";
    fs::create_directory(folder);
    fs::copy_file(fs::canonical("tests/broken_plugins/" + fatal.plugin + ".so"), plugin);
    fs::permissions(plugin, fs::perms(0755));
    environment_["COTUNE_PLUGIN_PATH"] = folder;
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"plugin", "list"}, TuneOf("", {})}) {
      const ProgramEnd end = Run(command);
      EXPECT_EQ(end.exit_code, 5) << end.err;
      EXPECT_TRUE(Has(end.err, "error 5 " + fatal.named + " of plugin " + plugin)) << end.err;
    }
  }
}

TEST_F(StuckProgramTest, ABackendThatCrashesBeforeThereAreRanksIsNamedByEveryCommand) {
  for (std::vector<std::string> command : {std::vector<std::string>{"doctor"},
                                           {"plugin", "list"},
                                           {"explain", "all_reduce", "1K", "f32"},
                                           {"tune", "--ranks", "2", "--db", database_}}) {
    command.insert(command.end(), {"--set", "fake.script=choice a default; breach create crashes"});
    const ProgramEnd end = Run(command);
    EXPECT_EQ(end.exit_code, 5) << end.err;
    EXPECT_TRUE(Has(end.err,
                    "error 5 (rank_lost): the process crashed: SIGSEGV in create of "
                    "backend fake (plugin "))
        << command[0] << end.err;
    command.emplace_back("--json");
    const nlohmann::json error = Document(Run(command))["error"];
    EXPECT_EQ(error["exit_code"], 5) << error;
    EXPECT_TRUE(Has(error["what"], "the process crashed: SIGSEGV in create of backend fake"))
        << error;
  }
}

// ---- A full disk

TEST_F(StuckProgramTest, ATuneThatCannotBeSavedSaysWhatTheJournalKeeps) {
  // A database that is larger than what the disk then has room for.
  std::vector<std::string> other = TuneOf("", {}, "64:1M:x2");
  std::replace(other.begin(), other.end(), std::string("all_reduce"),
               std::string("all_gather,broadcast,reduce_scatter"));
  ASSERT_EQ(Run(other).exit_code, 0);
  const std::vector<std::string> tune = TuneOf("", {}, "1K:32K:x2");
  // There is room for the journal, which is smaller than the database.
  std::vector<std::string> command = {"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 30; exec \"$@\"",
                                      "sh"};
  const std::vector<std::string> limited = Command(tune);
  command.insert(command.end(), limited.begin(), limited.end());
  const ProgramEnd end = ProgramRun(command, environment_).Wait();
  EXPECT_EQ(end.exit_code, 3) << end.err;
  EXPECT_TRUE(Has(end.err, "6 of 6 measured cells are kept in " + database_ + ".journal"))
      << end.err;
  EXPECT_TRUE(Has(end.err, "old file")) << end.err;
  const ProgramEnd next = Run(tune);
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_TRUE(Has(next.err, "6 known")) << next.err;
}

// ---- Exceptions

class ThrowTest : public StuckProgramTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(ThrowTest, OfAChoiceDropsIt) {
  const std::string function = GetParam();
  for (const std::string how : {"throws", "throws_int"}) {
    const ProgramEnd end = Tune("breach " + function + " " + how + " choice=bad on=1", {"--force"});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_TRUE(Has(end.out, "dropped at 1K: fake/bad (")) << end.out;
    EXPECT_TRUE(Has(end.out, function + " threw an exception: " +
                                 (how == "throws" ? "scripted: " + function + " throws"
                                                  : "it is no std::exception")))
        << end.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, ThrowTest, ::testing::Values("prepare", "launch", "progress"));

TEST_F(StuckProgramTest, CallsThatGiveNothingBackSayWhatTheyThrewInTheLog) {
  const ProgramEnd end = Tune(
      "choice worse launch_fails_on=0; breach group_abort throws; breach group_destroy throws_int; "
      "breach plan_destroy throws; breach destroy throws_int");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const std::string function : {"group_abort", "group_destroy", "plan_destroy", "destroy"}) {
    EXPECT_TRUE(Has(end.err, "fake: " + function + " threw an exception: ")) << end.err;
  }
}

TEST_F(StuckProgramTest, ABackendThatThrowsBeforeItHasAGroupIsRefused) {
  for (const std::string function : {"create", "get_extension", "group_create", "list_choices"}) {
    for (const std::string how : {"throws", "throws_int"}) {
      const ProgramEnd end = Tune("breach " + function + " " + how);
      EXPECT_EQ(end.exit_code, 3) << function << end.err;
      EXPECT_TRUE(Has(end.err, function + " threw an exception")) << end.err;
    }
  }
}

}  // namespace
}  // namespace cotune::cli
