// The instructions of one walk over the blocks of a row, before their registers are known: how
// several become one, and where their values lie.
#ifndef COTUNE_PLUGINS_HOST_BLOCK_INSTRUCTIONS_H_
#define COTUNE_PLUGINS_HOST_BLOCK_INSTRUCTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "plugins/host/element_kernels.h"
#include "plugins/host/element_plan.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

// The own memory of a program: pieces that begin where a vector may.
class OwnMemory {
 public:
  uint64_t Take(uint64_t bytes) {
    const uint64_t offset = bytes_;
    bytes_ += (bytes + kSplatBytes - 1) / kSplatBytes * kSplatBytes + kSplatBytes;
    return offset;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

// Block registers, reused when their value was read for the last time. The passes share them.
class Registers {
 public:
  explicit Registers(OwnMemory& memory) : memory_(memory) {}
  uint64_t Take(size_t lane_bytes);
  void Free(size_t lane_bytes, uint64_t offset) { free_[lane_bytes].push_back(offset); }

 private:
  OwnMemory& memory_;
  std::map<size_t, std::vector<uint64_t>> free_;
};

// An operand names the value of the program that it holds, or is final.
struct VirtualInstruction {
  // kRound rounds what the instruction before it computed, in place.
  enum class Kind : uint8_t { kCompute, kLoad, kStore, kLeaves, kRound };
  ElementInstruction instruction{};
  int to_register = -1;  // a value, or -1: `to` is final
  std::array<int, 3> from_register = {-1, -1, -1};
  Kind kind = Kind::kCompute;
  uint32_t operation = 0;  // COTUNE_NODE_*, where it computes and reduces f32 lanes; 0: others
  // The dtype of the memory that is loaded or stored, or the one that lanes are rounded to.
  sdk::ValueDtype dtype = sdk::ValueDtype::kF32;
  int overwritten_input = -1;  // by a store
  JoinedOperations joined{};
};

// Fewer instructions that give the same bits: loads, roundings and stores become part of the
// operations beside them, a product becomes part of the operation that it multiplies, and squares
// part of their sum.
// All stores are last.
void JoinInstructions(std::vector<VirtualInstruction>& blocks);

// The registers by liveness. lane_bytes: of each value.
std::vector<ElementInstruction> AssignRegisters(std::vector<VirtualInstruction>& blocks,
                                                const std::vector<size_t>& lane_bytes,
                                                Registers& registers);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_BLOCK_INSTRUCTIONS_H_
