// The tuned database: what was measured, where, and with which versions; an immutable protobuf
// file.
#ifndef COTUNE_CORE_DATABASE_TUNED_DATABASE_H_
#define COTUNE_CORE_DATABASE_TUNED_DATABASE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/database/tuned_database_entry.h"
#include "core/database/tuned_database_format.h"
#include "core/database/tuned_database_header.h"
#include "core/selection/dispatch_table.h"
#include "core/selection/measured_winners.h"

namespace cotune {

// Why an entry is not used here.
enum class MissReason {
  kNoEntry,
  kMachineDiffers,
  kBackendMissing,
  kBackendVersionDiffers,
  kBackendBuildDiffers,  // the version is the same
  kChoiceUnknown,        // the winner's backend did not take part by the entry's own words
  kConnectionsDiffer,
  kUnreadable,  // the details of the entry hold what cannot be
};
const char* MissReasonName(MissReason reason);  // "no_entry", "machine_differs", ...
struct Miss {
  MissReason reason = MissReason::kNoEntry;
  std::string detail;  // field, value in the file, value here
};

// Judges under `here` an entry that `winner` has won under `there`. It is valid, nullopt, when the
// machine fields and the measuring mode are equal, the winner's backend is here, and no backend
// that took part has another version, other settings or another build here. One that has lost and
// is not here at all changes nothing, nor does one that is here and did not take part: the winner
// may not be the best one here, and still runs. A build that was not written down counts as another
// one, and a backend without a build here is compared by its version alone. The ranks must reach
// each other in the same ways as there, as far as it is known here: over another network, or
// between other GPUs, another choice may win.
std::optional<Miss> WhyNotValid(const Fingerprint& there, const ChoiceId& winner,
                                const Fingerprint& here);

// Backends that are here and did not take part in what was measured under `there`, ascending.
std::vector<std::string> BackendsThatDidNotRace(const Fingerprint& there, const Fingerprint& here);

// A set of entries, unique by (fingerprint, problem class, program digest, count). Value type;
// several threads may call const methods of one object. What loading does not need stays bytes
// until it is asked for; an entry whose bytes then turn out to be malformed, which the checksum
// makes the work of a faulty writer, is an error at that moment.
class TunedDatabase {
 public:
  static constexpr uint32_t kSchemaVersion = kDatabaseSchemaVersion;
  static constexpr uint64_t kFileBytesMax = 256ull * 1024 * 1024;

  // Adds the entry or, on the same identity, keeps the one that Merge would.
  void Put(DatabaseEntry entry);
  // Union; on the same identity a steady measurement wins over an unsteady one, whatever their age,
  // then the newer one, then the one with more samples, then the smaller bytes (EncodeCell), so
  // that the result does not depend on the order. A readable entry wins over an unreadable one.
  void Merge(const TunedDatabase& other);
  // Union; on the same identity the entry of `newer` counts, whatever their clocks say.
  void Replace(const TunedDatabase& newer);
  // Removes the entries that an entry of `fresh` supersedes: one of the same problem whose
  // fingerprint differs in the builds of backends and in nothing else.
  void DropOtherBuilds(const TunedDatabase& fresh);

  // The entry for this problem that is valid under `here`, or why there is none: the nearest reason
  // over all entries for it. Of several valid ones (their backends differ) the one in which most of
  // the backends here took part, then the newest, then the one with most backends. The problem's
  // topology digest is not compared: it follows from the machine fields.
  tl::expected<DatabaseEntry, Miss> Find(const Problem& problem, const Fingerprint& here) const;
  // The row of that entry, whose details are not read and may be malformed; it lives until the
  // database is changed.
  tl::expected<const DatabaseRow*, Miss> FindRow(const Problem& problem,
                                                 const Fingerprint& here) const;

  // The dispatch table of all entries valid under `here` for groups of this shape; at each size the
  // one that Find gives. Roots of a broadcast share a row: the smallest root measured at a size
  // counts. Reads no details.
  Result<DispatchTable> BuildTable(int32_t world_size, int32_t ranks_per_node,
                                   const Fingerprint& here) const;
  // The winners that this table is made from.
  MeasuredWinners Winners(int32_t world_size, int32_t ranks_per_node,
                          const Fingerprint& here) const;

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  // The part of every entry that dispatch needs, without decoding the rest. Canonical order: by
  // fingerprint, class, digest, count.
  const std::vector<DatabaseRow>& rows() const { return rows_; }
  // All entries, decoded, in canonical order. kDatabase when one is unreadable.
  Result<std::vector<DatabaseEntry>> entries() const;

  // Canonical bytes: a header (magic, schema version, length, checksum), then protobuf. Equal
  // content, equal bytes. kDatabase when an entry is unreadable, so that nothing is dropped, or
  // when there would be more than kFileBytesMax.
  Result<std::string> Serialize() const;
  // kDatabase naming what is wrong: not a cotune database, newer schema, truncated, checksum,
  // field.
  static Result<TunedDatabase> Parse(std::string_view bytes);

  // File forms. Load: kDatabase with the path; a file that does not exist or may not be read is
  // kEnvironment. Refuses links, what is not a regular file, files that somebody else can change
  // or exchange (core/base/file_trust.h) and files over kFileBytesMax. Save: temporary name in the
  // same folder, fsync, rename, fsync of the folder; the old file is intact on any failure. A file
  // that exists keeps its mode. Whoever saves holds a DatabaseLock since before it loaded, and
  // merges: Save itself replaces the file.
  static Result<TunedDatabase> Load(const std::string& path);
  Status Save(const std::string& path) const;

 private:
  void PutRow(DatabaseRow row);
  using TakesTheirs = std::function<bool(const DatabaseRow& mine, const DatabaseRow& theirs)>;
  void Unite(const TunedDatabase& other, const TakesTheirs& takes_theirs);
  static Result<TunedDatabase> FromBytes(std::string bytes);
  std::vector<DatabaseRow> rows_;  // strictly ascending by IsBefore
};

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_TUNED_DATABASE_H_
