// The operands of a program on this rank, and its right results by the reference evaluator.
#ifndef COTUNE_CORE_BENCHMARK_PROGRAM_OPERANDS_H_
#define COTUNE_CORE_BENCHMARK_PROGRAM_OPERANDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/backend/symmetric_region.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/reference_results.h"
#include "core/benchmark/value_hash.h"
#include "core/problem/program.h"
#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"

namespace cotune {

// Each kind of data has an image of every operand before a call and of every result after it. A
// result whose bits differ from all images that were found right so far is read back and compared
// element by element within the evaluator's bounds; then it is an image too.
class ProgramOperands final : public CellOperands {
 public:
  static Result<std::unique_ptr<CellOperands>> Allocate(
      Device& device, const Program& program, const Problem& problem, int rank,
      SymmetricRegion* symmetric, std::shared_ptr<ReferenceResults> reference = nullptr);
  // As in CellOperands.
  static uint64_t BytesFor(const Program& program, const Problem& problem, int32_t copies);
  static uint64_t BytesToCount(const Program& program, const Problem& problem);
  static uint64_t CallBytes(const Program& program, const Problem& problem);
  static uint64_t RegionBytes(const Program& program, const Problem& problem, int32_t copies);

  int32_t AffordableCopies(int32_t wanted) const override;
  Status AddCopies(int32_t copies) override;
  int32_t copies() const override { return static_cast<int32_t>(copies_.size()); }
  void SetAddresses(LaunchArguments& arguments, int32_t copy) const override;
  Status Fill(uint32_t salt, int32_t copies) override;
  Status FillForTiming(int32_t copies) override;
  std::vector<std::string> ReplicatedOutputs() const override;
  Result<OperandCheck> Check(uint32_t salt, int32_t copies) override;

 private:
  using Buffers = std::vector<std::unique_ptr<DeviceBuffer>>;
  // The operands of one call: inputs, then those outputs that overwrite none.
  struct Copy {
    Buffers buffers;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
  };
  // A result that was found right, and its hash if its output is replicated.
  struct Image {
    std::unique_ptr<DeviceBuffer> buffer;
    uint64_t hash = 0;
  };
  struct Kind {
    Buffers before;  // one for each input
    // One for each output: what a right implementation may give, and images that were found right.
    const EvaluatedOutputs* expected = nullptr;  // reference_ owns it
    std::vector<std::vector<Image>> right;
  };

  ProgramOperands(Device& device, const Program& program, const Problem& problem, int rank,
                  SymmetricRegion* symmetric, std::shared_ptr<ReferenceResults> reference);
  // The buffer that holds output `output` of a copy.
  size_t BufferOf(size_t output) const;
  Result<Copy> MakeCopy();
  Result<Kind> MakeKind(uint32_t kind);
  // Images of the inputs of this rank.
  Result<Buffers> MakeInputs(const ProgramDataSet& data);
  Status FillCopy(const Copy& copy, const Buffers& before);
  Status CheckCopy(const Copy& copy, uint32_t kind, OperandCheck& check);
  // Gives the hash of what the buffer holds, if it is right and the output is replicated; else 0.
  Result<uint64_t> CheckOutput(DeviceBuffer& seen, size_t output, Kind& kind, OperandCheck& check);
  bool IsReplicated(size_t output) const;
  ProgramDataSet TimedDataSet() const;
  // The inputs of timed calls.
  const Buffers& timed_before() const {
    return timed_before_.empty() ? kinds_[0].before : timed_before_;
  }
  // The row of the evaluation that equals a row of the value in the call.
  uint64_t EvaluatedRow(const ValueType& type, uint64_t row) const;
  // A buffer with a value between its guards; row_at gives the address of each of its rows. `hash`
  // gets its elements, if it is there.
  Result<std::unique_ptr<DeviceBuffer>> ImageOf(
      ValueIndex value, const std::function<const std::byte*(uint64_t row)>& row_at,
      ValueHash* hash = nullptr);
  Result<std::unique_ptr<DeviceBuffer>> CopyOf(DeviceBuffer& buffer);
  uint64_t CountWrongRows(size_t output, const EvaluatedValue& expected,
                          std::span<const std::byte> seen) const;

  Device& device_;
  const Program& program_;
  const int rank_;
  SymmetricRegion* const symmetric_;  // what operands are cut from; nullptr: plain ones
  const uint64_t rows_;
  std::shared_ptr<ReferenceResults> reference_;
  std::vector<Copy> copies_;
  std::array<Kind, kDataKinds> kinds_;
  Buffers timed_before_;  // empty: a program that overwrites no input is timed with the first kind
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_PROGRAM_OPERANDS_H_
