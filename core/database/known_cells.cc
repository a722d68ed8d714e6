#include "core/database/known_cells.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/parallel_for.h"
#include "core/database/cell_codec_records.h"
#include "core/database/tuned_database.pb.h"
#include "fmt/format.h"

namespace cotune {

namespace {

bool IsKnown(const std::optional<DecidedCell>& cell) { return cell && cell->winner; }

tl::unexpected<Error> UnreadableList(std::string cause) {
  return Fail(ErrorCode::kDatabase, "the known cells of rank 0 cannot be read", "",
              std::move(cause), "start all ranks from one build");
}

Result<DecidedCell> ReadCell(const proto::KnownCellRecord& record, const TextLookup& text_of) {
  COTUNE_TRY(ChoiceId id, ReadChoice(record.winner(), text_of, "winner"));
  COTUNE_TRY(const ProblemClass cls, ReadProblemClass(record.problem_class(), text_of));
  CellResult cell;
  cell.problem = {cls, record.count(), record.topology_digest()};
  cell.problem.cls.program_digest = record.program_digest();
  Winner winner{.id = std::move(id)};
  COTUNE_RETURN_IF_ERROR(ReadDetailRecord(record.detail(), text_of, cell, winner));
  return DecidedCell{std::move(cell), std::move(winner)};
}

}  // namespace

std::string EncodeKnownCells(const std::vector<std::optional<DecidedCell>>& cells, size_t threads) {
  TextTable table;
  std::map<ProblemClass, std::string> classes;
  for (const std::optional<DecidedCell>& known : cells) {
    if (!IsKnown(known)) continue;
    table.AddTextsOf(known->cell, *known->winner);
    const ProblemClass& cls = known->cell.problem.cls;
    const auto [text, is_new] = classes.try_emplace(cls);
    if (is_new) text->second = ToText(cls);
    table.Add(text->second);
  }
  table.Freeze();
  proto::KnownCellList message;
  for (const std::string_view text : table.texts()) message.add_texts(text.data(), text.size());
  for (size_t i = 0; i < cells.size(); ++i) message.add_cells();
  ParallelFor(cells.size(), threads, [&](size_t i) {
    const std::optional<DecidedCell>& known = cells[i];
    if (!IsKnown(known)) return;
    proto::KnownCellRecord& record = *message.mutable_cells(static_cast<int>(i));
    const Problem& problem = known->cell.problem;
    record.set_winner(table.Reference(known->winner->id.text()));
    record.set_problem_class(table.Reference(classes.at(problem.cls)));
    record.set_count(problem.count);
    record.set_topology_digest(problem.topology_digest);
    record.set_program_digest(problem.cls.program_digest);
    *record.mutable_detail() = ToDetailRecord(known->cell, *known->winner, table);
  });
  return message.SerializeAsString();
}

Result<std::vector<std::optional<DecidedCell>>> DecodeKnownCells(std::string_view bytes,
                                                                 size_t threads) {
  proto::KnownCellList message;
  if (bytes.size() > INT32_MAX ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return UnreadableList(fmt::format("{} bytes are not a list of them", bytes.size()));
  }
  const TextLookup text_of = [&message](uint32_t reference) -> std::optional<std::string_view> {
    if (reference > static_cast<uint32_t>(message.texts_size())) return std::nullopt;
    return message.texts(static_cast<int>(reference) - 1);
  };
  std::vector<std::optional<DecidedCell>> cells(static_cast<size_t>(message.cells_size()));
  std::vector<std::optional<Error>> failures(cells.size());
  ParallelFor(cells.size(), threads, [&](size_t i) {
    const proto::KnownCellRecord& record = message.cells(static_cast<int>(i));
    if (record.winner() == 0) return;
    Result<DecidedCell> cell = ReadCell(record, text_of);
    if (cell) {
      cells[i] = std::move(*cell);
    } else {
      failures[i] = cell.error();
    }
  });
  for (const std::optional<Error>& failure : failures) {
    if (failure) return UnreadableList(failure->ToText());
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
