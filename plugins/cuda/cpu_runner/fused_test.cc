// Fused kernels on the CPU, with the real protocol between ranks: their results have the bits of
// the unfused program, by the naive interpreter of parts and a sum in rank order, and are those of
// the reference evaluator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/program_evaluator.h"
#include "plugins/cuda/cpu_runner/fused_variants.h"
#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/computed_nans.h"
#include "plugins/cuda/testing/part_graph.h"
#include "plugins/cuda/testing/region_cases.h"
#include "plugins/cuda/testing/run_region.h"
#include "plugins/sdk/testing/part_data.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::PartArray;
using sdk::PartElement;

const std::vector<RegionCase>& Cases() {
  static const auto& cases = *new std::vector<RegionCase>(RegionCases());
  return cases;
}

const std::vector<RegionVariant>& Variants() {
  static const auto& variants = *new std::vector<RegionVariant>(RegionVariants());
  return variants;
}

PlainFunction KernelOf(size_t variant) {
  const std::span<const PlainFunction> slices[kFusedSlices] = {kFusedSlice0, kFusedSlice1,
                                                               kFusedSlice2, kFusedSlice3};
  return slices[variant % kFusedSlices][variant / kFusedSlices];
}

OfRanks RandomOnRanks(const sdk::Program& program, int world_size, uint64_t seed, bool special) {
  std::mt19937_64 random(seed);
  OfRanks inputs;
  for (int r = 0; r < world_size; ++r) {
    inputs.push_back(sdk::RandomInputs(program, random, special));
    for (size_t i = 0; i < inputs.back().size(); ++i) {
      if (program.values[i].is_replicated) inputs.back()[i] = inputs.front()[i];
    }
  }
  return inputs;
}

// ---- The right answer, by loops over single elements ----

double Combined(sdk::Reduction reduction, double a, double b, sdk::ValueDtype dtype) {
  switch (reduction) {
    case sdk::Reduction::kMax:
      return a > b || a != a ? a : b;
    case sdk::Reduction::kSum:
    case sdk::Reduction::kAverage:
      if (dtype == sdk::ValueDtype::kF64) return a + b;
      if (sdk::IsFloat(dtype)) return static_cast<float>(a) + static_cast<float>(b);
      return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(a)) +
                                  static_cast<uint32_t>(static_cast<int64_t>(b)));
    default:
      ADD_FAILURE() << "no region of the test has this reduction";
      return 0;
  }
}

// The sums of 64-bit integers, of which a double holds not all. They wrap around.
PartArray SumOfLongs(const std::vector<PartArray>& operands) {
  PartArray sum = operands.front();
  for (size_t at = 0; at < sum.bytes.size(); at += sizeof(uint64_t)) {
    uint64_t total = 0;
    for (const PartArray& operand : operands) {
      uint64_t element;
      std::memcpy(&element, operand.bytes.data() + at, sizeof(element));
      total += element;
    }
    std::memcpy(sum.bytes.data() + at, &total, sizeof(total));
  }
  return sum;
}

PartArray Reduced(const std::vector<PartArray>& operands, sdk::Reduction reduction) {
  PartArray sum = operands.front();
  if (sum.dtype == sdk::ValueDtype::kI64) {
    EXPECT_EQ(reduction, sdk::Reduction::kSum);
    return SumOfLongs(operands);
  }
  for (size_t i = 0; i < sum.bytes.size() / sdk::PartBytes(sum.dtype); ++i) {
    double total = PartElement(operands[0], i);
    for (size_t r = 1; r < operands.size(); ++r) {
      total = Combined(reduction, total, PartElement(operands[r], i), sum.dtype);
    }
    if (reduction == sdk::Reduction::kAverage) {
      const double count = static_cast<double>(operands.size());
      const bool is_wide = sum.dtype == sdk::ValueDtype::kF64;
      total = is_wide ? total / count : static_cast<float>(total) / static_cast<float>(count);
    }
    sdk::SetPartElement(sum, i, total);
  }
  return sum;
}

std::vector<PartArray> InputsOfSide(const LeafSide& side, const std::vector<PartArray>& inputs,
                                    const PartArray& value) {
  std::vector<PartArray> given;
  for (const int i : side.inputs) given.push_back(i < 0 ? value : inputs[static_cast<size_t>(i)]);
  return given;
}

OfRanks Expected(const LeafRegion& region, const OfRanks& inputs) {
  OfRanks outputs(inputs.size());
  for (const LeafPiece& piece : region.pieces) {
    std::vector<PartArray> operands;
    for (const auto& of_rank : inputs) {
      operands.push_back(
          sdk::NaivePart(piece.source.part, InputsOfSide(piece.source, of_rank, {})).front());
    }
    const PartArray value = Reduced(operands, region.problem.reduction);
    for (size_t r = 0; r < inputs.size(); ++r) {
      const auto of_piece =
          sdk::NaivePart(piece.sink.part, InputsOfSide(piece.sink, inputs[r], value));
      for (size_t o = 0; o < of_piece.size(); ++o) {
        const auto output = static_cast<size_t>(piece.outputs[o]);
        if (outputs[r].size() <= output) outputs[r].resize(output + 1);
        outputs[r][output] = of_piece[o];
      }
    }
  }
  return outputs;
}

// ---- Calls on all ranks ----

// Two calls one after the other, with other data; "" if both are right.
struct Ran {
  std::string failure;
  OfRanks inputs;
  OfRanks outputs;  // the last call gave them
};
Ran RunCalls(size_t v, uint64_t rows, const RunOptions& options, bool special) {
  const RegionVariant& variant = Variants()[v];
  const RegionCase& region = Cases()[variant.number_of_case];
  const sdk::Program program = RegionOf(region.graph, rows, variant.world_size);
  const LeafRegion leaves = LeafRegionAt(region, rows, variant.world_size);
  std::vector<OfRanks> inputs;
  std::vector<FusedCall> calls;
  calls.reserve(2);
  for (uint64_t c = 0; c < 2; ++c) {
    inputs.push_back(RandomOnRanks(program, variant.world_size, v * 31 + rows * 2 + c, special));
    calls.emplace_back(leaves, program, inputs.back(), variant, options);
  }
  const CallRecord record = RecordOf(region.name, leaves.problem.count, 0);
  RanksOnCpu ranks(variant.world_size);
  Ran ran;
  const bool has_ended = ranks.Run(
      [&](int rank) {
        for (FusedCall& call : calls) call.Launch(ranks, rank, KernelOf(v), record);
      },
      options.seed);
  ran.failure = FailureOf(ranks, has_ended);
  for (size_t c = 0; c < calls.size() && ran.failure.empty(); ++c) {
    ran.failure = calls[c].Damage();
    ran.outputs = calls[c].Outputs();
    ran.inputs = inputs[c];
    if (!region.has_functions && ran.failure.empty()) {
      const OfRanks expected = Expected(leaves, inputs[c]);
      for (size_t r = 0; r < expected.size() && ran.failure.empty(); ++r) {
        ran.failure = sdk::Difference(ran.outputs[r], expected[r]);
      }
    }
    for (size_t r = 0; r < ran.outputs.size() && ran.failure.empty(); ++r) {
      ran.failure = OtherNan(program, ran.outputs[r]);
    }
  }
  return ran;
}

std::string NameOf(size_t v) {
  const RegionVariant& variant = Variants()[v];
  return fmt::format("{} by {} {} on {} ranks, unroll {}", Cases()[variant.number_of_case].name,
                     variant.algorithm, variant.transport, variant.world_size, variant.unroll);
}

TEST(FusedTest, ResultsHaveTheBitsOfTheUnfusedProgram) {
  size_t split = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    if (Variants()[v].algorithm == "two_shot_split_rows") ++split;
    for (const uint64_t rows : {1u, 3u, 10u}) {
      for (const size_t shift : {0u, 1u}) {
        const RunOptions options = {.blocks = 1 + static_cast<unsigned int>(rows % 3),
                                    .threads = shift == 0 ? 8u : 9u,
                                    .shift = shift,
                                    .seed = v + rows};
        EXPECT_EQ(RunCalls(v, rows, options, shift == 0).failure, "")
            << NameOf(v) << " rows " << rows << " shift " << shift;
      }
    }
  }
  EXPECT_GT(split, 15u);
}

// Blocks that have many chunks or steps use slots again within a launch.
TEST(FusedTest, SlotsAreUsedAgainInALaunch) {
  size_t flagged = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const RegionVariant& variant = Variants()[v];
    const bool has_rows = variant.row_threads != 0;
    if (variant.transport != "flagged" && !has_rows) continue;
    // The last owner lacks rows.
    const uint64_t rows = has_rows ? 37 : 203;
    for (const unsigned int blocks : {1u, 2u}) {
      EXPECT_EQ(RunCalls(v, rows, {.blocks = blocks, .threads = 9, .seed = v}, true).failure, "")
          << NameOf(v) << " blocks " << blocks;
    }
    flagged += has_rows ? 0 : 1;
  }
  EXPECT_GT(flagged, 15u);
}

TEST(FusedTest, ResultsAreRightByTheEvaluator) {
  size_t checked = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const RegionVariant& variant = Variants()[v];
    const ProgramGraph& graph = Cases()[variant.number_of_case].graph;
    const uint64_t rows = 5;
    const Ran ran = RunCalls(v, rows, {.seed = v}, false);
    ASSERT_EQ(ran.failure, "") << NameOf(v);
    std::vector<std::vector<std::vector<std::byte>>> inputs;
    for (const auto& of_rank : ran.inputs) {
      auto& bytes = inputs.emplace_back();
      for (const PartArray& each : of_rank) bytes.push_back(each.bytes);
    }
    const auto expected = EvaluateProgram(graph, rows, variant.world_size, inputs);
    ASSERT_TRUE(expected.has_value()) << expected.error().ToText();
    for (size_t r = 0; r < expected->size(); ++r) {
      for (size_t o = 0; o < (*expected)[r].size(); ++o) {
        EXPECT_EQ(CountWrong((*expected)[r][o], ran.outputs[r][o].bytes), 0u)
            << NameOf(v) << " rank " << r << " output " << o;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 100u);
}

// Two shots and one shot, whatever the grid: the bits of one case are the same.
TEST(FusedTest, EveryKernelAndGridGivesTheSameBits) {
  std::map<std::pair<size_t, int>, OfRanks> first;
  size_t compared = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const RegionVariant& variant = Variants()[v];
    const RegionCase& region = Cases()[variant.number_of_case];
    const sdk::Program program = RegionOf(region.graph, 6, variant.world_size);
    const LeafRegion leaves = LeafRegionAt(region, 6, variant.world_size);
    for (const unsigned int blocks : {1u, 5u}) {
      FusedCall call(leaves, program, RandomOnRanks(program, variant.world_size, 7, false), variant,
                     {.blocks = blocks, .threads = 7 + blocks, .seed = v});
      RanksOnCpu ranks(variant.world_size);
      const CallRecord record = RecordOf(region.name, leaves.problem.count, 0);
      ASSERT_TRUE(
          ranks.Run([&](int rank) { call.Launch(ranks, rank, KernelOf(v), record); }, v + blocks));
      const auto key = std::pair(variant.number_of_case, variant.world_size);
      const auto [found, is_new] = first.try_emplace(key, call.Outputs());
      if (is_new) continue;
      const OfRanks seen = call.Outputs();
      for (size_t r = 0; r < seen.size(); ++r) {
        EXPECT_EQ(sdk::Difference(seen[r], found->second[r]), "") << NameOf(v);
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 50u);
}

TEST(FusedTest, LateRanksAreWaitedFor) {
  for (size_t v = 0; v < Variants().size(); ++v) {
    for (int late = 0; late < Variants()[v].world_size; ++late) {
      EXPECT_EQ(RunCalls(v, 4, {.seed = v, .late_rank = late}, false).failure, "") << NameOf(v);
    }
  }
}

// Kernels of other operations around one collective, or of none.
bool FitTogether(const RegionVariant& a, const RegionVariant& b) {
  if (a.algorithm != b.algorithm || a.world_size != b.world_size || a.unroll != b.unroll ||
      a.transport != b.transport) {
    return false;
  }
  const LeafRegion first = LeafRegionAt(Cases()[a.number_of_case], 1, a.world_size);
  const LeafRegion second = LeafRegionAt(Cases()[b.number_of_case], 1, b.world_size);
  const auto has_own_leaves = [](const LeafRegion& region) {
    return region.is_bucket() || region.has_rows();
  };
  return !has_own_leaves(first) && !has_own_leaves(second) &&
         first.problem.type == second.problem.type &&
         first.problem.reduction == second.problem.reduction;
}

// Even ranks run one region and odd ones another, around a collective of `count` elements; "" if
// all have what they have in a call of their own region alone.
std::string RunMixed(size_t even, size_t odd, uint64_t count) {
  const int world_size = Variants()[even].world_size;
  const size_t variants[] = {even, odd};
  std::vector<sdk::Program> programs;
  std::vector<LeafRegion> regions;
  std::vector<OfRanks> inputs;
  for (const size_t v : variants) {
    const RegionCase& region = Cases()[Variants()[v].number_of_case];
    const uint64_t rows = count / LeafRegionAt(region, 1, world_size).columns;
    programs.push_back(RegionOf(region.graph, rows, world_size));
    regions.push_back(LeafRegionAt(region, rows, world_size));
    inputs.push_back(RandomOnRanks(programs.back(), world_size, v + count, false));
  }
  std::vector<FusedCall> calls;
  for (size_t i = 0; i < 2; ++i) {
    calls.emplace_back(regions[i], programs[i], inputs[i], Variants()[variants[i]],
                       RunOptions{.blocks = 2, .threads = 9});
  }
  const CallRecord record = RecordOf("leaves", regions[0].problem.count, 0);
  RanksOnCpu ranks(world_size);
  const bool has_ended = ranks.Run(
      [&](int rank) {
        const size_t i = static_cast<size_t>(rank) % 2;
        calls[i].Launch(ranks, rank, KernelOf(variants[i]), record);
      },
      even + odd);
  if (!has_ended) return "a rank waits for ever";
  std::vector<PartArray> operands;
  for (size_t r = 0; r < static_cast<size_t>(world_size); ++r) {
    const LeafSide& source = regions[r % 2].source();
    operands.push_back(
        sdk::NaivePart(source.part, InputsOfSide(source, inputs[r % 2][r], {})).front());
  }
  const PartArray value = Reduced(operands, regions[0].problem.reduction);
  for (size_t r = 0; r < static_cast<size_t>(world_size); ++r) {
    if (ranks.HasFailed(static_cast<int>(r))) return fmt::format("rank {} failed", r);
    const LeafSide& sink = regions[r % 2].sink();
    const auto expected = sdk::NaivePart(sink.part, InputsOfSide(sink, inputs[r % 2][r], value));
    const std::string difference = sdk::Difference(calls[r % 2].Outputs()[r], expected);
    if (!difference.empty()) return fmt::format("rank {}: {}", r, difference);
  }
  return ranks.ScratchIsClean() ? calls[0].Damage() + calls[1].Damage() : "scratch is not empty";
}

TEST(FusedTest, RanksWithOtherOperationsAroundACollectiveRunItTogether) {
  size_t mixed = 0;
  size_t beside_none = 0;
  size_t flagged = 0;
  for (size_t a = 0; a < Variants().size(); ++a) {
    for (size_t b = 0; b < Variants().size(); ++b) {
      if (a == b || !FitTogether(Variants()[a], Variants()[b])) continue;
      const RegionCase& first = Cases()[Variants()[a].number_of_case];
      const RegionCase& second = Cases()[Variants()[b].number_of_case];
      if (first.has_functions || second.has_functions) continue;
      const int world_size = Variants()[a].world_size;
      const uint64_t count = LeafRegionAt(first, 1, world_size).problem.count *
                             LeafRegionAt(second, 1, world_size).problem.count;
      // A program of one row has no other count.
      if (first.name == "one_row" || second.name == "one_row") continue;
      EXPECT_EQ(RunMixed(a, b, count), "") << NameOf(a) << " and " << NameOf(b);
      ++mixed;
      if (second.name.starts_with("bare")) ++beside_none;
      if (Variants()[a].transport == "flagged") ++flagged;
    }
  }
  EXPECT_GE(mixed, 28u);
  EXPECT_GE(beside_none, 12u);
  EXPECT_GE(flagged, 4u);
}

// Ranks that run different choices, or collectives of other programs that are not agreed, make
// different calls: both fail, and give no result as right.
TEST(FusedTest, RanksWithOtherCallsFail) {
  size_t failed = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const RegionVariant& variant = Variants()[v];
    const RegionCase& region = Cases()[variant.number_of_case];
    const sdk::Program program = RegionOf(region.graph, 4, variant.world_size);
    const LeafRegion leaves = LeafRegionAt(region, 4, variant.world_size);
    FusedCall call(leaves, program, RandomOnRanks(program, variant.world_size, v, false), variant,
                   {});
    RanksOnCpu ranks(variant.world_size);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          const std::string choice = rank == 1 ? region.name + "?other" : region.name;
          call.Launch(ranks, rank, KernelOf(v), RecordOf(choice, leaves.problem.count, 0));
        },
        v));
    for (int r = 0; r < variant.world_size; ++r) {
      EXPECT_TRUE(ranks.HasFailed(r)) << NameOf(v) << " rank " << r;
      failed += ranks.HasFailed(r) ? 1 : 0;
    }
    EXPECT_EQ(call.Damage(), "") << NameOf(v);
  }
  EXPECT_GT(failed, 60u);
}

// Rank 1 has one row, and the others have more, so that some threads wait for rows that nobody
// sends. The threads that compare the calls may have no data: they must not wait in the barriers of
// their row for those, until the deadline.
TEST(FusedTest, RanksWithOtherNumbersOfRowsFailAsAMismatch) {
  size_t failed = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const RegionVariant& variant = Variants()[v];
    const RegionCase& region = Cases()[variant.number_of_case];
    if (variant.world_size < 3 || !variant.algorithm.ends_with("_rows")) continue;
    constexpr uint64_t kRows[] = {10, 1};
    std::vector<sdk::Program> programs;
    std::vector<LeafRegion> regions;
    std::vector<OfRanks> inputs;
    for (const uint64_t rows : kRows) {
      programs.push_back(RegionOf(region.graph, rows, variant.world_size));
      regions.push_back(LeafRegionAt(region, rows, variant.world_size));
      inputs.push_back(RandomOnRanks(programs.back(), variant.world_size, v, false));
    }
    std::vector<FusedCall> calls;
    calls.reserve(2);
    for (size_t i = 0; i < 2; ++i) {
      const RunOptions options = {.blocks = i == 0 ? 4u : 1u};  // the slots lie elsewhere
      calls.emplace_back(regions[i], programs[i], inputs[i], variant, options);
    }
    RanksOnCpu ranks(variant.world_size);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          const size_t i = rank == 1 ? 1 : 0;
          calls[i].Launch(ranks, rank, KernelOf(v),
                          RecordOf(region.name, regions[i].problem.count, 0));
        },
        v));
    for (int r = 0; r < variant.world_size; ++r) {
      ASSERT_TRUE(ranks.HasFailed(r)) << NameOf(v) << " rank " << r;
      EXPECT_EQ(PoisonKind(ranks.failure(r).poison), kMismatch) << NameOf(v) << " rank " << r;
      ++failed;
    }
  }
  EXPECT_GT(failed, 40u);
}

// A rank that never comes ends the calls of the others by their deadline.
TEST(FusedTest, ARankThatNeverComesEndsTheCall) {
  for (size_t v = 0; v < Variants().size(); ++v) {
    const RegionVariant& variant = Variants()[v];
    const RegionCase& region = Cases()[variant.number_of_case];
    const sdk::Program program = RegionOf(region.graph, 2, variant.world_size);
    const LeafRegion leaves = LeafRegionAt(region, 2, variant.world_size);
    FusedCall call(leaves, program, RandomOnRanks(program, variant.world_size, v, false), variant,
                   {});
    RanksOnCpu ranks(variant.world_size);
    ranks.set_timeout_ns(1'000'000);
    const CallRecord record = RecordOf(region.name, leaves.problem.count, 0);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          if (rank != 0) call.Launch(ranks, rank, KernelOf(v), record);
        },
        v));
    for (int r = 1; r < variant.world_size; ++r) EXPECT_TRUE(ranks.HasFailed(r)) << NameOf(v);
    EXPECT_EQ(call.Damage(), "") << NameOf(v);
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
