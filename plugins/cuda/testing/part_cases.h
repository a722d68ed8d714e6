// The parts that tests of the generator compile and run.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_PART_CASES_H_
#define COTUNE_PLUGINS_CUDA_TESTING_PART_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/parts/part_shape.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

struct PartCase {
  std::string name;
  sdk::Program program;
  bool has_functions = false;  // its results are not exact, but within bounds
};

// residual + rms_norm as a model has it: the stream overwrites the residual.
sdk::Program ResidualNorm(sdk::ValueDtype dtype, uint64_t columns, bool rounds);

// Tensors of one row, each with so many columns: each one times a number, or a copy of it (a cast
// to its own dtype).
sdk::Program Tensors(sdk::ValueDtype dtype, const std::vector<uint64_t>& columns, bool copies);
// A copy of rows, of numbers of rows, of a row for all rows and of a number, of each dtype; if
// `reduces`, beside row sums of the same inputs.
sdk::Program Copies(bool reduces);

// A part whose stream is an output that the rest of it reads, and the same operations as two parts,
// of which the second reads the stream from memory.
struct CutPart {
  std::string name;
  sdk::Program whole;   // (x, residual, gamma) to (y, stream)
  sdk::Program front;   // (x, residual) to (stream)
  sdk::Program behind;  // (stream, gamma) to (y)
};
std::vector<CutPart> CutParts();

// Norms, softmax, every operation of every dtype, every cast, and shapes that are rare.
std::vector<PartCase> HandMadeParts();
// Rows of many columns, for the compiler: they would take long on the CPU.
std::vector<PartCase> WideParts();
// examples/programs, from the folder that tests run in.
std::vector<std::string> ExamplePaths();
// The parts of the programs in these files.
std::vector<PartCase> ExampleParts(const std::vector<std::string>& paths);
PartCase RandomPartCase(uint64_t seed);

// The same part with other numbers of rows.
sdk::Program WithRows(sdk::Program part, uint64_t rows, uint64_t share_rows);

// What is compiled for the CPU: parts, and how many threads a row and a block have.
struct PartVariant {
  PartCase part;
  PartShape shape;
};
std::vector<PartVariant> PartVariants(const std::vector<std::string>& example_paths);

// One text with the kernels of many parts: cotune_kernel_0 and so on, each in a namespace of its
// own (part_0). What stands for prelude.cuh has to stand in front of it.
struct JoinedPart {
  std::string program;  // the generated header
  PartShape shape;
};
std::string JoinedText(const std::vector<JoinedPart>& parts, size_t first_number = 0);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_TESTING_PART_CASES_H_
