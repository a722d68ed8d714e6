// The winners of all measured sizes: what a dispatch table is made from, and what is merged when a
// group tunes or loads more.
#ifndef COTUNE_CORE_SELECTION_MEASURED_WINNERS_H_
#define COTUNE_CORE_SELECTION_MEASURED_WINNERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/selection/dispatch_table.h"

namespace cotune {

// The winner of one measured size, and the choices that are tried if it does not run a call.
struct MeasuredWinner {
  ChoiceId id;
  NextBest next_best{};
  bool operator==(const MeasuredWinner&) const = default;
};

// A table alone cannot be merged size by size, because its ranges no longer say what was measured.
// Value type; equal on all ranks of a group whose table is in force.
class MeasuredWinners {
 public:
  using BySize = std::map<uint64_t, MeasuredWinner>;

  // Replaces what is known of this size.
  void Put(const DispatchKey& key, uint64_t bytes, MeasuredWinner winner);
  void Put(const DispatchKey& key, uint64_t bytes, ChoiceId winner) {
    Put(key, bytes, MeasuredWinner{std::move(winner)});
  }
  void Erase(const DispatchKey& key, uint64_t bytes);
  void Erase(const DispatchKey& key);  // all of its sizes
  // The canonical text of the program that keys with this digest stand for.
  void PutProgram(uint64_t digest, std::string text);

  const std::map<DispatchKey, BySize>& rows() const { return rows_; }
  // By digest. Winners from a file of an older cotune may lack the text of their program.
  const std::map<uint64_t, std::string>& program_texts() const { return program_texts_; }
  bool empty() const { return rows_.empty(); }
  size_t size() const;  // measured sizes of all keys

  Result<DispatchTable> BuildTable() const;

  // Canonical bytes, by which rank 0 tells the others.
  std::string Serialize() const;
  // kDatabase with field and cause.
  static Result<MeasuredWinners> Parse(std::string_view bytes);

  bool operator==(const MeasuredWinners&) const = default;

 private:
  std::map<DispatchKey, BySize> rows_;  // none is empty
  std::map<uint64_t, std::string> program_texts_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_MEASURED_WINNERS_H_
