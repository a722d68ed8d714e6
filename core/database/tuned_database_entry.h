// An entry of the tuned database: one measured cell, where and with which versions it was measured.
#ifndef COTUNE_CORE_DATABASE_TUNED_DATABASE_ENTRY_H_
#define COTUNE_CORE_DATABASE_TUNED_DATABASE_ENTRY_H_

#include <cstdint>
#include <map>
#include <string>

#include "core/selection/select_winner.h"
#include "core/selection/verdict.h"

namespace cotune {

// In Fingerprint::connections, beside the names of backends, which have no capitals.
inline constexpr char kGpuConnections[] = "GPUs";

// The build id of a backend's plugin, by the backend's name. A backend whose table is registered in
// the process has none.
using PluginBuilds = std::map<std::string, std::string>;

// The machine and software of a measurement, as named fields. Equal on all ranks. The loader
// compares field by field.
struct Fingerprint {
  // Machine and topology: "cpu_model", "cores", "numa_nodes", "memory_kind", "gpu"..., ascending by
  // name. What Problem::topology_digest is made of belongs here: entries are told apart by these
  // fields, not by the digest.
  std::map<std::string, std::string> machine;
  // Version of every backend that took part, by backend name.
  std::map<std::string, std::string> backends;
  std::string measuring_mode;  // "eager", "graph"
  // The connections between the ranks of the group in words: for each backend that took part and
  // has such a text, by its name ("tcp/eth0 between all ranks"), and for their GPUs, by
  // kGpuConnections. Unknown ones are absent, and so are all for a job without groups.
  std::map<std::string, std::string> connections{};
  // The builds of the backends that took part, as far as they are known: a plugin that is mended
  // and rebuilt may keep its version.
  PluginBuilds builds{};
  auto operator<=>(const Fingerprint&) const = default;
};

// One measured cell with its winner.
struct DatabaseEntry {
  Fingerprint fingerprint;
  CellResult cell;
  Winner winner;
  std::string cotune_version{};
  int64_t measured_unix_s = 0;
  // Canonical text of the program that cell.problem.cls.program_digest names; "" for a single
  // collective, and where a cotune wrote the entry that did not keep it.
  std::string program_text{};
  bool operator==(const DatabaseEntry&) const = default;
};

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_TUNED_DATABASE_ENTRY_H_
