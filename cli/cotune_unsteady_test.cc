// A tune while other programs use the processors.
#include <sched.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cli/testing/cotune_program.h"
#include "core/base/usable_processors.h"

namespace cotune::cli {
namespace {

// A loop on each processor, for as long as the object lives.
class BusyProcessors {
 public:
  BusyProcessors() {
    for (const size_t processor : ProcessorsIn(UsableProcessors())) {
      threads_.emplace_back([this, processor] {
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(processor, &own);
        sched_setaffinity(0, sizeof(own), &own);
        while (!stops_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyProcessors() {
    stops_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyProcessors(const BusyProcessors&) = delete;
  BusyProcessors& operator=(const BusyProcessors&) = delete;

 private:
  std::atomic<bool> stops_{false};
  std::vector<std::thread> threads_;
};

class UnsteadyTest : public CotuneProgramTest {
 protected:
  UnsteadyTest() { environment_["COTUNE_KEEP_UNSTEADY"] = "off"; }
  // Tunes sizes that are measured for long enough to observe the processors.
  ProgramEnd TuneLong(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"tune",         "--ranks",    "2",
                                          "--collective", "all_reduce", "--sizes",
                                          "1M,4M",        "--db",       database_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
};

TEST_F(UnsteadyTest, OnBusyProcessorsEveryRowIsMarkedAndRunsTheDefaultAndIsMeasuredAgain) {
  const BusyProcessors busy;
  const ProgramEnd first = TuneLong({"--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const nlohmann::json result = Document(first)["result"];
  EXPECT_EQ(result["measured_cells"], 2);
  EXPECT_EQ(result["unsteady_cells"], 2);
  ASSERT_EQ(result["entries"].size(), 2u);
  for (const nlohmann::json& entry : result["entries"]) {
    EXPECT_TRUE(entry["is_unsteady"].get<bool>());
    EXPECT_EQ(entry["winner"]["choice"], entry["winner"]["default"]);
  }
  for (const nlohmann::json& row : result["winners"]) EXPECT_TRUE(row["is_unsteady"].get<bool>());
  EXPECT_NE(first.err.find("other programs used "), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("2 of 2 measured cells are unsteady"), std::string::npos) << first.err;

  const ProgramEnd second = TuneLong({});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.err.find("2 measured, 0 known"), std::string::npos) << second.err;
  EXPECT_NE(second.out.find("unsteady"), std::string::npos) << second.out;
  const ProgramEnd explained =
      Run({"explain", "all_reduce", "1M", "f32", "--ranks", "2", "--db", database_});
  EXPECT_NE(explained.out.find("the next tune measures this size again"), std::string::npos)
      << explained.out;

  const ProgramEnd kept = TuneLong({"--json", "--keep-unsteady", "on"});
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_EQ(Document(kept)["result"]["unsteady_cells"], 0);
  const ProgramEnd known = TuneLong({});
  EXPECT_NE(known.err.find("0 measured, 2 known"), std::string::npos) << known.err;
}

// One cell of a few milliseconds. The loops take at least half of the processors while the ranks
// measure, and all of them while the ranks go on observing; other programs only add to that.
TEST_F(UnsteadyTest, OnBusyProcessorsOneShortRowIsMarked) {
  const BusyProcessors busy;
  const ProgramEnd end = Run({"tune", "--ranks", "2", "--collective", "broadcast", "--sizes", "1K",
                              "--db", database_, "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const nlohmann::json result = Document(end)["result"];
  ASSERT_EQ(result["entries"].size(), 1u);
  EXPECT_TRUE(result["entries"][0]["is_unsteady"].get<bool>());
  EXPECT_EQ(result["entries"][0]["winner"]["choice"], result["entries"][0]["winner"]["default"]);
  EXPECT_NE(end.err.find("(other programs used "), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("1 of 1 measured cell is unsteady"), std::string::npos) << end.err;
}

TEST_F(UnsteadyTest, RanksThatShareProcessorsAreSaidInOneLine) {
  const size_t processors = ProcessorsIn(UsableProcessors()).size();
  const std::string ranks = std::to_string(processors + 1);
  const ProgramEnd end = Run({"tune", "--ranks", ranks, "--collective", "broadcast", "--sizes",
                              "1K", "--db", database_, "--keep-unsteady", "on"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const std::string line = "cotune: note: " + ranks + " ranks share ";
  const size_t at = end.err.find(line);
  ASSERT_NE(at, std::string::npos) << end.err;
  EXPECT_EQ(end.err.find(line, at + 1), std::string::npos) << end.err;
}

}  // namespace
}  // namespace cotune::cli
