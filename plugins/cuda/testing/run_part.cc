#include "plugins/cuda/testing/run_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "plugins/cuda/cpu_runner/fiber_scheduler.h"
#include "plugins/cuda/cpu_runner/part_variants.h"
#include "plugins/cuda/parts/part_arguments.h"

namespace cotune::cuda::cpu {
namespace {

constexpr std::byte kGuard{0x5A};
constexpr size_t kGuardBytes = 64;
constexpr size_t kVectorBytes = 16;
// What the kernels with the most threads need.
constexpr unsigned int kBlockBytes = 40 << 10;

// An operand between two guards, `shift` elements behind an aligned address.
class Operand {
 public:
  Operand(size_t bytes, size_t shift_bytes)
      : memory_(bytes + shift_bytes + 2 * kGuardBytes + kVectorBytes, kGuard), bytes_(bytes) {
    begin_ = kGuardBytes;
    while (reinterpret_cast<uintptr_t>(memory_.data() + begin_) % kVectorBytes != 0) ++begin_;
    begin_ += shift_bytes;
  }
  std::byte* data() { return memory_.data() + begin_; }
  std::vector<std::byte> content() const {
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes_)};
  }
  bool GuardsAreWhole() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(memory_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), is_guard);
  }

 private:
  std::vector<std::byte> memory_;
  size_t bytes_;
  size_t begin_ = 0;
};

struct Launches {
  PlainFunction kernel;
  AnyPartArguments arguments;
  std::vector<LaunchShape> shapes;
};

// A stream: one launch after the other.
void RunLaunches(void* context) {
  auto& launches = *static_cast<Launches*>(context);
  Acquire(&launches);
  for (size_t i = 0; i < launches.shapes.size(); ++i) {
    launches.arguments.launch = static_cast<unsigned int>(i);
    if (launches.shapes[i].blocks == 0) continue;
    RunKernel(launches.kernel, &launches.arguments, launches.shapes[i]);
  }
  Release(&launches);
}

}  // namespace

PlainFunction PartKernelOf(size_t variant) {
  const std::span<const PlainFunction> slices[kPartSlices] = {kPartSlice0, kPartSlice1, kPartSlice2,
                                                              kPartSlice3};
  return slices[variant % kPartSlices][variant / kPartSlices];
}

PartResult RunPart(PlainFunction kernel, const PartShape& shape, const sdk::Program& program,
                   const std::vector<sdk::PartArray>& inputs, const PartRun& run) {
  const PartStages stages = *StagesOf(program);
  std::vector<Operand> in;
  std::vector<Operand> out;
  std::vector<const void*> in_addresses;
  std::vector<void*> out_addresses;
  for (const sdk::PartArray& each : inputs) {
    in.emplace_back(each.bytes.size(), run.shift * sdk::PartBytes(each.dtype));
    if (!each.bytes.empty()) {
      std::memcpy(in.back().data(), each.bytes.data(), each.bytes.size());
    }
  }
  for (Operand& each : in) in_addresses.push_back(each.data());
  for (const int output : program.outputs) {
    const sdk::Value& type = program.values[static_cast<size_t>(output)];
    out.emplace_back(type.bytes(), run.shift * sdk::PartBytes(type.dtype));
  }
  for (size_t o = 0; o < out.size(); ++o) {
    const int into = program.output_into[o];
    out_addresses.push_back(into >= 0 ? in[static_cast<size_t>(into)].data() : out[o].data());
  }
  Launches launches{kernel, ArgumentsOf(program), {}};
  SetOperands(VectorAlignments(program, stages), program.input_count, in_addresses.data(),
              out_addresses.data(), launches.arguments);
  std::vector<unsigned int> ends;
  for (int launch = 0; launch < stages.launches; ++launch) {
    const auto of_launch = StageEndsOf(program, stages, shape, launch, run.blocks_max);
    ends.insert(ends.end(), of_launch.begin(), of_launch.end());
    launches.shapes.push_back({.blocks = of_launch.back(),
                               .threads = static_cast<unsigned int>(shape.threads),
                               .resident_blocks = 2,
                               .block_bytes = kBlockBytes,
                               .has_late_warps = true});
  }
  if (SharesOutBlocks(stages)) {
    SetStageEnds(ends, in_addresses.size() + out_addresses.size(), launches.arguments);
  }
  FiberScheduler scheduler(run.seed, 0);
  Release(&launches);
  scheduler.Start(RunLaunches, &launches, {});
  scheduler.Run();
  Acquire(&launches);
  PartResult result;
  if (scheduler.alive() != 0) result.failure = "the launch did not end";
  for (size_t o = 0; o < out.size(); ++o) {
    const int into = program.output_into[o];
    Operand& to = into >= 0 ? in[static_cast<size_t>(into)] : out[o];
    result.outputs.push_back(
        {program.values[static_cast<size_t>(program.outputs[o])].dtype, to.content()});
    if (!to.GuardsAreWhole()) result.failure = fmt::format("wrote beyond output {}", o);
  }
  const auto& into = program.output_into;
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::find(into.begin(), into.end(), static_cast<int>(i)) != into.end()) continue;
    if (in[i].content() != inputs[i].bytes) result.failure = fmt::format("changed input {}", i);
  }
  return result;
}

}  // namespace cotune::cuda::cpu
