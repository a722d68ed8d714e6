// Before ranks agree on a table: whether all of them list the same choices, and can run the
// winners.
#ifndef COTUNE_CORE_CHOICE_WINNER_CHECK_H_
#define COTUNE_CORE_CHOICE_WINNER_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/backend/call_watchdog.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/choice/precompile.h"
#include "core/problem/choice_id.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"
#include "core/ranks/rank_exchange.h"
#include "core/selection/measured_winners.h"

namespace cotune {

// One problem of a program, which outlives it.
struct CellToCheck {
  const Program* program = nullptr;
  Problem problem;
  // Its choices where they are known already, which spares listing them again; outlives it.
  const ChoiceList* list = nullptr;
};

// Collective: the same cells in the same order on every rank. Success when all ranks list the same
// choices for each; else kDisagreement on all of them, with the first choice that differs, its
// problem, and the ranks that lack it.
Status CompareChoiceLists(RankExchange& exchange, const BackendGroups& groups,
                          std::span<const CellToCheck> cells, int64_t deadline_ns);

// A winner that is not run by any rank, for a reason that all have.
struct RefusedWinner {
  size_t cell = 0;  // its place among those that were asked of
  std::string reason;
};

// Collective, after CompareChoiceLists of the same cells: makes each cell's winner ready on every
// rank. (One for registered buffers is only looked up: it is made ready where such memory is.)
// Gives the winners that all ranks refuse. kDisagreement on all ranks, naming choice, rank and
// problem, when some ranks refuse one that others can run, or when one fails. Making them ready may
// take timeout_ns; a rank that takes longer is waited for as long again, so that it can say what
// was late. The error of the watchdog (nullptr: there is none) on a rank where a prepare never
// returns: the programs, like the groups, must then live as long as the process. `notes` may be
// nullptr. kInterrupted on all ranks when `is_asked_to_stop`, if given, says true on one.
Result<std::vector<RefusedWinner>> CheckWinners(RankExchange& exchange, BackendGroups& groups,
                                                std::span<const CellToCheck> cells,
                                                std::span<const ChoiceId> winners, int32_t threads,
                                                const Clock& clock, int64_t timeout_ns,
                                                CallWatchdog* watchdog,
                                                const std::shared_ptr<PrepareNotes>& notes = {},
                                                const std::function<bool()>& is_asked_to_stop = {});

// Both, each with timeout_ns, for winners that come from a database; `shape` gives memory and group
// of their problems. Removes from `winners` those that all ranks refuse, and those of programs
// whose text is not known, and returns the reasons.
Result<std::vector<std::string>> CheckMeasuredWinners(RankExchange& exchange, BackendGroups& groups,
                                                      const ProblemClass& shape,
                                                      uint64_t topology_digest, int32_t threads,
                                                      const Clock& clock, int64_t timeout_ns,
                                                      CallWatchdog* watchdog,
                                                      MeasuredWinners& winners);

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_WINNER_CHECK_H_
