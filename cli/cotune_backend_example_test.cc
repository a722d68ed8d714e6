// The example backends in C and C++, built and tuned by the two commands of their READMEs.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

namespace fs = std::filesystem;

struct Example {
  std::string folder;
  std::string source;
  std::string compiler;  // the word that the command begins with
  std::string library;
  std::string choices;  // what the name of each begins with
};

// The line of a README that has this text in it, from there on.
std::string ReadmeLine(const Example& example, const std::string& text) {
  std::ifstream readme(example.folder + "README.md");
  for (std::string line; std::getline(readme, line);) {
    const size_t begin = line.find(text);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

void Replace(const std::string& from, const std::string& to, std::string& text) {
  ASSERT_NE(text.find(from), std::string::npos) << from << " in " << text;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// Installs the files that `./dev dist` installs for authors of plugins.
void InstallInto(const fs::path& tree) {
  fs::create_directories(tree / "include/cotune/sdk");
  fs::create_directories(tree / "lib");
  fs::copy_file("plugins/api/cotune_backend_v1.h", tree / "include/cotune/cotune_backend_v1.h");
  fs::copy_file("plugins/api/cotune_program_v1.h", tree / "include/cotune/cotune_program_v1.h");
  for (const auto& file : fs::directory_iterator("plugins/sdk/installed")) {
    const bool is_library = file.path().extension() == ".a";
    const fs::path folder = tree / (is_library ? "lib" : "include/cotune/sdk");
    fs::copy_file(file.path(), folder / file.path().filename());
  }
}

// Builds an example by the command of its README, beside a tree that was installed.
void BuildExample(const Example& example, const fs::path& folder) {
  InstallInto(folder / "tree");
  fs::copy_file(example.folder + example.source, folder / example.source);
  std::string compile = ReadmeLine(example, example.compiler + " -std=");
  Replace("DIR", "tree", compile);
  ASSERT_EQ(std::system(("umask 022; cd '" + folder.string() + "' && " + compile).c_str()), 0)
      << compile;
}

using CotuneBackendExampleTestInC = CotuneProgramTest;

class CotuneBackendExampleTest : public CotuneProgramTest,
                                 public testing::WithParamInterface<Example> {};

TEST_P(CotuneBackendExampleTest, TheReadmeHolds) {
  const Example& example = GetParam();
  const fs::path folder = folder_.path();
  BuildExample(example, folder);
  std::string line = ReadmeLine(example, "DIR/bin/cotune ");
  Replace("DIR/bin/cotune ", "", line);
  Replace("\"$PWD/" + example.library + "\"", (folder / example.library).string(), line);
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  arguments.insert(arguments.end(), {"--sizes", "1K,100K", "--db", database_});
  const ProgramEnd tuned = Run(arguments);
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(tuned.out.find(example.choices), std::string::npos) << tuned.out;
  const nlohmann::json shown = Document(Run({"db", "show", database_, "--json"}))["result"];
  ASSERT_EQ(shown["entries"].size(), 2u);
  for (const nlohmann::json& entry : shown["entries"]) {
    EXPECT_EQ(entry["winner"]["choice"].get<std::string>().rfind(example.choices, 0), 0u) << entry;
  }
}

// The check of a plugin that the guide names. The example refuses most reductions and types.
TEST_F(CotuneBackendExampleTestInC, CellsThatItRefusesAreOneLineOfBench) {
  const fs::path folder = folder_.path();
  const Example example{"examples/backend_in_c/", "tiny_backend.c", "cc", "tiny.so", "tiny/slots"};
  BuildExample(example, folder);
  const auto bench = [&](const std::string& reductions, std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "--ranks", "2", "--plugin", (folder / "tiny.so").string(),
                               "--backend", "tiny", "--collective", "all_reduce", "--dtype", "all",
                               "--reduction", reductions, "--sizes", "1K,4K"});
    return Run(more);
  };
  const ProgramEnd end = bench("all", {"-q"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.out.find("tiny/slots"), std::string::npos) << end.out;
  const std::string left_out = " cells are left out, such as all_reduce";
  EXPECT_NE(end.err.find(left_out), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find(left_out), end.err.rfind(left_out)) << end.err;
  EXPECT_EQ(end.err.find("no choice could be timed"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find(": no backend offers a choice (tiny: "), std::string::npos) << end.err;
  const ProgramEnd verbose = bench("all", {"-v"});
  EXPECT_NE(verbose.err.find("warning: no choice could be timed (all_reduce"), std::string::npos)
      << verbose.err;
  EXPECT_EQ(verbose.exit_code, 0) << verbose.err;
  const ProgramEnd nothing = bench("product", {});
  EXPECT_EQ(nothing.exit_code, 3) << nothing.err;
  EXPECT_NE(nothing.err.find("error 3 (environment): no choice works in "), std::string::npos)
      << nothing.err;
}

// A program whose local operation the example in C takes, and one that it refuses.
TEST_F(CotuneBackendExampleTestInC, RunsItsPartOfPrograms) {
  const fs::path folder = folder_.path();
  const Example example{"examples/backend_in_c/", "tiny_backend.c", "cc", "tiny.so", "tiny/slots"};
  BuildExample(example, folder);
  const auto bench = [&](const std::string& operation) {
    const std::string path = folder.string() + "/p.cotune";
    WriteFileForTest(path, "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%y = " + operation +
                               " %s\nreturn %y\n");
    return Run({"bench", "--ranks", "2", "--plugin", (folder / "tiny.so").string(), "--backend",
                "tiny", "--program", path, "--rows", "4"});
  };
  const ProgramEnd runs = bench("relu");
  ASSERT_EQ(runs.exit_code, 0) << runs.err;
  EXPECT_NE(runs.out.find("tiny/slots"), std::string::npos) << runs.out;
  const ProgramEnd refused = bench("neg");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE((refused.out + refused.err).find("tiny: of parts relu of one value only"),
            std::string::npos)
      << refused.out << refused.err;
}

INSTANTIATE_TEST_SUITE_P(Languages, CotuneBackendExampleTest,
                         testing::Values(Example{"examples/backend_in_c/", "tiny_backend.c", "cc",
                                                 "tiny.so", "tiny/slots"},
                                         Example{"examples/backend_in_cpp/", "relay_backend.cc",
                                                 "c++", "relay.so", "relay/chunks?kib="}),
                         [](const testing::TestParamInfo<Example>& info) {
                           return std::string(info.param.compiler == "cc" ? "C" : "Cpp");
                         });

}  // namespace
}  // namespace cotune::cli
