// The real program with the setting force_choice.
#include <filesystem>
#include <string>
#include <vector>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

constexpr char kScript[] =
    "choice usual default cost_us=20000; choice fast; choice wanted cost_us=30000 bytes_max=2048";

class ForceTest : public CotuneProgramTest {
 protected:
  ForceTest() {
    namespace fs = std::filesystem;
    const std::string folder = folder_.path() + "/fake_plugin";
    fs::create_directory(folder);
    fs::copy_file(fs::canonical("plugins/fake/cotune_fake.so"), folder + "/cotune_fake.so");
    fs::permissions(folder + "/cotune_fake.so", fs::perms(0755));
    environment_["COTUNE_PLUGIN_PATH"] = folder;
  }

  ProgramEnd Tune(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {
        "tune",         "--ranks",    "2",
        "--collective", "all_reduce", "--db",
        database_,      "--set",      "fake.script=" + std::string(kScript),
        "--sizes",      "1K,4K"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
  ProgramEnd Explain(const std::string& size, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {
        "explain", "all_reduce", size,      "f32",   "--ranks",
        "2",       "--db",       database_, "--set", "fake.script=" + std::string(kScript)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::vector<std::string> kForce = {"--force-choice", "all_reduce=fake/wanted"};

TEST_F(ForceTest, ATuneMeasuresNothingThatIsForcedAndExplainSaysWhatRuns) {
  std::vector<std::string> as_json = kForce;
  as_json.push_back("--json");
  const ProgramEnd tuned = Tune(as_json);
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_TRUE(Has(tuned.err, "1 cell to measure, 1 forced: ")) << tuned.err;
  EXPECT_TRUE(Has(tuned.err, "1 measured, 0 known, 0 skipped, 1 forced in ")) << tuned.err;
  const nlohmann::json result = Document(tuned)["result"];
  EXPECT_EQ(result["measured_cells"], 1);
  EXPECT_EQ(result["forced_cells"], 1);
  EXPECT_EQ(result["skipped_cells"], 0);
  ASSERT_EQ(result["winners"].size(), 1u);
  EXPECT_EQ(result["winners"][0]["choice"], "fake/fast") << "4K, where the choice is refused";

  const ProgramEnd forced = Explain("1K", kForce);
  ASSERT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_TRUE(Has(forced.out,
                  "runs: fake/wanted, because the setting force_choice demands it "
                  "(--force-choice)\n  without that "
                  "setting:\n  runs: fake/fast"))
      << forced.out;
  const nlohmann::json explained = Document(Explain("1K", as_json))["result"];
  EXPECT_EQ(explained["forced"]["choice"], "fake/wanted");
  EXPECT_EQ(explained["forced"]["origin"], "--force-choice");
  EXPECT_EQ(explained["runs"]["choice"], "fake/fast");
  const nlohmann::json refused = Document(Explain("4K", as_json))["result"];
  EXPECT_TRUE(refused["forced"]["choice"].is_null());
  EXPECT_TRUE(Has(refused["forced"]["refused"].get<std::string>(), "fake/wanted: "));
  EXPECT_TRUE(Document(Explain("1K", {"--json"}))["result"]["forced"].is_null());
}

TEST_F(ForceTest, ANameThatCannotBeIsAnErrorThatIsSaidOnce) {
  const auto error = [&](const std::string& force) {
    environment_["COTUNE_FORCE_CHOICE"] = force;
    const ProgramEnd tuned = Tune({});
    EXPECT_EQ(tuned.exit_code, 2) << tuned.err;
    const size_t first = tuned.err.find("cotune: error");
    EXPECT_EQ(tuned.err.find("cotune: error", first + 1), std::string::npos) << tuned.err;
    EXPECT_EQ(Explain("1K", {}).exit_code, 2);
    return tuned.err;
  };
  EXPECT_TRUE(
      Has(error("all_reduce=fake/wantde"), "(COTUNE_FORCE_CHOICE): backend fake lists no such"));
  EXPECT_TRUE(Has(error("all_reduce=fake/wantde"), "did you mean fake/wanted?"));
  EXPECT_TRUE(Has(error("all_reduce=host/ring"), "backend host is not in use here"));
  EXPECT_TRUE(Has(error("all_reduce=fake/usual,"), "element 2 of the list is empty"));
  EXPECT_TRUE(Has(error("all_reducee=fake/usual"), "did you mean all_reduce?"));
}

TEST_F(ForceTest, ABenchMeasuresEveryChoice) {
  environment_["COTUNE_FORCE_CHOICE"] = "all_reduce=fake/wanted";
  const ProgramEnd bench = Run({"bench", "--ranks", "2", "--collective", "all_reduce", "--sizes",
                                "1K", "--set", "fake.script=" + std::string(kScript), "--json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_EQ(Document(bench)["result"]["measured_cells"], 1);
}

TEST_F(ForceTest, OperatorsOfPyTorchReachAProgramAndAreNamedByATune) {
  const std::string force = "lib::op=python/ring,all_reduce=fake/wanted";
  const ProgramEnd run = Run({"run", "--ranks", "1", "--force-choice", force, "--", "/bin/sh", "-c",
                              "echo \"$COTUNE_FORCE_CHOICE\""});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, force + "\n");
  EXPECT_FALSE(Has(run.err, "has no effect")) << run.err;

  const ProgramEnd tuned = Tune({"--force-choice", force});
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_TRUE(Has(tuned.err, "1 measured, 0 known, 0 skipped, 1 forced in ")) << tuned.err;
  const std::string warning =
      "--force-choice for lib::op=python/ring has no effect on `cotune tune`";
  const size_t first = tuned.err.find(warning);
  ASSERT_NE(first, std::string::npos) << tuned.err;
  EXPECT_EQ(tuned.err.find(warning, first + 1), std::string::npos) << "once for all ranks";

  environment_["COTUNE_FORCE_CHOICE"] = force;
  for (const ProgramEnd& end : {Tune({}), Explain("1K", {})}) {
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_FALSE(Has(end.err, "has no effect")) << "the variable serves other programs, too\n"
                                                << end.err;
  }
  environment_.erase("COTUNE_FORCE_CHOICE");

  for (const char* command : {"run", "tune"}) {
    std::vector<std::string> words = {command, "--ranks", "2", "--force-choice",
                                      "lib::op=a,,lib::b=c"};
    if (command == std::string("run")) words.insert(words.end(), {"--", "/bin/true"});
    const ProgramEnd wrong = Run(words);
    EXPECT_EQ(wrong.exit_code, 2) << wrong.err;
    EXPECT_TRUE(Has(wrong.err, "element 2 of the list is empty")) << wrong.err;
  }
}

}  // namespace
}  // namespace cotune::cli
