// The real program with UCX, over memory in common and between networks: explain says which way the
// data took.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cli/testing/cotune_program.h"
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
