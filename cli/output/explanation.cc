#include "cli/output/explanation.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "cli/input/problem_selection.h"
#include "cli/output/number_text.h"
#include "cli/output/program_words.h"
#include "cli/output/refusal_groups.h"
#include "cli/output/winner_table.h"
#include "core/base/counted.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/settings/size_list.h"

namespace cotune::cli {
namespace {

double Distance(uint64_t left_bytes, uint64_t right_bytes) {
  return std::abs(std::log2(static_cast<double>(left_bytes) + 1) -
                  std::log2(static_cast<double>(right_bytes) + 1));
}

// The problem with the key of the row that decides.
Problem WithKey(Problem problem, const DispatchKey& key) {
  problem.cls.dtype = key.dtype;
  problem.cls.reduction = key.reduction;
  problem.cls.buffer_class = key.buffer_class;
  problem.cls.in_place = key.in_place;
  return problem;
}

bool SameKey(const DatabaseRow& row, const Problem& asked) {
  return DispatchKey::Of(row.problem.cls) == DispatchKey::Of(asked.cls);
}

bool SameGroupShape(const DatabaseRow& row, const Problem& asked) {
  return row.problem.cls.world_size == asked.cls.world_size &&
         row.problem.cls.ranks_per_node == asked.cls.ranks_per_node;
}

// The smallest and the largest measured size that counts for a call; 0 and 0 when there is none.
struct MeasuredSizes {
  uint64_t smallest_bytes = 0;
  uint64_t largest_bytes = 0;
};
MeasuredSizes SizesMeasuredFor(const TunedDatabase& database, const Problem& asked,
                               const Fingerprint& here) {
  MeasuredSizes sizes{UINT64_MAX, 0};
  for (const DatabaseRow& row : database.rows()) {
    if (!SameKey(row, asked) || !SameGroupShape(row, asked) || row.problem.bytes() == 0) continue;
    if (WhyNotValid(*row.fingerprint, *row.winner, here)) continue;
    sizes.smallest_bytes = std::min(sizes.smallest_bytes, row.problem.bytes());
    sizes.largest_bytes = std::max(sizes.largest_bytes, row.problem.bytes());
  }
  return sizes.smallest_bytes <= sizes.largest_bytes ? sizes : MeasuredSizes{};
}

// Why a call on symmetric buffers runs by the row of plain ones; `own` may be nullptr.
std::string PlainChoiceText(const DispatchRow* own) {
  const std::string text = "this is the choice for plain buffers: ";
  if (own == nullptr) return text + "nothing was measured on symmetric ones";
  return text + fmt::format("symmetric ones were measured from {} up",
                            FormatSizeBytes(own->smallest_bytes));
}

// "" when the asked size lies among the measured ones.
std::string BeyondMeasuredText(const MeasuredSizes& sizes, uint64_t asked_bytes) {
  if (asked_bytes >= sizes.smallest_bytes && asked_bytes <= sizes.largest_bytes) return "";
  const bool is_above = asked_bytes > sizes.largest_bytes;
  return fmt::format(
      "{} was measured, and this is the choice of the size next to it; if its backend refuses or "
      "does not list it at {}, the next best choice of that size runs, and if there is none, the "
      "default",
      is_above ? "nothing above " + FormatSizeBytes(sizes.largest_bytes)
               : "nothing below " + FormatSizeBytes(sizes.smallest_bytes),
      FormatSizeBytes(asked_bytes));
}

// The class of a row, with the operations of its program where its text is known.
std::string ClassOfRowText(const DatabaseRow& row) {
  const ProblemClass& cls = row.problem.cls;
  if (cls.program_digest == 0) return ClassText(cls);
  std::string program = ProgramText(cls.program_digest);
  if (row.program_text != nullptr) {
    const Result<ProgramGraph> graph = ProgramGraph::Parse(*row.program_text);
    if (graph) program = ProgramText(*graph);
  }
  return fmt::format("{}, by its {}", program, ClassText(cls));
}

std::vector<std::string> WhyNothing(const TunedDatabase& database, const Problem& asked,
                                    const Fingerprint& here) {
  std::set<std::string> invalid;
  std::set<int32_t> other_shapes;
  std::set<std::string> other_classes;
  bool has_empty_call = false;
  for (const DatabaseRow& row : database.rows()) {
    if (SameKey(row, asked) && row.problem.bytes() == 0) {
      has_empty_call = true;
    } else if (SameKey(row, asked) && SameGroupShape(row, asked)) {
      const std::optional<Miss> miss = WhyNotValid(*row.fingerprint, *row.winner, here);
      if (miss) invalid.insert(fmt::format("{} ({})", miss->detail, MissReasonName(miss->reason)));
    } else if (SameKey(row, asked)) {
      other_shapes.insert(row.problem.cls.world_size);
    } else if (row.problem.cls.collective == asked.cls.collective) {
      other_classes.insert(ClassOfRowText(row));
    }
  }
  std::vector<std::string> misses;
  for (const std::string& detail : invalid) {
    misses.push_back("an entry was measured elsewhere or with other versions: " + detail);
  }
  for (const int32_t ranks : other_shapes) {
    misses.push_back(fmt::format("an entry is for a group of {}", Counted(ranks, "rank")));
  }
  for (const std::string& text : other_classes) misses.push_back("an entry is for " + text);
  if (has_empty_call) {
    misses.emplace_back("an entry is for calls of 0 bytes, which shows nothing about other sizes");
  }
  if (misses.empty()) {
    misses.push_back(database.empty()
                         ? "the database is empty"
                         : fmt::format("no entry is for {}", Name(asked.cls.collective)));
  }
  return misses;
}

// The valid entry with this winner whose size is nearest to the asked one.
Result<std::optional<DatabaseEntry>> NearestEntry(const TunedDatabase& database,
                                                  const Problem& asked, const SizeRange& range,
                                                  const Fingerprint& here) {
  const DatabaseRow* nearest = nullptr;
  for (const DatabaseRow& row : database.rows()) {
    if (!SameKey(row, asked) || !SameGroupShape(row, asked) || row.problem.bytes() == 0) continue;
    if (WhyNotValid(*row.fingerprint, *row.winner, here) || !(*row.winner == range.choice))
      continue;
    const uint64_t bytes = row.problem.bytes();
    if (bytes < range.first_bytes || bytes > range.end_bytes) continue;
    if (nearest == nullptr ||
        Distance(bytes, asked.bytes()) < Distance(nearest->problem.bytes(), asked.bytes())) {
      nearest = &row;
    }
  }
  if (nearest == nullptr) return std::optional<DatabaseEntry>();
  // Another row of this size may have the same winner, and not be the one that counts.
  tl::expected<DatabaseEntry, Miss> counting = database.Find(nearest->problem, here);
  if (counting && counting->winner.id == range.choice) {
    return std::optional<DatabaseEntry>(std::move(*counting));
  }
  COTUNE_TRY(DatabaseEntry entry, nearest->Decode());
  return std::optional<DatabaseEntry>(std::move(entry));
}

// The command that tunes the call that is asked about.
std::string TuneCommandText(const Explanation& explanation) {
  const ProblemClass& cls = explanation.asked.cls;
  const char* const numerics =
      explanation.numerics == NumericsRule::kSame ? " --numerics same" : "";
  if (explanation.program) {
    const std::string& file = explanation.program->file;
    const AskedProgram& program = *explanation.program;
    const std::string rows = program.has_rows ? fmt::format(" --rows {}", program.rows) : "";
    return fmt::format("cotune tune --ranks {} --program {}{}{}{}", cls.world_size,
                       file.empty() ? "FILE" : file, rows, numerics, explanation.plugin_flags);
  }
  std::string command = fmt::format("cotune tune --ranks {} --collective {} --dtype {}",
                                    cls.world_size, Name(cls.collective), Name(cls.dtype));
  if (cls.reduction != Reduction::kNone && cls.reduction != Reduction::kSum) {
    command += fmt::format(" --reduction {}", Name(cls.reduction));
  }
  if (cls.buffer_class == BufferClass::kSymmetric) command += " --buffers symmetric";
  if (cls.in_place) command += " --in-place";
  const uint64_t bytes = explanation.asked.bytes();
  if (!IsDefaultSize(cls, bytes)) command += fmt::format(" --sizes {}", FormatSizeBytes(bytes));
  return command + numerics + explanation.plugin_flags;
}

bool IsForced(const Explanation& explanation) {
  return explanation.forced && explanation.forced->choice;
}

// The steps of the choice that runs; "" for a single collective.
std::string StepsText(const Explanation& explanation) {
  if (!explanation.recipe) return "";
  return fmt::format("  steps: {}\n", RecipeText(*explanation.recipe));
}

// "" if no collective of the call is forced.
std::string ForcedText(const Explanation& explanation) {
  if (!explanation.forced) return "";
  const ForcedAnswer& forced = *explanation.forced;
  std::string text;
  if (forced.choice) {
    text = fmt::format("  runs: {}, because the setting force_choice demands it ({})\n",
                       forced.choice->text(), forced.origin);
    text += StepsText(explanation);
  }
  if (!forced.refused.empty()) {
    text += fmt::format("  note: the setting force_choice ({}) does not reach all of it: {}\n",
                        forced.origin, forced.refused);
  }
  return forced.choice ? text + "  without that setting:\n" : text;
}

std::string DefaultRunsText(const Explanation& explanation) {
  std::string text = fmt::format(
      "  runs: {}the default choice of the first backend; nothing valid was measured for this "
      "call\n",
      explanation.fallback ? explanation.fallback->text() + ", " : "");
  if (!IsForced(explanation)) text += StepsText(explanation);
  for (const std::string& miss : explanation.misses) text += "  " + miss + "\n";
  return text + fmt::format("  to tune it: {} --db {}\n", TuneCommandText(explanation),
                            explanation.database);
}

int64_t MedianOf(std::vector<int64_t> values) {
  return MedianWithInterval(std::move(values)).median_ns;
}

// "; 15.7 us with buffers in the cache"; "" where that was not measured.
std::string WarmTimeText(const Verdict& verdict) {
  if (verdict.warm_median_ns <= 0) return "";
  return fmt::format("; {} us with buffers in the cache", MicrosecondsText(verdict.warm_median_ns));
}

std::string WinnerText(const DatabaseEntry& entry) {
  const Problem& problem = entry.cell.problem;
  std::string text =
      fmt::format("  measured at {}: {} us, algbw {} GB/s, busbw {} GB/s\n",
                  FormatSizeBytes(problem.bytes()), MicrosecondsText(entry.winner.median_ns),
                  BandwidthText(AlgorithmBandwidth(problem, entry.winner.median_ns)),
                  BandwidthText(BusBandwidth(problem, entry.winner.median_ns)));
  text += fmt::format("  why: {}\n", entry.winner.why);
  const auto verdict =
      std::find_if(entry.cell.verdicts.begin(), entry.cell.verdicts.end(),
                   [&](const Verdict& each) { return each.id == entry.winner.id; });
  if (verdict != entry.cell.verdicts.end()) {
    const int32_t copies = entry.cell.buffer_copies;
    text += fmt::format("  samples: {}, each of {}{}, start {}, median skew {} us\n",
                        verdict->samples_ns.size(), Counted(verdict->repetitions, "call"),
                        copies == 1 ? "" : fmt::format(" on {} copies of the buffers", copies),
                        StartModeName(entry.cell.start_mode),
                        MicrosecondsText(MedianOf(verdict->skews_ns)));
    if (verdict->warm_median_ns > 0) {
      text += fmt::format("  with buffers in the cache: {} us\n",
                          MicrosecondsText(verdict->warm_median_ns));
    }
    if (!verdict->reason.empty()) text += fmt::format("  note: {}\n", verdict->reason);
    if (!verdict->numerics.empty()) {
      text += fmt::format("  numerics: {}\n", verdict->numerics);
    }
  }
  if (entry.cell.sm_clock_mhz > 0) {
    text += fmt::format("  clocks: SM at {} MHz or more, {}\n", entry.cell.sm_clock_mhz,
                        entry.cell.throttle_reasons.empty()
                            ? "not throttled"
                            : "throttled: " + entry.cell.throttle_reasons);
  }
  for (const auto& [name, connections] : entry.fingerprint.connections) {
    text += fmt::format("  connections of {}: {}\n", name, connections);
  }
  std::string versions;
  for (const auto& [name, version] : entry.fingerprint.backends) {
    versions += fmt::format(", {} {}", name, version);
  }
  return text + fmt::format("  when: {}, cotune {}{}\n", TimeOfDayText(entry.measured_unix_s),
                            entry.cotune_version, versions);
}

std::string ChoicesText(const DatabaseEntry& entry) {
  const CellResult& cell = entry.cell;
  const Winner& winner = entry.winner;
  std::string text = "\n  other choices\n";
  for (const Verdict& verdict : cell.verdicts) {
    if (verdict.id == winner.id) continue;
    text += fmt::format("    {}{}\n      {}\n", verdict.id.text(),
                        verdict.is_default ? " (default)" : "", WhyItLost(entry, verdict));
    const std::optional<RecipeInWords> recipe =
        verdict.id.has_host_keys() ? RecipeOf(entry, verdict.id) : std::nullopt;
    if (recipe) text += fmt::format("      steps: {}\n", StepsAloneText(*recipe));
    if (!verdict.numerics.empty()) text += fmt::format("      numerics: {}\n", verdict.numerics);
  }
  if (cell.verdicts.size() == 1) text += "    none\n";
  if (!cell.refusals.empty()) text += "\n  refused\n";
  for (const RefusalGroup& group : GroupByReason(cell.refusals)) {
    text += fmt::format("    {}\n      {}\n", group.choices, group.reason);
  }
  return text;
}

}  // namespace

Result<Explanation> Explain(const TunedDatabase& database, const std::string& database_path,
                            const Problem& asked, const Fingerprint& here) {
  Explanation explanation;
  explanation.asked = asked;
  explanation.database = database_path;
  COTUNE_TRY(const DispatchTable table,
             database.BuildTable(asked.cls.world_size, asked.cls.ranks_per_node, here));
  const DispatchKey own_key = DispatchKey::Of(asked.cls);
  const DispatchKey deciding_key = table.DecidingKey(own_key, asked.bytes());
  explanation.range = table.RangeOf(deciding_key, asked.bytes());
  if (!explanation.range) {
    explanation.misses = WhyNothing(database, asked, here);
    return explanation;
  }
  DispatchKey as_decided = own_key;
  as_decided.buffer_class = deciding_key.buffer_class;
  if (as_decided != deciding_key) {
    explanation.relative = deciding_key;
    explanation.notes.push_back(
        fmt::format("this call was not measured: it runs by the row of {}; if its backend "
                    "refuses or does not list the choice for it, the next best choice of that row "
                    "does, and if there is none, the "
                    "default",
                    InWords(deciding_key)));
  }
  if (deciding_key.buffer_class != asked.cls.buffer_class) {
    explanation.notes.push_back(PlainChoiceText(table.Find(own_key)));
  }
  Problem looked_up = WithKey(asked, deciding_key);
  // The sizes of rows are in bytes, whatever the dtype.
  looked_up.count = CountForBytes(looked_up.cls, asked.bytes());
  const std::string beyond =
      BeyondMeasuredText(SizesMeasuredFor(database, looked_up, here), asked.bytes());
  if (!beyond.empty()) explanation.notes.push_back(beyond);
  COTUNE_TRY(std::optional<DatabaseEntry> entry,
             NearestEntry(database, looked_up, *explanation.range, here));
  explanation.entry = std::move(entry);
  if (explanation.entry) {
    const uint64_t measured_bytes = explanation.entry->cell.problem.bytes();
    if (beyond.empty() && measured_bytes < asked.bytes()) {
      explanation.notes.push_back(fmt::format(
          "{} was not measured: if its backend does not list this winner of {} for it, the winner "
          "of the next measured size runs",
          FormatSizeBytes(asked.bytes()), FormatSizeBytes(measured_bytes)));
    }
    const std::vector<std::string> absent =
        BackendsThatDidNotRace(explanation.entry->fingerprint, here);
    if (!absent.empty()) {
      explanation.notes.push_back(
          fmt::format("this was measured without {}; a tune measures it again where that can run",
                      fmt::join(absent, ", ")));
    }
  }
  return explanation;
}

std::string WhyItLost(const DatabaseEntry& entry, const Verdict& verdict) {
  const Winner& winner = entry.winner;
  const auto winner_ns = static_cast<double>(std::max<int64_t>(1, winner.median_ns));
  const double percent = 100.0 * (static_cast<double>(verdict.median_ns) - winner_ns) / winner_ns;
  const std::string time =
      fmt::format("{} us ({} us, {} rounds{})", MicrosecondsText(verdict.median_ns),
                  IntervalText(verdict.interval_low_ns, verdict.interval_high_ns),
                  verdict.samples_ns.size(), WarmTimeText(verdict)) +
      (verdict.reason.empty() ? "" : "; " + verdict.reason);
  switch (verdict.outcome) {
    case Outcome::kTimed:
      if (percent < 0) {
        if (entry.cell.is_unsteady) {
          return fmt::format("{:.1f} % faster, but the times of this size are unsteady: {}",
                             -percent, time);
        }
        if (verdict.id.has_host_keys() && !winner.id.has_host_keys()) {
          return fmt::format(
              "{:.1f} % faster, which is too little, or too unsure, for a fused form: {}", -percent,
              time);
        }
        const bool default_won = winner.fallback == winner.id;
        return fmt::format("{:.1f} % faster, which is inside the noise{}: {}", -percent,
                           default_won ? " of the default" : "", time);
      }
      return fmt::format("{:.1f} % slower: {}", percent, time);
    case Outcome::kOutpaced:
      return fmt::format("left the race after {} rounds, {} {}: {}", verdict.samples_ns.size(),
                         FactorText(percent / 100 + 1),
                         entry.cell.is_unsteady ? "the time of the choice that runs (unsteady)"
                                                : "the winner's time",
                         time);
    case Outcome::kLostHeat:
      return fmt::format("lost the first of two heats: {}", time);
    case Outcome::kPrecompileFailed:
    case Outcome::kLaunchFailed:
    case Outcome::kWrongResult:
    case Outcome::kDeadline:
      break;
  }
  std::string text = OutcomeName(verdict.outcome);
  if (verdict.wrong_elements > 0) {
    text += ", " + Counted(static_cast<int64_t>(verdict.wrong_elements), "wrong element");
  }
  if (!verdict.reason.empty()) text += ": " + verdict.reason;
  return text;
}

std::string RangeText(const SizeRange& range) {
  if (range.end_bytes == UINT64_MAX) {
    if (range.first_bytes == 0) return "all sizes";
    return fmt::format("sizes from {} up", FormatSizeBytes(range.first_bytes));
  }
  if (range.first_bytes == 0) return "sizes below " + FormatSizeBytes(range.end_bytes);
  return fmt::format("sizes from {}, below {}", FormatSizeBytes(range.first_bytes),
                     FormatSizeBytes(range.end_bytes));
}

std::string ThrottlingText(const std::vector<DatabaseEntry>& entries) {
  std::set<std::string> reasons;
  size_t throttled = 0;
  for (const DatabaseEntry& entry : entries) {
    if (entry.cell.throttle_reasons.empty()) continue;
    ++throttled;
    reasons.insert(entry.cell.throttle_reasons);
  }
  if (throttled == 0) return "";
  return fmt::format(
      "a GPU was throttled while {} of {} were measured ({}): their times may be too long; "
      "see `nvidia-smi -q -d PERFORMANCE`, and tune again with --force when that has ended",
      throttled, Counted(static_cast<int64_t>(entries.size()), "cell"), fmt::join(reasons, "; "));
}

std::string ExplanationText(const Explanation& explanation) {
  std::string text;
  if (explanation.program) {
    text = fmt::format("{}: {}\n  by its ", explanation.program->text,
                       Counted(static_cast<int64_t>(explanation.program->rows), "row"));
  }
  text += fmt::format("{}: {}\n", ClassText(explanation.asked.cls),
                      FormatSizeBytes(explanation.asked.bytes()));
  text += ForcedText(explanation);
  if (!explanation.range) return text + DefaultRunsText(explanation);
  text += fmt::format("  runs: {} ({})\n", explanation.range->choice.text(),
                      RangeText(*explanation.range));
  if (!IsForced(explanation)) text += StepsText(explanation);
  for (const std::string& note : explanation.notes) text += "  note: " + note + "\n";
  if (explanation.relative) {
    text += fmt::format("  to tune this call: {} --db {}\n", TuneCommandText(explanation),
                        explanation.database);
  }
  if (explanation.entry) {
    text += WinnerText(*explanation.entry);
    text += fmt::format("  from: {}\n", explanation.database);
    text += ChoicesText(*explanation.entry);
  }
  return text;
}

}  // namespace cotune::cli
