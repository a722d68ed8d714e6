// The results of commands as plain data; text and JSON are made from it.
#ifndef COTUNE_CLI_OUTPUT_REPORTS_H_
#define COTUNE_CLI_OUTPUT_REPORTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/database/tuned_database.h"
#include "core/scheduler/tune_times.h"

namespace cotune::cli {

// How a tune or a bench ended. Of a bench: database is empty.
struct TuneSummary {
  std::string database;
  bool committed = false;
  std::vector<int> late_ranks;
  int32_t measured_cells = 0;
  int32_t cells_without_winner = 0;  // no choice could be timed; not among the measured ones
  int32_t known_cells = 0;
  int32_t forced_cells = 0;  // not measured because the setting force_choice decides them
  int32_t skipped_cells = 0;
  int32_t unsteady_cells = 0;  // among the measured ones
  int32_t pre_syncs = 0;
  int64_t pre_sync_ns = 0;
  int64_t elapsed_ns = 0;
  TuneTimes times{};                   // of rank 0
  std::vector<DatabaseEntry> entries;  // of the problems that were asked for
  std::vector<Refusal> backend_refusals;
};

// A plugin that was found.
struct PluginRow {
  std::string path;
  std::string name;     // "" when it could not be asked
  std::string version;  // "" likewise
  std::string abi;      // "1.0"
  std::vector<std::string> memory_kinds;
  bool loaded = false;
  std::string state;   // "loaded", "idle", "refused" or "untried"
  std::string reason;  // why it is not "loaded", and what to do
  // About how much memory of the GPU a group of one rank takes; nullopt: not measured.
  std::optional<uint64_t> group_bytes{};
};

// One thing that the doctor looked at.
struct Finding {
  std::string subject;    // "driver", "GPU 0", "plugin host"
  std::string state;      // "ok", "note" (usable, or not needed) or "problem"
  std::string text;       // what was found
  std::string next_step;  // "" when it is ok
  std::vector<std::string> details;
};

// An entry of a database and whether this machine may use it.
struct ShownEntry {
  DatabaseEntry entry;
  std::optional<Miss> miss;  // nothing: valid here
};

struct MergeSummary {
  std::string output;
  std::vector<std::string> inputs;
  size_t entries = 0;
  bool is_changed = false;
};

struct VersionReport {
  std::string cotune;
  std::string abi;
  uint32_t database_schema = 0;
  std::string compiler;
};

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_REPORTS_H_
