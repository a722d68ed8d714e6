// Checks a JSON document against the part of JSON Schema (draft 7) that docs/cli_output.schema.json
// uses.
#ifndef COTUNE_CLI_TESTING_JSON_SCHEMA_H_
#define COTUNE_CLI_TESTING_JSON_SCHEMA_H_

#include <string>

#include "nlohmann/json.hpp"

namespace cotune::cli {

// The first violation as "/path: what", or "". type, enum, properties, required,
// additionalProperties, items, anyOf and $ref to #/definitions; any other keyword but title,
// $schema and definitions is a violation of its own.
std::string FindSchemaViolation(const nlohmann::json& root, const nlohmann::json& schema,
                                const nlohmann::json& document, const std::string& path = "");

}  // namespace cotune::cli

#endif  // COTUNE_CLI_TESTING_JSON_SCHEMA_H_
