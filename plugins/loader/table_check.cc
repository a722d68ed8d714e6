#include <cstddef>
#include <cstring>
#include <string_view>

#include "fmt/format.h"
#include "plugins/loader/backend_adapter.h"

namespace cotune {
namespace {

// Size of the table of version 1.0: the least a plugin can have.
constexpr size_t kTableBytesMin = offsetof(cotune_backend_api_t, plan_destroy) + sizeof(void*);
constexpr size_t kVersionBytesMax = 64;

tl::unexpected<Error> Refused(
    const std::string& where, const char* step, std::string cause,
    std::string next_step = "rebuild the plugin against this version's cotune_backend_v1.h") {
  return Fail(ErrorCode::kPluginRefused, fmt::format("plugin refused at step '{}'", step), where,
              std::move(cause), std::move(next_step));
}

// The first required function that is missing, or nullptr.
const char* MissingFunction(const cotune_backend_api_t& table) {
  struct Required {
    const char* name;
    bool present;
  };
  for (const Required& each : {
           Required{"create", table.create != nullptr},
           Required{"destroy", table.destroy != nullptr},
           Required{"get_extension", table.get_extension != nullptr},
           Required{"list_choices", table.list_choices != nullptr},
           Required{"group_create", table.group_create != nullptr},
           Required{"group_health", table.group_health != nullptr},
           Required{"group_abort", table.group_abort != nullptr},
           Required{"group_destroy", table.group_destroy != nullptr},
           Required{"prepare", table.prepare != nullptr},
           Required{"launch", table.launch != nullptr},
           Required{"progress", table.progress != nullptr},
           Required{"plan_destroy", table.plan_destroy != nullptr},
       }) {
    if (!each.present) return each.name;
  }
  return nullptr;
}

std::string SanitizerText(uint32_t flags) {
  std::string text;
  if (flags & COTUNE_BUILD_ASAN) text += " address";
  if (flags & COTUNE_BUILD_TSAN) text += " thread";
  return text.empty() ? " none" : text;
}

}  // namespace

uint32_t OwnBuildFlags() {
  uint32_t flags = 0;
#ifdef __SANITIZE_ADDRESS__
  flags |= COTUNE_BUILD_ASAN;
#endif
#ifdef __SANITIZE_THREAD__
  flags |= COTUNE_BUILD_TSAN;
#endif
  return flags;
}

Status CheckTable(const cotune_backend_api_t* table, const std::string& where) {
  if (table == nullptr) return Refused(where, "table", "the table of functions is NULL");
  if (table->struct_size == 0) {
    return Refused(where, "table size", "struct_size is 0: the plugin never set it");
  }
  if (table->struct_size < kTableBytesMin) {
    return Refused(
        where, "table size",
        fmt::format("struct_size is {}, version 1.0 has {}", table->struct_size, kTableBytesMin));
  }
  if (const char* missing = MissingFunction(*table); missing != nullptr) {
    return Refused(where, "required functions", fmt::format("{} is NULL", missing),
                   fmt::format("set {} in the plugin's table", missing));
  }
  if (table->name == nullptr || !ChoiceId::FromBackend(table->name, "x")) {
    return Refused(
        where, "name",
        fmt::format("'{}' is not a backend name ([a-z][a-z0-9_]*, 31 characters at most)",
                    table->name == nullptr ? "" : table->name),
        "choose a name of a-z, 0-9 and _ that begins with a letter");
  }
  if (table->version == nullptr || table->version[0] == '\0' ||
      std::strlen(table->version) > kVersionBytesMax) {
    return Refused(where, "version", "the version is missing or longer than 64 characters",
                   "set version in the plugin's table to a text such as \"1.0\"");
  }
  // Memory that one side's sanitizer watches and the other's does not gives false reports.
  constexpr uint32_t kWatched = COTUNE_BUILD_ASAN | COTUNE_BUILD_TSAN;
  if ((table->build_flags & kWatched) != (OwnBuildFlags() & kWatched)) {
    return Refused(where, "sanitizers",
                   fmt::format("the plugin was built with{}, cotune with{}",
                               SanitizerText(table->build_flags), SanitizerText(OwnBuildFlags())),
                   "build both with the same sanitizers");
  }
  return {};
}

}  // namespace cotune
