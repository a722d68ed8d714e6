#include "core/known_cells.h"

#include "core/cell_codec.h"
#include "core/step_record.pb.h"

namespace cotune {

std::string EncodeKnownCells(const std::vector<std::optional<CellResult>>& cells) {
  proto::KnownCellList message;
  for (const std::optional<CellResult>& cell : cells) {
    std::string* bytes = message.add_cells();
    if (!cell) continue;
    const Result<Winner> winner = SelectWinner(*cell, SelectionRules{});
    if (winner) *bytes = EncodeCell(DatabaseEntry{{}, *cell, *winner, "", 0});
  }
  return message.SerializeAsString();
}

Result<std::vector<std::optional<CellResult>>> DecodeKnownCells(std::string_view bytes) {
  proto::KnownCellList message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Fail(ErrorCode::kDatabase, "the known cells of rank 0 cannot be read", "", "",
                "start all ranks from one build");
  }
  std::vector<std::optional<CellResult>> cells;
  for (const std::string& encoded : message.cells()) {
    cells.emplace_back();
    if (encoded.empty()) continue;
    Result<DatabaseEntry> entry = DecodeCell(encoded);
    if (!entry) return tl::make_unexpected(entry.error());
    cells.back() = std::move(entry->cell);
  }
  return cells;
}

}  // namespace cotune
