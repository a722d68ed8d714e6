#include "core/database/tuned_database_format.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "core/base/little_endian.h"
#include "core/database/cell_codec_records.h"
#include "core/database/tuned_database.pb.h"
#include "core/database/tuned_database_header.h"
#include "fmt/format.h"

namespace cotune {

// The payload: index length u64 | DatabaseIndex | text region | detail region.
struct DatabaseImage {
  std::string bytes;
  std::string_view texts;
  std::string_view details;
  std::vector<uint32_t> text_ends;    // in texts; files are under 4 GiB
  std::vector<uint32_t> detail_ends;  // in details

  std::optional<std::string_view> TextOf(uint32_t reference) const {
    if (reference == 0 || reference > text_ends.size()) return std::nullopt;
    const uint32_t begin = reference == 1 ? 0 : text_ends[reference - 2];
    return texts.substr(begin, text_ends[reference - 1] - begin);
  }
  std::string_view DetailAt(uint32_t position) const {
    const uint32_t begin = position == 0 ? 0 : detail_ends[position - 1];
    return details.substr(begin, detail_ends[position] - begin);
  }
};

namespace {

constexpr uint32_t kFirstSchemaWithNextBest = 7;

uint64_t CountSamples(const CellResult& cell) {
  uint64_t samples = 0;
  for (const Verdict& verdict : cell.verdicts) samples += verdict.samples_ns.size();
  return samples;
}

// Positions of distinct values in ascending order.
template <typename T>
std::map<T, uint32_t> Positions(std::map<T, uint32_t> values) {
  uint32_t position = 0;
  for (auto& [value, at] : values) at = position++;
  return values;
}

// Running sums of the lengths in a column. kDatabase when they do not add up to the region.
Status ReadEnds(const google::protobuf::RepeatedField<uint32_t>& lengths, uint64_t region_bytes,
                const char* field, std::vector<uint32_t>& ends) {
  uint64_t end = 0;
  ends.reserve(static_cast<size_t>(lengths.size()));
  for (uint32_t length : lengths) {
    end += length;
    if (end > region_bytes) break;
    ends.push_back(static_cast<uint32_t>(end));
  }
  if (end != region_bytes) {
    return BadField(field, fmt::format("lengths add up to {} bytes or more, the region has {}", end,
                                       region_bytes));
  }
  return {};
}

// Reads one index into the rows of a file.
class IndexReader {
 public:
  IndexReader(const proto::DatabaseIndex& index, std::shared_ptr<const DatabaseImage> image)
      : index_(index),
        image_(std::move(image)),
        has_next_best_(DatabaseSchemaOf(image_->bytes) >= kFirstSchemaWithNextBest) {}

  Result<std::vector<DatabaseRow>> Read() {
    Status read = CheckColumns();
    if (read) read = ReadFingerprints();
    if (read) read = ReadClasses();
    if (read) read = ReadPrograms();
    rows_.reserve(static_cast<size_t>(index_.fingerprint_size()));
    for (int i = 0; read && i < index_.fingerprint_size(); ++i) read = ReadRow(i);
    COTUNE_RETURN_IF_ERROR(read);
    if (has_next_best_ && next_best_at_ != index_.next_best_size()) {
      return BadField("next_best", fmt::format("{} references, and {} belong to entries",
                                               index_.next_best_size(), next_best_at_));
    }
    return std::move(rows_);
  }

 private:
  Status CheckColumns() const {
    const int entries = index_.fingerprint_size();
    const std::pair<const char*, int> columns[] = {
        {"problem_class", index_.problem_class_size()},
        {"program_digest", index_.program_digest_size()},
        {"count", index_.count_size()},
        {"topology_digest", index_.topology_digest_size()},
        {"winner", index_.winner_size()},
        {"measured_unix_s", index_.measured_unix_s_size()},
        {"samples", index_.samples_size()},
        {"detail_bytes", index_.detail_bytes_size()},
        {"next_best_counts", has_next_best_ ? index_.next_best_counts_size() : entries},
        {"is_unsteady", has_next_best_ ? index_.is_unsteady_size() : entries},
    };
    for (const auto& [field, elements] : columns) {
      if (elements != entries)
        return BadField(field, fmt::format("{} elements for {} entries", elements, entries));
    }
    return {};
  }

  Status ReadFingerprints() {
    for (const proto::FingerprintRecord& record : index_.fingerprints()) {
      COTUNE_TRY(Fingerprint fingerprint, FromRecord(record));
      if (!fingerprints_.empty() && !(*fingerprints_.back() < fingerprint)) {
        return BadField("fingerprints",
                        fmt::format("number {} is not in order", fingerprints_.size()));
      }
      fingerprints_.push_back(std::make_shared<const Fingerprint>(std::move(fingerprint)));
    }
    return {};
  }

  Status ReadClasses() {
    for (const std::string& text : index_.problem_classes()) {
      const Result<ProblemClass> cls = ParseProblemClass(text);
      if (!cls) return BadField("problem_classes", cls.error().ToText());
      if (!classes_.empty() && !(classes_.back() < *cls)) {
        return BadField("problem_classes", fmt::format("'{}' is not in order", text));
      }
      classes_.push_back(*cls);
    }
    return {};
  }

  Status ReadPrograms() {
    std::string_view last;
    for (const std::string& text : index_.program_texts()) {
      if (text <= last) return BadField("program_texts", "they are not in order");
      last = text;
      COTUNE_TRY(const uint64_t digest, DigestOfProgramText(text));
      programs_.emplace(digest, std::make_shared<const std::string>(text));
    }
    return {};
  }

  std::shared_ptr<const std::string> ProgramOf(uint64_t digest) const {
    const auto found = programs_.find(digest);
    return found == programs_.end() ? nullptr : found->second;
  }

  Status ReadRow(int i) {
    if (index_.fingerprint(i) >= fingerprints_.size()) return BadPosition("fingerprint", i);
    if (index_.problem_class(i) >= classes_.size()) return BadPosition("problem_class", i);
    COTUNE_TRY(std::shared_ptr<const ChoiceId> winner, WinnerOf(index_.winner(i)));
    if (i > 0 && Identity(i) <= Identity(i - 1)) {
      return BadField("count", fmt::format("entry {} is not in order", i));
    }
    // Calls count bytes in 63 bits, and so does whatever is computed from an entry.
    ProblemClass cls = classes_[index_.problem_class(i)];
    cls.program_digest = index_.program_digest(i);
    const uint64_t elements_max =
        INT64_MAX / (SizeBytes(cls.dtype) * static_cast<uint64_t>(std::max(1, cls.world_size)));
    if (index_.count(i) > elements_max) {
      return BadField("count", fmt::format("entry {} has {} elements, more than memory can hold", i,
                                           index_.count(i)));
    }
    COTUNE_TRY(NextBest next_best, ReadNextBest(i));
    rows_.push_back({.fingerprint = fingerprints_[index_.fingerprint(i)],
                     .problem = {cls, index_.count(i), index_.topology_digest(i)},
                     .winner = std::move(winner),
                     .measured_unix_s = index_.measured_unix_s(i),
                     .samples = index_.samples(i),
                     .next_best = std::move(next_best),
                     .is_unsteady = has_next_best_ && index_.is_unsteady(i),
                     .program_text = ProgramOf(cls.program_digest),
                     .entry = nullptr,
                     .image = image_,
                     .position = static_cast<uint32_t>(i)});
    return {};
  }

  // In the order of IsBefore, because the tables are ascending.
  std::tuple<uint32_t, uint32_t, uint64_t, uint64_t> Identity(int i) const {
    return {index_.fingerprint(i), index_.problem_class(i), index_.program_digest(i),
            index_.count(i)};
  }

  // Each distinct id is parsed once.
  Result<std::shared_ptr<const ChoiceId>> WinnerOf(uint32_t reference) {
    auto [at, is_new] = winners_.try_emplace(reference);
    if (is_new) {
      COTUNE_TRY(ChoiceId choice,
                 ReadChoice(
                     reference, [this](uint32_t r) { return image_->TextOf(r); }, "winner"));
      at->second = std::make_shared<const ChoiceId>(std::move(choice));
    }
    return at->second;
  }

  // Each distinct list is made once. Entries are read in their order.
  Result<NextBest> ReadNextBest(int i) {
    if (!has_next_best_) return NextBest();
    const uint32_t count = index_.next_best_counts(i);
    if (count > static_cast<uint32_t>(index_.next_best_size() - next_best_at_)) {
      return BadField(
          "next_best_counts",
          fmt::format("entry {} has more than the {} that there are", i, index_.next_best_size()));
    }
    const uint32_t* const references = index_.next_best().data() + next_best_at_;
    next_best_at_ += static_cast<int>(count);
    const std::string_view list(reinterpret_cast<const char*>(references),
                                count * sizeof(uint32_t));
    auto [at, is_new] = next_best_.try_emplace(list);
    if (is_new) {
      std::vector<ChoiceId> choices;
      for (const uint32_t reference : std::span(references, count)) {
        COTUNE_TRY(ChoiceId choice,
                   ReadChoice(
                       reference, [this](uint32_t r) { return image_->TextOf(r); }, "next_best"));
        choices.push_back(std::move(choice));
      }
      at->second = NextBest(std::move(choices));
    }
    return at->second;
  }

  Status BadPosition(const char* field, int i) const {
    return BadField(field, fmt::format("entry {} points behind the table", i));
  }

  const proto::DatabaseIndex& index_;
  std::shared_ptr<const DatabaseImage> image_;
  const bool has_next_best_;  // and is_unsteady
  int next_best_at_ = 0;      // in index_.next_best(): that of the next entry
  std::unordered_map<std::string_view, NextBest> next_best_;  // by the bytes of their references
  std::vector<std::shared_ptr<const Fingerprint>> fingerprints_;
  std::vector<ProblemClass> classes_;
  std::unordered_map<uint32_t, std::shared_ptr<const ChoiceId>> winners_;
  std::unordered_map<uint64_t, std::shared_ptr<const std::string>> programs_;  // by digest
  std::vector<DatabaseRow> rows_;
};

Result<DatabaseEntry> DecodeFromImage(const DatabaseRow& row) {
  const DatabaseImage& image = *row.image;
  const std::string_view bytes = image.DetailAt(row.position);
  proto::CellDetailRecord record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return BadField("details",
                    fmt::format("{} bytes of entry {} are not a cell", bytes.size(), row.position));
  }
  DatabaseEntry entry{.fingerprint = *row.fingerprint, .cell = {}, .winner = {.id = *row.winner}};
  entry.cell.problem = row.problem;
  entry.measured_unix_s = row.measured_unix_s;
  COTUNE_RETURN_IF_ERROR(ReadDetailRecord(
      record, [&image](uint32_t r) { return image.TextOf(r); }, entry));
  if (CountSamples(entry.cell) != row.samples) {
    return BadField("samples", fmt::format("{} in the index, {} in the details", row.samples,
                                           CountSamples(entry.cell)));
  }
  if (entry.winner.next_best != row.next_best.choices()) {
    return BadField("next_best", fmt::format("entry {} has others in the index than in the details",
                                             row.position));
  }
  if (entry.cell.is_unsteady != row.is_unsteady) {
    return BadField("is_unsteady", fmt::format("{} in the index, {} in the details",
                                               row.is_unsteady, entry.cell.is_unsteady));
  }
  return entry;
}

// The digest of the program has a column of its own.
ProblemClass WithoutProgram(ProblemClass cls) {
  cls.program_digest = 0;
  return cls;
}

// Builds the parts of a file from entries in canonical order; `programs` are the texts of theirs.
std::string EncodeEntries(const std::vector<std::shared_ptr<const DatabaseEntry>>& entries,
                          const std::set<std::string_view>& programs) {
  TextTable table;
  std::map<Fingerprint, uint32_t> fingerprints;
  std::map<ProblemClass, uint32_t> classes;
  for (const auto& entry : entries) {
    table.AddTextsOf(*entry);
    fingerprints.try_emplace(entry->fingerprint);
    classes.try_emplace(WithoutProgram(entry->cell.problem.cls));
  }
  table.Freeze();
  fingerprints = Positions(std::move(fingerprints));
  classes = Positions(std::move(classes));

  proto::DatabaseIndex index;
  std::string regions;
  for (const auto& [fingerprint, at] : fingerprints)
    *index.add_fingerprints() = ToRecord(fingerprint);
  for (const auto& [cls, at] : classes) index.add_problem_classes(ToText(cls));
  for (const std::string_view text : programs) index.add_program_texts(std::string(text));
  for (std::string_view text : table.texts()) {
    index.add_text_bytes(static_cast<uint32_t>(text.size()));
    regions += text;
  }
  for (const auto& entry : entries) {
    const std::string detail = ToDetailRecord(*entry, table).SerializeAsString();
    index.add_fingerprint(fingerprints.at(entry->fingerprint));
    index.add_problem_class(classes.at(WithoutProgram(entry->cell.problem.cls)));
    index.add_program_digest(entry->cell.problem.cls.program_digest);
    index.add_count(entry->cell.problem.count);
    index.add_topology_digest(entry->cell.problem.topology_digest);
    index.add_winner(table.Reference(entry->winner.id.text()));
    index.add_measured_unix_s(entry->measured_unix_s);
    index.add_samples(CountSamples(entry->cell));
    index.add_detail_bytes(static_cast<uint32_t>(detail.size()));
    for (const ChoiceId& next : entry->winner.next_best) {
      index.add_next_best(table.Reference(next.text()));
    }
    index.add_next_best_counts(static_cast<uint32_t>(entry->winner.next_best.size()));
    index.add_is_unsteady(entry->cell.is_unsteady);
    regions += detail;
  }
  const std::string index_bytes = index.SerializeAsString();
  std::string payload;
  payload.reserve(8 + index_bytes.size() + regions.size());
  AppendLittleEndian(static_cast<uint64_t>(index_bytes.size()), payload);
  payload += index_bytes;
  payload += regions;
  return WithDatabaseHeader(payload);
}

}  // namespace

DatabaseRow DatabaseRow::Of(DatabaseEntry entry) {
  DatabaseRow row;
  row.fingerprint = std::make_shared<const Fingerprint>(entry.fingerprint);
  row.problem = entry.cell.problem;
  row.winner = std::make_shared<const ChoiceId>(entry.winner.id);
  row.measured_unix_s = entry.measured_unix_s;
  row.samples = CountSamples(entry.cell);
  row.next_best = NextBest(entry.winner.next_best);
  row.is_unsteady = entry.cell.is_unsteady;
  if (!entry.program_text.empty()) {
    row.program_text = std::make_shared<const std::string>(entry.program_text);
  }
  row.entry = std::make_shared<const DatabaseEntry>(std::move(entry));
  return row;
}

Result<DatabaseEntry> DatabaseRow::Decode() const {
  Result<DatabaseEntry> decoded = entry != nullptr ? *entry : DecodeFromImage(*this);
  if (decoded && program_text != nullptr) decoded->program_text = *program_text;
  return decoded;
}

bool IsBefore(const DatabaseRow& a, const DatabaseRow& b) {
  if (a.fingerprint != b.fingerprint) {
    const auto order = *a.fingerprint <=> *b.fingerprint;
    if (order != 0) return order < 0;
  }
  return std::tie(a.problem.cls, a.problem.count) < std::tie(b.problem.cls, b.problem.count);
}

Result<std::string> EncodeDatabase(const std::vector<DatabaseRow>& rows) {
  std::vector<std::shared_ptr<const DatabaseEntry>> entries;
  entries.reserve(rows.size());
  std::set<std::string_view> programs;
  for (const DatabaseRow& row : rows) {
    if (row.program_text != nullptr) programs.insert(*row.program_text);
    if (row.entry != nullptr) {
      entries.push_back(row.entry);
      continue;
    }
    COTUNE_TRY(DatabaseEntry entry, row.Decode());
    entries.push_back(std::make_shared<const DatabaseEntry>(std::move(entry)));
  }
  return EncodeEntries(entries, programs);
}

Result<std::vector<DatabaseRow>> DecodeDatabase(std::string bytes) {
  auto image = std::make_shared<DatabaseImage>();
  image->bytes = std::move(bytes);
  COTUNE_TRY(const std::string_view payload, CheckDatabaseHeader(image->bytes));
  if (payload.size() < 8)
    return BadField("index length", fmt::format("the payload has {} bytes", payload.size()));
  const auto index_bytes = ReadLittleEndian<uint64_t>(payload);
  if (index_bytes > payload.size() - 8) {
    return BadField("index length",
                    fmt::format("{} bytes in a payload of {}", index_bytes, payload.size()));
  }
  proto::DatabaseIndex index;
  if (!index.ParseFromArray(payload.data() + 8, static_cast<int>(index_bytes))) {
    return BadField("index", fmt::format("{} bytes are not an index", index_bytes));
  }
  const std::string_view regions = payload.substr(8 + index_bytes);
  uint64_t text_region_bytes = 0;
  for (uint32_t text_bytes : index.text_bytes()) text_region_bytes += text_bytes;
  if (text_region_bytes > regions.size()) {
    return BadField("text_bytes",
                    fmt::format("{} bytes of texts in {}", text_region_bytes, regions.size()));
  }
  image->texts = regions.substr(0, text_region_bytes);
  image->details = regions.substr(text_region_bytes);
  Status read = ReadEnds(index.text_bytes(), image->texts.size(), "text_bytes", image->text_ends);
  if (read)
    read =
        ReadEnds(index.detail_bytes(), image->details.size(), "detail_bytes", image->detail_ends);
  COTUNE_RETURN_IF_ERROR(read);
  return IndexReader(index, std::move(image)).Read();
}

}  // namespace cotune
