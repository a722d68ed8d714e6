#include "cli/testing/cotune_program.h"

#include <cstdlib>
#include <filesystem>

#include "cli/testing/json_schema.h"

namespace cotune::cli {

CotuneProgramTest::CotuneProgramTest() : database_(folder_.path() + "/x.tdb") {
  // A copy: a plugin counts only where nobody else may write, and it must be no link.
  const std::string plugins = folder_.path() + "/plugins";
  std::filesystem::create_directory(plugins);
  std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"),
                             plugins + "/cotune_host.so");
  std::filesystem::permissions(plugins + "/cotune_host.so", std::filesystem::perms(0755));
  environment_ = {{"PATH", "/usr/bin:/bin"},
                  {"HOME", folder_.path()},
                  {"XDG_RUNTIME_DIR", folder_.path()},
                  {"XDG_CACHE_HOME", folder_.path() + "/cache"},
                  {"COTUNE_PLUGIN_PATH", plugins},
                  {"COTUNE_COLLECTIVE_PRE_SYNC_TIMEOUT", "30s"},
                  // Other tests use the processors at the same time.
                  {"COTUNE_KEEP_UNSTEADY", "on"}};
  // A run under sanitizers sets these for every process.
  for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "UCX_MEM_EVENTS"}) {
    if (const char* value = std::getenv(name)) environment_[name] = value;
  }
}

void CotuneProgramTest::SetFault(const std::string& fault) {
  has_fault_ = !fault.empty();
  environment_["COTUNE_FAULT"] = fault;
  if (!has_fault_) environment_.erase("COTUNE_FAULT");
}

std::vector<std::string> CotuneProgramTest::Command(
    const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {
      std::filesystem::absolute(has_fault_ ? "cli/cotune_with_faults" : "cli/cotune")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

ProgramEnd CotuneProgramTest::Run(const std::vector<std::string>& arguments) const {
  return ProgramRun(Command(arguments), environment_).Wait();
}

ProgramEnd CotuneProgramTest::TuneSmall(const std::string& database,
                                        const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {"tune",    "--ranks", "2",    "--collective", "all_reduce",
                                        "--sizes", "1K,8K",   "--db", database};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Run(arguments);
}

nlohmann::json CotuneProgramTest::Document(const ProgramEnd& end) {
  static const nlohmann::json schema =
      nlohmann::json::parse(ReadFileForTest("docs/cli_output.schema.json"));
  nlohmann::json document = nlohmann::json::parse(end.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << end.out << end.err;
  EXPECT_EQ(FindSchemaViolation(schema, schema, document), "");
  return document;
}

}  // namespace cotune::cli
