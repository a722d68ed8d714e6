// The choices of a table for a call of a size that was not measured.
//
// A backend lists the parameters that are worth trying at a size, such as the number of blocks that
// fits it. The winner of a measured size often runs at the sizes around it without being listed
// there. Its flags, above all the one of choices that CUDA graphs can capture, are then taken from
// the list of the measured size.
//
// A winner that is not listed at a larger size than its own is too small for it: its blocks make a
// second pass, for which small calls on GPUs take up to 1.7 times as long. The winner of the next
// measured size has blocks enough, and so has a next best choice that is listed for the larger
// call.
#ifndef COTUNE_INTEGRATION_NEARBY_CHOICE_H_
#define COTUNE_INTEGRATION_NEARBY_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/problem/program.h"
#include "core/selection/dispatch_table.h"

namespace cotune {

// The next measured size is at most so many times as large as the call: far above it other
// algorithms win.
inline constexpr uint64_t kNextSizeTimesMax = 4;

// A choice of a table for a problem.
struct NearbyChoice {
  Choice choice;
  // Else it is listed for the measured size only, and its backend may refuse the problem when the
  // choice is made ready, on all ranks alike.
  bool is_listed_here = true;
  // It is the winner of the next measured size, of so many bytes; 0: it is that of the call's
  // range.
  uint64_t next_size_bytes = 0;
};

// Returns the problem at the measured size whose winner the table has for `problem`. Nothing: the
// table has none, or does not know its measured sizes. Pure.
std::optional<Problem> AtMeasuredSize(const DispatchTable& table, const Program& program,
                                      const Problem& problem);

// Returns the problem at the next measured size, if the measured size whose winner the table has is
// smaller than the problem, and the next one is at most four times as large as the problem. Pure.
std::optional<Problem> AtNextSize(const DispatchTable& table, const Program& program,
                                  const Problem& problem);

// Returns the choice as it is listed for the problem, or else for the problem at the measured size.
// Nothing: neither lists it, a backend lists it as refused for the problem, or by numerics=same no
// choice of its class is listed for the problem. Pure.
std::optional<NearbyChoice> FindNearby(const BackendGroups& groups, const Program& program,
                                       const Problem& problem,
                                       const std::optional<Problem>& measured, const ChoiceId& id);

// Returns the winners of a table that has one for the problem, in the order in which they are
// tried: that of the problem's range alone if it is listed for the problem, and else that of the
// next size before it, if there is one. Empty: neither is listed anywhere. On registered buffers
// the backends of both are the same, because only those have taken the buffers. Pure.
std::vector<NearbyChoice> WinnersOf(const BackendGroups& groups, const Program& program,
                                    const DispatchTable& table, const Problem& problem);

// A choice that may run a call.
struct Attempt {
  enum class Kind : uint8_t { kWinner, kNextBest, kDefault };
  NearbyChoice nearby;
  Kind kind = Kind::kWinner;
};

// Returns whether the problem is larger than the measured size whose winner the table has for it.
// Pure.
bool IsAboveMeasuredSize(const DispatchTable& table, const Problem& problem);

// Returns the choices of a table that may run the problem, in the order in which they are tried:
// the winners, and then the next best choices of the measured size, the fastest first. Above the
// measured size, choices of the winner's backends that are listed for the problem come first: they
// suit its size, and were measured nearer to it than the winner of the next size was. The table has
// a choice for the problem. `winners` are those of WinnersOf, or one that no list has. Pure.
std::vector<Attempt> AttemptsOf(const BackendGroups& groups, const Program& program,
                                const DispatchTable& table, const Problem& problem,
                                std::vector<NearbyChoice> winners);

// A choice of a program's row in a table.
struct TableChoice {
  ChoiceId id;
  std::optional<Problem> measured{};  // at the size where the table has it from
  bool only_if_listed = false;        // it runs no collective for which it is not listed
};

// Returns the choices of a table that may run a program, in the order of AttemptsOf; none if the
// table has no choice for it. Pure.
std::vector<TableChoice> ChoicesInOrder(const DispatchTable& table, const Program& program,
                                        const Problem& anchor);

// Returns whether all steps of a choice run by backends that run steps of the other one. Pure.
bool HasBackendsOf(const ChoiceId& other, const ChoiceId& id);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_NEARBY_CHOICE_H_
