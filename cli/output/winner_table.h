// The table of winners: what a tune is for.
#ifndef COTUNE_CLI_OUTPUT_WINNER_TABLE_H_
#define COTUNE_CLI_OUTPUT_WINNER_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/database/tuned_database_entry.h"
#include "core/problem/choice_id.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"

namespace cotune::cli {

// Neighbouring measured sizes with the same winner, all steady or all unsteady. Times are those at
// last_bytes.
struct WinnerRow {
  uint64_t first_bytes = 0;
  uint64_t last_bytes = 0;
  // R of a program at these sizes; 0 for a single collective, and where the program is not known.
  uint64_t first_rows = 0;
  uint64_t last_rows = 0;
  int32_t sizes = 0;
  ChoiceId winner;
  bool is_default = false;   // at every size
  bool is_unsteady = false;  // the times show no fastest choice: the default runs
  std::string numerics{};    // class of the winner at the last size; "": unknown
  int64_t time_ns = 0;
  int64_t interval_low_ns = 0;
  int64_t interval_high_ns = 0;
  double algbw_GBps = 0;
  double busbw_GBps = 0;
  double gain = 0;  // geometric mean over sizes of the default's time by the winner's; 0: the
                    // default has none
  uint64_t wrong_elements = 0;  // of the winner
};

struct WinnerGroup {
  ProblemClass cls;
  std::optional<Program> program;  // nullopt: a single collective, or not known
  std::vector<WinnerRow> rows;     // ascending by size
};

// Groups ascending by class. Entries in any order; of one class and size the last counts.
std::vector<WinnerGroup> SummarizeWinners(const std::vector<DatabaseEntry>& entries);

// "all_reduce sum f32, 4 ranks, host memory, out of place".
std::string ClassText(const ProblemClass& cls);

// One block of text a group, and under it what computed wrong values or failed, if anything.
std::string WinnerTableText(const std::vector<DatabaseEntry>& entries);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_WINNER_TABLE_H_
