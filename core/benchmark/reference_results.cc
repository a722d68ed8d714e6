#include "core/benchmark/reference_results.h"

#include <new>

#include "fmt/format.h"

namespace cotune {

ReferenceResults::ReferenceResults(const Program& program, uint64_t rows, int rank)
    : program_(program),
      rows_(rows),
      rank_(rank),
      evaluated_rows_(EvaluatedRows(program.graph(), rows, program.group().world_size)) {}

uint64_t ReferenceResults::BytesFor(const Program& program, uint64_t rows) {
  const uint64_t evaluated = EvaluatedRows(program.graph(), rows, program.group().world_size);
  uint64_t elements = 0;
  for (const ProgramOutput& output : program.graph().outputs()) {
    const ValueType& type = program.graph().type(output.value);
    elements += program.RowsOf(output.value, evaluated) * type.columns;
  }
  return CellOperands::kDataKinds * elements * sizeof(Bounded);
}

void ReferenceResults::Evaluate(uint32_t kind) {
  auto& results = kinds_.at(kind);
  if (!results) results.emplace(Evaluated(kind));
}

Result<const EvaluatedOutputs*> ReferenceResults::Of(uint32_t kind) {
  Evaluate(kind);
  const Result<EvaluatedOutputs>& results = *kinds_.at(kind);
  COTUNE_RETURN_IF_ERROR(results);
  return &*results;
}

ProgramDataSet ReferenceResults::DataSet(uint32_t kind) const {
  return {.rows = rows_, .world_size = program_.group().world_size, .salt = kind};
}

Result<EvaluatedOutputs> ReferenceResults::Evaluated(uint32_t kind) const {
  try {
    return EvaluateProgramOnRank(program_.graph(), evaluated_rows_, program_.group().world_size,
                                 rank_, Inputs(kind));
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kEnvironment, "cannot allocate host memory to compute right results",
                fmt::format("{} rows of a program", evaluated_rows_),
                "memory or its limit is used up", "start fewer ranks");
  }
}

std::vector<std::vector<std::vector<std::byte>>> ReferenceResults::Inputs(uint32_t kind) const {
  std::vector<std::vector<std::vector<std::byte>>> of_ranks;
  const ProgramGraph& graph = program_.graph();
  for (int rank = 0; rank < program_.group().world_size; ++rank) {
    auto& inputs = of_ranks.emplace_back();
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const auto value = static_cast<ValueIndex>(i);
      const ValueType& type = graph.type(value);
      inputs.push_back(RepeatedRows(InputPeriod(graph, i, rank, DataSet(kind)),
                                    type.columns * SizeBytes(type.dtype),
                                    program_.RowsOf(value, evaluated_rows_)));
    }
  }
  return of_ranks;
}

}  // namespace cotune
