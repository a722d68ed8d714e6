// The optional abilities of a backend, as far as they can be used.
#ifndef COTUNE_PLUGINS_LOADER_BACKEND_EXTENSIONS_H_
#define COTUNE_PLUGINS_LOADER_BACKEND_EXTENSIONS_H_

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/api/cotune_program_v1.h"

namespace cotune {

// Why a backend refuses a program that is more than a collective.
inline constexpr char kNoFusion[] = "fusion extension not offered: it runs single collectives only";

// A table is nullptr where the backend does not offer it.
struct BackendExtensions {
  static constexpr const char* kIds[] = {COTUNE_MEMORY_EXTENSION, COTUNE_PROGRAM_EXTENSION,
                                         COTUNE_CONNECTIONS_EXTENSION, COTUNE_LIBRARIES_EXTENSION};

  // Keeps what get_extension answered for `id`, one of kIds; nullptr is no error. kPluginRefused
  // for a table that is too small or lacks a function; `where` is the plugin's path.
  Status Take(std::string_view id, const void* found, const std::string& where);

  // Returns whether the backend runs regions of programs.
  bool has_regions() const { return program != nullptr && program->list_choices != nullptr; }

  const cotune_memory_v1_t* memory = nullptr;
  const cotune_program_v1_t* program = nullptr;
  const cotune_connections_v1_t* connections = nullptr;
  const cotune_libraries_v1_t* libraries = nullptr;
};

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_BACKEND_EXTENSIONS_H_
