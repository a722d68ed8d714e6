#include "core/benchmark/cell_operands.h"

#include <xxhash.h>

#include <utility>

#include "core/benchmark/operand_buffers.h"
#include "core/benchmark/program_operands.h"

namespace cotune {
namespace {

uint64_t CallBytes(const Program& program, const Problem& problem) {
  return program.is_single_collective() ? OperandBuffers::CallBytes(problem)
                                        : ProgramOperands::CallBytes(program, problem);
}

}  // namespace

void OperandCheck::AddHashes(const OperandCheck& copy) {
  if (replicated_hashes.empty()) {
    replicated_hashes = copy.replicated_hashes;
    return;
  }
  for (size_t output = 0; output < replicated_hashes.size(); ++output) {
    uint64_t& hash = replicated_hashes[output];
    hash = XXH3_64bits_withSeed(&copy.replicated_hashes[output], sizeof(uint64_t), hash);
  }
}

Result<std::unique_ptr<CellOperands>> CellOperands::Allocate(
    Device& device, const Program& program, const Problem& problem, int rank,
    SymmetricRegion* symmetric, std::shared_ptr<ReferenceResults> reference) {
  if (!program.is_single_collective()) {
    return ProgramOperands::Allocate(device, program, problem, rank, symmetric,
                                     std::move(reference));
  }
  COTUNE_TRY(auto buffers, OperandBuffers::Allocate(device, problem, rank, symmetric));
  return std::unique_ptr<CellOperands>(std::move(buffers));
}

uint64_t CellOperands::AllocatedBytes(const Program& program, const Problem& problem,
                                      int32_t copies) {
  return program.is_single_collective() ? OperandBuffers::BytesFor(problem, copies)
                                        : ProgramOperands::BytesFor(program, problem, copies);
}

uint64_t CellOperands::RegionBytes(const Program& program, const Problem& problem, int32_t copies) {
  return program.is_single_collective() ? OperandBuffers::RegionBytes(problem, copies)
                                        : ProgramOperands::RegionBytes(program, problem, copies);
}

uint64_t CellOperands::StagingBytes(const Program& program, const Problem& problem) {
  return program.is_single_collective() ? OperandBuffers::BytesToCount(problem)
                                        : ProgramOperands::BytesToCount(program, problem);
}

int32_t CellOperands::WantedCopies(const Program& program, const Problem& problem,
                                   uint64_t cache_bytes) {
  return CopiesBeyondCache(CallBytes(program, problem), cache_bytes);
}

bool CellOperands::FitCache(const Program& program, const Problem& problem, uint64_t cache_bytes) {
  return CallBytes(program, problem) <= cache_bytes;
}

int32_t CopiesBeyondCache(uint64_t call_bytes, uint64_t cache_bytes) {
  if (call_bytes < cache_bytes / 8 || call_bytes >= 2 * cache_bytes) return 1;
  return static_cast<int32_t>(1 + (2 * cache_bytes + call_bytes - 1) / call_bytes);
}

}  // namespace cotune
