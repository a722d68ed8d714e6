#include "plugins/loader/backend_extensions.h"

#include "fmt/format.h"

namespace cotune {
namespace {

constexpr char kTooSmall[] = "its struct_size is too small";
// Flags that must be understood; none are known.
constexpr uint32_t kMustUnderstandFlags = 0xFFFF0000u;

// Returns the fault of a table; nullptr: it has none.
const char* Missing(const cotune_memory_v1_t& memory) {
  if (!COTUNE_HAS_FIELD(cotune_memory_v1_t, &memory, memory_unregister)) return kTooSmall;
  if (memory.memory_register == nullptr) return "memory_register is NULL";
  if (memory.memory_unregister == nullptr) return "memory_unregister is NULL";
  return nullptr;
}

const char* Missing(const cotune_program_v1_t& program) {
  if (!COTUNE_HAS_FIELD(cotune_program_v1_t, &program, plan_destroy)) return kTooSmall;
  if ((program.list_choices == nullptr) != (program.prepare == nullptr)) {
    return "one of list_choices and prepare is NULL";
  }
  if (program.launch == nullptr) return "launch is NULL";
  if (program.progress == nullptr) return "progress is NULL";
  return program.plan_destroy == nullptr ? "plan_destroy is NULL" : nullptr;
}

const char* Missing(const cotune_connections_v1_t& connections) {
  if (!COTUNE_HAS_FIELD(cotune_connections_v1_t, &connections, connection_text)) return kTooSmall;
  return connections.connection_text == nullptr ? "connection_text is NULL" : nullptr;
}

const char* Missing(const cotune_libraries_v1_t& libraries) {
  if (!COTUNE_HAS_FIELD(cotune_libraries_v1_t, &libraries, libraries_text)) return kTooSmall;
  return libraries.libraries_text == nullptr ? "libraries_text is NULL" : nullptr;
}

template <class Table>
Status TakeTable(std::string_view id, const void* found, const char* header,
                 const std::string& where, const Table*& table) {
  if (found == nullptr) return {};
  const auto* answered = static_cast<const Table*>(found);
  const char* missing = Missing(*answered);
  const bool has_unknown_flags =
      missing == nullptr && (answered->flags & kMustUnderstandFlags) != 0;
  if (has_unknown_flags) missing = "it has flags that this cotune does not know";
  if (missing != nullptr) {
    return Fail(ErrorCode::kPluginRefused, fmt::format("plugin refused at step 'extension {}'", id),
                where, missing,
                has_unknown_flags
                    ? "use a newer cotune, or an older version of the plugin"
                    : fmt::format("rebuild the plugin against this version's {}", header));
  }
  table = answered;
  return {};
}

}  // namespace

Status BackendExtensions::Take(std::string_view id, const void* found, const std::string& where) {
  if (id == COTUNE_MEMORY_EXTENSION) {
    return TakeTable(id, found, "cotune_backend_v1.h", where, memory);
  }
  if (id == COTUNE_PROGRAM_EXTENSION) {
    return TakeTable(id, found, "cotune_program_v1.h", where, program);
  }
  if (id == COTUNE_LIBRARIES_EXTENSION) {
    return TakeTable(id, found, "cotune_backend_v1.h", where, libraries);
  }
  return TakeTable(id, found, "cotune_backend_v1.h", where, connections);
}

}  // namespace cotune
