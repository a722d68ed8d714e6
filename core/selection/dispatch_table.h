// Which choice runs a call: immutable, lock-free, no allocation on lookup.
#ifndef COTUNE_CORE_SELECTION_DISPATCH_TABLE_H_
#define COTUNE_CORE_SELECTION_DISPATCH_TABLE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/problem/problem.h"
#include "core/selection/select_winner.h"

namespace cotune {

// The key that a call is looked up by, besides its bytes. Equal on all ranks by construction. A
// table belongs to one group, so the group is not in the key.
struct DispatchKey {
  Collective collective = Collective::kAllReduce;
  Dtype dtype = Dtype::kF32;
  Reduction reduction = Reduction::kNone;
  MemoryKind memory = MemoryKind::kHost;
  BufferClass buffer_class = BufferClass::kPlain;
  bool in_place = false;
  uint64_t program_digest = 0;  // 0: a single collective

  static DispatchKey Of(const ProblemClass& cls);
  auto operator<=>(const DispatchKey&) const = default;
};

// "all_reduce/sum/f32/host/plain/out_of_place", with "/program0123456789abcdef" for a larger
// program.
std::string ToText(const DispatchKey& key);

// One row as it is built, committed and printed.
struct DispatchRow {
  DispatchKey key;
  std::vector<SizeRange> ranges;  // ascending, without gaps, 0..UINT64_MAX
  uint64_t smallest_bytes = 0;    // that was measured; in the first range
  bool operator==(const DispatchRow&) const = default;

  // The row of a key whose measured sizes have these winners, as for MergeRanges.
  static DispatchRow Of(const DispatchKey& key,
                        std::span<const std::pair<uint64_t, ChoiceId>> winners);
};

// Immutable once built: any number of threads may use one object.
class DispatchTable {
 public:
  // An empty table: every lookup gives kNoChoice, which means the backend's own default.
  DispatchTable() = default;
  // Rows in any order. kInternal when two rows have the same key, ranges are not total and
  // ascending, or the smallest measured size is beyond the first of them.
  static Result<DispatchTable> Build(std::vector<DispatchRow> rows);

  static constexpr int32_t kNoChoice = -1;
  // Index into choices(), or kNoChoice. A row of registered buffers has none below its smallest
  // measured size where smaller ones were measured on plain buffers: what wins on registered ones
  // uses that they are, which costs small calls time. [hot]: any thread, no lock, no allocation.
  int32_t Lookup(const DispatchKey& key, uint64_t bytes) const noexcept;
  // The key whose row decides: that of plain buffers where the key's own has no choice for the
  // size.
  DispatchKey DecidingKey(const DispatchKey& key, uint64_t bytes) const;
  // The range that Lookup finds, from where it is in force; nothing where Lookup gives kNoChoice.
  std::optional<SizeRange> RangeOf(const DispatchKey& key, uint64_t bytes) const;
  // nullptr: there is none.
  const DispatchRow* Find(const DispatchKey& key) const;

  const std::vector<ChoiceId>& choices() const { return choices_; }  // distinct, ascending
  const std::vector<DispatchRow>& rows() const { return rows_; }     // ascending by key

  // Canonical bytes: equal tables give equal bytes. This is what the ranks commit.
  std::string Serialize() const;
  // kDatabase with field and cause; also when the bytes are readable but not canonical.
  static Result<DispatchTable> Parse(std::string_view bytes);

  bool operator==(const DispatchTable& other) const { return rows_ == other.rows_; }

 private:
  static constexpr uint32_t kBucketsPerRow = 66;  // bit widths 0..64, and the end of the last
  // One row compiled for lookup: where its ranges start for each bit width of a size.
  struct Slot {
    uint64_t packed_key = 0;
    uint64_t program_digest = 0;
    uint32_t first_bucket = 0;
    bool used = false;
  };
  uint64_t FirstBytes(const DispatchRow& row) const;
  void Compile();
  void CompileRow(const DispatchRow& row);

  std::vector<DispatchRow> rows_;
  std::vector<ChoiceId> choices_;
  std::vector<Slot> slots_;  // open addressing, power of two, at most half full
  // kBucketsPerRow a row: index of the first range that can hold a size of that bit width. The
  // range of a size lies from its own entry to the next one, both included.
  std::vector<uint32_t> buckets_;
  std::vector<uint64_t> range_ends_;
  std::vector<int32_t> range_choices_;  // kNoChoice where a row is not in force
};

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_DISPATCH_TABLE_H_
