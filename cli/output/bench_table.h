// The rows of `cotune bench`, with the column names of nccl-tests.
#ifndef COTUNE_CLI_OUTPUT_BENCH_TABLE_H_
#define COTUNE_CLI_OUTPUT_BENCH_TABLE_H_

#include <string>
#include <vector>

#include "core/database/tuned_database_entry.h"
#include "core/selection/dispatch_table.h"

namespace cotune::cli {

// One row a choice that was measured, cell by cell; '*' marks what `tuned` dispatches, which for a
// class without a row is the default choice, and for small calls on symmetric buffers that of plain
// ones. With only_tuned no other rows. GB/s are 10^9 bytes.
std::string BenchTableText(const std::vector<DatabaseEntry>& entries, const DispatchTable& tuned,
                           bool only_tuned);

// Keeps of every cell only the choice that `tuned` dispatches.
std::vector<DatabaseEntry> OnlyTuned(std::vector<DatabaseEntry> entries,
                                     const DispatchTable& tuned);

// Returns of each cell of OnlyTuned that has no choice left what was not measured, and why: a
// backend does not list each winner at the sizes around the one where it won.
std::vector<std::string> NotMeasured(const std::vector<DatabaseEntry>& kept,
                                     const DispatchTable& tuned);

// Wrong elements over all choices.
uint64_t CountWrong(const std::vector<DatabaseEntry>& entries);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_BENCH_TABLE_H_
