// Results that are known before a tune, and the messages by which rank 0 shares them.
#ifndef COTUNE_CORE_DATABASE_KNOWN_CELLS_H_
#define COTUNE_CORE_DATABASE_KNOWN_CELLS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/selection/select_winner.h"
#include "core/selection/verdict.h"

namespace cotune {

// A choice that is neither measured nor a winner in any cell of a class, because it has ended a
// tune.
struct LeftOutChoice {
  std::string problem_class;  // ToText
  std::string choice;         // id text
  std::string reason;         // one line
  bool operator==(const LeftOutChoice&) const = default;
};

// Only rank 0's answers count: they are sent to all ranks, because a cell that one rank finds in
// its file and another does not would be measured by some ranks only.
class KnownCells {
 public:
  virtual ~KnownCells() = default;
  virtual std::optional<CellResult> Find(const Problem& problem) = 0;
  // Returns true if several threads may call Find at once.
  virtual bool FindsOnAnyThread() const { return false; }
  // Called on rank 0 before anything is made ready, the winners of known cells too.
  virtual std::vector<LeftOutChoice> Begin() { return {}; }
  // Called on rank 0 in front of the first launch of a choice in a cell, and without a choice
  // behind all of them.
  virtual void NoteAttempt(const Problem& /*problem*/, const ChoiceId* /*choice*/) {}
  // Called on rank 0 as soon as a cell is measured.
  virtual Status Record(const CellResult& cell, const Winner& winner) = 0;
};

// The message of rank 0: one element a cell of the tune, in order, with its winner. A cell without
// a winner counts as not known. So many threads make and read it.
std::string EncodeKnownCells(const std::vector<std::optional<DecidedCell>>& cells,
                             size_t threads = 1);
// Every cell that it gives has a winner. kDatabase when the bytes are not such a message.
Result<std::vector<std::optional<DecidedCell>>> DecodeKnownCells(std::string_view bytes,
                                                                 size_t threads = 1);

// Likewise what rank 0 leaves out.
std::string EncodeLeftOut(const std::vector<LeftOutChoice>& left_out);
Result<std::vector<LeftOutChoice>> DecodeLeftOut(std::string_view bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_KNOWN_CELLS_H_
