// Program files through the real program.
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/testing/cotune_program.h"
#include "core/problem/program_graph.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

constexpr char kText[] =
    "program scaled\n"
    "%x = input f32 [R, 4]\n"
    "%s = all_reduce sum %x\n"
    "%y = mul %s, 0.5\n"
    "return %y\n";

constexpr char kCanonicalText[] =
    "%0 = input f32 [R, 4]\n"
    "%1 = all_reduce sum %0\n"
    "%2 = mul %1, 0.5\n"
    "return %2\n";

class ProgramsTest : public CotuneProgramTest {
 protected:
  std::string File(const std::string& text) const {
    const std::string path = folder_.path() + "/p.cotune";
    WriteFileForTest(path, text);
    return path;
  }
  // How tables and explanations name it.
  const std::string heading_ = "program " + Digest() + ": all_reduce + mul";

 private:
  static std::string Digest() {
    return fmt::format("{:016x}", ProgramGraph::Parse(kText)->digest());
  }
};

TEST_F(ProgramsTest, CheckPrintsWhatAFileMeans) {
  const ProgramEnd text = Run({"program", "check", File(kText)});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("%1     all_reduce  f32    [R, 4]  yes"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("steps   all_reduce; part (mul)"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("%2 = mul %1, 0.5\nreturn %2\n"), std::string::npos) << text.out;
  const nlohmann::json document = Document(Run({"program", "check", File(kText), "--json"}));
  EXPECT_EQ(document["result"]["name"], "scaled");
  EXPECT_EQ(document["result"]["values"][2]["from"], "mul");
}

TEST_F(ProgramsTest, RecipesAreListedWithReasonsAndNothingIsMeasured) {
  const std::string path = File(
      "program pair\n%a = input f32 [R, 4]\n%b = input f32 [1, 6]\n%n = neg %b\n"
      "%s = all_reduce sum %a\n%t = all_reduce sum %n\n%u = abs %t\nreturn %s, %u\n");
  const ProgramEnd text = Run({"program", "recipes", path, "--ranks", "2", "--rows", "8"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out.rfind("program pair, 8 rows: 2 ranks of host memory\n\n", 0), 0u) << text.out;
  const ProgramEnd by_default = Run({"program", "recipes", path});
  EXPECT_EQ(by_default.out.rfind("program pair, 4 rows: 4 ranks of host memory\n"
                                 "  --ranks is not given: 4 ranks\n"
                                 "  --rows is not given: a row for each rank\n\n",
                                 0),
            0u)
      << by_default.out;
  EXPECT_NE(text.out.find("  via=bucket  "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("2 x all_reduce as one"), std::string::npos) << text.out;
  const nlohmann::json result =
      Document(Run({"program", "recipes", path, "--ranks", "2", "--json"}))["result"];
  std::vector<std::string> keys;
  for (const nlohmann::json& recipe : result["recipes"]) {
    keys.push_back(recipe["keys"]);
    EXPECT_FALSE(recipe["choices"].empty()) << recipe.dump(1);
  }
  ASSERT_GE(keys.size(), 4u) << result.dump(1);
  EXPECT_EQ(keys.front(), "");
  // Three are regions of the second collective, of which host memory runs each.
  EXPECT_THAT(std::vector(keys.begin() + 4, keys.end()),
              testing::ElementsAre("via=bucket", "fuse=-1.1&via=bucket", "fuse=1&via=bucket",
                                   "fuse=-1&via=bucket"))
      << result.dump(1);
  const std::string alone = File("%a = input f32 [R, 4]\n%s = all_reduce sum %a\nreturn %s\n");
  const ProgramEnd refused = Run({"program", "recipes", alone});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("single collective"), std::string::npos) << refused.err;
  const ProgramEnd several = Run({"program", "recipes", path, "--rows", "8,16"});
  EXPECT_EQ(several.exit_code, 2);
}

TEST_F(ProgramsTest, ASplitIsListedForRowsThatRanksCanShare) {
  const auto recipes = [&](const char* rows) {
    return Run({"program", "recipes", File(kText), "--ranks", "2", "--rows", rows});
  };
  const ProgramEnd even = recipes("8");
  ASSERT_EQ(even.exit_code, 0) << even.err;
  EXPECT_NE(even.out.find("reduce_scatter, then mul, then all_gather\n"), std::string::npos)
      << even.out;
  const ProgramEnd odd = recipes("7");
  EXPECT_NE(odd.out.find("  via=split: 2 ranks have no equal shares of 7 rows\n"),
            std::string::npos)
      << odd.out;
}

TEST_F(ProgramsTest, VerboseTunesPrintEachFormAndRegionThatIsListedOrLeftOut) {
  const std::string path = File(
      "program pair\n%a = input f32 [R, 4]\n%b = input f32 [R, 4]\n%s = all_reduce sum %a\n"
      "%t = all_reduce sum %b\nreturn %s, %t\n");
  const std::string line =
      fmt::format("cotune: program pair {:016x} at 8 rows: via=bucket is listed\n",
                  ProgramGraph::Parse(ReadFileForTest(path))->digest());
  const std::vector<std::string> tune = {"tune",   "--ranks", "2",    "--program", path,
                                         "--rows", "8",       "--db", database_};
  std::vector<std::string> verbose = tune;
  verbose.insert(verbose.end(), {"-v", "--force"});
  EXPECT_EQ(Run(tune).err.find(line), std::string::npos);
  const ProgramEnd end = Run(verbose);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.err.find(line), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find(line), end.err.rfind(line)) << end.err;
}

TEST_F(ProgramsTest, ErrorsNameFileLineAndColumn) {
  const std::string path = File("%x = input f32 [R, 4]\n%s = all_reduce sun %x\nreturn %s\n");
  const ProgramEnd end = Run({"tune", "--ranks", "2", "--program", path, "--db", database_});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_NE(end.err.find(path + ", line 2, column 17"), std::string::npos) << end.err;
  EXPECT_EQ(Run({"program", "check", folder_.path()}).exit_code, 3);
  EXPECT_EQ(Run({"program", "check", folder_.path() + "/none"}).exit_code, 3);
}

TEST_F(ProgramsTest, ATunedProgramIsKnownAndExplained) {
  const std::vector<std::string> tune = {"tune",   "--ranks",    "2",    "--program", File(kText),
                                         "--rows", "1:1000:x10", "--db", database_};
  const ProgramEnd first = Run(tune);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.err.find("4 measured, 0 known"), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("/4] program scaled, 1 row: "), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("/4] program scaled, 1000 rows: "), std::string::npos) << first.err;
  EXPECT_NE(Run(tune).err.find("0 measured, 4 known"), std::string::npos);
  const ProgramEnd explained = Run(
      {"explain", "--ranks", "2", "--program", File(kText), "--rows", "100", "--db", database_});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_NE(explained.out.find("measured at 1600"), std::string::npos) << explained.out;
  EXPECT_EQ(explained.out.rfind(heading_ + ": 100 rows\n  by its all_reduce sum f32", 0), 0u)
      << explained.out;
  // The choice that runs the collective is named, and the product in its step or in a part.
  const size_t runs = explained.out.find("\n  runs: ");
  ASSERT_NE(runs, std::string::npos) << explained.out;
  const std::string choice = explained.out.substr(runs, explained.out.find('\n', runs + 1) - runs);
  const bool is_fused = choice.find("fuse=1") != std::string::npos;
  EXPECT_NE(explained.out.find(is_fused ? "\n  steps: all_reduce + mul by host/"
                                        : "\n  steps: all_reduce by host/"),
            std::string::npos)
      << explained.out;
  EXPECT_EQ(explained.out.find(", then mul\n") == std::string::npos, is_fused) << explained.out;
  const nlohmann::json recipe =
      Document(Run({"explain", "--ranks", "2", "--program", File(kText), "--rows", "100", "--db",
                    database_, "--json"}))["result"]["recipe"];
  EXPECT_EQ(recipe["via"], "");
  ASSERT_EQ(recipe["steps"].size(), is_fused ? 1u : 2u);
  EXPECT_EQ(recipe["steps"][0]["operations"],
            is_fused ? nlohmann::json({"all_reduce", "mul"}) : nlohmann::json({"all_reduce"}));
  if (!is_fused) {
    EXPECT_EQ(recipe["steps"][1]["operations"], nlohmann::json({"mul"}));
    EXPECT_TRUE(recipe["steps"][1]["choice"].is_null());
  }
  const nlohmann::json entries =
      Document(Run({"db", "show", database_, "--json"}))["result"]["entries"];
  ASSERT_EQ(entries.size(), 4u);
  std::vector<int> rows;
  for (const auto& entry : entries) {
    rows.push_back(entry["rows"]);
    EXPECT_EQ(entry["program"], kCanonicalText);
  }
  EXPECT_EQ(rows, (std::vector<int>{1, 10, 100, 1000}));
  const ProgramEnd shown = Run({"db", "show", database_});
  EXPECT_NE(shown.out.find(heading_ + "\n  by its all_reduce sum f32"), std::string::npos)
      << shown.out;
  // For an untuned program, the answer names the command that tunes it.
  const ProgramEnd other = Run(
      {"explain", "--ranks", "3", "--program", File(kText), "--rows", "100", "--db", database_});
  EXPECT_NE(other.out.find("cotune tune --ranks 3 --program " + File(kText) + " --rows 100"),
            std::string::npos)
      << other.out;
  EXPECT_NE(other.out.find("\n  steps: all_reduce by host/"), std::string::npos) << other.out;
  // The bare collective of the same size has a row of its own, and it was not measured.
  const ProgramEnd bare =
      Run({"explain", "all_reduce", "1600", "f32", "--ranks", "2", "--db", database_});
  EXPECT_NE(bare.out.find("default"), std::string::npos) << bare.out;
  EXPECT_EQ(bare.out.find("measured at 1600"), std::string::npos) << bare.out;
}

TEST_F(ProgramsTest, FlagsThatDoNotFitAreRefused) {
  const std::string path = File(kText);
  EXPECT_EQ(Run({"explain", "--ranks", "2", "--program", path, "--rows", "1,2"}).exit_code, 2);
  EXPECT_EQ(Run({"explain", "--ranks", "2", "--program", path}).exit_code, 2);
  EXPECT_EQ(Run({"tune", "--ranks", "2", "--program", path, "--rows", "many"}).exit_code, 2);
  const ProgramEnd both = Run({"explain", "--ranks", "2", "--program", path, "all_reduce"});
  EXPECT_NE(both.err.find("error 2 (usage): COLLECTIVE and --program exclude each other"),
            std::string::npos)
      << both.err;
  const ProgramEnd size = Run({"explain", "--ranks", "2", "--program", path, "much"});
  EXPECT_NE(size.err.find("(SIZE, character 1)"), std::string::npos) << size.err;
  for (const char* rows : {"0", "0,4"}) {
    const ProgramEnd none = Run({"tune", "--ranks", "2", "--program", path, "--rows", rows});
    EXPECT_EQ(none.exit_code, 2) << none.err;
    EXPECT_NE(none.err.find("cannot have 0 rows (--rows)"), std::string::npos) << none.err;
  }
  EXPECT_EQ(Run({"tune", "--ranks", "2", "--program", path, "--sizes", "4"}).exit_code, 2);
  EXPECT_EQ(Run({"explain", "all_reduce", "--ranks", "2"}).exit_code, 2);
  EXPECT_EQ(Run({"tune", "--ranks", "2", "--rows", "4"}).exit_code, 2);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--in-place"}, {"--dtype", "f32"}, {"--sizes", "64K"}}) {
    std::vector<std::string> arguments = {"tune", "--ranks", "2",     "--program",
                                          path,   "--rows",  "1:4:x2"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramEnd end = Run(arguments);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_NE(end.err.find(flags[0]), std::string::npos) << end.err;
  }
}

TEST_F(ProgramsTest, SizesOfAProgramWithoutRowsAreRefused) {
  const std::string path =
      File("%a = input f32 [1, 8]\n%s = all_reduce sum %a\n%y = neg %s\nreturn %y\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"explain", "--program", path, "--rows", "3"}, "--rows"},
      {{"explain", "32", "--program", path}, "SIZE"},
      {{"tune", "--program", path, "--sizes", "1K", "--db", database_}, "--sizes"},
      {{"program", "recipes", path, "--rows", "3"}, "--rows"},
  };
  for (const auto& [arguments, flag] : cases) {
    const ProgramEnd end = Run(arguments);
    EXPECT_EQ(end.exit_code, 2) << end.err;
    EXPECT_NE(end.err.find(flag + " has no effect here (" + flag + "): no value of " + path),
              std::string::npos)
        << end.err;
  }
  EXPECT_EQ(Run({"program", "recipes", path}).exit_code, 0);
  // The hint of a call that is not tuned has no rows either.
  ASSERT_EQ(Run({"tune", "--ranks", "2", "--collective", "all_reduce", "--sizes", "1K", "--db",
                 database_})
                .exit_code,
            0);
  const ProgramEnd untuned = Run({"explain", "--ranks", "2", "--program", path, "--db", database_});
  EXPECT_NE(untuned.out.find("cotune tune --ranks 2 --program " + path), std::string::npos)
      << untuned.out;
  EXPECT_EQ(untuned.out.find("--rows"), std::string::npos) << untuned.out;
  // Scripts give one list of rows to many programs.
  const ProgramEnd bench = Run({"bench", "--ranks", "2", "--program", path, "--rows", "3"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_NE(bench.err.find("--rows has no effect on programs without R rows: " + path),
            std::string::npos)
      << bench.err;
}

TEST_F(ProgramsTest, AFileThatIsNoTextIsRefusedAsOne) {
  const std::string large = "# " + std::string(64 * 1024, 'x') + "\n";
  const std::string binary = std::string("\x7f") + "ELF" + std::string(9, '\0') + large;
  for (const auto& [content, what] : {std::pair(large, "the file is larger than 64 KiB"),
                                      std::pair(binary, "the file is no program text")}) {
    const std::string path = File(content);
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"program", "check", path},
          {"tune", "--program", path, "--db", database_}}) {
      const ProgramEnd end = Run(arguments);
      EXPECT_EQ(end.exit_code, 2) << end.err;
      EXPECT_NE(end.err.find(what + std::string(" (") + path + ")"), std::string::npos) << end.err;
      EXPECT_NE(end.err.find("program sum; %x = input f32 [R, 1024]"), std::string::npos)
          << end.err;
    }
  }
  // The text that the error shows is one.
  EXPECT_EQ(Run({"program", "check",
                 File("program sum; %x = input f32 [R, 1024]; %y = all_reduce sum %x; return %y")})
                .exit_code,
            0);
}

TEST_F(ProgramsTest, RowsWithoutEqualSharesForAnyRankNameSomeThatHaveThem) {
  const std::string path =
      File("%x = input f32 [R, 4]\n%s = reduce_scatter sum %x\n%y = neg %s\nreturn %y\n");
  const std::string cause = "the ranks share the rows of " + path + "; give a multiple of 3, ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"7", "7 rows have no equal shares for 3 ranks (--rows): " + cause + "for example 6 or 9\n"},
      {"2", "2 rows have no equal shares for 3 ranks (--rows): " + cause + "for example 3\n"},
      {"4,8",
       "4, 8 rows have no equal shares for 3 ranks (--rows): " + cause + "for example 3 or 6\n"},
  };
  for (const auto& [rows, text] : cases) {
    for (const char* command : {"explain", "tune"}) {
      const ProgramEnd end = Run({command, "--ranks", "3", "--program", path, "--rows", rows});
      EXPECT_EQ(end.exit_code, 2) << end.err;
      EXPECT_NE(end.err.find(text), std::string::npos) << end.err;
    }
  }
  const ProgramEnd without = Run({"explain", "--ranks", "3", "--program", path});
  EXPECT_NE(without.err.find("; write: cotune explain --program " + path + " --rows 3\n"),
            std::string::npos)
      << without.err;
}

TEST_F(ProgramsTest, AProgramThatIsGivenTwiceIsMeasuredOnce) {
  const std::string path = File(kText);
  const ProgramEnd end = Run(
      {"tune", "--ranks", "2", "--program", path + "," + path, "--rows", "4", "--db", database_});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.err.find("1 cell to measure"), std::string::npos) << end.err;
}

TEST_F(ProgramsTest, AByteOrderMarkIsNamed) {
  const ProgramEnd end = Run({"program", "check", File("\xef\xbb\xbf" + std::string(kText))});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_NE(end.err.find("error 2 (usage): the file begins with a byte order mark ("),
            std::string::npos)
      << end.err;
}

TEST_F(ProgramsTest, RowsWithoutEqualSharesAreTold) {
  const std::string path =
      File("%x = input f32 [R, 4]\n%s = reduce_scatter sum %x\n%y = neg %s\nreturn %y\n");
  const ProgramEnd end = Run({"tune", "--ranks", "2", "--program", path, "--rows", "2:5:+1", "--db",
                              folder_.path() + "/shares.tdb"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.err.find("rows left out, since the ranks have no equal shares of them: 3, 5"),
            std::string::npos)
      << end.err;
}

}  // namespace
}  // namespace cotune::cli
