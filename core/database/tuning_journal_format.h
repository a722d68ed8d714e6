// The bytes of a journal: a header, then records. Pure.
#ifndef COTUNE_CORE_DATABASE_TUNING_JOURNAL_FORMAT_H_
#define COTUNE_CORE_DATABASE_TUNING_JOURNAL_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/database/tuned_database_entry.h"

namespace cotune {

// Whether the tune that writes it takes what the database has, or measures all anew.
enum class JournalKind : uint32_t { kTune = 0, kForcedTune = 1 };

// One choice in one cell that a tune is about to launch for the first time, or whose plan it makes.
// No choice: nothing that was noted before has ended the tune.
struct JournalAttempt {
  std::string problem_class;  // ToText
  uint64_t bytes = 0;
  std::string choice;  // id text
  // The builds of the choice's backends, as far as the journal has them. Reading fills it; records
  // have no builds of their own.
  PluginBuilds builds{};
  bool operator==(const JournalAttempt&) const = default;
  // At any size: a choice that ends tunes is left out of all sizes.
  bool IsOfSameChoice(const JournalAttempt& other) const {
    return problem_class == other.problem_class && choice == other.choice;
  }
  // Returns true if the choice has other code in a tune with the builds `here`, so that its end in
  // an earlier tune shows nothing. A build that is unknown on one side is not compared. Journals
  // before version 10 have no builds: to leave out a choice that was mended, with a warning that
  // has the way to try it again, is better than to end another tune by one that was not.
  bool IsOfOtherBuild(const PluginBuilds& here) const;
};

// A rank begins to make the plan of a choice, or it is done with it.
struct JournalPrepare {
  JournalAttempt attempt;
  int rank = 0;
  bool is_over = false;
};

// A choice that has ended a tune. Views, so that a handler of a crash can make one.
struct BlameText {
  std::string_view problem_class;
  uint64_t bytes = 0;
  std::string_view choice;
  int rank = 0;
  std::string_view how;       // "SIGSEGV in"; "" when it is not known how the tune ended
  std::string_view function;  // "launch"
};
struct JournalBlame {
  JournalAttempt attempt;
  int rank = 0;
  std::string how;  // "SIGSEGV in launch"; "": the tune's processes vanished while it ran
  // True when the choice is known to be at fault: processes also vanish for other reasons.
  bool is_certain() const { return !how.empty(); }
  bool operator==(const JournalBlame&) const = default;
};

// magic "COTUNEJL" | version u32 | kind u32, little-endian.
std::string JournalHeader(JournalKind kind);

// The builds of the tune that begins, which hold for all attempts, prepares and blames up to the
// next such record: a handler of a crash has no memory to look them up. A rank that outlives its
// tune by so much that its blame follows the builds of the next tune is taken for one of those.
struct JournalBuilds {
  PluginBuilds builds;
};

// length u32 | XXH3-64 of the payload | payload; integers little-endian. The payload is a letter
// for what it is, and a cell (EncodeCell) or lines of text.
std::string EncodeJournalRecord(const DatabaseEntry& entry);
std::string EncodeJournalRecord(const JournalAttempt& attempt);
std::string EncodeJournalRecord(const JournalPrepare& prepare);
std::string EncodeJournalRecord(const JournalBlame& blame);
std::string EncodeJournalRecord(const JournalBuilds& builds);
// The same without memory of its own, for signal handlers. The record's bytes, 0 when it does not
// fit.
size_t EncodeBlameRecord(const BlameText& blame, std::span<char> out);

// The whole records of a journal. One that was cut off or damaged is left out: those behind it
// count, since several processes append to the file, each unaware of what the others have left.
struct JournalContent {
  bool has_header = false;  // false: the file is empty, or its header was not written to the end
  JournalKind kind = JournalKind::kTune;
  std::vector<DatabaseEntry> entries;
  // In order; without those of choices that a later cell has measured.
  std::vector<JournalBlame> blames;
  // The last record: its tune ended before the choice had been launched on all ranks.
  std::optional<JournalAttempt> open_attempt;
  // Plans that were being made when their tune ended without saying why.
  std::vector<JournalPrepare> open_prepares;
  PluginBuilds builds;      // that hold for what is appended next
  uint64_t lost_bytes = 0;  // behind the header, and in no whole record
};
// Removes those of choices that the cell has, of whatever build: the cell is the later one, and
// blames of builds that are gone would add up.
void DropBlamesOf(const CellResult& cell, std::vector<JournalBlame>& blames);
// kDatabase: not a journal, another version or kind, or a record with a right checksum that is
// none.
Result<JournalContent> DecodeJournal(std::string_view bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_TUNING_JOURNAL_FORMAT_H_
