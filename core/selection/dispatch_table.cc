#include "core/selection/dispatch_table.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/check.h"
#include "core/selection/dispatch_key_record.h"
#include "core/selection/dispatch_table.pb.h"
#include "fmt/format.h"

namespace cotune {
namespace {

uint64_t PackedKey(const DispatchKey& key) noexcept {
  return static_cast<uint64_t>(key.collective) | static_cast<uint64_t>(key.dtype) << 8 |
         static_cast<uint64_t>(key.reduction) << 16 | static_cast<uint64_t>(key.memory) << 24 |
         static_cast<uint64_t>(key.buffer_class) << 32 | static_cast<uint64_t>(key.in_place) << 40;
}

uint64_t Mix(uint64_t packed_key, uint64_t program_digest) noexcept {
  // Two odd multipliers and a fold of the high half, which is where a product mixes best.
  const uint64_t product =
      (packed_key ^ program_digest * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
  return product ^ product >> 32;
}

DispatchKey OnPlainBuffers(DispatchKey key) {
  key.buffer_class = BufferClass::kPlain;
  return key;
}

// The distance of a row of the same collective, memory kind and buffer class from a key; see
// DispatchTable. The nearest row has the least one. Rows with equal distances have the same key.
struct Distance {
  uint32_t reduction = 0;
  bool is_other_dtype = false;
  uint64_t width_bytes = 0;
  bool is_other_place = false;
  Dtype dtype = Dtype::kF32;
  auto operator<=>(const Distance&) const = default;
};

Distance DistanceOf(const DispatchKey& key, const DispatchKey& row) {
  Distance distance;
  if (row.reduction != key.reduction) {
    const bool is_sum = row.reduction == Reduction::kSum;
    distance.reduction = is_sum ? 1 : 2 + static_cast<uint32_t>(row.reduction);
  }
  const uint64_t own_bytes = SizeBytes(key.dtype);
  const uint64_t row_bytes = SizeBytes(row.dtype);
  distance.is_other_dtype = row.dtype != key.dtype;
  distance.width_bytes = std::max(own_bytes, row_bytes) - std::min(own_bytes, row_bytes);
  distance.is_other_place = row.in_place != key.in_place;
  distance.dtype = row.dtype;
  return distance;
}

// Returns what is wrong with the ranges of a row, or nothing.
std::string RangeMistake(const DispatchRow& row) {
  const std::vector<SizeRange>& ranges = row.ranges;
  if (ranges.empty()) return "there is no range";
  uint64_t expected_first = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].first_bytes != expected_first) {
      return fmt::format("range {} begins at {} bytes, not at {}", i, ranges[i].first_bytes,
                         expected_first);
    }
    if (ranges[i].end_bytes <= ranges[i].first_bytes) {
      return fmt::format("range {} ends at {} bytes, at or before its begin", i,
                         ranges[i].end_bytes);
    }
    expected_first = ranges[i].end_bytes;
  }
  if (expected_first != UINT64_MAX) {
    return fmt::format("the last range ends at {} bytes, so larger sizes have none",
                       expected_first);
  }
  for (size_t i = 1; i < row.next_best.size(); ++i) {
    if (row.next_best[i - 1].bytes < row.next_best[i].bytes) continue;
    return fmt::format("next best choices for {} bytes come after those for {}",
                       row.next_best[i].bytes, row.next_best[i - 1].bytes);
  }
  if (row.smallest_bytes >= ranges.front().end_bytes) {
    return fmt::format("{} bytes, the smallest measured size, are beyond the first range",
                       row.smallest_bytes);
  }
  return "";
}

tl::unexpected<Error> BadTable(std::string where, std::string cause) {
  return Fail(ErrorCode::kDatabase, "a dispatch table cannot be read", std::move(where),
              std::move(cause), "start all ranks from one build of cotune");
}

Result<DispatchRow> ReadRow(const proto::DispatchRowRecord& record,
                            const std::vector<ChoiceId>& choices, const std::string& where) {
  COTUNE_TRY(const DispatchKey key, ReadKey(record, where));
  if (record.range_ends_bytes_size() != record.range_choices_size()) {
    return BadTable(where + ", field range_choices",
                    fmt::format("{} choices for {} ranges", record.range_choices_size(),
                                record.range_ends_bytes_size()));
  }
  DispatchRow row{key, {}, record.smallest_bytes(), {}};
  uint64_t first_bytes = 0;
  for (int i = 0; i < record.range_ends_bytes_size(); ++i) {
    if (record.range_choices(i) >= choices.size()) {
      return BadTable(where + ", field range_choices",
                      fmt::format("choice {} of {}", record.range_choices(i), choices.size()));
    }
    row.ranges.push_back(
        {first_bytes, record.range_ends_bytes(i), choices[record.range_choices(i)]});
    first_bytes = record.range_ends_bytes(i);
  }
  if (record.next_best_bytes_size() != record.next_best_counts_size()) {
    return BadTable(where + ", field next_best_counts",
                    fmt::format("{} counts for {} sizes", record.next_best_counts_size(),
                                record.next_best_bytes_size()));
  }
  COTUNE_TRY(std::vector<NextBest> lists, ReadNextBest(record, choices, where));
  for (size_t i = 0; i < lists.size(); ++i) {
    row.next_best.push_back({record.next_best_bytes(static_cast<int>(i)), std::move(lists[i])});
  }
  return row;
}

}  // namespace

void WriteKey(const DispatchKey& key, proto::DispatchRowRecord& record) {
  record.set_collective(static_cast<uint32_t>(key.collective));
  record.set_dtype(static_cast<uint32_t>(key.dtype));
  record.set_reduction(static_cast<uint32_t>(key.reduction));
  record.set_memory(static_cast<uint32_t>(key.memory));
  record.set_buffer_class(static_cast<uint32_t>(key.buffer_class));
  record.set_in_place(key.in_place);
  record.set_program_digest(key.program_digest);
}

Result<DispatchKey> ReadKey(const proto::DispatchRowRecord& record, const std::string& where) {
  DispatchKey key;
  key.collective = static_cast<Collective>(record.collective());
  key.dtype = static_cast<Dtype>(record.dtype());
  key.reduction = static_cast<Reduction>(record.reduction());
  key.memory = static_cast<MemoryKind>(record.memory());
  key.buffer_class = static_cast<BufferClass>(record.buffer_class());
  key.in_place = record.in_place();
  key.program_digest = record.program_digest();
  const auto bad = [&](const char* field, uint32_t value) {
    return BadTable(where + ", field " + field, fmt::format("value {} is not known", value));
  };
  if (record.collective() > 255 || Name(key.collective) == "invalid")
    return bad("collective", record.collective());
  if (record.dtype() > 255 || Name(key.dtype) == "invalid") return bad("dtype", record.dtype());
  if (record.reduction() > 255 || Name(key.reduction) == "invalid")
    return bad("reduction", record.reduction());
  if (record.memory() < 1 || record.memory() > 2) return bad("memory", record.memory());
  if (record.buffer_class() > 1) return bad("buffer_class", record.buffer_class());
  return key;
}

void WriteNextBest(const NextBest& next_best,
                   const std::function<uint32_t(const ChoiceId&)>& position_of,
                   proto::DispatchRowRecord& record) {
  record.add_next_best_counts(static_cast<uint32_t>(next_best.choices().size()));
  for (const ChoiceId& choice : next_best.choices()) record.add_next_best(position_of(choice));
}

Result<std::vector<NextBest>> ReadNextBest(const proto::DispatchRowRecord& record,
                                           const std::vector<ChoiceId>& choices,
                                           const std::string& where) {
  std::vector<NextBest> lists;
  int at = 0;
  for (const uint32_t count : record.next_best_counts()) {
    if (count > static_cast<uint32_t>(record.next_best_size() - at)) {
      return BadTable(
          where + ", field next_best_counts",
          fmt::format("more choices than the {} that there are", record.next_best_size()));
    }
    std::vector<ChoiceId> list;
    for (const int end = at + static_cast<int>(count); at < end; ++at) {
      const uint32_t position = record.next_best(at);
      if (position >= choices.size()) {
        return BadTable(where + ", field next_best",
                        fmt::format("choice {} of {}", position, choices.size()));
      }
      list.push_back(choices[position]);
    }
    lists.emplace_back(std::move(list));
  }
  if (at != record.next_best_size()) {
    return BadTable(where + ", field next_best", fmt::format("{} choices, and {} belong to a size",
                                                             record.next_best_size(), at));
  }
  return lists;
}

DispatchKey DispatchKey::Of(const ProblemClass& cls) {
  return {cls.collective,   cls.dtype,    cls.reduction,     cls.memory,
          cls.buffer_class, cls.in_place, cls.program_digest};
}

DispatchRow DispatchRow::Of(const DispatchKey& key,
                            std::span<const std::pair<uint64_t, ChoiceId>> winners,
                            std::vector<NextBestOfSize> next_best) {
  COTUNE_CHECK(!winners.empty(), "a row has a winner");
  COTUNE_CHECK(next_best.empty() || next_best.size() == winners.size(),
               "next best choices are given for all sizes or for none");
  // A call without data says nothing of those with data.
  if (winners.front().first == 0 && winners.size() > 1) {
    winners = winners.subspan(1);
    if (!next_best.empty()) next_best.erase(next_best.begin());
  }
  return {key, MergeRanges(winners), winners.front().first, std::move(next_best)};
}

std::string ToText(const DispatchKey& key) {
  std::string text = fmt::format("{}/{}/{}/{}/{}/{}", Name(key.collective), Name(key.reduction),
                                 Name(key.dtype), Name(key.memory), Name(key.buffer_class),
                                 key.in_place ? "in_place" : "out_of_place");
  if (key.program_digest != 0) text += fmt::format("/program{:016x}", key.program_digest);
  return text;
}

std::string InWords(const DispatchKey& key) {
  std::string text(Name(key.collective));
  if (key.reduction != Reduction::kNone) text += fmt::format(" {}", Name(key.reduction));
  text += fmt::format(" {} {}", Name(key.dtype), key.in_place ? "in place" : "out of place");
  if (key.buffer_class != BufferClass::kPlain) {
    text += fmt::format(", {} buffers", Name(key.buffer_class));
  }
  if (key.program_digest != 0) text += fmt::format(", program {:016x}", key.program_digest);
  return text;
}

Result<DispatchTable> DispatchTable::Build(std::vector<DispatchRow> rows) {
  std::sort(rows.begin(), rows.end(),
            [](const DispatchRow& a, const DispatchRow& b) { return a.key < b.key; });
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string mistake = RangeMistake(rows[i]);
    if (!mistake.empty()) {
      return Fail(ErrorCode::kInternal, "a row of the dispatch table is malformed",
                  ToText(rows[i].key), mistake);
    }
    if (i > 0 && rows[i - 1].key == rows[i].key) {
      return Fail(ErrorCode::kInternal, "two rows of the dispatch table have the same key",
                  ToText(rows[i].key));
    }
  }
  DispatchTable table;
  table.rows_ = std::move(rows);
  table.Compile();
  return table;
}

const DispatchRow* DispatchTable::Find(const DispatchKey& key) const {
  const auto is_before = [](const DispatchRow& a, const DispatchKey& b) { return a.key < b; };
  const auto found = std::lower_bound(rows_.begin(), rows_.end(), key, is_before);
  return found != rows_.end() && found->key == key ? &*found : nullptr;
}

// From where on a row is in force.
uint64_t DispatchTable::FirstBytes(const DispatchRow& row) const {
  const DispatchRow* plain = Find(OnPlainBuffers(row.key));
  const bool has_smaller = plain != nullptr && plain->smallest_bytes < row.smallest_bytes;
  return has_smaller ? row.smallest_bytes : 0;
}

// Inline, because Lookup is called for every collective.
[[gnu::always_inline]] inline const DispatchTable::Slot* DispatchTable::FindSlot(
    const DispatchKey& key) const noexcept {
  if (slots_.empty()) return nullptr;
  const uint64_t packed_key = PackedKey(key);
  const size_t mask = slots_.size() - 1;
  size_t at = Mix(packed_key, key.program_digest) & mask;
  while (slots_[at].packed_key != packed_key || slots_[at].program_digest != key.program_digest) {
    if (!slots_[at].used) return nullptr;
    at = (at + 1) & mask;
  }
  // A key of all zero bits equals an empty slot.
  return slots_[at].used ? &slots_[at] : nullptr;
}

const DispatchRow* DispatchTable::DecidingRow(const DispatchKey& key) const {
  const Slot* slot = FindSlot(key);
  return slot == nullptr ? nullptr : &rows_[slot->first_bucket / kBucketsPerRow];
}

const DispatchRow* DispatchTable::RelativeOf(const DispatchKey& key) const {
  const DispatchRow* row = DecidingRow(key);
  return row != nullptr && row->key != key ? row : nullptr;
}

DispatchKey DispatchTable::DecidingKey(const DispatchKey& key, uint64_t bytes) const {
  const bool has_choice = Lookup(key, bytes) != kNoChoice;
  const DispatchKey deciding = has_choice ? key : OnPlainBuffers(key);
  const DispatchRow* row = DecidingRow(deciding);
  return row == nullptr ? deciding : row->key;
}

std::optional<SizeRange> DispatchTable::RangeOf(const DispatchKey& key, uint64_t bytes) const {
  const DispatchRow* row = DecidingRow(key);
  if (row == nullptr || bytes < FirstBytes(*row)) return std::nullopt;
  size_t at = 0;
  while (at + 1 < row->ranges.size() && bytes >= row->ranges[at].end_bytes) ++at;
  SizeRange range = row->ranges[at];
  if (at == 0) range.first_bytes = FirstBytes(*row);
  return range;
}

const NextBestOfSize* DispatchTable::MeasuredSizeOf(const DispatchKey& key, uint64_t bytes) const {
  const DispatchRow* row = DecidingRow(key);
  if (row == nullptr || row->next_best.empty() || bytes < FirstBytes(*row)) return nullptr;
  // As the ranges: the geometric mean of two measured sizes belongs to the larger one.
  const auto is_nearer = [bytes](const NextBestOfSize& below, const NextBestOfSize& above) {
    if (bytes <= below.bytes) return false;
    using Wide = unsigned __int128;
    return Wide{bytes} * bytes >= Wide{below.bytes} * above.bytes;
  };
  size_t at = 0;
  while (at + 1 < row->next_best.size() && is_nearer(row->next_best[at], row->next_best[at + 1])) {
    ++at;
  }
  return &row->next_best[at];
}

const NextBest& DispatchTable::NextBestOf(const DispatchKey& key, uint64_t bytes) const {
  static const NextBest none;
  const NextBestOfSize* size = MeasuredSizeOf(key, bytes);
  return size == nullptr ? none : size->next_best;
}

void DispatchTable::Compile() {
  if (rows_.empty()) return;
  CollectChoices();
  for (const DispatchRow& row : rows_) CompileRow(row);
  Derived derived;
  for (uint32_t first = 0, end = 0; first < rows_.size(); first = end) {
    end = first;
    while (end < rows_.size() && rows_[end].key.collective == rows_[first].key.collective) ++end;
    DeriveKeys(first, end, derived);
  }
  slots_.resize(std::bit_ceil((rows_.size() + derived.size()) * 4));
  for (uint32_t row = 0; row < rows_.size(); ++row) PutSlot(rows_[row].key, row);
  for (const auto& [key, row] : derived) PutSlot(key, row);
}

void DispatchTable::CollectChoices() {
  std::unordered_set<std::string_view> seen;
  std::unordered_set<const void*> seen_lists;
  const auto add = [&](const ChoiceId& choice) {
    if (seen.insert(choice.text()).second) choices_.push_back(choice);
  };
  for (const DispatchRow& row : rows_) {
    for (const SizeRange& range : row.ranges) add(range.choice);
    for (const NextBestOfSize& each : row.next_best) {
      const std::vector<ChoiceId>& choices = each.next_best.choices();
      if (!seen_lists.insert(&choices).second) continue;
      for (const ChoiceId& choice : choices) add(choice);
    }
  }
  std::sort(choices_.begin(), choices_.end());
}

void DispatchTable::DeriveKeys(uint32_t first, uint32_t last, Derived& derived) const {
  std::map<std::pair<MemoryKind, BufferClass>, std::vector<uint32_t>> relatives;
  for (uint32_t row = first; row < last; ++row) {
    const DispatchKey& key = rows_[row].key;
    if (key.program_digest == 0) relatives[{key.memory, key.buffer_class}].push_back(row);
  }
  const Collective collective = rows_[first].key.collective;
  constexpr Reduction kNoReduction[] = {Reduction::kNone};
  const std::span<const Reduction> reductions =
      Reduces(collective) ? AllReductions() : std::span<const Reduction>(kNoReduction);
  const auto derive = [&](const DispatchKey& key, const std::vector<uint32_t>& rows) {
    if (Find(key) != nullptr) return;
    if (key.buffer_class == BufferClass::kSymmetric && Find(OnPlainBuffers(key)) != nullptr) return;
    const auto nearest = std::min_element(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
      return DistanceOf(key, rows_[a].key) < DistanceOf(key, rows_[b].key);
    });
    derived.emplace_back(key, *nearest);
  };
  for (const auto& [where, rows] : relatives) {
    for (const Dtype dtype : AllDtypes()) {
      for (const Reduction reduction : reductions) {
        for (const bool in_place : {false, true}) {
          derive({collective, dtype, reduction, where.first, where.second, in_place, 0}, rows);
        }
      }
    }
  }
}

void DispatchTable::PutSlot(const DispatchKey& key, uint32_t row) {
  const uint64_t packed_key = PackedKey(key);
  size_t at = Mix(packed_key, key.program_digest) & (slots_.size() - 1);
  while (slots_[at].used) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {packed_key, key.program_digest, row * kBucketsPerRow, true};
}

void DispatchTable::CompileRow(const DispatchRow& row) {
  auto range_at = static_cast<uint32_t>(range_ends_.size());
  // In front of what is left of the first range.
  if (const uint64_t first_bytes = FirstBytes(row); first_bytes > 0) {
    range_ends_.push_back(first_bytes);
    range_choices_.push_back(kNoChoice);
  }
  for (const SizeRange& range : row.ranges) {
    range_ends_.push_back(range.end_bytes);
    const auto choice = std::lower_bound(choices_.begin(), choices_.end(), range.choice);
    range_choices_.push_back(static_cast<int32_t>(choice - choices_.begin()));
  }
  for (int width = 0; width <= 64; ++width) {
    const uint64_t smallest = width == 0 ? 0 : uint64_t{1} << (width - 1);
    while (range_ends_[range_at] <= smallest) ++range_at;
    buckets_.push_back(range_at);
  }
  buckets_.push_back(static_cast<uint32_t>(range_ends_.size() - 1));
}

int32_t DispatchTable::Lookup(const DispatchKey& key, uint64_t bytes) const noexcept {
  const Slot* slot = FindSlot(key);
  if (slot == nullptr) return kNoChoice;
  const uint32_t* bucket = &buckets_[slot->first_bucket + std::bit_width(bytes)];
  uint32_t low = bucket[0];
  uint32_t high = bucket[1];
  // The range lies in low..high: `high` holds the smallest size of the next width or is the last,
  // whose end of UINT64_MAX is never compared, so that it holds UINT64_MAX too. A step does not
  // jump, because a processor cannot predict how a size compares with the ends.
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const bool is_behind = bytes >= range_ends_[middle];
    low = is_behind ? middle + 1 : low;
    high = is_behind ? high : middle;
  }
  return range_choices_[low];
}

std::string DispatchTable::Serialize() const {
  std::unordered_map<std::string_view, uint32_t> positions;
  proto::DispatchTableRecord record;
  for (const ChoiceId& choice : choices_) {
    positions.emplace(choice.text(), static_cast<uint32_t>(positions.size()));
    record.add_choices(choice.text());
  }
  for (const DispatchRow& row : rows_) {
    proto::DispatchRowRecord* out = record.add_rows();
    WriteKey(row.key, *out);
    out->set_smallest_bytes(row.smallest_bytes);
    for (const SizeRange& range : row.ranges) {
      out->add_range_ends_bytes(range.end_bytes);
      out->add_range_choices(positions.at(range.choice.text()));
    }
    for (const NextBestOfSize& each : row.next_best) {
      out->add_next_best_bytes(each.bytes);
      WriteNextBest(
          each.next_best, [&](const ChoiceId& choice) { return positions.at(choice.text()); },
          *out);
    }
  }
  return record.SerializeAsString();
}

Result<DispatchTable> DispatchTable::Parse(std::string_view bytes) {
  proto::DispatchTableRecord record;
  if (bytes.size() > INT32_MAX ||
      !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return BadTable(fmt::format("{} bytes", bytes.size()), "they are not a table");
  }
  std::vector<ChoiceId> choices;
  for (const std::string& text : record.choices()) {
    Result<ChoiceId> choice = ChoiceId::Parse(text);
    if (!choice) return BadTable(fmt::format("choice {}", choices.size()), choice.error().ToText());
    choices.push_back(std::move(*choice));
  }
  std::vector<DispatchRow> rows;
  for (const proto::DispatchRowRecord& row_record : record.rows()) {
    COTUNE_TRY(DispatchRow row, ReadRow(row_record, choices, fmt::format("row {}", rows.size())));
    rows.push_back(std::move(row));
  }
  Result<DispatchTable> table = Build(std::move(rows));
  if (!table) return BadTable(table.error().where, table.error().what + ": " + table.error().cause);
  if (table->Serialize() != bytes)
    return BadTable("", "the bytes are not the canonical form of their content");
  return table;
}

}  // namespace cotune
