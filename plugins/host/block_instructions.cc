#include "plugins/host/block_instructions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plugins/host/element_kernels.h"
#include "plugins/host/element_plan.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {
namespace {

using Base = ElementOperand::Base;
using Kind = VirtualInstruction::Kind;

bool IsSame(const ElementOperand& a, const ElementOperand& b) {
  return a.base == b.base && a.step == b.step && a.index == b.index && a.offset == b.offset &&
         a.row_bytes == b.row_bytes && a.column_shift == b.column_shift;
}

// Joins the instructions of one list. An instruction that became part of another one has no kernel.
class Joiner {
 public:
  explicit Joiner(std::vector<VirtualInstruction>& blocks) : blocks_(blocks) {}

  void Join() {
    for (size_t i = 0; i < blocks_.size(); ++i) ReadMemory(i);
    for (size_t i = 0; i < blocks_.size(); ++i) JoinSquares(i);
    for (size_t i = 0; i < blocks_.size(); ++i) JoinSecond(i);
    for (size_t i = 1; i < blocks_.size(); ++i) JoinRound(i);
    for (size_t i = 0; i < blocks_.size(); ++i) JoinLoad(i);
    for (size_t i = 0; i < blocks_.size(); ++i) JoinStore(i);
    blocks_.erase(
        std::remove_if(blocks_.begin(), blocks_.end(),
                       [](const auto& each) { return each.instruction.kernel == nullptr; }),
        blocks_.end());
    for (VirtualInstruction& each : blocks_) SetBareOperands(each);
  }

 private:
  bool IsLeft(size_t i) const { return blocks_[i].instruction.kernel != nullptr; }
  void Drop(size_t i) { blocks_[i] = {}; }

  int CountReads(int value) const {
    int reads = 0;
    for (const VirtualInstruction& each : blocks_) {
      reads +=
          static_cast<int>(std::count(each.from_register.begin(), each.from_register.end(), value));
    }
    return reads;
  }
  // The only instruction that writes the value, or -1.
  int WriterOf(int value) const {
    int writer = -1;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].to_register != value) continue;
      if (writer >= 0) return -1;
      writer = static_cast<int>(i);
    }
    return writer;
  }
  // The instruction whose result the operand is, where nothing else writes or reads that; or -1.
  int OnlyFor(size_t reader, int operand) const {
    const int value = blocks_[reader].from_register[operand];
    return value >= 0 && CountReads(value) == 1 ? WriterOf(value) : -1;
  }

  static void MoveOperand(const VirtualInstruction& from, int o, VirtualInstruction& to, int at) {
    to.instruction.from[at] = from.instruction.from[o];
    to.from_register[at] = from.from_register[o];
    to.joined.from[at] = from.joined.from[o];
  }

  static bool SetJoined(VirtualInstruction& instruction, const JoinedOperations& joined) {
    const ElementKernel kernel = FindJoinedKernel(joined);
    if (kernel == nullptr) return false;
    instruction.instruction.kernel = kernel;
    instruction.joined = joined;
    return true;
  }

  // Elements that are lanes are read where they are by all but stores, which may have overwritten
  // them by then.
  void ReadMemory(size_t load) {
    const VirtualInstruction loaded = blocks_[load];
    if (!IsLeft(load) || loaded.kind != Kind::kLoad || FindRoundKernel(loaded.dtype) != nullptr) {
      return;
    }
    bool is_stored = false;
    for (VirtualInstruction& each : blocks_) {
      for (int o = 0; o < 3; ++o) {
        if (each.from_register[o] != loaded.to_register) continue;
        is_stored = is_stored || each.kind == Kind::kStore;
        if (each.kind != Kind::kStore) MoveOperand(loaded, 0, each, o);
      }
    }
    if (!is_stored) Drop(load);
  }

  void JoinSquares(size_t leaves) {
    VirtualInstruction& reader = blocks_[leaves];
    if (reader.kind != Kind::kLeaves || reader.operation != COTUNE_NODE_ROW_SUM) return;
    const int writer = OnlyFor(leaves, 0);
    if (writer < 0) return;
    const VirtualInstruction& product = blocks_[writer];
    if (product.operation != COTUNE_NODE_MUL ||
        product.from_register[0] != product.from_register[1] ||
        !IsSame(product.instruction.from[0], product.instruction.from[1])) {
      return;
    }
    reader.instruction.kernel = FindSquareLeafKernel();
    MoveOperand(product, 0, reader, 0);
    Drop(writer);
  }

  void JoinSecond(size_t second) {
    VirtualInstruction& reader = blocks_[second];
    const bool multiplies = reader.operation == COTUNE_NODE_MUL;
    if (reader.kind != Kind::kCompute || (!multiplies && reader.operation != COTUNE_NODE_RELU)) {
      return;
    }
    const int writer = OnlyFor(second, 0);
    if (writer < 0) return;
    VirtualInstruction first = blocks_[writer];
    JoinedOperations joined = first.joined;
    if (joined.first == 0 || joined.second != 0) return;
    joined.second = reader.operation;
    if (!SetJoined(first, joined)) return;
    if (multiplies) MoveOperand(reader, 1, first, 2);
    first.instruction.operand_count = multiplies ? 3 : 2;
    first.instruction.to = reader.instruction.to;
    first.to_register = reader.to_register;
    first.operation = 0;
    reader = first;
    Drop(static_cast<size_t>(writer));
  }

  void JoinRound(size_t rounding) {
    if (blocks_[rounding].kind != Kind::kRound) return;
    VirtualInstruction& compute = blocks_[rounding - 1];
    JoinedOperations joined = compute.joined;
    joined.rounded = blocks_[rounding].dtype;
    if (joined.first == 0 || !SetJoined(compute, joined)) return;
    compute.operation = 0;
    Drop(rounding);
  }

  void JoinLoad(size_t reading) {
    for (int o = 0; o < 3; ++o) {
      VirtualInstruction& reader = blocks_[reading];
      if (reader.joined.first == 0) return;
      const int writer = OnlyFor(reading, o);
      if (writer < 0 || blocks_[writer].kind != Kind::kLoad) continue;
      JoinedOperations joined = reader.joined;
      joined.from[o] = blocks_[writer].dtype;
      if (!SetJoined(reader, joined)) continue;
      reader.instruction.from[o] = blocks_[writer].instruction.from[0];
      reader.from_register[o] = -1;
      reader.operation = 0;
      Drop(static_cast<size_t>(writer));
    }
  }

  bool ReadsInput(const VirtualInstruction& instruction, int input) const {
    for (uint32_t o = 0; o < instruction.instruction.operand_count; ++o) {
      const ElementOperand& from = instruction.instruction.from[o];
      if (instruction.from_register[o] < 0 && from.base == Base::kInput &&
          static_cast<int>(from.index) == input) {
        return true;
      }
    }
    return false;
  }

  void JoinStore(size_t storing) {
    const VirtualInstruction store = blocks_[storing];
    if (store.kind != Kind::kStore) return;
    const int writer = OnlyFor(storing, 0);
    if (writer < 0 || blocks_[writer].kind != Kind::kCompute) return;
    for (size_t i = static_cast<size_t>(writer) + 1; i < blocks_.size(); ++i) {
      if (store.overwritten_input >= 0 && ReadsInput(blocks_[i], store.overwritten_input)) return;
    }
    VirtualInstruction& compute = blocks_[writer];
    if (FindRoundKernel(store.dtype) != nullptr) {
      JoinedOperations joined = compute.joined;
      joined.to = store.dtype;
      if (joined.first == 0 || !SetJoined(compute, joined)) return;
    }
    compute.instruction.to = store.instruction.to;
    compute.to_register = -1;
    compute.operation = 0;
    Drop(storing);
  }

  static void SetBareOperands(VirtualInstruction& each) {
    // Loads, stores and leaves touch nothing beyond their elements.
    if (each.kind != Kind::kCompute) return;
    bool is_bare = each.to_register < 0 && each.instruction.to.base != Base::kOwn;
    for (uint32_t o = 0; o < each.instruction.operand_count; ++o) {
      is_bare =
          is_bare || (each.from_register[o] < 0 && each.instruction.from[o].base != Base::kOwn);
    }
    each.instruction.has_bare_operands = is_bare;
  }

  std::vector<VirtualInstruction>& blocks_;
};

}  // namespace

uint64_t Registers::Take(size_t lane_bytes) {
  auto& free = free_[lane_bytes];
  if (free.empty()) return memory_.Take(kBlockElements * lane_bytes);
  const uint64_t offset = free.back();
  free.pop_back();
  return offset;
}

void JoinInstructions(std::vector<VirtualInstruction>& blocks) { Joiner(blocks).Join(); }

// A result may take the register of an operand that is read for the last time, since instructions
// read each vector before they write it, unless their lanes differ in width.
std::vector<ElementInstruction> AssignRegisters(std::vector<VirtualInstruction>& blocks,
                                                const std::vector<size_t>& lane_bytes,
                                                Registers& registers) {
  std::map<int, size_t> last_read;
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const int read : blocks[i].from_register) last_read[read] = i;
  }
  std::map<int, uint64_t> held;
  std::vector<ElementInstruction> made;
  for (size_t i = 0; i < blocks.size(); ++i) {
    VirtualInstruction& each = blocks[i];
    for (int o = 0; o < 3; ++o) {
      const int read = each.from_register[o];
      if (read < 0) continue;
      each.instruction.from[o] = {.element_bytes = static_cast<uint16_t>(lane_bytes[read]),
                                  .offset = held.at(read)};
    }
    for (const int read : each.from_register) {
      if (read < 0 || last_read[read] != i || held.count(read) == 0) continue;
      if (read == each.to_register) continue;
      registers.Free(lane_bytes[read], held[read]);
      held.erase(read);
    }
    if (each.to_register >= 0) {
      if (held.count(each.to_register) == 0) {
        held[each.to_register] = registers.Take(lane_bytes[each.to_register]);
      }
      each.instruction.to = {.element_bytes = static_cast<uint16_t>(lane_bytes[each.to_register]),
                             .offset = held[each.to_register]};
    }
    made.push_back(each.instruction);
  }
  for (const auto& [index, offset] : held) registers.Free(lane_bytes[index], offset);
  return made;
}

}  // namespace cotune::host
