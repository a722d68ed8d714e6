// `cotune program check`: reads a program file and prints what it means; measures nothing.
#include "cli/commands/commands.h"
#include "cli/input/program_selection.h"
#include "cli/output/program_report.h"

namespace cotune::cli {

int ProgramCheckCommand(const ProgramCheckFlags& flags, Process& process) {
  constexpr int kDefaultRanks = 4;
  Console& console = process.console;
  Result<ProgramGraph> graph = ReadProgramFile(flags.file);
  if (!graph) return console.PrintError(graph.error());
  const int ranks = flags.ranks == 0 ? kDefaultRanks : flags.ranks;
  // The report is the same for every kind of memory.
  const Result<Program> program =
      Program::Bind(std::move(*graph), {MemoryKind::kHost, ranks, ranks});
  if (!program) {
    Error error = program.error();
    error.where = flags.file;
    return console.PrintError(error);
  }
  return console.PrintResult(console.flags().json ? ProgramReportJson(*program)
                                                  : ProgramReportText(*program));
}

}  // namespace cotune::cli
