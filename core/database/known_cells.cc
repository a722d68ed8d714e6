#include "core/database/known_cells.h"

#include <algorithm>
#include <utility>

#include "core/database/cell_codec.h"
#include "core/ranks/step_record.pb.h"

namespace cotune {

std::string EncodeKnownCells(const std::vector<std::optional<DecidedCell>>& cells) {
  proto::KnownCellList message;
  for (const std::optional<DecidedCell>& known : cells) {
    std::string* bytes = message.add_cells();
    if (known && known->winner) {
      *bytes = EncodeCell(DatabaseEntry{{}, known->cell, *known->winner, "", 0});
    }
  }
  return message.SerializeAsString();
}

Result<std::vector<std::optional<DecidedCell>>> DecodeKnownCells(std::string_view bytes) {
  proto::KnownCellList message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Fail(ErrorCode::kDatabase, "the known cells of rank 0 cannot be read", "", "",
                "start all ranks from one build");
  }
  std::vector<std::optional<DecidedCell>> cells;
  for (const std::string& encoded : message.cells()) {
    cells.emplace_back();
    if (encoded.empty()) continue;
    COTUNE_TRY(DatabaseEntry entry, DecodeCell(encoded));
    cells.back() = DecidedCell{std::move(entry.cell), std::move(entry.winner)};
  }
  return cells;
}

// Lines of text, three a choice.
std::string EncodeLeftOut(const std::vector<LeftOutChoice>& left_out) {
  std::string text;
  for (const LeftOutChoice& each : left_out) {
    std::string reason = each.reason;
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    text += each.problem_class + "\n" + each.choice + "\n" + reason + "\n";
  }
  return text;
}

Result<std::vector<LeftOutChoice>> DecodeLeftOut(std::string_view bytes) {
  std::vector<LeftOutChoice> left_out;
  const auto take_line = [&] {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string line(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    return line;
  };
  if (std::count(bytes.begin(), bytes.end(), '\n') % 3 != 0 ||
      (!bytes.empty() && bytes.back() != '\n')) {
    return Fail(ErrorCode::kDatabase, "the choices that rank 0 leaves out cannot be read", "", "",
                "start all ranks from one build");
  }
  while (!bytes.empty()) {
    LeftOutChoice each;
    each.problem_class = take_line();
    each.choice = take_line();
    each.reason = take_line();
    left_out.push_back(std::move(each));
  }
  return left_out;
}

}  // namespace cotune
