// Between entries and the protobuf records of tuned_database.proto, with texts kept in a table:
// shared by the codec of a single cell and by the database file, where many cells share one table.
#ifndef COTUNE_CORE_DATABASE_CELL_CODEC_RECORDS_H_
#define COTUNE_CORE_DATABASE_CELL_CODEC_RECORDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/database/tuned_database.pb.h"
#include "core/database/tuned_database_entry.h"

namespace cotune {

// Distinct texts in ascending order and the references to them. Add every text, Freeze, then ask.
// Texts outlive it.
class TextTable {
 public:
  void Add(std::string_view text) {
    // Most texts come many times, and a hash is found sooner than a place in order.
    if (!text.empty() && references_.try_emplace(text, 0).second) texts_.insert(text);
  }
  // Every text of the cell and its winner; not its problem class.
  void AddTextsOf(const CellResult& cell, const Winner& winner);
  // These, and the cotune version.
  void AddTextsOf(const DatabaseEntry& entry);
  void Freeze();
  const std::set<std::string_view>& texts() const { return texts_; }
  // 0 for "", else 1 + position. The text was added before Freeze.
  uint32_t Reference(std::string_view text) const;

 private:
  std::set<std::string_view> texts_;
  std::unordered_map<std::string_view, uint32_t> references_;
};

// Gives the text of a reference > 0, or nullopt when there is none.
using TextLookup = std::function<std::optional<std::string_view>(uint32_t reference)>;

proto::FingerprintRecord ToRecord(const Fingerprint& fingerprint);
proto::CellDetailRecord ToDetailRecord(const DatabaseEntry& entry, const TextTable& table);
// The same without a cotune version.
proto::CellDetailRecord ToDetailRecord(const CellResult& cell, const Winner& winner,
                                       const TextTable& table);

// kDatabase naming the field.
Result<Fingerprint> FromRecord(const proto::FingerprintRecord& record);
// Reads a required text reference as a choice id; `field` names it in the error.
Result<ChoiceId> ReadChoice(uint32_t reference, const TextLookup& text_of, std::string_view field);
// Fills what ToDetailRecord wrote into `entry`, whose winner id is set already. kDatabase naming
// the field.
Status ReadDetailRecord(const proto::CellDetailRecord& record, const TextLookup& text_of,
                        DatabaseEntry& entry);
// The same without a cotune version.
Status ReadDetailRecord(const proto::CellDetailRecord& record, const TextLookup& text_of,
                        CellResult& cell, Winner& winner);

// Reads a required text reference as the text of a problem class.
Result<ProblemClass> ReadProblemClass(uint32_t reference, const TextLookup& text_of);

// The digest of the program that a canonical text stands for. kDatabase when it is no such text.
Result<uint64_t> DigestOfProgramText(std::string_view text);
// kDatabase when the text, unless it is "", is not the canonical one of the program with the
// digest.
Status CheckProgramText(std::string_view text, uint64_t digest);

// A field that holds what cannot be: kDatabase with the field, the cause and what to do.
tl::unexpected<Error> BadField(std::string_view field, std::string cause);

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_CELL_CODEC_RECORDS_H_
