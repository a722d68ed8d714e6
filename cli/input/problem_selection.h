// From names as typed to the problem classes and sizes that a command works on.
#ifndef COTUNE_CLI_INPUT_PROBLEM_SELECTION_H_
#define COTUNE_CLI_INPUT_PROBLEM_SELECTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/input/command_line.h"
#include "cli/input/program_selection.h"
#include "core/base/status.h"
#include "core/problem/problem.h"

namespace cotune::cli {

struct ProblemSelection {
  std::vector<ProblemClass> classes;  // collective by collective, then dtype, then reduction
  std::vector<uint64_t> sizes_bytes;

  std::vector<ProgramSelection> programs;  // after the classes

  // Without those that are less than an element for every rank; not empty for one of `classes`.
  std::vector<uint64_t> SizesOf(const ProblemClass& cls) const;

  // "all_to_all f32 8": class and size of what is left out for that reason.
  std::vector<std::string> too_small;
  size_t left_out_classes = 0;         // of which no size remains
  bool left_out_symmetric = false;     // asked for with others, and this memory has none
  std::vector<std::string> idle_rows;  // files of programs without R, if --rows is given
};

// Returns true if a tune without --sizes measures calls of this class with so many bytes.
bool IsDefaultSize(const ProblemClass& cls, uint64_t bytes);

// Names that are missing get the defaults of `cotune tune`: all collectives, f32 (on GPUs bf16 and
// f32), sum, out of place (on host memory, if no collective is named, all_reduce and all_gather in
// place, too), 1K:4M:x2 (on GPUs, without programs, 16M and 64M, too). A name given twice counts
// once. Reductions apply to the collectives that reduce. kUsage: an unknown name with the nearest
// one and the list, sizes that do not parse, or none that has an element for every rank, or only
// symmetric buffers of host memory, which has none. default_sizes_bytes: what the settings say
// where the flags do not; empty: those above. Where programs are given and no collective, there are
// no classes.
Result<ProblemSelection> SelectProblems(const ProblemFlags& flags, MemoryKind memory,
                                        int32_t world_size,
                                        const std::vector<uint64_t>& default_sizes_bytes = {});

// The buffers of one call. "": plain ones. kUsage as above.
Result<BufferClass> SelectBufferClass(const std::string& name, MemoryKind memory);

// Which sizes are not those that were asked for, "all_gather f32 1001 -> 996", and what is left
// out, and why; "" when all is as asked for.
std::string RoundingText(const ProblemSelection& selection);

// One call, for explain. `rounding` (may be nullptr) gets the RoundingText of its size.
Result<Problem> SelectProblem(const ExplainFlags& flags, MemoryKind memory, int32_t world_size,
                              std::string* rounding = nullptr);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_INPUT_PROBLEM_SELECTION_H_
