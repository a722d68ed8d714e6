// The command line as plain data. Only command_line.cc knows the parser.
#ifndef COTUNE_CLI_INPUT_COMMAND_LINE_H_
#define COTUNE_CLI_INPUT_COMMAND_LINE_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/status.h"

namespace cotune::cli {

// Flags that every command has.
struct OutputFlags {
  bool json = false;
  bool quiet = false;
  bool verbose = false;
};

// Flags of every command that reads settings.
struct SettingFlags {
  std::optional<std::string> settings_file;
  std::map<std::string, std::string> values;  // setting name -> text
  std::vector<std::string> backend_values;    // "host.slot_bytes=1M"
};

// Which plugins take part. Empty backends: all that are found.
struct PluginFlags {
  std::vector<std::string> backends;
  std::vector<std::string> plugins;  // paths
};

// Selects the problems to measure; texts are as typed.
struct ProblemFlags {
  std::vector<std::string> collectives;
  std::vector<std::string> dtypes;
  std::vector<std::string> reductions;
  std::vector<std::string> buffers;
  std::optional<std::string> sizes;
  std::vector<std::string> programs;  // files
  std::optional<std::string> rows;    // of programs, instead of sizes
  std::string in_place;               // "" for no, "yes", "no" or "both"
};

struct TuneFlags {
  int ranks = 0;  // 0: default
  ProblemFlags problems;
  PluginFlags plugins;
  SettingFlags settings;
  bool force = false;
  std::string trace;  // "": none
};
struct BenchFlags {
  int ranks = 0;
  ProblemFlags problems;
  PluginFlags plugins;
  SettingFlags settings;
  bool tuned = false;
  std::string trace;  // "": none
};
struct ExplainFlags {
  int ranks = 0;
  std::string collective;
  std::string size;
  std::string dtype;
  std::string reduction;
  std::string buffers;
  bool in_place = false;
  std::string program;              // a file; then the fields above are empty
  std::optional<std::string> rows;  // of the program's call
  PluginFlags plugins;
  SettingFlags settings;
};
struct PluginListFlags {
  PluginFlags plugins;
  SettingFlags settings;
};
struct DoctorFlags {
  int ranks = 0;
  PluginFlags plugins;
  SettingFlags settings;
};
struct ProgramCheckFlags {
  std::string file;
  int ranks = 0;
};
struct ProgramRecipesFlags {
  std::string file;
  int ranks = 0;
  std::optional<std::string> rows;
  PluginFlags plugins;
  SettingFlags settings;
};
struct DbShowFlags {
  std::string file;
  PluginFlags plugins;
  SettingFlags settings;
};
struct DbMergeFlags {
  std::string output;
  std::vector<std::string> inputs;
};
struct ConfigShowFlags {
  SettingFlags settings;
};
struct RunFlags {
  int ranks = 0;
  std::vector<std::string> program;  // with its arguments
  SettingFlags settings;
};
struct VersionFlags {};
struct HelpFlags {
  std::string text;
};

using CommandFlags = std::variant<HelpFlags, VersionFlags, TuneFlags, BenchFlags, ExplainFlags,
                                  PluginListFlags, DbShowFlags, DbMergeFlags, ConfigShowFlags,
                                  RunFlags, DoctorFlags, ProgramCheckFlags, ProgramRecipesFlags>;

struct CommandLine {
  OutputFlags output;
  std::string command;  // "tune", "db show", "version", ...
  CommandFlags flags;
};

// kUsage: an unknown command or flag with the nearest name and all that are known, a missing
// argument, a value of the wrong type. `arguments` are without the program's name.
Result<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

// The command and the flags of output as far as they can be told from arguments that do not parse,
// for the error.
CommandLine GuessCommandLine(const std::vector<std::string>& arguments);

// "exit codes: 0 ok, 1 internal, ..."
std::string_view ExitCodesText();

}  // namespace cotune::cli

#endif  // COTUNE_CLI_INPUT_COMMAND_LINE_H_
