#include "core/selection/measured_winners.h"

#include <utility>
#include <vector>

#include "core/selection/dispatch_key_record.h"
#include "fmt/format.h"

namespace cotune {
namespace {

tl::unexpected<Error> BadWinners(std::string where, std::string cause) {
  return Fail(ErrorCode::kDatabase, "measured winners cannot be read", std::move(where),
              std::move(cause), "start all ranks from one build of cotune");
}

}  // namespace

void MeasuredWinners::Put(const DispatchKey& key, uint64_t bytes, MeasuredWinner winner) {
  rows_[key].insert_or_assign(bytes, std::move(winner));
}

void MeasuredWinners::Erase(const DispatchKey& key, uint64_t bytes) {
  const auto row = rows_.find(key);
  if (row == rows_.end()) return;
  row->second.erase(bytes);
  if (row->second.empty()) rows_.erase(row);
}

void MeasuredWinners::Erase(const DispatchKey& key) { rows_.erase(key); }

void MeasuredWinners::PutProgram(uint64_t digest, std::string text) {
  program_texts_.insert_or_assign(digest, std::move(text));
}

size_t MeasuredWinners::size() const {
  size_t sizes = 0;
  for (const auto& [key, winners] : rows_) sizes += winners.size();
  return sizes;
}

Result<DispatchTable> MeasuredWinners::BuildTable() const {
  std::vector<DispatchRow> rows;
  for (const auto& [key, winners] : rows_) {
    std::vector<std::pair<uint64_t, ChoiceId>> sizes;
    std::vector<NextBestOfSize> next_best;
    for (const auto& [bytes, winner] : winners) {
      sizes.emplace_back(bytes, winner.id);
      next_best.push_back({bytes, winner.next_best});
    }
    rows.push_back(DispatchRow::Of(key, sizes, std::move(next_best)));
  }
  return DispatchTable::Build(std::move(rows));
}

std::string MeasuredWinners::Serialize() const {
  std::map<std::string_view, uint32_t> positions;
  for (const auto& [key, winners] : rows_) {
    for (const auto& [bytes, winner] : winners) {
      positions.emplace(winner.id.text(), 0);
      for (const ChoiceId& next : winner.next_best.choices()) positions.emplace(next.text(), 0);
    }
  }
  proto::MeasuredWinnersRecord record;
  for (auto& [text, position] : positions) {
    position = static_cast<uint32_t>(record.choices_size());
    record.add_choices(std::string(text));
  }
  for (const auto& [key, winners] : rows_) {
    proto::DispatchRowRecord* row = record.add_rows();
    WriteKey(key, *row);
    for (const auto& [bytes, winner] : winners) {
      row->add_range_ends_bytes(bytes);
      row->add_range_choices(positions.at(winner.id.text()));
      WriteNextBest(
          winner.next_best, [&](const ChoiceId& next) { return positions.at(next.text()); }, *row);
    }
  }
  for (const auto& [digest, text] : program_texts_) {
    proto::ProgramTextRecord* program = record.add_programs();
    program->set_digest(digest);
    program->set_text(text);
  }
  return record.SerializeAsString();
}

Result<MeasuredWinners> MeasuredWinners::Parse(std::string_view bytes) {
  proto::MeasuredWinnersRecord record;
  if (bytes.size() > INT32_MAX ||
      !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return BadWinners(fmt::format("{} bytes", bytes.size()), "they are no winners");
  }
  std::vector<ChoiceId> choices;
  for (const std::string& text : record.choices()) {
    Result<ChoiceId> choice = ChoiceId::Parse(text);
    if (!choice) {
      return BadWinners(fmt::format("choice {}", choices.size()), choice.error().ToText());
    }
    choices.push_back(std::move(*choice));
  }
  MeasuredWinners winners;
  for (const proto::DispatchRowRecord& row : record.rows()) {
    const std::string where = fmt::format("row {}", winners.rows_.size());
    const Result<DispatchKey> key = ReadKey(row, where);
    if (!key) return BadWinners(key.error().where, key.error().cause);
    if (row.range_ends_bytes_size() != row.range_choices_size() ||
        row.range_ends_bytes_size() != row.next_best_counts_size()) {
      return BadWinners(where, "sizes, winners and lists of next best choices differ in number");
    }
    Result<std::vector<NextBest>> next_best = ReadNextBest(row, choices, where);
    if (!next_best) return BadWinners(next_best.error().where, next_best.error().cause);
    for (int i = 0; i < row.range_choices_size(); ++i) {
      if (row.range_choices(i) >= choices.size()) {
        return BadWinners(where,
                          fmt::format("choice {} of {}", row.range_choices(i), choices.size()));
      }
      winners.Put(*key, row.range_ends_bytes(i),
                  MeasuredWinner{choices[row.range_choices(i)],
                                 std::move((*next_best)[static_cast<size_t>(i)])});
    }
  }
  for (const proto::ProgramTextRecord& program : record.programs()) {
    winners.PutProgram(program.digest(), program.text());
  }
  return winners;
}

}  // namespace cotune
