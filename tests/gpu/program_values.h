// The data of a program on one rank: what goes in, and what must come out by the reference
// evaluator.
#ifndef COTUNE_TESTS_GPU_PROGRAM_VALUES_H_
#define COTUNE_TESTS_GPU_PROGRAM_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/program.h"
#include "tests/gpu/flags.h"

namespace cotune::gputest {

// A program of a test, and how it is called.
struct ProgramText {
  std::string name;  // for messages
  std::string text;
};

// Flags: --seeds FIRST-LAST, random programs that are the same on every rank; --files NAMES parted
// by ','. kUsage: a file cannot be read.
Result<std::vector<ProgramText>> ProgramTexts(const Flags& flags, int world_size);

// The nearest number of rows from `rows` up that the graph can have in such a group.
uint64_t FittingRows(const ProgramGraph& graph, uint64_t rows, int world_size);

struct ProgramValues {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<EvaluatedValue> expected;  // an output each
};

// Other salts give other data. kUsage: the rows do not fit.
Result<ProgramValues> ValuesOf(const Program& program, uint64_t rows, int rank, uint32_t salt);

// The output that overwrites an input, or -1.
int OverwrittenBy(const ProgramGraph& graph, size_t input);

// "" when the bytes are right; else how many elements are not, and the first of them.
std::string WhatIsWrong(const EvaluatedValue& expected, std::span<const std::byte> seen);

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_PROGRAM_VALUES_H_
