#include "cli/output/json_entry.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "cli/output/number_text.h"
#include "cli/output/program_words.h"
#include "cli/output/winner_table.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cotune::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ClassJson(const ProblemClass& cls) {
  return {{"collective", std::string(Name(cls.collective))},
          {"dtype", std::string(Name(cls.dtype))},
          {"reduction", std::string(Name(cls.reduction))},
          {"memory", std::string(Name(cls.memory))},
          {"buffer_class", std::string(Name(cls.buffer_class))},
          {"in_place", cls.in_place},
          {"world_size", cls.world_size},
          {"ranks_per_node", cls.ranks_per_node},
          {"root", cls.root}};
}

// The numerics class of a choice of the cell; "": unknown.
std::string NumericsOf(const CellResult& cell, const ChoiceId& id) {
  const auto found = std::find_if(cell.verdicts.begin(), cell.verdicts.end(),
                                  [&](const Verdict& verdict) { return verdict.id == id; });
  return found == cell.verdicts.end() ? "" : found->numerics;
}

// A time that was measured, or null: 0 would look like the fastest choice of all.
Json TimeJson(int64_t time_ns) {
  return time_ns > 0 ? Json(MicrosecondsJson(time_ns)) : Json(nullptr);
}

Json BestUnfusedJson(const std::optional<TimedChoice>& best) {
  if (!best) return nullptr;
  return {{"choice", best->id.text()}, {"time_us", MicrosecondsJson(best->median_ns)}};
}

Json WinnerJson(const CellResult& cell, const Winner& winner) {
  const Problem& problem = cell.problem;
  return {{"choice", winner.id.text()},
          {"numerics", NumericsOf(cell, winner.id)},
          {"time_us", MicrosecondsJson(winner.median_ns)},
          {"algbw_GBps", AlgorithmBandwidth(problem, winner.median_ns)},
          {"busbw_GBps", BusBandwidth(problem, winner.median_ns)},
          {"why", winner.why},
          {"runner_up", ChoiceIdJson(winner.runner_up)},
          {"runner_up_time_us", TimeJson(winner.runner_up_median_ns)},
          {"default", ChoiceIdJson(winner.fallback)},
          {"default_time_us", TimeJson(winner.fallback_median_ns)},
          {"best_unfused", BestUnfusedJson(winner.best_unfused)}};
}

Json VerdictJson(const Problem& problem, const Verdict& verdict) {
  const bool has_time = verdict.median_ns > 0;
  const auto if_timed = [&](double value) { return has_time ? Json(value) : Json(nullptr); };
  const Json interval = {MicrosecondsJson(verdict.interval_low_ns),
                         MicrosecondsJson(verdict.interval_high_ns)};
  return {{"choice", verdict.id.text()},
          {"outcome", OutcomeName(verdict.outcome)},
          {"is_default", verdict.is_default},
          {"numerics", verdict.numerics},
          {"time_us", TimeJson(verdict.median_ns)},
          {"interval_us", has_time ? interval : Json(nullptr)},
          {"warm_time_us", TimeJson(verdict.warm_median_ns)},
          {"algbw_GBps", if_timed(AlgorithmBandwidth(problem, verdict.median_ns))},
          {"busbw_GBps", if_timed(BusBandwidth(problem, verdict.median_ns))},
          {"wrong", verdict.wrong_elements},
          {"repetitions", verdict.repetitions},
          {"samples_ns", verdict.samples_ns},
          {"skews_ns", verdict.skews_ns},
          {"reason", verdict.reason}};
}

}  // namespace

Json ChoiceIdJson(const std::optional<ChoiceId>& id) {
  return id ? Json(id->text()) : Json(nullptr);
}

Json RecipeJson(const std::optional<RecipeInWords>& recipe) {
  if (!recipe) return nullptr;
  Json steps = Json::array();
  for (const StepInWords& step : recipe->steps) {
    steps.push_back({{"operations", step.operations},
                     {"is_bucket", step.is_bucket},
                     {"choice", ChoiceIdJson(step.choice)}});
  }
  return {{"via", recipe->via}, {"steps", std::move(steps)}};
}

double MicrosecondsJson(int64_t time_ns) { return static_cast<double>(time_ns) / 1e3; }

Json ProblemJson(const Problem& problem) {
  Json json = ClassJson(problem.cls);
  json["bytes"] = problem.bytes();
  json["count"] = problem.count;
  return json;
}

Json RefusalsJson(const std::vector<Refusal>& refusals) {
  Json json = Json::array();
  for (const Refusal& refusal : refusals) {
    json.push_back({{"choice", refusal.choice}, {"reason", refusal.reason}});
  }
  return json;
}

Json EntryJson(const DatabaseEntry& entry, WordedRecipes& recipes) {
  const CellResult& cell = entry.cell;
  Json json = ProblemJson(cell.problem);
  json["program_digest"] = fmt::format("{:016x}", cell.problem.cls.program_digest);
  const std::optional<Program> program = ProgramOf(entry);
  json["program"] = program ? Json(entry.program_text) : Json(nullptr);
  json["rows"] = program ? Json(program->RowsAt(cell.problem)) : Json(nullptr);
  json["winner"] = WinnerJson(cell, entry.winner);
  json["winner"]["recipe"] = RecipeJson(recipes.Of(entry, entry.winner.id));
  json["choices"] = Json::array();
  for (const Verdict& verdict : cell.verdicts) {
    json["choices"].push_back(VerdictJson(cell.problem, verdict));
  }
  json["refusals"] = RefusalsJson(cell.refusals);
  json["start_mode"] = StartModeName(cell.start_mode);
  json["invalid_rounds"] = cell.invalid_rounds;
  json["is_unsteady"] = cell.is_unsteady;
  json["buffer_copies"] = cell.buffer_copies;
  json["sm_clock_MHz"] = cell.sm_clock_mhz > 0 ? Json(cell.sm_clock_mhz) : Json(nullptr);
  json["throttle_reasons"] = cell.throttle_reasons;
  json["connections"] = entry.fingerprint.connections;
  json["measured_unix_s"] = entry.measured_unix_s;
  json["cotune_version"] = entry.cotune_version;
  json["measuring_mode"] = entry.fingerprint.measuring_mode;
  json["machine"] = entry.fingerprint.machine;
  json["backends"] = entry.fingerprint.backends;
  json["builds"] = entry.fingerprint.builds;
  return json;
}

Json WinnersJson(const std::vector<DatabaseEntry>& entries) {
  Json json = Json::array();
  for (const WinnerGroup& group : SummarizeWinners(entries)) {
    for (const WinnerRow& row : group.rows) {
      Json item = ClassJson(group.cls);
      item["program_digest"] = fmt::format("{:016x}", group.cls.program_digest);
      item["first_bytes"] = row.first_bytes;
      item["last_bytes"] = row.last_bytes;
      item["first_rows"] = group.program ? Json(row.first_rows) : Json(nullptr);
      item["last_rows"] = group.program ? Json(row.last_rows) : Json(nullptr);
      item["choice"] = row.winner.text();
      item["is_default"] = row.is_default;
      item["is_unsteady"] = row.is_unsteady;
      item["numerics"] = row.numerics;
      item["time_us"] = MicrosecondsJson(row.time_ns);
      item["interval_us"] = {MicrosecondsJson(row.interval_low_ns),
                             MicrosecondsJson(row.interval_high_ns)};
      item["algbw_GBps"] = row.algbw_GBps;
      item["busbw_GBps"] = row.busbw_GBps;
      item["gain"] = row.gain > 0 ? Json(row.gain) : Json(nullptr);
      item["wrong"] = row.wrong_elements;
      json.push_back(std::move(item));
    }
  }
  return json;
}

}  // namespace cotune::cli
