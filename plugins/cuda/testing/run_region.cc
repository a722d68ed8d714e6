#include "plugins/cuda/testing/run_region.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/cuda/cpu_runner/fused_variants.h"
#include "plugins/cuda/fused/side_arguments.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::PartArray;

// A kernel of rows runs one cluster after the other, and now and then a warp is late.
LaunchShape ShapeOf(const RegionVariant& variant, const RunOptions& options) {
  if (variant.row_threads == 0) return {.blocks = options.blocks, .threads = options.threads};
  const auto cluster_blocks = static_cast<unsigned int>(variant.row_blocks);
  return {.blocks = options.blocks * cluster_blocks,
          .threads = static_cast<unsigned int>(variant.threads),
          .resident_blocks = cluster_blocks,
          .block_bytes = 8 << 10,
          .cluster_blocks = cluster_blocks,
          .has_late_warps = true};
}

}  // namespace

FusedCall::FusedCall(const LeafRegion& region, const sdk::Program& program, OfRanks inputs,
                     const RegionVariant& variant, const RunOptions& options)
    : region_(region),
      program_(program),
      inputs_(std::move(inputs)),
      options_(options),
      shape_(ShapeOf(variant, options)) {
  for (const auto& of_rank : inputs_) {
    auto& in = in_.emplace_back();
    auto& out = out_.emplace_back();
    for (const PartArray& each : of_rank) {
      in.emplace_back(each.bytes.size(), ShiftOf(each.dtype));
      Bytes content(each.bytes.size());
      if (!content.empty()) std::memcpy(content.data(), each.bytes.data(), content.size());
      in.back().Write(content);
    }
    for (const int output : program.outputs) {
      const sdk::Value& type = program.values[static_cast<size_t>(output)];
      out.emplace_back(type.bytes(), ShiftOf(type.dtype));
    }
  }
}

void FusedCall::Launch(RanksOnCpu& ranks, int rank, PlainFunction kernel, const CallRecord& call) {
  const auto r = static_cast<size_t>(rank);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (GuardedBuffer& each : in_[r]) inputs.push_back(each.data());
  for (size_t o = 0; o < out_[r].size(); ++o) {
    const int into = program_.output_into[o];
    GuardedBuffer& output = into >= 0 ? in_[r][static_cast<size_t>(into)] : out_[r][o];
    outputs.push_back(output.data());
  }
  FusedArguments arguments;
  arguments.kernel.count = region_.problem.count;
  arguments.kernel.call = call;
  arguments.kernel.chunk_bytes = options_.chunk_bytes;
  arguments.kernel = ranks.ArgumentsOf(rank, arguments.kernel);
  arguments.source = SideArguments::OfSource(region_).Of(inputs.data(), outputs.data());
  arguments.sink = SideArguments::OfSink(region_).Of(inputs.data(), outputs.data());
  if (rank == options_.late_rank) RanksOnCpu::Delay(100'000);
  RunKernel(kernel, &arguments, shape_);
}

OfRanks FusedCall::Outputs() const {
  OfRanks outputs;
  for (size_t r = 0; r < in_.size(); ++r) {
    auto& of_rank = outputs.emplace_back();
    for (size_t o = 0; o < out_[r].size(); ++o) {
      const Bytes bytes = OutputOf(r, o).content();
      PartArray array{program_.values[static_cast<size_t>(program_.outputs[o])].dtype, {}};
      array.bytes.resize(bytes.size());
      if (!bytes.empty()) std::memcpy(array.bytes.data(), bytes.data(), bytes.size());
      of_rank.push_back(std::move(array));
    }
  }
  return outputs;
}

std::string FusedCall::Damage() const {
  for (size_t r = 0; r < in_.size(); ++r) {
    for (const GuardedBuffer& each : out_[r]) {
      if (!each.GuardsAreWhole()) return fmt::format("rank {} wrote beside an output", r);
    }
    for (size_t i = 0; i < in_[r].size(); ++i) {
      if (!in_[r][i].GuardsAreWhole()) return fmt::format("rank {} wrote beside an input", r);
      const auto& into = program_.output_into;
      if (std::find(into.begin(), into.end(), static_cast<int>(i)) != into.end()) continue;
      const Bytes now = in_[r][i].content();
      const bool is_same = std::equal(now.begin(), now.end(), inputs_[r][i].bytes.begin(),
                                      [](auto a, auto b) { return std::byte(a) == b; });
      if (!is_same) return fmt::format("rank {} wrote into input {}", r, i);
    }
  }
  return "";
}

size_t FusedCall::ShiftOf(sdk::ValueDtype dtype) const {
  return options_.shift * sdk::PartBytes(dtype);
}

const GuardedBuffer& FusedCall::OutputOf(size_t rank, size_t output) const {
  const int into = program_.output_into[output];
  return into >= 0 ? in_[rank][static_cast<size_t>(into)] : out_[rank][output];
}

std::string FailureOf(const RanksOnCpu& ranks, bool has_ended) {
  if (!has_ended) return "a rank waits for ever";
  for (int r = 0; r < ranks.world_size(); ++r) {
    if (!ranks.HasFailed(r)) continue;
    return fmt::format("rank {} failed: {:x} at step {}", r, ranks.failure(r).poison,
                       ranks.failure(r).step);
  }
  return ranks.ScratchIsClean() ? "" : "scratch is not empty";
}

}  // namespace cotune::cuda::cpu
