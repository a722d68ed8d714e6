// JSON on standard output: one document a command, {"schema_version", "command", "result" or
// "error"}. docs/cli.md and docs/cli_output.schema.json describe it; a field is only ever added
// while the schema version stays.
#ifndef COTUNE_CLI_OUTPUT_JSON_OUTPUT_H_
#define COTUNE_CLI_OUTPUT_JSON_OUTPUT_H_

#include <string>
#include <string_view>
#include <vector>

#include "cli/output/explanation.h"
#include "cli/output/reports.h"
#include "core/base/status.h"
#include "integration/settings/settings.h"
#include "nlohmann/json_fwd.hpp"

namespace cotune::cli {

inline constexpr int kJsonSchemaVersion = 1;

// Each gives one document with a line end behind it.
std::string ErrorJson(std::string_view command, const Error& error);
std::string TuneJson(const TuneSummary& summary);
std::string BenchJson(const TuneSummary& summary);
std::string ExplainJson(const Explanation& explanation);
std::string PluginListJson(const std::vector<PluginRow>& plugins);
std::string DoctorJson(const std::vector<Finding>& findings);
std::string DbShowJson(const std::string& path, const std::vector<ShownEntry>& entries);
std::string DbMergeJson(const MergeSummary& summary);
std::string ConfigShowJson(const ResolvedSettings& settings);
std::string VersionJson(const VersionReport& report);

// The document that all of them are: `part` is "result" or "error".
std::string Document(std::string_view command, const char* part, nlohmann::ordered_json content);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_JSON_OUTPUT_H_
