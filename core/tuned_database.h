// The tuned database: what was measured, where, and with which versions; an immutable protobuf file.
#ifndef COTUNE_CORE_TUNED_DATABASE_H_
#define COTUNE_CORE_TUNED_DATABASE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dispatch_table.h"
#include "core/selection.h"
#include "core/status.h"
#include "core/verdict.h"

namespace cotune {

// The machine and software of a measurement, as named fields. Equal on all ranks. The loader compares field by field.
struct Fingerprint {
  // Machine and topology: "cpu_model", "cores", "numa_nodes", "memory_kind", "gpu"..., ascending by name.
  std::map<std::string, std::string> machine;
  // Version of every backend that took part, by backend name.
  std::map<std::string, std::string> backends;
  std::string measuring_mode;  // "eager", "graph"
  auto operator<=>(const Fingerprint&) const = default;
};

// One measured cell with its winner.
struct DatabaseEntry {
  Fingerprint fingerprint;
  CellResult cell;
  Winner winner;
  std::string cotune_version;
  int64_t measured_unix_s = 0;
};

// Why an entry is not used here.
enum class MissReason { kNoEntry, kMachineDiffers, kBackendMissing, kBackendVersionDiffers, kChoiceUnknown };
struct Miss {
  MissReason reason = MissReason::kNoEntry;
  std::string detail;  // field, value in the file, value here
};

// A set of entries, unique by (fingerprint, problem class, program digest, count). Value type; not thread-safe.
class TunedDatabase {
 public:
  static constexpr uint32_t kSchemaVersion = 1;
  static constexpr uint64_t kFileBytesMax = 256ull * 1024 * 1024;

  // Adds or replaces the entry of the same identity. The newer measurement wins.
  void Put(DatabaseEntry entry);
  // Union; on the same identity the newer measurement wins, then the one with more samples, then the smaller bytes, so
  // that the result does not depend on the order.
  void Merge(const TunedDatabase& other);

  // The entry for this problem that is valid under `here`, or why there is none. An entry is valid when its machine
  // fields equal here's and every backend that took part has the same version here: one changed backend invalidates only
  // entries in which it took part.
  tl::expected<const DatabaseEntry*, Miss> Find(const Problem& problem, uint64_t program_digest,
                                                const Fingerprint& here) const;

  // The dispatch table of all entries valid under `here` for groups of this shape.
  Result<DispatchTable> BuildTable(int32_t world_size, int32_t ranks_per_node, const Fingerprint& here) const;

  // Canonical order: by fingerprint, class, digest, count.
  const std::vector<DatabaseEntry>& entries() const;
  bool empty() const { return entries().empty(); }

  // Canonical bytes: a header (magic, schema version, length, checksum), then protobuf. Equal content, equal bytes.
  std::string Serialize() const;
  // kDatabase naming what is wrong: not a cotune database, newer schema, truncated, checksum, field.
  static Result<TunedDatabase> Parse(std::string_view bytes);

  // File forms. Load: kDatabase with the path; a file that does not exist is kEnvironment. Refuses links and files over
  // kFileBytesMax. Save: temporary name in the same folder, fsync, rename, fsync of the folder; the old file is intact on
  // any failure.
  static Result<TunedDatabase> Load(const std::string& path);
  Status Save(const std::string& path) const;
};

// The append-only journal of a running tune, beside the database: PATH.journal. One writer (rank 0), guarded by a lock
// file that dies with its process.
class TuningJournal {
 public:
  // Takes the lock on the database (kDatabase naming the other process when a second tune runs), replays records that
  // are whole, and cuts a torn tail off.
  static Result<std::unique_ptr<TuningJournal>> Open(const std::string& database_path);
  virtual ~TuningJournal() = default;
  // What an interrupted tune had measured.
  virtual const std::vector<DatabaseEntry>& replayed() const = 0;
  // Durable when it returns.
  virtual Status Append(const DatabaseEntry& entry) = 0;
  // After the database was saved with everything in it: removes the journal.
  virtual Status Clear() = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_TUNED_DATABASE_H_
