// A plugin that is mended and rebuilt with the same version, as the real program meets it.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kRightSum[] = "sum += group->parts[rank].slot[i];";
constexpr char kLaunchBegin[] = "plan->launch = *launch;";

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Builds of the example backend in C that differ in one statement.
class RebuiltPluginTest : public CotuneProgramTest {
 protected:
  RebuiltPluginTest() {
    const fs::path include = fs::path(folder_.path()) / "include/cotune";
    fs::create_directories(include);
    fs::copy_file("plugins/api/cotune_backend_v1.h", include / "cotune_backend_v1.h");
    fs::copy_file("plugins/api/cotune_program_v1.h", include / "cotune_program_v1.h");
  }

  // A build in place of the one before, with one statement replaced.
  void Build(const std::string& statement, const std::string& replacement) const {
    std::string source = ReadFileForTest("examples/backend_in_c/tiny_backend.c");
    const size_t at = source.find(statement);
    ASSERT_NE(at, std::string::npos) << statement;
    source.replace(at, statement.size(), replacement);
    WriteFileForTest(folder_.path() + "/tiny_backend.c", source);
    const std::string command = "umask 022; cd '" + folder_.path() +
                                "' && rm -f tiny.so && cc -std=c11 -O2 -fPIC -shared "
                                "-fvisibility=hidden -Iinclude tiny_backend.c -o tiny.so";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  void BuildGood() const { Build(kRightSum, kRightSum); }

  std::string plugin() const { return folder_.path() + "/tiny.so"; }
  ProgramEnd Tune() const { return TuneSmall(database_, {"--plugin", plugin()}); }

  // The outcomes of tiny/slots in all entries of the database; "absent" if an entry has none.
  std::vector<std::string> OutcomesOfTiny() const {
    const nlohmann::json shown =
        Document(Run({"db", "show", database_, "--plugin", plugin(), "--json"}));
    std::vector<std::string> outcomes;
    for (const nlohmann::json& entry : shown["result"]["entries"]) {
      std::string outcome = "absent";
      for (const nlohmann::json& choice : entry["choices"]) {
        if (choice["choice"] == "tiny/slots") outcome = choice["outcome"];
      }
      outcomes.push_back(outcome);
    }
    return outcomes;
  }
  void ExpectMeasuredAgainAndTimed(const ProgramEnd& end) const {
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_TRUE(Has(end.err,
                    "2 cells of the database were measured with another build of plugin "
                    "tiny (version 1.0): measured again"))
        << end.err;
    EXPECT_TRUE(Has(end.err, "2 measured, 0 known")) << end.err;
    for (const std::string& outcome : OutcomesOfTiny()) {
      EXPECT_NE(outcome, "absent");
      EXPECT_NE(outcome, "wrong_result");
    }
    EXPECT_EQ(OutcomesOfTiny().size(), 2u) << "the rows of the build before are gone";
  }
};

TEST_F(RebuiltPluginTest, AMendedPluginIsMeasuredAgain) {
  Build(kRightSum, "sum -= group->parts[rank].slot[i];");
  const ProgramEnd wrong = Tune();
  ASSERT_EQ(wrong.exit_code, 0) << wrong.err;
  EXPECT_TRUE(Has(wrong.out, "tiny/slots (wrong_result, ")) << wrong.out;
  const std::vector<std::string> wrong_twice = {"wrong_result", "wrong_result"};
  EXPECT_EQ(OutcomesOfTiny(), wrong_twice);
  // The compiler gives the same build again.
  Build(kRightSum, "sum -= group->parts[rank].slot[i];");
  const ProgramEnd same = Tune();
  EXPECT_TRUE(Has(same.err, "0 measured, 2 known")) << same.err;
  EXPECT_FALSE(Has(same.err, "measured again")) << same.err;

  BuildGood();
  const ProgramEnd checkup = Run({"doctor", "--db", database_, "--plugin", plugin()});
  EXPECT_TRUE(
      Has(checkup.out, "not valid here: measured with another build of plugin tiny (version 1.0)"))
      << checkup.out << checkup.err;
  const ProgramEnd explained = Run({"explain", "all_reduce", "1K", "f32", "--ranks", "2", "--db",
                                    database_, "--plugin", plugin()});
  EXPECT_TRUE(Has(explained.out,
                  "measured with another build of plugin tiny (version 1.0) "
                  "(backend_build_differs)"))
      << explained.out << explained.err;
  ExpectMeasuredAgainAndTimed(Tune());
  const ProgramEnd known = Tune();
  EXPECT_TRUE(Has(known.err, "0 measured, 2 known")) << known.err;
}

TEST_F(RebuiltPluginTest, AChoiceThatEndedATuneIsTriedAgainWithTheNextBuild) {
  Build(kLaunchBegin, "abort();");
  const ProgramEnd crashed = Tune();
  EXPECT_EQ(crashed.exit_code, 5) << crashed.err;
  EXPECT_TRUE(Has(crashed.err, "SIGABRT in launch of choice tiny/slots")) << crashed.err;
  for (const std::string measured : {"2 measured, 0 known", "0 measured, 2 known"}) {
    const ProgramEnd without = Tune();
    EXPECT_EQ(without.exit_code, 0) << without.err;
    EXPECT_TRUE(Has(without.err, measured)) << without.err;
    const size_t said = without.err.find("warning: tiny/slots is left out for all_reduce/");
    ASSERT_NE(said, std::string::npos) << without.err;
    EXPECT_EQ(without.err.find("tiny/slots is left out", said + 20), std::string::npos)
        << "once: " << without.err;
    EXPECT_TRUE(Has(without.err, "SIGABRT in launch on rank ")) << without.err;
    EXPECT_TRUE(Has(without.err, "use --force or remove " + database_ + ".journal to try it again"))
        << without.err;
    EXPECT_EQ(OutcomesOfTiny(), (std::vector<std::string>{"absent", "absent"}));
  }

  BuildGood();
  const ProgramEnd mended = Tune();
  EXPECT_FALSE(Has(mended.err, "left out")) << mended.err;
  ExpectMeasuredAgainAndTimed(mended);
  EXPECT_FALSE(fs::exists(database_ + ".journal"));
}

}  // namespace
}  // namespace cotune::cli
