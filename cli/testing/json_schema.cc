#include "cli/testing/json_schema.h"

#include <algorithm>
#include <set>

#include "fmt/format.h"

namespace cotune::cli {
namespace {

using Json = nlohmann::json;

bool HasType(const Json& document, const std::string& type) {
  if (type == "object") return document.is_object();
  if (type == "array") return document.is_array();
  if (type == "string") return document.is_string();
  if (type == "boolean") return document.is_boolean();
  if (type == "null") return document.is_null();
  if (type == "integer") return document.is_number_integer();
  return type == "number" && document.is_number();
}

std::string CheckValue(const Json& schema, const Json& document, const std::string& path) {
  if (schema.contains("type")) {
    const Json& types = schema["type"];
    const bool matches =
        types.is_array() ? std::any_of(types.begin(), types.end(),
                                       [&](const Json& type) { return HasType(document, type); })
                         : HasType(document, types);
    if (!matches) return path + ": " + document.dump() + " is not of type " + types.dump();
  }
  if (schema.contains("enum")) {
    const Json& allowed = schema["enum"];
    if (std::find(allowed.begin(), allowed.end(), document) == allowed.end()) {
      return path + ": " + document.dump() + " is not one of " + allowed.dump();
    }
  }
  return "";
}

std::string CheckMembers(const Json& root, const Json& schema, const Json& document,
                         const std::string& path) {
  for (const Json& name : schema.value("required", Json::array())) {
    if (!document.contains(name)) return path + ": " + name.dump() + " is missing";
  }
  const Json properties = schema.value("properties", Json::object());
  const Json additional = schema.value("additionalProperties", Json(true));
  for (const auto& [name, value] : document.items()) {
    const std::string member_path = fmt::format("{}/{}", path, name);
    if (!properties.contains(name) && additional == false) return member_path + ": not known";
    const Json& member_schema = properties.contains(name) ? properties[name] : additional;
    if (!member_schema.is_object()) continue;
    std::string wrong = FindSchemaViolation(root, member_schema, value, member_path);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

std::string FindSchemaViolation(const Json& root, const Json& schema, const Json& document,
                                const std::string& path) {
  static const std::set<std::string> keywords = {"$ref",  "$schema",     "additionalProperties",
                                                 "anyOf", "definitions", "enum",
                                                 "items", "properties",  "required",
                                                 "title", "type"};
  for (const auto& [keyword, value] : schema.items()) {
    if (!keywords.contains(keyword)) return path + ": keyword " + keyword + " is not known here";
  }
  if (schema.contains("$ref")) {
    const std::string pointer = schema["$ref"].get<std::string>().substr(1);
    return FindSchemaViolation(root, root.at(Json::json_pointer(pointer)), document, path);
  }
  std::string wrong = CheckValue(schema, document, path);
  if (wrong.empty() && document.is_object()) wrong = CheckMembers(root, schema, document, path);
  if (wrong.empty() && document.is_array() && schema.contains("items")) {
    for (size_t i = 0; i < document.size() && wrong.empty(); ++i) {
      wrong =
          FindSchemaViolation(root, schema["items"], document[i], fmt::format("{}/{}", path, i));
    }
  }
  if (!wrong.empty() || !schema.contains("anyOf")) return wrong;
  std::string all;
  for (const Json& alternative : schema["anyOf"]) {
    const std::string violation = FindSchemaViolation(root, alternative, document, path);
    if (violation.empty()) return "";
    all += (all.empty() ? "" : "\n  ") + violation;
  }
  return path + ": fits no alternative:\n  " + all;
}

}  // namespace cotune::cli
