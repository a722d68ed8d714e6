#include "cli/output/winner_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "cli/output/number_text.h"
#include "cli/output/program_words.h"
#include "cli/output/text_table.h"
#include "core/base/counted.h"
#include "fmt/format.h"
#include "integration/settings/size_list.h"

namespace cotune::cli {
namespace {

using EntriesBySize = std::map<uint64_t, const DatabaseEntry*>;

std::map<ProblemClass, EntriesBySize> GroupEntries(const std::vector<DatabaseEntry>& entries) {
  std::map<ProblemClass, EntriesBySize> groups;
  for (const DatabaseEntry& entry : entries) {
    groups[entry.cell.problem.cls][entry.cell.problem.bytes()] = &entry;
  }
  return groups;
}

const Verdict* FindVerdict(const CellResult& cell, const ChoiceId& id) {
  const auto found = std::find_if(cell.verdicts.begin(), cell.verdicts.end(),
                                  [&](const Verdict& verdict) { return verdict.id == id; });
  return found == cell.verdicts.end() ? nullptr : &*found;
}

// The program of these entries, which are of one class.
std::optional<Program> FirstProgramOf(const EntriesBySize& entries) {
  for (const auto& [bytes, entry] : entries) {
    if (std::optional<Program> program = ProgramOf(*entry)) return program;
  }
  return std::nullopt;
}

void FillLast(const DatabaseEntry& entry, WinnerRow& row) {
  const Problem& problem = entry.cell.problem;
  row.last_bytes = problem.bytes();
  row.time_ns = row.interval_low_ns = row.interval_high_ns = entry.winner.median_ns;
  if (const Verdict* verdict = FindVerdict(entry.cell, entry.winner.id)) {
    row.interval_low_ns = verdict->interval_low_ns;
    row.interval_high_ns = verdict->interval_high_ns;
    row.wrong_elements += verdict->wrong_elements;
    row.numerics = verdict->numerics;
  }
  row.algbw_GBps = AlgorithmBandwidth(problem, row.time_ns);
  row.busbw_GBps = BusBandwidth(problem, row.time_ns);
}

// A run of sizes with one winner.
WinnerRow MakeRow(EntriesBySize::const_iterator begin, EntriesBySize::const_iterator end) {
  WinnerRow row{.first_bytes = begin->first, .winner = begin->second->winner.id};
  row.is_unsteady = begin->second->cell.is_unsteady;
  row.is_default = true;
  double log_gain = 0;
  int32_t compared = 0;
  for (auto it = begin; it != end; ++it) {
    const Winner& winner = it->second->winner;
    ++row.sizes;
    row.is_default = row.is_default && winner.fallback == winner.id;
    if (winner.fallback && winner.fallback_median_ns > 0 && winner.median_ns > 0) {
      log_gain += std::log(static_cast<double>(winner.fallback_median_ns) /
                           static_cast<double>(winner.median_ns));
      ++compared;
    }
    FillLast(*it->second, row);
  }
  if (compared > 0) row.gain = std::exp(log_gain / compared);
  return row;
}

WinnerGroup MakeGroup(const ProblemClass& cls, const EntriesBySize& entries) {
  WinnerGroup group{cls, FirstProgramOf(entries), {}};
  const auto rows_of = [&](const DatabaseEntry& entry) {
    return group.program ? group.program->RowsAt(entry.cell.problem) : 0;
  };
  for (auto begin = entries.begin(); begin != entries.end();) {
    const auto end = std::find_if(begin, entries.end(), [&](const auto& item) {
      return !(item.second->winner.id == begin->second->winner.id) ||
             item.second->cell.is_unsteady != begin->second->cell.is_unsteady;
    });
    group.rows.push_back(MakeRow(begin, end));
    group.rows.back().first_rows = rows_of(*begin->second);
    group.rows.back().last_rows = rows_of(*std::prev(end)->second);
    begin = end;
  }
  return group;
}

std::string SizesText(const WinnerRow& row) {
  if (row.sizes == 1) return FormatSizeBytes(row.first_bytes);
  return FormatSizeBytes(row.first_bytes) + "-" + FormatSizeBytes(row.last_bytes);
}

std::string RowsText(const WinnerRow& row) {
  if (row.sizes == 1) return std::to_string(row.first_rows);
  return fmt::format("{}-{}", row.first_rows, row.last_rows);
}

std::string GainText(const WinnerRow& row) {
  if (row.is_unsteady) return "unsteady";
  if (row.is_default) return "default";
  return row.gain > 0 ? FactorText(row.gain) : "-";
}

// The steps of each fused winner, and the fastest choice that is none, at the largest size that it
// wins.
std::string FusedWinnersText(const EntriesBySize& entries) {
  std::string text;
  for (auto at = entries.rbegin(); at != entries.rend(); ++at) {
    const DatabaseEntry& entry = *at->second;
    const Winner& winner = entry.winner;
    if (!winner.id.has_host_keys()) continue;
    const std::string begin = fmt::format("  {}: ", winner.id.text());
    if (text.starts_with(begin) || text.find("\n" + begin) != std::string::npos) continue;
    const std::optional<RecipeInWords> recipe = RecipeOf(entry, winner.id);
    std::string line = begin + (recipe ? StepsAloneText(*recipe) : "steps not known here");
    if (winner.best_unfused) {
      const std::optional<Program> program = ProgramOf(entry);
      const std::string size =
          program ? Counted(static_cast<int64_t>(program->RowsAt(entry.cell.problem)), "row")
                  : FormatSizeBytes(at->first);
      line += fmt::format("; unfused at {}: {} us by {}", size,
                          MicrosecondsText(winner.best_unfused->median_ns),
                          winner.best_unfused->id.text());
    }
    text += line + "\n";
  }
  return text;
}

// One line for each choice that failed in a way that its backend's author wants to know.
std::string FailuresText(const EntriesBySize& entries) {
  std::string text;
  for (const auto& [bytes, entry] : entries) {
    for (const Verdict& verdict : entry->cell.verdicts) {
      if (verdict.outcome == Outcome::kTimed || verdict.outcome == Outcome::kOutpaced ||
          verdict.outcome == Outcome::kLostHeat) {
        continue;
      }
      text += fmt::format("  dropped at {}: {} ({}", FormatSizeBytes(bytes), verdict.id.text(),
                          OutcomeName(verdict.outcome));
      if (verdict.wrong_elements > 0) {
        text += ", " + Counted(static_cast<int64_t>(verdict.wrong_elements), "wrong element");
      }
      text += verdict.reason.empty() ? ")\n" : fmt::format("): {}\n", verdict.reason);
    }
  }
  return text;
}

}  // namespace

std::vector<WinnerGroup> SummarizeWinners(const std::vector<DatabaseEntry>& entries) {
  std::vector<WinnerGroup> groups;
  for (const auto& [key, by_size] : GroupEntries(entries)) {
    groups.push_back(MakeGroup(key, by_size));
  }
  return groups;
}

std::string ClassText(const ProblemClass& cls) {
  std::string text(Name(cls.collective));
  if (cls.reduction != Reduction::kNone) text += fmt::format(" {}", Name(cls.reduction));
  text += fmt::format(" {}, {} rank{}", Name(cls.dtype), cls.world_size,
                      cls.world_size == 1 ? "" : "s");
  if (cls.ranks_per_node > 0 && cls.ranks_per_node != cls.world_size) {
    text += fmt::format(", {} on each host", cls.ranks_per_node);
  }
  text += fmt::format(", {} memory", Name(cls.memory));
  if (cls.buffer_class != BufferClass::kPlain) {
    text += fmt::format(", {} buffers", Name(cls.buffer_class));
  }
  text += cls.in_place ? ", in place" : ", out of place";
  if (cls.collective == Collective::kBroadcast && cls.root != 0) {
    text += fmt::format(", root {}", cls.root);
  }
  return text;
}

namespace {

// "program 0123456789abcdef: all_reduce + relu" in front of the class of its first
// collective.
std::string HeadingText(const WinnerGroup& group) {
  std::string cls = ClassText(group.cls);
  if (group.program)
    return fmt::format("{}\n  by its {}", ProgramText(group.program->graph()), cls);
  if (group.cls.program_digest == 0) return cls;
  return fmt::format("{}\n  by its {}", ProgramText(group.cls.program_digest), cls);
}

}  // namespace

std::string WinnerTableText(const std::vector<DatabaseEntry>& entries) {
  std::string text;
  const std::map<ProblemClass, EntriesBySize> groups = GroupEntries(entries);
  std::vector<const std::pair<const ProblemClass, EntriesBySize>*> ordered;
  for (const auto& each : groups) ordered.push_back(&each);
  // Programs stand after the collectives, and not between those of their first one.
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const auto* each) { return each->first.program_digest == 0; });
  for (const auto* each : ordered) {
    const auto& [key, by_size] = *each;
    const WinnerGroup group = MakeGroup(key, by_size);
    if (!text.empty()) text += "\n";
    text += HeadingText(group) + "\n";
    std::vector<Column> columns = {{"sizes"},
                                   {"winner"},
                                   {"at", Align::kRight},
                                   {"time_us", Align::kRight},
                                   {"interval_us", Align::kRight},
                                   {"algbw", Align::kRight},
                                   {"busbw", Align::kRight},
                                   {"gain", Align::kRight},
                                   {"wrong", Align::kRight}};
    if (group.program) columns.insert(columns.begin(), {"rows"});
    TextTable table(std::move(columns));
    for (const WinnerRow& row : group.rows) {
      std::vector<std::string> cells = {SizesText(row),
                                        row.winner.text(),
                                        FormatSizeBytes(row.last_bytes),
                                        MicrosecondsText(row.time_ns),
                                        IntervalText(row.interval_low_ns, row.interval_high_ns),
                                        BandwidthText(row.algbw_GBps),
                                        BandwidthText(row.busbw_GBps),
                                        GainText(row),
                                        std::to_string(row.wrong_elements)};
      if (group.program) cells.insert(cells.begin(), RowsText(row));
      table.AddRow(std::move(cells));
    }
    text += table.ToText(2) + FusedWinnersText(by_size) + FailuresText(by_size);
  }
  return text;
}

}  // namespace cotune::cli
