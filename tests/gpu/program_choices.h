// The choices of a program, ready on all ranks.
#ifndef COTUNE_TESTS_GPU_PROGRAM_CHOICES_H_
#define COTUNE_TESTS_GPU_PROGRAM_CHOICES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/choice/choice_caller.h"
#include "core/problem/program.h"
#include "tests/gpu/program_values.h"
#include "tests/gpu/rank.h"

namespace cotune::gputest {

// The program for this job's ranks and memory. kUsage: the text is no program.
Result<Program> BoundTo(Job& job, const ProgramText& text);

// Every choice that is listed for the program at so many rows. All ranks call it, and go on when
// all are ready. name: for messages. kUnsupported, with the reasons: there is no choice.
Result<std::vector<std::unique_ptr<ChoiceCaller>>> ChoicesOf(Rank& rank, const std::string& name,
                                                             const Program& program, uint64_t rows);

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_PROGRAM_CHOICES_H_
