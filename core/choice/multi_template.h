// The choices of one node, timed lazily and finalised to one winner or to several by size.
#ifndef COTUNE_CORE_CHOICE_MULTI_TEMPLATE_H_
#define COTUNE_CORE_CHOICE_MULTI_TEMPLATE_H_

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/choice/choice_lists.h"
#include "core/choice/neighbour_pruning.h"
#include "core/database/known_cells.h"
#include "core/problem/program.h"
#include "core/selection/measured_winners.h"
#include "core/selection/select_winner.h"

namespace cotune {

class MultiTemplate;

// Measures cells: the benchmark stage of a tune.
class CellTimer {
 public:
  virtual ~CellTimer() = default;
  virtual Result<DecidedCell> TimeCell(MultiTemplate& node, uint64_t size_hint_bytes) = 0;
};

// One node of the tuned graph. Not thread-safe. Laziness is safe across ranks because only the
// scheduler asks for timings, in an order that is the same on all of them.
class MultiTemplate {
 public:
  // size_hints_bytes: at least one; rounded down to whole rows (elements of a single collective),
  // sorted and made unique here, and left out where that leaves none and there are others. One
  // hint: a node of fixed size.
  MultiTemplate(Program program, std::vector<uint64_t> size_hints_bytes, uint64_t topology_digest);

  const Program& program() const { return program_; }
  const std::vector<uint64_t>& size_hints_bytes() const { return size_hints_bytes_; }
  Problem ProblemAt(uint64_t size_hint_bytes) const;

  // Asks every backend; pure, cached per hint.
  const ChoiceList& ListChoices(const BackendGroups& groups, uint64_t size_hint_bytes);

  // Makes the lists of all hints on so many threads; the calling thread makes those of a program,
  // because they share the source of recipes.
  void ListAllChoices(const BackendGroups& groups, size_t threads);

  // The forms and regions that the list of a hint was made from. ListChoices has been called for
  // it.
  const std::vector<ConsideredForm>& considered(uint64_t size_hint_bytes) const {
    return lists_.at(size_hint_bytes).considered;
  }

  // Takes choices out of the list of a hint, or out of the combinations that a second heat may add,
  // and keeps them among the list's refusals; the same on all ranks, before anything is made of
  // either.
  void LeaveOut(const BackendGroups& groups, uint64_t size_hint_bytes,
                std::span<const LeftOutChoice> left_out);

  // Names the node and one of its cells for users: "all_reduce sum bf16 out of place at 4096
  // bytes", "program add_residual_norm at 16 rows".
  std::string InWords() const;
  std::string CellInWords(uint64_t size_hint_bytes) const;

  // How many combinations a second heat adds at most; 0: the cell has one heat. ListChoices has
  // been called for the hint.
  size_t combinations_max(uint64_t size_hint_bytes) const;
  // Gives what a second heat adds, by the verdicts of the first, without what was left out.
  std::vector<Choice> CombineFastest(uint64_t size_hint_bytes,
                                     std::span<const Verdict> verdicts) const;
  // Refuses, after the last heat, the choices that raced in none, because the choice that led their
  // family (leading_choices.h) was slower than others.
  std::vector<Refusal> RefuseSetAside(uint64_t size_hint_bytes,
                                      std::span<const Verdict> verdicts) const;

  // The order in which the sizes are measured (neighbour_pruning.h); ascending for programs, whose
  // sizes learn nothing from each other.
  MeasuringOrder OrderOfMeasuring() const;
  // Refuses the choices of a hint that do not race, because they were slow at the sizes around it
  // (RefuseSlowChoices); none of a program. ListChoices has been called for the hint.
  std::vector<SlowChoice> RefuseSlow(uint64_t size_hint_bytes) const;

  // The timer measures a cell the first time that it is asked for; afterwards the result is cached.
  // A failure is not cached, because it ends the tune.
  Result<const DecidedCell*> choice_timings(uint64_t size_hint_bytes, CellTimer& timer);
  // A cell that is known already, from the database.
  void SetTimings(uint64_t size_hint_bytes, DecidedCell cell);
  // No rank can run the winner of a known cell, so that RefuseSlow learns nothing from it. The same
  // on all ranks.
  void NoteUnusableWinner(uint64_t size_hint_bytes) { unusable_.insert(size_hint_bytes); }
  bool has_timings(uint64_t size_hint_bytes) const { return cells_.contains(size_hint_bytes); }

  // Winners of all hints that have timings. kEnvironment when no hint has a winner.
  Result<MeasuredWinners::BySize> Finalize() const;
  const std::map<uint64_t, DecidedCell>& cells() const { return cells_; }
  // Gives the cells away after the tune; the node has none then.
  std::map<uint64_t, DecidedCell> TakeCells() { return std::exchange(cells_, {}); }

 private:
  Program program_;
  std::vector<uint64_t> size_hints_bytes_;
  uint64_t topology_digest_;
  std::map<uint64_t, ListedChoices> lists_;
  std::map<uint64_t, std::vector<std::string>> left_out_;  // by LeaveOut: no heat has them
  std::map<uint64_t, DecidedCell> cells_;
  std::set<uint64_t> unusable_;  // by NoteUnusableWinner
};

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_MULTI_TEMPLATE_H_
