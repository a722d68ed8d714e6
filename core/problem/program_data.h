// The data that programs are checked and timed with. It repeats after a number of rows that is odd
// to shares and chunks, so that a row which went to another place shows, and so that the evaluator
// computes a few rows whatever the size. Pure.
#ifndef COTUNE_CORE_PROBLEM_PROGRAM_DATA_H_
#define COTUNE_CORE_PROBLEM_PROGRAM_DATA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/problem/program_graph.h"

namespace cotune {

// A program at one size, and which of its sets of data. All sets are made alike.
struct ProgramDataSet {
  uint64_t rows = 0;
  int world_size = 1;
  uint32_t salt = 0;
  // For timing programs that overwrite an input, whose calls compute with the results of earlier
  // ones. Terms of a sum over the ranks cancel: two ranks each have opposite numbers, and zeros are
  // in an odd rank, ranks beyond 64 and replicated inputs. This holds also for an input that gets
  // into the sum only in a later call, through the input that is overwritten. Factors are 1. So an
  // overwritten input stays as it is however often the program runs: nothing grows beyond the
  // range, and nothing becomes subnormal. The data cannot do that for programs whose local
  // operations make terms that do not cancel, such as relu of the operand of a sum. Checks do not
  // need it: they write overwritten inputs again before each call.
  bool cancels_over_ranks = false;
};

// After how many rows the data of all inputs repeats: the smallest prime from 13 (from 1009 where
// values are narrower than 128 columns) that divides neither the rows of a call nor those of a
// rank's share.
uint64_t PeriodRows(const ProgramGraph& graph, uint64_t rows, int world_size);

// The first period of an input's rows on a rank, or all where it has fewer: later rows repeat it.
//   - Small integers for what is added up over the ranks, so that every partial sum is exact in
//     every dtype, in any order, for any number of ranks. Products over ranks are at most 8.
//   - Inputs of one row (gamma, bias): an odd number times a power of two, another one in the next
//     column. Inputs of one column (scales) the same by row.
//   - Other floats are eighths. Of each input with several rows and columns one row is zero and one
//     is 2^-10 of the others, where the effect of eps shows; the same row in all inputs. Sums of
//     such rows are as exact.
//   - Replicated inputs are the same on every rank.
std::vector<std::byte> InputPeriod(const ProgramGraph& graph, size_t input, int rank,
                                   const ProgramDataSet& data);

// `rows` rows that repeat a period. `row_bytes` is the size of a row.
std::vector<std::byte> RepeatedRows(std::span<const std::byte> period, uint64_t row_bytes,
                                    uint64_t rows);

// As many rows as the evaluator must compute to know every row of a call at `rows`: R itself, or
// one or two periods for each rank. Evaluate at this R with InputPeriod of the call, repeated.
uint64_t EvaluatedRows(const ProgramGraph& graph, uint64_t rows, int world_size);
// The row of a value that was evaluated at EvaluatedRows which equals row `row` of the value in the
// call.
uint64_t EvaluatedRowOf(const ProgramGraph& graph, const ValueType& type, uint64_t row,
                        uint64_t rows, int world_size);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_PROGRAM_DATA_H_
