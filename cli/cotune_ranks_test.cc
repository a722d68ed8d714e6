// The processes that `cotune` starts: what they are given, and what is said of their ends.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// "NAME=value" of every variable that the process was started with.
std::vector<std::string> EnvironmentOf(const std::string& pid) {
  std::istringstream all(ReadFileForTest("/proc/" + pid + "/environ"));
  std::vector<std::string> variables;
  for (std::string variable; std::getline(all, variable, '\0');) variables.push_back(variable);
  return variables;
}

std::vector<std::string> ChildrenOf(pid_t parent) {
  std::vector<std::string> children;
  const std::string line = "\nPPid:\t" + std::to_string(parent) + "\n";
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (ReadFileForTest(entry.path() / "status").find(line) != std::string::npos) {
      children.push_back(name);
    }
  }
  return children;
}

bool KillRank(pid_t parent, const std::string& rank) {
  for (const std::string& child : ChildrenOf(parent)) {
    const std::vector<std::string> variables = EnvironmentOf(child);
    if (std::count(variables.begin(), variables.end(), "COTUNE_RANK=" + rank) != 1) continue;
    return kill(static_cast<pid_t>(std::stol(child)), SIGKILL) == 0;
  }
  return false;
}

class RanksTest : public CotuneProgramTest {};

const std::vector<std::string> kSwitches = {
    "NCCL_NVLS_ENABLE=0", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "NVSHMEM_DISABLE_NVLS=1"};

TEST_F(RanksTest, AStartedProgramHasMulticastOffWhateverTheUserSet) {
  environment_["NCCL_NVLS_ENABLE"] = "1";
  environment_["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "0";
  environment_["NVSHMEM_DISABLE_NVLS"] = "1";
  const ProgramEnd end = Run({"run", "--ranks", "2", "--", "/usr/bin/env"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  for (const std::string& entry : kSwitches) {
    EXPECT_EQ(Count("\n" + end.out, "\n" + entry + "\n"), 1u) << entry << "\n" << end.out;
    EXPECT_EQ(Count(end.err, "[rank 1] " + entry + "\n"), 1u) << entry << "\n" << end.err;
    const std::string name = entry.substr(0, entry.find('=') + 1);
    EXPECT_EQ(Count("\n" + end.out, "\n" + name), 1u) << end.out;
  }
  EXPECT_EQ(Count(end.err,
                  "cotune: warning: NCCL_NVLS_ENABLE=1 becomes 0, "
                  "TORCH_SYMM_MEM_DISABLE_MULTICAST=0 becomes 1: NVLink multicast is never used\n"),
            1u)
      << end.err;
}

TEST_F(RanksTest, TheRanksOfATuneHaveMulticastOff) {
  environment_["NCCL_NVLS_ENABLE"] = "2";
  ProgramRun run(Command({"tune", "--ranks", "2", "--collective", "all_reduce", "--sizes",
                          "4:4096:+4", "--db", database_}),
                 environment_);
  ASSERT_TRUE(run.WaitForError("[2/1024]"));
  const std::vector<std::string> ranks = ChildrenOf(run.pid());
  EXPECT_EQ(ranks.size(), 2u);
  for (const std::string& rank : ranks) {
    const std::vector<std::string> variables = EnvironmentOf(rank);
    for (const std::string& entry : kSwitches) {
      EXPECT_EQ(std::count(variables.begin(), variables.end(), entry), 1) << entry;
    }
  }
  ASSERT_EQ(kill(run.pid(), SIGINT), 0);
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(Count(end.err, "NCCL_NVLS_ENABLE=2 becomes 0"), 1u) << end.err;
}

TEST_F(RanksTest, ARankThatWaitsForOthersEndsAtOnceWhenInterrupted) {
  environment_["COTUNE_RANK"] = "0";
  environment_["COTUNE_WORLD_SIZE"] = "2";
  environment_["COTUNE_JOB_ID"] = "alone";
  for (const int signal : {SIGINT, SIGTERM}) {
    ProgramRun run(Command({"tune", "-v", "--sizes", "1K", "--db", database_}), environment_);
    ASSERT_TRUE(run.WaitForError("stage rendezvous"));
    ASSERT_EQ(kill(run.pid(), signal), 0);
    const ProgramEnd end = run.Wait();
    EXPECT_EQ(end.exit_code, 130) << end.err;
    EXPECT_EQ(Count(end.err, "error 130 (interrupted): interrupted before the tune began"), 1u)
        << end.err;
    EXPECT_EQ(end.out, "");
  }
  ProgramRun run(Command({"tune", "-v", "--json", "--sizes", "1K", "--db", database_}),
                 environment_);
  ASSERT_TRUE(run.WaitForError("stage rendezvous"));
  ASSERT_EQ(kill(run.pid(), SIGINT), 0);
  const nlohmann::json document = Document(run.Wait());
  EXPECT_EQ(document["error"]["exit_code"], 130) << document;
}

TEST_F(RanksTest, ARankThatNeverComesIsNamedWhileItIsWaitedFor) {
  environment_["COTUNE_RANK"] = "0";
  environment_["COTUNE_WORLD_SIZE"] = "3";
  environment_["COTUNE_JOB_ID"] = "missing";
  ProgramRun run(Command({"tune", "--json", "--sizes", "1K", "--db", database_}), environment_);
  ASSERT_TRUE(
      run.WaitForError("cotune: warning: waiting for ranks 1, 2, which have not joined "
                       "the job yet, for at most "));
  ASSERT_EQ(kill(run.pid(), SIGTERM), 0);
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_EQ(Count(end.err, "waiting for"), 1u) << end.err;
  EXPECT_EQ(
      Count(end.err,
            " more; this process is rank 0 of 3 by COTUNE_RANK and COTUNE_WORLD_SIZE: without "
            "a launcher unset them\n"),
      1u)
      << end.err;
  EXPECT_EQ(Document(end)["error"]["exit_code"], 130) << end.out;
  // The next job finds no socket that it would have to call stale.
  EXPECT_TRUE(std::filesystem::is_empty(environment_["XDG_RUNTIME_DIR"] + "/cotune"));
}

TEST_F(RanksTest, ARankWithoutRankZeroNamesTheVariablesThatMadeItOne) {
  environment_["RANK"] = "2";
  environment_["WORLD_SIZE"] = "3";
  ProgramRun run(Command({"tune", "--sizes", "1K", "--db", database_}), environment_);
  ASSERT_TRUE(
      run.WaitForError("waiting for rank 0, which has not joined the job yet, for at most"));
  ASSERT_TRUE(
      run.WaitForError("this process is rank 2 of 3 by RANK and WORLD_SIZE: without a "
                       "launcher unset them\n"));
  ASSERT_EQ(kill(run.pid(), SIGINT), 0);
  EXPECT_EQ(run.Wait().exit_code, 130);
}

TEST_F(RanksTest, VariablesOfALauncherThatAreLeftOverAreNamed) {
  environment_["RANK"] = "0";
  environment_["WORLD_SIZE"] = "1";
  environment_["MASTER_PORT"] = "left-over";
  const std::string text =
      "this process is rank 0 of 1 by RANK and WORLD_SIZE: without a launcher unset them";
  const std::vector<std::string> tune = {"tune", "--collective", "broadcast", "--sizes",
                                         "1K",   "--db",         database_};
  const ProgramEnd alone = Run(tune);
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(Count(alone.err, "only copies are measured; " + text + "\n"), 1u) << alone.err;
  std::vector<std::string> with_ranks = tune;
  with_ranks.insert(with_ranks.end(), {"--ranks", "2"});
  const ProgramEnd asked = Run(with_ranks);
  EXPECT_EQ(asked.exit_code, 2) << asked.err;
  EXPECT_EQ(Count(asked.err, "leave --ranks out; " + text), 1u) << asked.err;
  const ProgramEnd run = Run({"run", "--ranks", "2", "--", "env"});
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_EQ(Count(run.err, "under the launcher; " + text), 1u) << run.err;
}

// The program inherits the only processor that this process may use then.
TEST_F(RanksTest, TooManyRanksForTheProcessorsAreWarnedOf) {
  cpu_set_t whole;
  ASSERT_EQ(sched_getaffinity(0, sizeof(whole), &whole), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (size_t each = 0; each < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++each) {
    if (CPU_ISSET(each, &whole)) CPU_SET(each, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  ProgramRun run(Command({"tune", "--ranks", "17", "--collective", "broadcast", "--sizes", "1K",
                          "--db", database_}),
                 environment_);
  const bool is_warned = run.WaitForError(
      "cotune: warning: 17 ranks on 1 usable processor, 17.0 to each: a rank that gets no "
      "processor "
      "for seconds is taken for lost; start at most 16 here\n");
  ASSERT_EQ(sched_setaffinity(0, sizeof(whole), &whole), 0);
  EXPECT_TRUE(is_warned);
  ASSERT_EQ(kill(run.pid(), SIGINT), 0);
  run.Wait();
}

TEST_F(RanksTest, ARankThatIsKilledInATuneLeavesTheCellsThatAreMeasured) {
  for (const char* const rank : {"1", "0"}) {
    std::filesystem::remove(database_ + ".journal");
    ProgramRun run(Command({"tune", "--ranks", "2", "--collective", "all_reduce", "--sizes",
                            "4:4096:+4", "--db", database_, "--json"}),
                   environment_);
    ASSERT_TRUE(run.WaitForError("[2/1024]"));
    ASSERT_TRUE(KillRank(run.pid(), rank));
    const ProgramEnd end = run.Wait();
    EXPECT_EQ(end.exit_code, 5) << end.err;
    // The loss is one error, and one line has the end of the process.
    EXPECT_EQ(Count(end.err, " died"), *rank == '1' ? 1u : 0u) << end.err;
    EXPECT_EQ(Count(end.err, "error 5 (rank_lost): rank " + std::string(rank)), 1u) << end.err;
    EXPECT_EQ(Count(end.err, "was ended by SIGKILL (Killed)"), 1u) << end.err;
    EXPECT_EQ(Count(end.err,
                    " kept in " + database_ + ".journal, and the next tune continues from there\n"),
              1u)
        << end.err;
    EXPECT_EQ(Document(end)["error"]["ranks"], nlohmann::json({std::stoi(rank)})) << end.out;
  }
}

// Rank 1 dies after the last step of the tune, whose result rank 0 has by then. Nobody starts the
// ranks who could report the end of its process.
TEST_F(RanksTest, ARankThatDiesAfterTheResultIsAWarning) {
  SetFault("save.end@1:kill");
  environment_["COTUNE_WORLD_SIZE"] = "2";
  environment_["COTUNE_JOB_ID"] = "dies-late";
  const std::vector<std::string> command =
      Command({"tune", "--json", "--collective", "broadcast", "--sizes", "1K", "--db", database_});
  environment_["COTUNE_RANK"] = "1";
  ProgramRun rank_1(command, environment_);
  environment_["COTUNE_RANK"] = "0";
  const ProgramEnd rank_0 = ProgramRun(command, environment_).Wait();
  EXPECT_EQ(rank_1.Wait().exit_code, -SIGKILL);
  EXPECT_EQ(rank_0.exit_code, 0) << rank_0.err;
  EXPECT_EQ(Document(rank_0)["result"]["committed"], true) << rank_0.out;
  EXPECT_EQ(Count(rank_0.err,
                  "cotune: warning: rank 1 died: its connection ended without a "
                  "goodbye (rank 1"),
            1u)
      << rank_0.err;
  EXPECT_EQ(Count(rank_0.err, " died"), 1u) << rank_0.err;
}

TEST_F(RanksTest, ARankThatIsKilledInABenchLeavesNothing) {
  ProgramRun run(
      Command({"bench", "--ranks", "2", "--collective", "all_reduce", "--sizes", "4:4096:+4"}),
      environment_);
  ASSERT_TRUE(run.WaitForError("[2/1024]"));
  ASSERT_TRUE(KillRank(run.pid(), "0"));
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_EQ(Count(end.err, "was ended by SIGKILL (Killed)"), 1u) << end.err;
  EXPECT_EQ(Count(end.err, "kept"), 0u) << end.err;
}

TEST_F(RanksTest, ARankThatIsStoppedIsNamedWhileItIsWaitedFor) {
  ProgramRun run(Command({"tune", "--ranks", "2", "--collective", "all_reduce", "--sizes",
                          "4:4096:+4", "--db", database_, "--json"}),
                 environment_);
  ASSERT_TRUE(run.WaitForError("[2/1024]"));
  pid_t rank_1 = 0;
  for (const std::string& child : ChildrenOf(run.pid())) {
    const std::vector<std::string> variables = EnvironmentOf(child);
    const bool is_rank_1 = std::count(variables.begin(), variables.end(), "COTUNE_RANK=1") == 1;
    if (is_rank_1) rank_1 = static_cast<pid_t>(std::stol(child));
  }
  ASSERT_GT(rank_1, 0);
  ASSERT_EQ(kill(rank_1, SIGSTOP), 0);
  ASSERT_TRUE(run.WaitForError("cotune: waiting for rank 1, which is stopped"));
  ASSERT_EQ(kill(rank_1, SIGCONT), 0);
  const ProgramEnd end = run.Wait();
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_EQ(Count(end.err, "waiting for"), 1u) << end.err;
  EXPECT_EQ(Document(end)["error"]["ranks"], nlohmann::json({1})) << end.out;
}

TEST_F(RanksTest, ExplainIsAboutTheRanksOfItsLauncher) {
  ASSERT_EQ(TuneSmall(database_).exit_code, 0);
  environment_["COTUNE_RANK"] = "1";
  environment_["COTUNE_WORLD_SIZE"] = "2";
  const ProgramEnd beside = Run({"explain", "all_reduce", "1K", "f32", "--db", database_});
  EXPECT_EQ(beside.exit_code, 0) << beside.err;
  EXPECT_NE(beside.out.find("f32, 2 ranks"), std::string::npos) << beside.out;
  const ProgramEnd asked =
      Run({"explain", "all_reduce", "1K", "f32", "--ranks", "3", "--db", database_});
  EXPECT_NE(asked.out.find("f32, 3 ranks"), std::string::npos) << asked.out << asked.err;
  // Nothing is tuned for three: it names what runs instead.
  EXPECT_NE(asked.out.find("runs: host/"), std::string::npos) << asked.out;
}

// The ranks read it, their parent does not.
TEST_F(RanksTest, WhatFailsOnEveryRankBeforeTheyMeetIsSaidOnce) {
  SetFault("nowhere@1:kill");
  const ProgramEnd end = Run({"tune", "--ranks", "4", "--sizes", "1K", "--db", database_});
  EXPECT_EQ(end.exit_code, 2) << end.err;
  EXPECT_EQ(Count(end.err, "'nowhere@1:kill' is not a fault"), 1u) << end.err;
  EXPECT_TRUE(end.err.starts_with("cotune: error 2 (usage): ")) << end.err;
}

TEST_F(RanksTest, WhatFailsInTheParentAlreadyIsSaidOnce) {
  WriteFileForTest(folder_.path() + "/bad.so", "no library");
  const std::vector<std::vector<std::string>> commands = {
      {"tune", "--ranks", "4", "--plugin", folder_.path() + "/bad.so"},
      {"bench", "--ranks", "4", "--set", "host.slot_bytes=3"},
      {"tune", "--ranks", "4", "--min-rounds", "x"}};
  for (const std::vector<std::string>& command : commands) {
    const ProgramEnd end = Run(command);
    EXPECT_NE(end.exit_code, 0) << end.err;
    EXPECT_EQ(Count(end.err, "\n"), 1u) << end.err;
    EXPECT_EQ(Count(end.err, "cotune: error "), 1u) << end.err;
  }
}

TEST_F(RanksTest, AProgramThatASignalEndsIsNamedWithRankAndSignal) {
  const ProgramEnd end =
      Run({"run", "--ranks", "2", "--", "/bin/sh", "-c", "test $COTUNE_RANK = 0 || kill -KILL $$"});
  EXPECT_EQ(end.exit_code, 5);
  EXPECT_TRUE(end.err.starts_with("cotune: error 5 (rank_lost): rank 1 (pid ")) << end.err;
  EXPECT_NE(end.err.find(", /bin/sh) was ended by SIGKILL (Killed) after "), std::string::npos)
      << end.err;
  // The other one may have ended by then.
  EXPECT_TRUE(end.err.find(" s (run): ") != std::string::npos ||
              end.err.find(" s; rank 0 has ended with exit code 0 (run): ") != std::string::npos)
      << end.err;
  EXPECT_EQ(Count(end.err, "\n"), 1u) << end.err;
}

// The other rank would wait for ever.
TEST_F(RanksTest, AProgramThatFailsEndsTheOthersAndIsNamed) {
  const ProgramEnd end = Run({"run", "--ranks", "2", "--", "/bin/sh", "-c",
                              "test $COTUNE_RANK = 1 && exit 3; while :; do sleep 1000; done"});
  EXPECT_EQ(end.exit_code, 3) << end.err;
  EXPECT_TRUE(end.err.starts_with("cotune: warning: rank 1 (pid ")) << end.err;
  EXPECT_NE(end.err.find(", /bin/sh) ended with exit code 3 after "), std::string::npos) << end.err;
  EXPECT_NE(end.err.find(" s; the other ranks are ended\n"), std::string::npos) << end.err;
  EXPECT_EQ(Count(end.err, "\n"), 1u) << end.err;
}

TEST_F(RanksTest, AProgramThatIsNotThereIsSaidOnce) {
  const ProgramEnd end = Run({"run", "--ranks", "3", "--", "/no/such/program"});
  EXPECT_EQ(end.exit_code, 127);
  EXPECT_EQ(end.err,
            "cotune: error 3 (environment): cannot start the program of a rank (/no/such/program): "
            "No such file or directory; check its name and that it may be run\n");
}

// A relative path is that of the folder that cotune was started in, wherever the program goes.
TEST_F(RanksTest, RunTellsTheProgramWhichDatabaseItsGroupsBeginWith) {
  const ProgramEnd end =
      Run({"run", "--ranks", "1", "--db", "some.tdb", "--load-database", "off", "--", "/bin/sh",
           "-c", "pwd; cd /; echo $COTUNE_DATABASE $COTUNE_LOAD_DATABASE"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const std::string folder = end.out.substr(0, end.out.find('\n'));
  EXPECT_EQ(end.out, folder + "\n" + folder + "/some.tdb off\n") << end.err;
}

TEST_F(RanksTest, RunHasNoJsonAndPassesSettingsOn) {
  const ProgramEnd json = Run({"run", "--json", "--", "/bin/true"});
  EXPECT_EQ(json.exit_code, 2);
  EXPECT_EQ(Document(json)["error"]["what"], "run has no --json");
  for (const auto& [flag, name] :
       {std::pair("-q", "--quiet"), std::pair("--verbose", "--verbose")}) {
    const ProgramEnd end = Run({"run", flag, "--", "/bin/true"});
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_EQ(end.err, "cotune: error 2 (usage): run has no " + std::string(name) +
                           " (cotune run): run prints only errors and warnings; leave " + name +
                           " out\n");
  }
  const ProgramEnd set = Run({"run", "--set", "host.slot_bytes=1M", "--", "/bin/true"});
  EXPECT_EQ(set.exit_code, 2);
  EXPECT_NE(set.err.find("name that with --config"), std::string::npos) << set.err;
  const ProgramEnd passed =
      Run({"run", "--ranks", "1", "--budget", "7s", "--", "/bin/sh", "-c", "echo $COTUNE_BUDGET"});
  EXPECT_EQ(passed.out, "7s\n") << passed.err;
  // A flag counts more than a variable of the setting's other name.
  setenv("COTUNE_ENABLE_CUSTOM_OP_FUSION", "on", 1);
  const ProgramEnd other =
      Run({"run", "--ranks", "1", "--collective-fusion-enabled", "off", "--", "/bin/sh", "-c",
           "echo $COTUNE_COLLECTIVE_FUSION_ENABLED "
           "-$COTUNE_ENABLE_CUSTOM_OP_FUSION-"});
  unsetenv("COTUNE_ENABLE_CUSTOM_OP_FUSION");
  EXPECT_EQ(other.out, "off --\n") << other.err;
  EXPECT_NE(Run({"run", "--help"}).out.find("goes to standard error behind \"[rank N] \""),
            std::string::npos);
}

// The others hold nothing yet, and would wait for the rank for a minute.
TEST_F(RanksTest, ARankThatDiesBeforeAllHaveJoinedEndsTheTuneAtOnce) {
  SetFault("rendezvous@1:kill");
  for (const bool json : {false, true}) {
    std::vector<std::string> command = {"tune",    "--ranks", "3",    "--collective", "all_reduce",
                                        "--sizes", "1K",      "--db", database_};
    if (json) command.emplace_back("--json");
    const ProgramEnd end = Run(command);
    EXPECT_EQ(end.exit_code, 5) << end.err;
    EXPECT_EQ(Count(end.err, "cotune: error 5 (rank_lost): rank 1 (pid "), 1u) << end.err;
    EXPECT_EQ(Count(end.err, "was ended by SIGKILL (Killed) before the ranks had joined"), 1u)
        << end.err;
    EXPECT_EQ(Count(end.err, "\n"), 1u) << end.err;
    EXPECT_EQ(Count(end.out, "before the ranks had joined"), json ? 1u : 0u) << end.out;
  }
}

TEST_F(RanksTest, AMissedWindowIsOneWarningAndOneError) {
  SetFault("pre_sync@1:delay=300");
  environment_["COTUNE_COLLECTIVE_PRE_SYNC_TIMEOUT"] = "50ms";
  const ProgramEnd end = TuneSmall(database_);
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_EQ(Count(end.err, "warning: "), 1u) << end.err;
  EXPECT_EQ(Count(end.err, "\ncotune: warning: rank 1 missed the pre-sync window of 50 ms"), 1u)
      << end.err;
  EXPECT_EQ(Count(end.err, "cotune: error 5 (deadline): "), 1u) << end.err;
}

}  // namespace
}  // namespace cotune::cli
