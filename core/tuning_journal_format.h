// The bytes of a journal: a header, then records. Pure.
#ifndef COTUNE_CORE_TUNING_JOURNAL_FORMAT_H_
#define COTUNE_CORE_TUNING_JOURNAL_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/tuned_database_entry.h"

namespace cotune {

// Whether the tune that writes it takes what the database has, or measures all anew.
enum class JournalKind : uint32_t { kTune = 0, kForcedTune = 1 };

// magic "COTUNEJL" | version u32 | kind u32, little-endian.
std::string JournalHeader(JournalKind kind);

// length u32 | XXH3-64 of the payload | payload (EncodeCell); integers little-endian.
std::string EncodeJournalRecord(const DatabaseEntry& entry);

// The whole records at the front of a journal and how many bytes they and the header take. 0 bytes
// for a file whose header was not written to the end.
struct JournalContent {
  JournalKind kind = JournalKind::kTune;
  std::vector<DatabaseEntry> entries;
  uint64_t whole_bytes = 0;
};
// kDatabase: not a journal, another version or kind, or a record with a right checksum that is no
// cell.
Result<JournalContent> DecodeJournal(std::string_view bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_TUNING_JOURNAL_FORMAT_H_
