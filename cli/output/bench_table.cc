#include "cli/output/bench_table.h"

#include <utility>

#include "cli/output/number_text.h"
#include "cli/output/text_table.h"
#include "cli/output/winner_table.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

bool IsDispatched(const DatabaseEntry& entry, const Verdict& verdict, const DispatchTable& tuned) {
  const Problem& problem = entry.cell.problem;
  const DispatchKey key =
      tuned.DecidingKey(DispatchKey::Of(problem.cls, entry.cell.program_digest), problem.bytes());
  const int32_t index = tuned.Lookup(key, problem.bytes());
  if (index == DispatchTable::kNoChoice) return verdict.is_default;
  return tuned.choices()[static_cast<size_t>(index)] == verdict.id;
}

}  // namespace

std::string BenchTableText(const std::vector<DatabaseEntry>& entries, const DispatchTable& tuned,
                           bool only_tuned) {
  TextTable table({{"bytes", Align::kRight},
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
                   {"tuned"}});
  for (const DatabaseEntry& entry : entries) {
    const Problem& problem = entry.cell.problem;
    for (const Verdict& verdict : entry.cell.verdicts) {
      const bool is_dispatched = IsDispatched(entry, verdict, tuned);
      if (only_tuned && !is_dispatched) continue;
      table.AddRow({std::to_string(problem.bytes()), std::to_string(problem.count),
                    std::string(Name(problem.cls.dtype)), std::string(Name(problem.cls.reduction)),
                    verdict.median_ns > 0 ? MicrosecondsText(verdict.median_ns) : "-",
                    BandwidthText(AlgorithmBandwidth(problem, verdict.median_ns)),
                    BandwidthText(BusBandwidth(problem, verdict.median_ns)),
                    std::to_string(verdict.wrong_elements),
                    std::string(Name(problem.cls.collective)), verdict.id.text(),
                    OutcomeName(verdict.outcome), is_dispatched ? "*" : ""});
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

uint64_t CountWrong(const std::vector<DatabaseEntry>& entries) {
  uint64_t wrong_elements = 0;
  for (const DatabaseEntry& entry : entries) {
    for (const Verdict& verdict : entry.cell.verdicts) wrong_elements += verdict.wrong_elements;
  }
  return wrong_elements;
}

}  // namespace cotune::cli
