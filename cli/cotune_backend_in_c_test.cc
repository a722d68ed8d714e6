// The example backend in C, built and tuned by the two commands of its README.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/testing/cotune_program.h"

namespace cotune::cli {
namespace {

constexpr char kExample[] = "examples/backend_in_c/";

// The line of the README that has this text in it, from there on.
std::string ReadmeLine(const std::string& text) {
  std::ifstream readme(std::string(kExample) + "README.md");
  for (std::string line; std::getline(readme, line);) {
    const size_t begin = line.find(text);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

void Replace(const std::string& from, const std::string& to, std::string& text) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " in " << text;
  text.replace(at, from.size(), to);
}

TEST_F(CotuneProgramTest, TheReadmeOfTheExampleInCHolds) {
  namespace fs = std::filesystem;
  const fs::path folder = folder_.path();
  fs::create_directories(folder / "tree/include/cotune");
  fs::copy_file("plugins/api/cotune_backend_v1.h",
                folder / "tree/include/cotune/cotune_backend_v1.h");
  fs::copy_file(std::string(kExample) + "tiny_backend.c", folder / "tiny_backend.c");
  std::string compile = ReadmeLine("cc -std=");
  Replace("DIR", "tree", compile);
  ASSERT_EQ(std::system(("umask 022; cd '" + folder.string() + "' && " + compile).c_str()), 0)
      << compile;

  std::string line = ReadmeLine("DIR/bin/cotune ");
  Replace("DIR/bin/cotune ", "", line);
  Replace("\"$PWD/tiny.so\"", (folder / "tiny.so").string(), line);
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  arguments.insert(arguments.end(), {"--sizes", "0,1K,100K", "--db", database_});
  const ProgramEnd tuned = Run(arguments);
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(tuned.out.find("tiny/slots"), std::string::npos) << tuned.out;
  const nlohmann::json shown = Document(Run({"db", "show", database_, "--json"}))["result"];
  ASSERT_EQ(shown["entries"].size(), 3u);
  for (const nlohmann::json& entry : shown["entries"]) {
    EXPECT_EQ(entry["winner"]["choice"], "tiny/slots") << entry;
  }
}

}  // namespace
}  // namespace cotune::cli
