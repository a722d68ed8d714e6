// The first stage of a cell's benchmark: buffers and plans on every rank.
#ifndef COTUNE_CORE_BENCHMARK_PREPARATION_H_
#define COTUNE_CORE_BENCHMARK_PREPARATION_H_

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/backend/device.h"
#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/racing_choice.h"

namespace cotune {

struct PreparedCell {
  std::unique_ptr<CellOperands> buffers;        // as many copies on every rank
  std::optional<DeviceClocks> clocks_before{};  // of this rank, where its device knows them
  bool some_know_clocks = false;                // over all ranks
};

// Collective.
class Preparation {
 public:
  // kept: the operands of an earlier heat of the same cell, on all ranks or on none; nullptr: they
  // are made here, which takes longer than many choices race.
  Preparation(const BenchmarkParts& parts, const Program& program, const Problem& problem,
              CellSteps& steps, std::unique_ptr<CellOperands> kept = nullptr)
      : parts_(parts),
        program_(program),
        problem_(problem),
        steps_(steps),
        kept_(std::move(kept)) {}

  // kInterrupted: a rank was asked to stop. kEnvironment: a rank has no memory for the buffers.
  // Choices that some rank cannot prepare have failed afterwards.
  Result<PreparedCell> Run(std::span<RacingChoice> choices);

 private:
  Result<PreparedCell> AllocateBuffers();
  // The operands of the cell on this rank: the kept ones with new data, or made anew.
  Result<std::unique_ptr<CellOperands>> MakeBuffers();
  Status Prepare(RacingChoice& choice, int64_t deadline_ns);
  // Makes a plan of each choice. `copies_added` is this rank's failure to add copies of the
  // operands, which the others learn of here.
  Status PrepareChoices(const Status& copies_added, std::span<RacingChoice> choices);

  const BenchmarkParts& parts_;
  const Program& program_;
  const Problem& problem_;
  CellSteps& steps_;
  std::unique_ptr<CellOperands> kept_;
  int32_t copies_ = 1;  // that every rank can afford
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_PREPARATION_H_
