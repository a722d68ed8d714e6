#include "cli/output/json_output.h"

#include <utility>

#include "cli/output/json_entry.h"
#include "nlohmann/json.hpp"

namespace cotune::cli {
namespace {

using Json = nlohmann::ordered_json;

Json EntriesJson(const std::vector<DatabaseEntry>& entries) {
  Json json = Json::array();
  WordedRecipes recipes;
  for (const DatabaseEntry& entry : entries) json.push_back(EntryJson(entry, recipes));
  return json;
}

Json TimesJson(const TuneTimes& times) {
  Json nodes = Json::array();
  for (const NodeTimes& node : times.nodes) {
    nodes.push_back({{"node", node.node},
                     {"choices_us", MicrosecondsJson(node.choices_ns)},
                     {"compile_us", MicrosecondsJson(node.compile_ns)},
                     {"measure_us", MicrosecondsJson(node.measure_ns)}});
  }
  return {{"choices_us", MicrosecondsJson(times.all.choices_ns)},
          {"compile_us", MicrosecondsJson(times.all.compile_ns)},
          {"warm_us", MicrosecondsJson(times.all.warm_ns)},
          {"sync_us", MicrosecondsJson(times.all.sync_ns)},
          {"measure_us", MicrosecondsJson(times.all.measure_ns)},
          {"agree_us", MicrosecondsJson(times.all.agree_ns)},
          {"save_us", MicrosecondsJson(times.all.save_ns)},
          {"nodes", std::move(nodes)}};
}

Json SummaryJson(const TuneSummary& summary) {
  return {{"committed", summary.committed},
          {"late_ranks", summary.late_ranks},
          {"measured_cells", summary.measured_cells},
          {"cells_without_winner", summary.cells_without_winner},
          {"known_cells", summary.known_cells},
          {"forced_cells", summary.forced_cells},
          {"skipped_cells", summary.skipped_cells},
          {"unsteady_cells", summary.unsteady_cells},
          {"pre_syncs", summary.pre_syncs},
          {"pre_sync_us", MicrosecondsJson(summary.pre_sync_ns)},
          {"elapsed_us", MicrosecondsJson(summary.elapsed_ns)},
          {"times", TimesJson(summary.times)},
          {"backend_refusals", RefusalsJson(summary.backend_refusals)},
          {"winners", WinnersJson(summary.entries)},
          {"entries", EntriesJson(summary.entries)}};
}

Json RangeJson(const SizeRange& range) {
  const bool is_open = range.end_bytes == UINT64_MAX;
  return {{"choice", range.choice.text()},
          {"first_bytes", range.first_bytes},
          {"end_bytes", is_open ? Json(nullptr) : Json(range.end_bytes)}};
}

Json ForcedJson(const std::optional<ForcedAnswer>& forced) {
  if (!forced) return nullptr;
  return {{"choice", ChoiceIdJson(forced->choice)},
          {"origin", forced->origin},
          {"refused", forced->refused}};
}

}  // namespace

std::string Document(std::string_view command, const char* part, Json content) {
  const Json json = {{"schema_version", kJsonSchemaVersion},
                     {"command", std::string(command)},
                     {part, std::move(content)}};
  // Names of files and texts of plugins need not be UTF-8: what is not is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ErrorJson(std::string_view command, const Error& error) {
  return Document(command, "error",
                  {{"code", ErrorCodeName(error.code)},
                   {"exit_code", ExitCode(error.code)},
                   {"what", error.what},
                   {"where", error.where},
                   {"cause", error.cause},
                   {"next_step", error.next_step},
                   {"ranks", error.ranks}});
}

std::string TuneJson(const TuneSummary& summary) {
  Json json = {{"database", summary.database}};
  json.update(SummaryJson(summary));
  return Document("tune", "result", std::move(json));
}

std::string BenchJson(const TuneSummary& summary) {
  return Document("bench", "result", SummaryJson(summary));
}

std::string ExplainJson(const Explanation& explanation) {
  WordedRecipes recipes;
  Json json = {
      {"problem", ProblemJson(explanation.asked)},
      {"program", explanation.program ? Json(explanation.program->text) : Json(nullptr)},
      {"rows", explanation.program ? Json(explanation.program->rows) : Json(nullptr)},
      {"database", explanation.database},
      {"runs", explanation.range ? RangeJson(*explanation.range) : Json(nullptr)},
      {"default", ChoiceIdJson(explanation.fallback)},
      {"forced", ForcedJson(explanation.forced)},
      {"recipe", RecipeJson(explanation.recipe)},
      {"entry", explanation.entry ? EntryJson(*explanation.entry, recipes) : Json(nullptr)},
      {"notes", explanation.notes},
      {"misses", explanation.misses},
  };
  if (explanation.entry) {
    for (Json& choice : json["entry"]["choices"]) {
      for (const Verdict& verdict : explanation.entry->cell.verdicts) {
        if (choice["choice"] != verdict.id.text()) continue;
        const bool is_winner = verdict.id == explanation.entry->winner.id;
        choice["why_it_lost"] =
            is_winner ? Json(nullptr) : Json(WhyItLost(*explanation.entry, verdict));
      }
    }
  }
  return Document("explain", "result", std::move(json));
}

std::string PluginListJson(const std::vector<PluginRow>& plugins) {
  Json rows = Json::array();
  for (const PluginRow& plugin : plugins) {
    rows.push_back({{"path", plugin.path},
                    {"name", plugin.name},
                    {"version", plugin.version},
                    {"abi", plugin.abi},
                    {"memory_kinds", plugin.memory_kinds},
                    {"loaded", plugin.loaded},
                    {"state", plugin.state},
                    {"reason", plugin.reason},
                    {"group_bytes", plugin.group_bytes ? Json(*plugin.group_bytes) : Json()}});
  }
  return Document("plugin list", "result", {{"plugins", std::move(rows)}});
}

std::string DoctorJson(const std::vector<Finding>& findings) {
  Json rows = Json::array();
  bool is_usable = true;
  for (const Finding& finding : findings) {
    is_usable = is_usable && finding.state != "problem";
    rows.push_back({{"subject", finding.subject},
                    {"state", finding.state},
                    {"text", finding.text},
                    {"next_step", finding.next_step},
                    {"details", finding.details}});
  }
  return Document("doctor", "result", {{"usable", is_usable}, {"findings", std::move(rows)}});
}

std::string DbShowJson(const std::string& path, const std::vector<ShownEntry>& entries) {
  Json rows = Json::array();
  WordedRecipes recipes;
  for (const ShownEntry& shown : entries) {
    Json row = EntryJson(shown.entry, recipes);
    row["valid_here"] = !shown.miss.has_value();
    row["not_valid_because"] = shown.miss ? shown.miss->detail : "";
    rows.push_back(std::move(row));
  }
  return Document("db show", "result", {{"database", path}, {"entries", std::move(rows)}});
}

std::string DbMergeJson(const MergeSummary& summary) {
  return Document("db merge", "result",
                  {{"database", summary.output},
                   {"inputs", summary.inputs},
                   {"entries", summary.entries},
                   {"changed", summary.is_changed}});
}

std::string ConfigShowJson(const ResolvedSettings& settings) {
  Json rows = Json::array();
  for (const SettingSpec& spec : AllSettings()) {
    Json aliases = Json::array();
    for (const std::string_view alias : AliasesOf(spec)) aliases.push_back(std::string(alias));
    rows.push_back({{"name", std::string(spec.name)},
                    {"aliases", std::move(aliases)},
                    {"value", TextOfSetting(spec, settings)},
                    {"origin", settings.origins.at(std::string(spec.name))},
                    {"type", std::string(TypeName(spec))},
                    {"flag", FlagName(spec.name)},
                    {"variable", VariableName(spec.name)},
                    {"help", std::string(spec.help)}});
  }
  Json backend_rows = Json::array();
  for (const auto& [name, value] : settings.backend_values) {
    backend_rows.push_back(
        {{"name", name}, {"value", value}, {"origin", settings.backend_origins.at(name)}});
  }
  return Document("config show", "result",
                  {{"settings_file", settings.settings_file},
                   {"settings", std::move(rows)},
                   {"backend_settings", std::move(backend_rows)}});
}

std::string VersionJson(const VersionReport& report) {
  return Document("version", "result",
                  {{"cotune", report.cotune},
                   {"abi", report.abi},
                   {"database_schema", report.database_schema},
                   {"compiler", report.compiler}});
}

}  // namespace cotune::cli
