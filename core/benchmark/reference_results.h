// The right results of a program at one size on one rank, by the reference evaluator.
#ifndef COTUNE_CORE_BENCHMARK_REFERENCE_RESULTS_H_
#define COTUNE_CORE_BENCHMARK_REFERENCE_RESULTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/status.h"
#include "core/benchmark/cell_operands.h"
#include "core/problem/program.h"
#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"

namespace cotune {

// Evaluates each kind of data once and keeps it. A tune evaluates the cells of all nodes on several
// threads while it compiles; a cell that none of them has evaluated does so when it is measured.
// Different kinds may be evaluated on different threads at a time; `Of` follows after these have
// ended. The program outlives it.
class ReferenceResults {
 public:
  ReferenceResults(const Program& program, uint64_t rows, int rank);

  // Bytes of host memory that it takes once all kinds are evaluated.
  static uint64_t BytesFor(const Program& program, uint64_t rows);

  // Does nothing if the kind is evaluated. A failure is kept; `Of` returns it.
  void Evaluate(uint32_t kind);
  // The results of a kind, one for each output, at evaluated_rows(). Evaluates them if they are not
  // there. kEnvironment: no memory; otherwise as EvaluateProgramOnRank.
  Result<const EvaluatedOutputs*> Of(uint32_t kind);

  // R of the evaluation, from whose rows those of a call follow.
  uint64_t evaluated_rows() const { return evaluated_rows_; }
  ProgramDataSet DataSet(uint32_t kind) const;

 private:
  Result<EvaluatedOutputs> Evaluated(uint32_t kind) const;
  // The inputs of every rank at the rows of the evaluation.
  std::vector<std::vector<std::vector<std::byte>>> Inputs(uint32_t kind) const;

  const Program& program_;
  const uint64_t rows_;
  const int rank_;
  const uint64_t evaluated_rows_;
  std::array<std::optional<Result<EvaluatedOutputs>>, CellOperands::kDataKinds> kinds_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_REFERENCE_RESULTS_H_
