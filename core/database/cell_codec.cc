#include "core/database/cell_codec.h"

#include <optional>
#include <utility>

#include "core/database/cell_codec_records.h"
#include "fmt/format.h"

namespace cotune {

std::string EncodeCell(const DatabaseEntry& entry) {
  const std::string problem_class = ToText(entry.cell.problem.cls);
  TextTable table;
  table.AddTextsOf(entry);
  table.Add(problem_class);
  table.Freeze();
  proto::CellRecord record;
  for (std::string_view text : table.texts()) record.add_texts(text.data(), text.size());
  *record.mutable_fingerprint() = ToRecord(entry.fingerprint);
  record.set_problem_class(table.Reference(problem_class));
  record.set_count(entry.cell.problem.count);
  record.set_topology_digest(entry.cell.problem.topology_digest);
  record.set_program_digest(entry.cell.problem.cls.program_digest);
  record.set_winner(table.Reference(entry.winner.id.text()));
  record.set_measured_unix_s(entry.measured_unix_s);
  record.set_program_text(entry.program_text);
  *record.mutable_detail() = ToDetailRecord(entry, table);
  return record.SerializeAsString();
}

Result<DatabaseEntry> DecodeCell(std::string_view bytes) {
  proto::CellRecord record;
  if (bytes.empty() || bytes.size() > INT32_MAX ||
      !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return BadField("(all)", fmt::format("{} bytes are not a cell", bytes.size()));
  }
  const TextLookup text_of = [&record](uint32_t reference) -> std::optional<std::string_view> {
    if (reference > static_cast<uint32_t>(record.texts_size())) return std::nullopt;
    return record.texts(static_cast<int>(reference) - 1);
  };
  COTUNE_TRY(Fingerprint fingerprint, FromRecord(record.fingerprint()));
  COTUNE_TRY(ChoiceId winner, ReadChoice(record.winner(), text_of, "winner"));
  COTUNE_TRY(const ProblemClass cls, ReadProblemClass(record.problem_class(), text_of));
  DatabaseEntry entry{
      .fingerprint = std::move(fingerprint), .cell = {}, .winner = {.id = std::move(winner)}};
  entry.cell.problem = {cls, record.count(), record.topology_digest()};
  entry.cell.problem.cls.program_digest = record.program_digest();
  entry.measured_unix_s = record.measured_unix_s();
  entry.program_text = record.program_text();
  COTUNE_RETURN_IF_ERROR(CheckProgramText(entry.program_text, record.program_digest()));
  COTUNE_RETURN_IF_ERROR(ReadDetailRecord(record.detail(), text_of, entry));
  return entry;
}

}  // namespace cotune
