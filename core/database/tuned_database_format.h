// The bytes of a tuned database: header, index, texts, details. Pure: no file is touched here.
#ifndef COTUNE_CORE_DATABASE_TUNED_DATABASE_FORMAT_H_
#define COTUNE_CORE_DATABASE_TUNED_DATABASE_FORMAT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/database/tuned_database_entry.h"
#include "core/selection/next_best.h"

namespace cotune {

struct DatabaseImage;  // the bytes of a file and where its parts lie; immutable

// One entry: what finding, dispatching and merging need, and where the rest is. Copies share it.
struct DatabaseRow {
  std::shared_ptr<const Fingerprint> fingerprint;
  Problem problem;
  std::shared_ptr<const ChoiceId> winner;
  int64_t measured_unix_s = 0;
  uint64_t samples = 0;                               // over all verdicts
  NextBest next_best{};                               // Winner::next_best
  bool is_unsteady = false;                           // CellResult::is_unsteady
  std::shared_ptr<const std::string> program_text{};  // nullptr: a single collective, or unknown

  // Exactly one of the two: the entry itself, or its place in a file that is decoded when asked
  // for.
  std::shared_ptr<const DatabaseEntry> entry;
  std::shared_ptr<const DatabaseImage> image;
  uint32_t position = 0;

  static DatabaseRow Of(DatabaseEntry entry);
  // The whole entry. kDatabase when its details, which loading does not read, hold what cannot be.
  Result<DatabaseEntry> Decode() const;
};

// Ascending by fingerprint, class, program digest, count: the identity of an entry and the order of
// a file.
bool IsBefore(const DatabaseRow& a, const DatabaseRow& b);

// Canonical bytes of rows that are strictly ascending by IsBefore. kDatabase when the details of
// one cannot be read.
Result<std::string> EncodeDatabase(const std::vector<DatabaseRow>& rows);

// Checks the header, the checksum and the index, not the details. kDatabase says what is wrong.
Result<std::vector<DatabaseRow>> DecodeDatabase(std::string bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_TUNED_DATABASE_FORMAT_H_
