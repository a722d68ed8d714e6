#include "plugins/host/element_program.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "plugins/host/element_kernels.h"
#include "plugins/host/element_plan.h"
#include "plugins/host/element_planner.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {
namespace {

using Base = ElementOperand::Base;

// The operands of one call.
struct Call {
  std::byte* own;
  std::byte* tails;
  const void* const* inputs;
  void* const* outputs;

  std::byte* Address(const ElementOperand& operand, uint64_t row, uint64_t column) const {
    std::byte* base = own;
    if (operand.base == Base::kInput) {
      // Instructions write to outputs and to own memory only.
      base = static_cast<std::byte*>(const_cast<void*>(inputs[operand.index]));
    } else if (operand.base == Base::kOutput) {
      base = static_cast<std::byte*>(outputs[operand.index]);
    }
    return base + operand.offset + row * operand.row_bytes +
           (column >> operand.column_shift) * operand.column_bytes;
  }

  // The elements behind the last whole vectors, which not all operands have the memory for.
  void ExecuteTail(const ElementInstruction& each, const ElementArguments& whole) const {
    const size_t begin = whole.count / kWholeElements * kWholeElements;
    ElementArguments tail = whole;
    tail.count = whole.count - begin;
    for (uint32_t o = 0; o < each.operand_count; ++o) {
      if (each.from[o].step == 0) continue;
      const size_t bytes = each.from[o].element_bytes;
      std::byte* copy = tails + (o + 1) * kTailBytes;
      std::memcpy(copy, static_cast<const std::byte*>(whole.from[o]) + begin * bytes,
                  tail.count * bytes);
      tail.from[o] = copy;
    }
    tail.to = tails;
    each.kernel(tail);
    std::memcpy(static_cast<std::byte*>(whole.to) + begin * each.to.element_bytes, tails,
                tail.count * each.to.element_bytes);
  }

  void ExecuteOne(const ElementInstruction& each, uint64_t row, uint64_t column,
                  uint64_t count) const {
    ElementArguments arguments;
    arguments.count = each.fixed_count != 0 ? each.fixed_count : count;
    arguments.to = Address(each.to, row, column);
    for (uint32_t o = 0; o < each.operand_count; ++o) {
      arguments.from[o] = Address(each.from[o], row, column);
      arguments.step[o] = each.from[o].step;
    }
    arguments.constants[0] = each.constants[0];
    arguments.constants[1] = each.constants[1];
    if (!each.has_bare_operands || arguments.count % kWholeElements == 0) {
      each.kernel(arguments);
      return;
    }
    const ElementArguments all = arguments;
    arguments.count = all.count / kWholeElements * kWholeElements;
    each.kernel(arguments);
    ExecuteTail(each, all);
  }

  void Execute(const std::vector<ElementInstruction>& instructions, uint64_t row) const {
    for (const ElementInstruction& each : instructions) ExecuteOne(each, row, 0, 1);
  }

  void WalkBlocks(const ElementPass& pass, uint64_t row, uint64_t begin, uint64_t end) const {
    for (uint64_t column = begin; column < end; column += kBlockElements) {
      const uint64_t count = std::min(kBlockElements, end - column);
      for (const ElementInstruction& each : pass.blocks) ExecuteOne(each, row, column, count);
    }
  }

  void RunLoop(const ElementLoop& loop, uint64_t first_row, uint64_t rows) const {
    if (loop.is_flat) {
      for (const ElementPass& pass : loop.passes) {
        WalkBlocks(pass, 0, first_row * loop.columns, (first_row + rows) * loop.columns);
      }
      return;
    }
    for (uint64_t row = first_row; row < first_row + rows; ++row) {
      for (const ElementPass& pass : loop.passes) {
        Execute(pass.before, row);
        WalkBlocks(pass, row, 0, pass.columns);
        Execute(pass.after, row);
      }
    }
  }
};

}  // namespace

Result<std::unique_ptr<ElementProgram>> ElementProgram::Prepare(const sdk::Program& part) {
  COTUNE_TRY(auto plan, PlanElements(sdk::WithoutCopies(part)));
  return std::unique_ptr<ElementProgram>(new ElementProgram(std::move(plan)));
}

ElementProgram::ElementProgram(ElementPlan plan)
    : plan_(std::move(plan)), own_(hwy::AllocateAligned<std::byte>(plan_.own_bytes)) {
  // Instructions compute whole vectors, hence also what lies behind the last element.
  std::memset(own_.get(), 0, plan_.own_bytes);
  for (const ElementPlan::Literal& literal : plan_.literals) {
    ElementArguments arguments;
    arguments.to = own_.get() + literal.offset;
    arguments.from[0] = &literal.value;
    arguments.count = 1;
    FindCastKernel(Lane::kF64, literal.lane, false)(arguments);
    arguments.from[0] = arguments.to;
    FindSplatKernel(literal.lane)(arguments);
  }
}

void ElementProgram::Run(const void* const* inputs, void* const* outputs) {
  const Call call{
      .own = own_.get(), .tails = own_.get() + plan_.tails, .inputs = inputs, .outputs = outputs};
  call.RunLoop(plan_.single, 0, 1);
  for (const ElementLoop& loop : plan_.loops) call.RunLoop(loop, 0, loop.rows);
  call.RunLoop(plan_.single_stores, 0, 1);
}

void ElementProgram::Begin(const void* const* inputs) {
  const Call call{
      .own = own_.get(), .tails = own_.get() + plan_.tails, .inputs = inputs, .outputs = nullptr};
  call.RunLoop(plan_.single, 0, 1);
}

void ElementProgram::RunRows(const void* const* inputs, void* const* outputs, uint64_t first_row,
                             uint64_t rows) {
  const Call call{
      .own = own_.get(), .tails = own_.get() + plan_.tails, .inputs = inputs, .outputs = outputs};
  for (const ElementLoop& loop : plan_.loops) call.RunLoop(loop, first_row, rows);
}

void ElementProgram::RunElements(const void* const* inputs, void* const* outputs, uint64_t first,
                                 uint64_t count) {
  const Call call{
      .own = own_.get(), .tails = own_.get() + plan_.tails, .inputs = inputs, .outputs = outputs};
  for (const ElementLoop& loop : plan_.loops) {
    for (const ElementPass& pass : loop.passes) call.WalkBlocks(pass, 0, first, first + count);
  }
}

void ElementProgram::End(const void* const* inputs, void* const* outputs) {
  const Call call{
      .own = own_.get(), .tails = own_.get() + plan_.tails, .inputs = inputs, .outputs = outputs};
  call.RunLoop(plan_.single_stores, 0, 1);
}

}  // namespace cotune::host
