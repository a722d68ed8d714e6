// Writes all_reduces of a program as a reduce_scatter, operations on R/n rows, and an all_gather.
#ifndef COTUNE_FUSION_SPLIT_H_
#define COTUNE_FUSION_SPLIT_H_

#include "core/base/status.h"
#include "core/problem/program_graph.h"
#include "core/recipe/recipe_source.h"

namespace cotune {

// The value of the key `via` in the ids of this form.
inline constexpr char kSplit[] = "split";

// The form in which each rank computes its R/n rows of the operations after an all_reduce instead
// of all R rows: the all_reduce becomes a reduce_scatter, and values that are read elsewhere, or
// are outputs, come together by all_gathers. It splits every all_reduce of R rows that has such an
// operation. If the graph would then be no program, because of its limits, say, the form leaves out
// one all_reduce after the other, from the last one on.
//
// An operation can run on R/n rows if each of its operands is the value of a split all_reduce, a
// replicated value of one row, a replicated input, or the value of such an operation. Others run on
// R rows after the all_gather. An operation also runs there if its value would be rounded for the
// all_gather, and is not in the program (roundings.h).
//
// A function of the graph alone; sizes whose R is no multiple of the number of ranks have no such
// form. kUnsupported: no all_reduce can be split, with the reason.
Result<Form> SplitForm(const ProgramGraph& graph);

}  // namespace cotune

#endif  // COTUNE_FUSION_SPLIT_H_
