#include "cli/input/command_line.h"

#include <algorithm>
#include <array>
#include <memory>

#include "CLI/CLI.hpp"
#include "core/base/nearest_name.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/settings/setting_table.h"

namespace cotune::cli {
namespace {

constexpr std::array<std::string_view, 11> kCommands = {
    "tune",        "bench", "explain", "plugin list",   "db show",        "db merge",
    "config show", "run",   "doctor",  "program check", "program recipes"};

// Storage that the parser writes into, and the parser.
struct Parsing {
  CLI::App app{"cotune measures every way to run a collective operation and dispatches the fastest",
               "cotune"};
  OutputFlags output;
  bool version = false;
  TuneFlags tune;
  BenchFlags bench;
  ExplainFlags explain;
  PluginListFlags plugin_list;
  DbShowFlags db_show;
  DbMergeFlags db_merge;
  ConfigShowFlags config_show;
  RunFlags run;
  ProgramCheckFlags program_check;
  ProgramRecipesFlags program_recipes;
  DoctorFlags doctor;
};

void AddOutput(CLI::App& command, OutputFlags& flags) {
  command.add_flag("--json", flags.json, "results and errors as JSON on standard output")
      ->group("Output");
  command.add_flag("-q,--quiet", flags.quiet, "no plan and no progress")->group("Output");
  command.add_flag("-v,--verbose", flags.verbose, "name each stage")->group("Output");
}

constexpr const char* kSettingsGroup =
    "Settings (also as variable COTUNE_NAME, and as key in the settings file)";

void AddSettings(CLI::App& command, SettingFlags& flags) {
  command
      .add_option_function<std::string>(
          "--config", [&flags](const std::string& path) { flags.settings_file = path; },
          "settings file [$XDG_CONFIG_HOME/cotune/config.toml]")
      ->type_name("FILE")
      ->group(kSettingsGroup);
  command.add_option("--set", flags.backend_values, "setting of a backend, BACKEND.KEY=VALUE")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(kSettingsGroup);
  const SettingValues defaults;
  // An alias is a flag of its own, so that messages name the flag that the user wrote.
  const auto add = [&](const SettingSpec& spec, std::string_view name, const std::string& flag,
                       const std::string& help) {
    command
        .add_option_function<std::string>(
            flag,
            [&flags, name = std::string(name)](const std::string& text) {
              flags.values[name] = text;
            },
            help)
        ->type_name(std::string(TypeName(spec)))
        ->group(kSettingsGroup);
  };
  for (const SettingSpec& spec : AllSettings()) {
    const std::string value = FormatSetting(spec, defaults);
    add(spec, spec.name, (spec.name == "database" ? "--db," : "") + FlagName(spec.name),
        value.empty() ? std::string(spec.help) : fmt::format("{} [{}]", spec.help, value));
    for (const std::string_view alias : AliasesOf(spec)) {
      // `cotune tune --force` measures anew, so that this alias is no flag.
      if (alias == "force") continue;
      add(spec, alias, FlagName(alias), "the same as " + FlagName(spec.name));
    }
  }
}

void AddPlugins(CLI::App& command, PluginFlags& flags) {
  command
      .add_option("--backend", flags.backends,
                  "backends that take part; the first is the default [all]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  command
      .add_option("--plugin", flags.plugins, "a plugin to load in addition to those that are found")
      ->allow_extra_args(false)
      ->type_name("FILE");
}

void AddRanks(CLI::App& command, int& ranks, const std::string& help) {
  command.add_option("--ranks", ranks, help)->check(CLI::Range(1, 1024))->type_name("N");
}

void AddProblems(CLI::App& command, ProblemFlags& flags) {
  const auto add = [&](const char* name, std::vector<std::string>& texts, const char* help) {
    command.add_option(name, texts, help)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAME,...");
  };
  add("--collective", flags.collectives, "collectives, or all [all]");
  add("--dtype", flags.dtypes, "element types, or all [f32; on GPUs bf16 and f32]");
  add("--reduction", flags.reductions,
      "for collectives that reduce: their reductions, or all [sum]");
  add("--buffers", flags.buffers,
      "plain, symmetric (in memory that all ranks have registered), or all [plain]");
  command
      .add_option_function<std::string>(
          "--sizes", [&flags](const std::string& text) { flags.sizes = text; },
          "bytes: 64K, 1K:16M:x2, 1K:64K:+4K, or a list; K, M, G, T are powers of 1024 "
          "[1K:4M:x2; on GPUs without --program 16M and 64M, too]")
      ->type_name("SIZES");
  command
      .add_option_function<std::vector<std::string>>(
          "--in-place",
          [&flags](const std::vector<std::string>& values) {
            flags.in_place = values.empty() || values.front().empty() ? "yes" : values.front();
          },
          "calls in place, of which the result overwrites the data to send: yes, no, or both; "
          "alone: yes [no; on host memory, if --collective names none: both for all_reduce and "
          "all_gather]")
      ->expected(0, 1)
      ->check(CLI::IsMember({"yes", "no", "both"}))
      ->type_name("PLACES");
  command
      .add_option("--program", flags.programs,
                  "program files: collectives with the local operations around them; without "
                  "--collective nothing else is measured")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE,...");
  command
      .add_option_function<std::string>(
          "--rows", [&flags](const std::string& text) { flags.rows = text; },
          "rows (R) of the programs instead of --sizes: 1:1024:x2, or a list")
      ->type_name("ROWS");
}

void AddTrace(CLI::App& command, std::string& path) {
  command
      .add_option("--trace", path,
                  "write when which rank did what, for a viewer of Chrome traces (Perfetto)")
      ->type_name("FILE");
}

void AddTune(Parsing& parsing) {
  CLI::App& command =
      *parsing.app.add_subcommand("tune", "measure, agree on winners, write the tuned database");
  AddRanks(command, parsing.tune.ranks,
           "ranks to start, where no launcher has started them [one for each GPU, or for each "
           "processor, 2 to 8]");
  AddProblems(command, parsing.tune.problems);
  AddPlugins(command, parsing.tune.plugins);
  command.add_flag("--force", parsing.tune.force,
                   "measure again, also what the database already has");
  CLI::Option* const mode =
      command
          .add_option_function<std::string>(
              "--mode",
              [&flags = parsing.tune.settings](const std::string& mode) {
                flags.values["enable_collective_multitemplate"] = mode == "deferred" ? "on" : "off";
              },
              "deferred: all collectives at once; immediate: one by one [deferred]")
          ->check(CLI::IsMember({"deferred", "immediate"}))
          ->type_name("MODE");
  AddTrace(command, parsing.tune.trace);
  AddSettings(command, parsing.tune.settings);
  // Both set one setting.
  mode->excludes(command.get_option("--enable-collective-multitemplate"));
  AddOutput(command, parsing.output);
}

void AddBench(Parsing& parsing) {
  CLI::App& command =
      *parsing.app.add_subcommand("bench", "measure and print every choice; writes no database");
  AddRanks(command, parsing.bench.ranks,
           "ranks to start, where no launcher has started them [one for each GPU, or for each "
           "processor, 2 to 8]");
  AddProblems(command, parsing.bench.problems);
  AddPlugins(command, parsing.bench.plugins);
  command.add_flag("--tuned", parsing.bench.tuned, "print only what the tuned database dispatches");
  AddTrace(command, parsing.bench.trace);
  AddSettings(command, parsing.bench.settings);
  AddOutput(command, parsing.output);
}

void AddExplain(Parsing& parsing) {
  CLI::App& command = *parsing.app.add_subcommand(
      "explain", "say which choice one call runs, and why it was preferred to each other choice");
  ExplainFlags& flags = parsing.explain;
  command.add_option("COLLECTIVE", flags.collective, "for example all_reduce");
  command.add_option("SIZE", flags.size, "bytes, for example 256K");
  command.add_option("DTYPE", flags.dtype, "for example f32");
  command
      .add_option("--program", flags.program,
                  "instead of COLLECTIVE, SIZE and DTYPE: the call of a program")
      ->type_name("FILE");
  command
      .add_option_function<std::string>(
          "--rows", [&flags](const std::string& text) { flags.rows = text; },
          "rows (R) of the program's call")
      ->type_name("R");
  AddRanks(command, flags.ranks,
           "ranks of the group [one for each GPU, or for each processor, 2 to 8]");
  command.add_option("--reduction", flags.reduction, "reduction of the call [sum]")
      ->type_name("NAME");
  command.add_option("--buffers", flags.buffers, "plain or symmetric buffers [plain]")
      ->type_name("NAME");
  command.add_flag("--in-place", flags.in_place,
                   "the call is in place: its result overwrites its data");
  AddPlugins(command, flags.plugins);
  AddSettings(command, flags.settings);
  AddOutput(command, parsing.output);
}

void AddFiles(Parsing& parsing) {
  CLI::App& plugin = *parsing.app.add_subcommand("plugin", "backend plugins");
  CLI::App& list =
      *plugin.add_subcommand("list", "every plugin that is found, and whether it was loaded");
  AddPlugins(list, parsing.plugin_list.plugins);
  AddSettings(list, parsing.plugin_list.settings);
  AddOutput(list, parsing.output);

  CLI::App& db = *parsing.app.add_subcommand("db", "tuned databases");
  CLI::App& show = *db.add_subcommand(
      "show", "the winners in a database, and which of them are valid on this machine");
  show.add_option("FILE", parsing.db_show.file,
                  "tuned database [the one that a tune without --db writes]");
  AddPlugins(show, parsing.db_show.plugins);
  AddSettings(show, parsing.db_show.settings);
  AddOutput(show, parsing.output);
  CLI::App& merge = *db.add_subcommand("merge", "union of databases; the newer measurement wins");
  merge.add_option("OUT", parsing.db_merge.output, "file to write")->required();
  merge.add_option("IN", parsing.db_merge.inputs, "files to read")->required();
  AddOutput(merge, parsing.output);
}

void AddProgram(Parsing& parsing) {
  CLI::App& program = *parsing.app.add_subcommand(
      "program", "programs: collectives with the local operations around them");
  CLI::App& check = *program.add_subcommand(
      "check", "read a program file and print what it means, or what is wrong with it");
  check.add_option("FILE", parsing.program_check.file, "program text")->required();
  AddRanks(check, parsing.program_check.ranks, "ranks of the group; 4 without this flag");
  AddOutput(check, parsing.output);
  CLI::App& recipes = *program.add_subcommand(
      "recipes",
      "the ways to cut a program into steps that a tune would measure; measures nothing");
  recipes.add_option("FILE", parsing.program_recipes.file, "program text")->required();
  AddRanks(recipes, parsing.program_recipes.ranks, "ranks of the group; 4 without this flag");
  recipes.add_option("--rows", parsing.program_recipes.rows,
                     "rows R of the call; as many as ranks without this flag");
  AddPlugins(recipes, parsing.program_recipes.plugins);
  AddSettings(recipes, parsing.program_recipes.settings);
  AddOutput(recipes, parsing.output);
}

void AddDoctor(Parsing& parsing) {
  CLI::App& doctor = *parsing.app.add_subcommand(
      "doctor",
      "check GPUs, libraries, limits, plugins and database, and say how to fix what is wrong");
  AddRanks(doctor, parsing.doctor.ranks,
           "ranks that a tune would have [one for each GPU, or for each processor, 2 to 8]");
  AddPlugins(doctor, parsing.doctor.plugins);
  AddSettings(doctor, parsing.doctor.settings);
  AddOutput(doctor, parsing.output);
}

void AddRest(Parsing& parsing) {
  CLI::App& config = *parsing.app.add_subcommand("config", "settings");
  CLI::App& show =
      *config.add_subcommand("show", "every setting, its value and where it comes from");
  AddSettings(show, parsing.config_show.settings);
  AddOutput(show, parsing.output);

  CLI::App& run = *parsing.app.add_subcommand(
      "run",
      "start a program as several ranks; standard output is rank 0's, and what other ranks print "
      "goes to standard error behind \"[rank N] \"; when a rank ends badly, the others are ended");
  AddRanks(run, parsing.run.ranks,
           "ranks to start [one for each GPU, or for each processor, 2 to 8]");
  run.add_option("PROGRAM", parsing.run.program, "program and its arguments, behind --")
      ->required();
  AddSettings(run, parsing.run.settings);
  // Standard output is the program's, and nothing else is printed that could be more or less.
  run.add_flag("--json", parsing.output.json)->group("");
  run.add_flag("-q,--quiet", parsing.output.quiet)->group("");
  run.add_flag("-v,--verbose", parsing.output.verbose)->group("");
}

// The innermost command that was given, and its name with that of its parent.
const CLI::App* ChosenCommand(const CLI::App& app, std::string& name) {
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) {
    chosen = chosen->get_subcommands().front();
    name += (name.empty() ? "" : " ") + chosen->get_name();
  }
  return chosen;
}

std::vector<std::string> FlagNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    // A flag without a group is read only to be refused with a reason.
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> CommandNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* each : command.get_subcommands({})) names.push_back(each->get_name());
  return names;
}

std::string KnownText(std::string_view typed, const std::vector<std::string>& names) {
  return KnownNamesText(typed, std::vector<std::string_view>(names.begin(), names.end()));
}

// Adds the commands below this one that have a flag, as "`cotune db show`".
void AddCommandsWithFlag(const CLI::App& app, const std::string& path, std::string_view flag,
                         std::vector<std::string>& commands) {
  for (const CLI::App* each : app.get_subcommands({})) {
    const std::string name = path + " " + each->get_name();
    const std::vector<std::string> flags = FlagNames(*each);
    if (std::find(flags.begin(), flags.end(), flag) != flags.end()) {
      commands.push_back("`" + name + "`");
    }
    AddCommandsWithFlag(*each, name, flag, commands);
  }
}

// The list of flags is long, so that it is given only if none is near.
std::string KnownFlagsText(const CLI::App& app, const CLI::App& command, std::string_view typed) {
  std::vector<std::string> commands;
  AddCommandsWithFlag(app, "cotune", typed, commands);
  if (!commands.empty()) return fmt::format("it is a flag of {}", fmt::join(commands, ", "));
  const std::vector<std::string> names = FlagNames(command);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string nearest = NearestName(typed, views);
  return nearest.empty() ? KnownNamesText("", views) : fmt::format("did you mean {}?", nearest);
}

tl::unexpected<Error> Usage(std::string what, const std::string& command, std::string cause) {
  const std::string full = command.empty() ? "cotune" : "cotune " + command;
  return Fail(ErrorCode::kUsage, std::move(what), full, std::move(cause),
              fmt::format("see `{} --help`", full));
}

tl::unexpected<Error> ValueOfForce(std::string_view value, const std::string& command) {
  return Usage(fmt::format("--force takes no value, and \"{}\" is given", value), command,
               "did you mean --force-choice? --force measures again");
}

// The text "Could not convert: --json = 3" of the parser, in the words of the other errors.
tl::unexpected<Error> ParserError(std::string_view text, const std::string& command) {
  constexpr std::string_view kBegin = "Could not convert: ";
  constexpr std::string_view kBetween = " = ";
  const size_t between = text.find(kBetween);
  if (!text.starts_with(kBegin) || between == std::string_view::npos) {
    return Usage(std::string(text), command, "");
  }
  const std::string_view flag = text.substr(kBegin.size(), between - kBegin.size());
  const std::string_view value = text.substr(between + kBetween.size());
  if (flag == "--force") return ValueOfForce(value, command);
  return Usage(fmt::format("\"{}\" is no value of {}", value, flag), command, "");
}

// Every word that no flag, argument or command took.
Status CheckExtras(const CLI::App& app) {
  std::string name;
  const CLI::App* command = ChosenCommand(app, name);
  std::vector<std::string> extras = app.remaining(true);
  std::erase(extras, "--");  // the parser leaves the mark itself behind
  const bool is_family = !CommandNames(*command).empty();
  if (extras.empty()) {
    if (!is_family) return {};
    std::vector<std::string> known = CommandNames(*command);
    if (name.empty()) known.emplace_back("help");
    return Usage("a command is missing", name, KnownText("", known));
  }
  // A flag that is not known may have left its value behind as an argument.
  const auto flag = std::find_if(extras.begin(), extras.end(),
                                 [](const std::string& extra) { return extra.starts_with('-'); });
  const std::string& first = is_family || flag == extras.end() ? extras.front() : *flag;
  const std::string typed = first.substr(0, first.find('='));
  if (typed.starts_with('-')) {
    return Usage(fmt::format("unknown flag {}", typed), name, KnownFlagsText(app, *command, typed));
  }
  if (is_family) {
    return Usage(fmt::format("unknown command \"{}\"", typed), name,
                 KnownText(typed, CommandNames(*command)));
  }
  if (name == "tune" && first.find('=') != std::string::npos && command->count("--force") > 0) {
    return ValueOfForce(first, name);
  }
  // `tune --in-place` takes a value, and that of `explain` does not.
  const bool is_place = typed == "yes" || typed == "no" || typed == "both";
  if (is_place && name == "explain" && command->count("--in-place") > 0) {
    return Usage(fmt::format("--in-place takes no value, and \"{}\" is given", typed), name,
                 "without --in-place the call out of place is explained; to tune either: cotune "
                 "tune --in-place yes|no|both");
  }
  return Usage(fmt::format("unexpected argument \"{}\"", typed), name,
               "the command takes no more arguments");
}

CommandFlags TakeFlags(Parsing& parsing, const std::string& name) {
  if (name == "tune") return std::move(parsing.tune);
  if (name == "bench") return std::move(parsing.bench);
  if (name == "explain") return std::move(parsing.explain);
  if (name == "plugin list") return std::move(parsing.plugin_list);
  if (name == "db show") return std::move(parsing.db_show);
  if (name == "db merge") return std::move(parsing.db_merge);
  if (name == "program check") return std::move(parsing.program_check);
  if (name == "program recipes") return std::move(parsing.program_recipes);
  if (name == "doctor") return std::move(parsing.doctor);
  if (name == "config show") return std::move(parsing.config_show);
  return std::move(parsing.run);
}

void Declare(Parsing& parsing) {
  parsing.app.add_flag("--version", parsing.version, "version of cotune");
  AddOutput(parsing.app, parsing.output);
  AddTune(parsing);
  AddBench(parsing);
  AddExplain(parsing);
  AddFiles(parsing);
  AddProgram(parsing);
  AddDoctor(parsing);
  AddRest(parsing);
  const auto finish = [](CLI::App& app, const auto& self) -> void {
    app.allow_extras();
    app.footer(std::string(ExitCodesText()));
    for (CLI::App* each : app.get_subcommands({})) self(*each, self);
  };
  finish(parsing.app, finish);
  parsing.app.footer("`cotune help COMMAND` is `cotune COMMAND --help`.\n" +
                     std::string(ExitCodesText()));
}

// The words of a command that help is wanted about.
Status CheckCommandWords(const std::vector<std::string>& words) {
  Parsing parsing;
  Declare(parsing);
  const CLI::App* command = &parsing.app;
  std::string name;
  for (const std::string& word : words) {
    if (word.starts_with('-')) continue;
    const std::vector<std::string> known = CommandNames(*command);
    if (known.empty()) {
      return Usage(fmt::format("unexpected argument \"{}\"", word), name,
                   "the command takes no further words");
    }
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      return Usage(fmt::format("unknown command \"{}\"", word), name, KnownText(word, known));
    }
    command = command->get_subcommand(word);
    name += (name.empty() ? "" : " ") + word;
  }
  return {};
}

}  // namespace

std::string_view ExitCodesText() {
  return "Exit codes: 0 ok, 1 internal, 2 usage, 3 environment, 4 wrong_result, 5 rank_lost, "
         "deadline or disagreement, "
         "7 database, 8 plugin_refused, 130 interrupted, 141 the reader of standard output has "
         "left; "
         "`cotune run` gives the exit code of the program, and 127 if it cannot be started";
}

Result<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  // `cotune help tune` is `cotune tune --help`.
  if (!arguments.empty() && arguments.front() == "help") {
    std::vector<std::string> as_flag(arguments.begin() + 1, arguments.end());
    COTUNE_RETURN_IF_ERROR(CheckCommandWords(as_flag));
    as_flag.emplace_back("--help");
    return ParseCommandLine(as_flag);
  }
  Parsing parsing;
  Declare(parsing);
  std::string name;
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    parsing.app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    const CLI::App* command = ChosenCommand(parsing.app, name);
    const size_t parents = name.size() - std::min(name.size(), command->get_name().size());
    const std::string above = name.empty() ? "" : "cotune " + name.substr(0, parents);
    return CommandLine{
        parsing.output, "help",
        HelpFlags{command->help(above.substr(0, above.find_last_not_of(' ') + 1)) + "\n"}};
  } catch (const CLI::ParseError& error) {
    const CLI::App* command = ChosenCommand(parsing.app, name);
    // A misspelt flag leaves its value behind as an argument; the flag is the better thing to name.
    const Status extras = CheckExtras(*command);
    if (!extras && extras.error().what.starts_with("unknown flag")) {
      return Propagate(CheckExtras(parsing.app));
    }
    return ParserError(error.what(), name);
  }
  ChosenCommand(parsing.app, name);
  if (parsing.version && name.empty() && parsing.app.remaining(true).empty()) {
    return CommandLine{parsing.output, "version", VersionFlags{}};
  }
  COTUNE_RETURN_IF_ERROR(CheckExtras(parsing.app));
  if (parsing.version) {
    return Usage("--version has no effect on a command", name, "it is a flag of `cotune` alone");
  }
  return CommandLine{parsing.output, name, TakeFlags(parsing, name)};
}

CommandLine GuessCommandLine(const std::vector<std::string>& arguments) {
  CommandLine guess;
  std::string words;
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "--json") guess.output.json = true;
    if (argument.starts_with('-')) continue;
    words += (words.empty() ? "" : " ") + argument;
    if (std::find(kCommands.begin(), kCommands.end(), words) != kCommands.end()) {
      guess.command = words;
      words.clear();
    }
  }
  return guess;
}

}  // namespace cotune::cli
