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
#include "core/selection/next_best.h"
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
// The same in words, for messages: "all_reduce sum f32 in place", with ", symmetric buffers" and
// ", program 0123456789abcdef" if that applies.
std::string InWords(const DispatchKey& key);

// One measured size and its next best choices, which may be none.
struct NextBestOfSize {
  uint64_t bytes = 0;
  NextBest next_best;
  bool operator==(const NextBestOfSize&) const = default;
};

// One row as it is built, committed and printed.
struct DispatchRow {
  DispatchKey key;
  std::vector<SizeRange> ranges;  // ascending, without gaps, 0..UINT64_MAX
  uint64_t smallest_bytes = 0;    // that was measured; in the first range
  // Strictly ascending by size: all measured sizes, or none if they are not known.
  std::vector<NextBestOfSize> next_best{};
  bool operator==(const DispatchRow&) const = default;

  // The row of a key whose measured sizes have these winners, as for MergeRanges, and these next
  // best choices, which are given for the same sizes or not at all.
  static DispatchRow Of(const DispatchKey& key,
                        std::span<const std::pair<uint64_t, ChoiceId>> winners,
                        std::vector<NextBestOfSize> next_best = {});
};

// Immutable once built: any number of threads may use one object.
//
// A key without a row of its own is looked up in the row of its nearest relative: a row of the same
// collective, memory kind and buffer class. If there are several, the nearest one counts:
// 1. by reduction: the same one, then sum, then the others in the order of the enumeration;
// 2. then by dtype: the same one, then the closest element width, so that equal width comes first;
// 3. then by place: the own one, in place or out of place, before the other one;
// 4. then by the order of the enumeration of dtypes.
// The reduction comes first because it decides which choices can run a call at all, while ranges,
// which are in bytes, hold for every dtype that a choice can move. Programs have no relatives.
// A key of symmetric buffers has a relative only if the key of plain buffers has no row of its own:
// such a row was measured for this very call, and the dispatcher falls back to it.
class DispatchTable {
 public:
  // An empty table: every lookup gives kNoChoice, which means the backend's own default.
  DispatchTable() = default;
  // Rows in any order. kInternal when two rows have the same key, ranges are not total and
  // ascending, the smallest measured size is beyond the first of them, or sizes with next best
  // choices do not ascend.
  static Result<DispatchTable> Build(std::vector<DispatchRow> rows);

  static constexpr int32_t kNoChoice = -1;
  // Index into choices(), or kNoChoice. A row of registered buffers has none below its smallest
  // measured size where smaller ones were measured on plain buffers: what wins on registered ones
  // uses that they are, which costs small calls time. [hot]: any thread, no lock, no allocation.
  int32_t Lookup(const DispatchKey& key, uint64_t bytes) const noexcept;
  // The key of the row that decides: the own one or that of the nearest relative. If neither has a
  // choice for the size, it is the row that decides for plain buffers, or the key of plain buffers
  // itself if there is no such row.
  DispatchKey DecidingKey(const DispatchKey& key, uint64_t bytes) const;
  // The range that Lookup finds, from where it is in force; nothing where Lookup gives kNoChoice.
  std::optional<SizeRange> RangeOf(const DispatchKey& key, uint64_t bytes) const;
  // The measured size whose winner Lookup finds, with the choices that are tried if the winner does
  // not run the call, the fastest first. nullptr: Lookup gives kNoChoice, or measured sizes are not
  // known.
  const NextBestOfSize* MeasuredSizeOf(const DispatchKey& key, uint64_t bytes) const;
  // The next best choices of that size; empty if there is none.
  const NextBest& NextBestOf(const DispatchKey& key, uint64_t bytes) const;
  // The row of this very key; nullptr: there is none.
  const DispatchRow* Find(const DispatchKey& key) const;
  // The row by which calls of a key without a row of its own run; nullptr: it has one, or there is
  // no relative.
  const DispatchRow* RelativeOf(const DispatchKey& key) const;

  const std::vector<ChoiceId>& choices() const { return choices_; }  // distinct, ascending
  const std::vector<DispatchRow>& rows() const { return rows_; }     // ascending by key

  // Canonical bytes: equal tables give equal bytes. This is what the ranks commit.
  std::string Serialize() const;
  // kDatabase with field and cause; also when the bytes are readable but not canonical.
  static Result<DispatchTable> Parse(std::string_view bytes);

  bool operator==(const DispatchTable& other) const { return rows_ == other.rows_; }

 private:
  static constexpr uint32_t kBucketsPerRow = 66;  // bit widths 0..64, and the end of the last
  // A key and the row that decides for it, which is its own or that of its nearest relative.
  struct Slot {
    uint64_t packed_key = 0;
    uint64_t program_digest = 0;
    uint32_t first_bucket = 0;  // kBucketsPerRow * the row
    bool used = false;
  };
  // nullptr: no row decides for the key.
  const Slot* FindSlot(const DispatchKey& key) const noexcept;
  const DispatchRow* DecidingRow(const DispatchKey& key) const;
  uint64_t FirstBytes(const DispatchRow& row) const;
  void Compile();
  void CollectChoices();
  void CompileRow(const DispatchRow& row);
  // Keys without a row whose relatives are the rows first..last-1, each with its nearest one. The
  // rows have one collective, and among them those of one memory kind and buffer class count.
  using Derived = std::vector<std::pair<DispatchKey, uint32_t>>;
  void DeriveKeys(uint32_t first, uint32_t last, Derived& derived) const;
  void PutSlot(const DispatchKey& key, uint32_t row);

  std::vector<DispatchRow> rows_;
  std::vector<ChoiceId> choices_;
  // Open addressing, power of two, at most a quarter full: one for each row, and for each key with
  // a relative. The latter are 728 at most: for each of two kinds of memory and two classes of
  // buffers 7 dtypes and 2 places, with 5 reductions of two collectives and without one of the
  // other three.
  std::vector<Slot> slots_;
  // kBucketsPerRow a row, in the order of rows_: index of the first range that can hold a size of
  // that bit width. The range of a size lies from its own entry to the next one, both included.
  std::vector<uint32_t> buckets_;
  std::vector<uint64_t> range_ends_;
  std::vector<int32_t> range_choices_;  // kNoChoice where a row is not in force
};

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_DISPATCH_TABLE_H_
