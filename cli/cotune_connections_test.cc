// The real program with UCX, over memory in common and between networks: explain says which way the
// data took.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "cli/testing/cotune_program.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "plugins/ucx/testing/network_world.h"

namespace cotune::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConnectionsTest : public CotuneProgramTest {
 protected:
  ConnectionsTest() {
    namespace fs = std::filesystem;
    const std::string plugin = environment_["COTUNE_PLUGIN_PATH"] + "/cotune_ucx.so";
    fs::copy_file(fs::canonical("plugins/ucx/cotune_ucx.so"), plugin);
    fs::permissions(plugin, fs::perms(0755));
    // LeakSanitizer crashes at times while it reads the memory of UCX's own thread, which ends
    // then.
    environment_["ASAN_OPTIONS"] += ":detect_leaks=0";
  }

  // One cell of ucx alone, with these settings.
  static std::vector<std::string> Words(const std::string& command,
                                        const std::vector<std::string>& settings) {
    std::vector<std::string> words = {command, "--memory", "host", "--backend", "ucx"};
    for (const std::string& setting : settings) {
      words.insert(words.end(), {"--set", setting});
    }
    return words;
  }

  std::vector<std::string> TuneWords(const std::vector<std::string>& settings) const {
    std::vector<std::string> words = Words("tune", settings);
    words.insert(words.end(),
                 {"--collective", "all_reduce", "--sizes", "4K", "--db", database_, "--json"});
    return words;
  }

  // Returns the entry by which explain answers for these settings.
  nlohmann::json Entry(const std::vector<std::string>& settings) const {
    std::vector<std::string> words = Words("explain", settings);
    words.insert(words.end(), {"all_reduce", "4K", "f32", "--ranks", "2", "--db", database_});
    const ProgramEnd text = Run(words);
    words.push_back("--json");
    const nlohmann::json entry = Document(Run(words))["result"]["entry"];
    const std::string connections = entry["connections"].value("ucx", "none");
    EXPECT_NE(text.out.find("  connections of ucx: " + connections + "\n"), std::string::npos)
        << text.out;
    return entry;
  }
};

TEST_F(ConnectionsTest, EachSettingOfTransportsHasItsOwnTable) {
  const std::vector<std::string> by_memory = {"ucx.tls=posix,self"};
  const std::vector<std::string> by_tcp = {"ucx.tls=tcp,self", "ucx.net_devices=lo"};
  for (const auto& settings : {by_memory, by_tcp}) {
    std::vector<std::string> words = TuneWords(settings);
    words.insert(words.end(), {"--ranks", "2"});
    const ProgramEnd tuned = Run(words);
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
    EXPECT_EQ(Document(tuned)["result"]["measured_cells"], 1) << tuned.out;
  }
  EXPECT_EQ(Entry(by_memory)["connections"]["ucx"], "posix between all ranks");
  EXPECT_THAT(Entry(by_memory)["backends"]["ucx"].get<std::string>(),
              testing::StartsWith("1.0.0 with UCX 1."));
  EXPECT_EQ(Entry(by_tcp)["connections"]["ucx"], "tcp/lo between all ranks");
}

// A variable of UCX is in no fingerprint, and a file on a network drive may be read by hosts with
// other networks: the transports that UCX took decide whether a table counts.
TEST_F(ConnectionsTest, WhatWasMeasuredOverOtherTransportsIsMeasuredAgain) {
  std::vector<std::string> words = TuneWords({"ucx.net_devices=lo"});
  words.insert(words.end(), {"--ranks", "2"});
  const auto tune = [&](const char* transports) {
    environment_["UCX_TLS"] = transports;
    const ProgramEnd end = Run(words);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return std::pair(Document(end)["result"]["measured_cells"].get<int>(), end.err);
  };
  EXPECT_EQ(tune("posix,self").first, 1);
  EXPECT_EQ(tune("posix,self").first, 0);
  const auto [measured, warnings] = tune("tcp,self");
  EXPECT_EQ(measured, 1);
  EXPECT_THAT(warnings,
              HasSubstr("1 cell of the database was measured with other connections (connections "
                        "of ucx: 'posix between all ranks' in the file, 'tcp/lo between all ranks' "
                        "here): measured again"));
  // Both are kept.
  EXPECT_EQ(tune("tcp,self").first, 0);
  EXPECT_EQ(tune("posix,self").first, 0);
}

// UCX by itself writes its log to standard output.
TEST_F(ConnectionsTest, TheLogOfUcxIsNotPartOfTheResult) {
  const std::vector<std::string> list = {"plugin", "list", "--json", "--set", "ucx.tls=nonsense"};
  const ProgramEnd listed = Run(list);
  Document(listed);
  EXPECT_THAT(listed.err, HasSubstr("ucx: WARN  transport 'nonsense' is not available"));

  environment_["UCX_LOG_LEVEL"] = "info";
  std::vector<std::string> words = TuneWords({"ucx.tls=tcp,self", "ucx.net_devices=lo"});
  words.insert(words.end(), {"--ranks", "2"});
  const ProgramEnd tuned = Run(words);
  EXPECT_EQ(Document(tuned)["result"]["measured_cells"], 1) << tuned.out << tuned.err;
  EXPECT_THAT(tuned.err, HasSubstr("ucx: INFO  "));

  const std::string log = folder_.path() + "/ucx.log";
  environment_["UCX_LOG_FILE"] = log;
  const ProgramEnd logged = Run(list);
  Document(logged);
  EXPECT_THAT(logged.err, Not(HasSubstr("ucx: WARN")));
  std::ifstream file(log);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(file), {}), HasSubstr("'nonsense'"));
}

// Gives this process a /dev/shm of its own, of 64 KiB; as a user that is not root by way of a user
// namespace. "", or why it cannot.
std::string ShrinkSharedMemory() {
  const auto failed = [](const char* call) { return fmt::format("{}: {}", call, strerror(errno)); };
  const uid_t user = getuid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return failed("unshare");
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return failed("mount of /");
  if (mount("none", "/dev/shm", "tmpfs", 0, "size=64k,mode=1777") != 0) {
    return failed("mount of /dev/shm");
  }
  return "";
}

// UCX prints what it lacks to standard output.
TEST_F(ConnectionsTest, DoctorOnASmallSharedMemoryPrintsItsResultAlone) {
  constexpr int kImpossible = 77;
  const pid_t child = fork();
  if (child == 0) {
    if (const std::string why = ShrinkSharedMemory(); !why.empty()) {
      std::cerr << "no file system can be mounted here: " << why << "\n";
      _exit(kImpossible);
    }
    const ProgramEnd end =
        Run({"doctor", "--json", "--ranks", "4", "--db", database_, "--memory", "host"});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const nlohmann::json findings = Document(end)["result"]["findings"];
    const auto find = [&](const char* subject) {
      const auto found = std::find_if(findings.begin(), findings.end(),
                                      [&](const auto& each) { return each["subject"] == subject; });
      return found == findings.end() ? nlohmann::json() : *found;
    };
    EXPECT_EQ(find("plugin ucx")["state"], "note") << findings;
    EXPECT_THAT(find("plugin ucx")["next_step"].get<std::string>(),
                HasSubstr("enlarge /dev/shm (docker: --shm-size=1g): the ucx backend needs 4.3 MB "
                          "of it a rank, 16.8 MiB for 4 ranks, and 64.0 KiB are free"));
    EXPECT_THAT(find("/dev/shm")["next_step"].get<std::string>(),
                HasSubstr("the ucx backend needs 4.3 MB of it a rank, 16.8 MiB for 4 ranks"));
    EXPECT_EQ(find("UCX")["state"], "ok");
    EXPECT_THAT(end.err, HasSubstr("ucx: ERROR"));
    _exit(HasFailure() ? 1 : 0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kImpossible) {
    GTEST_SKIP() << "no file system can be mounted here";
  }
  EXPECT_EQ(status, 0);
}

// UCX prints text before cotune has its log, and past it.
TEST_F(ConnectionsTest, DoctorPrintsItsResultAloneWhateverALibraryPrints) {
  environment_["UCX_LOG_LEVEL"] = "debug";
  environment_["UCX_PROTO_INFO"] = "y";
  const ProgramEnd end = Run({"doctor", "--json", "--db", database_, "--memory", "host"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(Document(end)["command"], "doctor");
  EXPECT_THAT(end.err, HasSubstr(" UCX  DEBUG ")) << "as UCX prints it by itself";
}

TEST_F(ConnectionsTest, AVariableThatDecidesIsWarnedOfWithItsSetting) {
  environment_["UCX_TLS"] = "posix,self";
  environment_["UCX_RNDV_THRESH"] = "inf";
  const ProgramEnd listed = Run({"plugin", "list", "-v"});
  EXPECT_THAT(listed.err, HasSubstr("cotune: ucx: UCX 1."));
  for (const char* instead : {"UCX_TLS changes what is measured, but a tuned database does not "
                              "record it; use the setting ucx.tls instead",
                              "UCX_RNDV_THRESH changes what is measured, but a tuned database does "
                              "not record it; use the setting ucx.rndv_thresh instead"}) {
    EXPECT_THAT(listed.err, HasSubstr(std::string("ucx: the variable ") + instead));
  }
}

TEST_F(ConnectionsTest, RanksInNetworksOfTheirOwnTuneOverTcp) {
  if (const std::string why = ucx::WhyNoNetworkWorld(); !why.empty()) {
    GTEST_SKIP() << "no networks can be made here: " << why;
  }
  const std::vector<std::string> settings = {"ucx.tls=tcp,self",
                                             std::string("ucx.net_devices=") + ucx::kRankDevice};
  const auto rank_body = [&](int rank) -> std::string {
    environment_["COTUNE_RANK"] = std::to_string(rank);
    environment_["COTUNE_WORLD_SIZE"] = "2";
    environment_["COTUNE_LOCAL_RANK"] = std::to_string(rank);
    environment_["COTUNE_LOCAL_SIZE"] = "2";
    environment_["COTUNE_JOB_ID"] = "networks";
    const ProgramEnd end = Run(TuneWords(settings));
    return end.exit_code == 0 ? "" : end.err;
  };
  ASSERT_EQ(ucx::RunInNetworkWorld(2, {}, rank_body), "");
  const nlohmann::json entry = Entry(settings);
  EXPECT_EQ(entry["connections"]["ucx"], "tcp/eth0 between all ranks");
  EXPECT_EQ(entry["winner"]["choice"].get<std::string>().substr(0, 4), "ucx/");
}

}  // namespace
}  // namespace cotune::cli
