#include "cli/output/bench_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/output/number_text.h"
#include "cli/output/program_words.h"
#include "cli/output/text_table.h"
#include "cli/output/winner_table.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

bool IsDispatched(const DatabaseEntry& entry, const Verdict& verdict, const DispatchTable& tuned) {
  const Problem& problem = entry.cell.problem;
  const DispatchKey key = tuned.DecidingKey(DispatchKey::Of(problem.cls), problem.bytes());
  const int32_t index = tuned.Lookup(key, problem.bytes());
  if (index == DispatchTable::kNoChoice) return verdict.is_default;
  return tuned.choices()[static_cast<size_t>(index)] == verdict.id;
}

// The program's digest and its rows; "" and "" for a single collective.
std::vector<std::string> ProgramCells(const DatabaseEntry& entry) {
  const uint64_t digest = entry.cell.problem.cls.program_digest;
  if (digest == 0) return {"", ""};
  const std::optional<Program> program = ProgramOf(entry);
  return {fmt::format("{:016x}", digest),
          program ? std::to_string(program->RowsAt(entry.cell.problem)) : ""};
}

}  // namespace

std::string BenchTableText(const std::vector<DatabaseEntry>& entries, const DispatchTable& tuned,
                           bool only_tuned) {
  std::vector<Column> columns = {{"bytes", Align::kRight},
                                 {"count", Align::kRight},
                                 {"dtype"},
                                 {"redop"},
                                 {"time_us", Align::kRight},
                                 {"algbw", Align::kRight},
                                 {"busbw", Align::kRight},
                                 {"wrong", Align::kRight},
                                 {"collective"},
                                 {"choice"},
                                 {"outcome"},
                                 {"tuned"}};
  const bool has_programs = std::any_of(
      entries.begin(), entries.end(),
      [](const DatabaseEntry& entry) { return entry.cell.problem.cls.program_digest != 0; });
  if (has_programs) {
    columns.insert(columns.begin(), {{"program"}, {"rows", Align::kRight}});
  }
  TextTable table(std::move(columns));
  for (const DatabaseEntry& entry : entries) {
    const Problem& problem = entry.cell.problem;
    for (const Verdict& verdict : entry.cell.verdicts) {
      const bool is_dispatched = IsDispatched(entry, verdict, tuned);
      if (only_tuned && !is_dispatched) continue;
      std::vector<std::string> cells = {
          std::to_string(problem.bytes()),
          std::to_string(problem.count),
          std::string(Name(problem.cls.dtype)),
          std::string(Name(problem.cls.reduction)),
          verdict.median_ns > 0 ? MicrosecondsText(verdict.median_ns) : "-",
          BandwidthText(AlgorithmBandwidth(problem, verdict.median_ns)),
          BandwidthText(BusBandwidth(problem, verdict.median_ns)),
          std::to_string(verdict.wrong_elements),
          std::string(Name(problem.cls.collective)),
          verdict.id.text(),
          OutcomeName(verdict.outcome),
          is_dispatched ? "*" : ""};
      if (has_programs) {
        const std::vector<std::string> own = ProgramCells(entry);
        cells.insert(cells.begin(), own.begin(), own.end());
      }
      table.AddRow(std::move(cells));
    }
  }
  return table.ToText(0);
}

std::vector<DatabaseEntry> OnlyTuned(std::vector<DatabaseEntry> entries,
                                     const DispatchTable& tuned) {
  for (DatabaseEntry& entry : entries) {
    std::vector<Verdict> kept;
    for (Verdict& verdict : entry.cell.verdicts) {
      if (IsDispatched(entry, verdict, tuned)) kept.push_back(std::move(verdict));
    }
    entry.cell.verdicts = std::move(kept);
  }
  return entries;
}

std::vector<std::string> NotMeasured(const std::vector<DatabaseEntry>& kept,
                                     const DispatchTable& tuned) {
  std::vector<std::string> lines;
  for (const DatabaseEntry& entry : kept) {
    const Problem& problem = entry.cell.problem;
    const DispatchKey key = DispatchKey::Of(problem.cls);
    const int32_t index = tuned.Lookup(tuned.DecidingKey(key, problem.bytes()), problem.bytes());
    if (!entry.cell.verdicts.empty() || index == DispatchTable::kNoChoice) continue;
    lines.push_back(fmt::format(
        "{} at {} bytes was not measured: the database has {} for it, which is not listed at this "
        "size; without --tuned the choices are measured that are",
        InWords(key), problem.bytes(), tuned.choices()[static_cast<size_t>(index)].text()));
  }
  return lines;
}

uint64_t CountWrong(const std::vector<DatabaseEntry>& entries) {
  uint64_t wrong_elements = 0;
  for (const DatabaseEntry& entry : entries) {
    for (const Verdict& verdict : entry.cell.verdicts) wrong_elements += verdict.wrong_elements;
  }
  return wrong_elements;
}

}  // namespace cotune::cli
