// The packed value of several collectives: where each lies, and what is computed and used of it.
#include "plugins/host/bucket_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "plugins/host/fused_operations.h"
#include "plugins/host/region_cut.h"
#include "plugins/host/testing/abi_region.h"
#include "plugins/sdk/program.h"

namespace cotune::host {
namespace {

using testing::ElementsAre;
using testing::Pair;

RegionCut CutOf(const std::vector<uint64_t>& columns, uint64_t rows = 1) {
  const AbiRegion region = AllReducesOf(columns, 2, rows);
  const auto program = sdk::CheckProgram(region.program(), {.ranks_max = 2});
  EXPECT_TRUE(program.has_value());
  auto cut = CutRegion(*program);
  EXPECT_TRUE(cut.has_value());
  return *std::move(cut);
}

std::vector<std::pair<uint64_t, uint64_t>> PlacesOf(const RegionCut& cut) {
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const RegionMember& each : cut.members) places.emplace_back(each.begin, each.count);
  return places;
}

TEST(PackedValue, HasEachCollectiveAtAMultipleOf256Bytes) {
  const RegionCut cut = CutOf({3, 64, 70, 5});
  EXPECT_TRUE(cut.is_bucket());
  EXPECT_THAT(PlacesOf(cut), ElementsAre(Pair(0, 3), Pair(64, 64), Pair(128, 70), Pair(256, 5)));
  EXPECT_EQ(cut.problem.count, 261u);
  EXPECT_EQ(CutOf({3, 64}, 0).problem.count, 0u);
}

TEST(PackedValue, IsRefusedIfItIsLargerThanAnyProblem) {
  // Each of these has as many elements as a problem may have.
  constexpr uint64_t kRows = uint64_t{1} << 25;
  const AbiRegion region = AllReducesOf({1 << 25, 1 << 25}, 2, kRows);
  const auto program = sdk::CheckProgram(region.program(), {.ranks_max = 2});
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(CutRegion(*program).error().message,
            "the collectives of the region are too large for a packed value");
}

TEST(PackedValue, HasADigestOfItsPlaces) {
  std::vector<uint32_t> digests;
  for (const std::vector<uint64_t>& columns :
       {std::vector<uint64_t>{3, 7, 5}, {7, 3, 5}, {3, 7, 6}, {3, 7}, {3, 7, 5, 5}}) {
    digests.push_back(DigestOfPlaces(CutOf(columns)));
  }
  EXPECT_EQ(digests[0], DigestOfPlaces(CutOf({3, 7, 5})));
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
}

class PackedRanges : public testing::Test {
 protected:
  static constexpr uint64_t kCount = 261;

  PackedRanges() : fused_(*FusedOperations::Prepare(CutOf({3, 64, 70, 5}))), packed_(kCount, 0) {
    for (const auto& [begin, count] : {Pairs{0, 3}, {64, 64}, {128, 70}, {256, 5}}) {
      std::vector<float>& input = inputs_.emplace_back(count);
      std::iota(input.begin(), input.end(), static_cast<float>(begin + 1));
      std::copy(input.begin(), input.end(), packed_.begin() + static_cast<int64_t>(begin));
    }
    outputs_ = inputs_;
  }
  void Begin() {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const std::vector<float>& each : inputs_) inputs.push_back(each.data());
    for (std::vector<float>& each : outputs_) {
      std::fill(each.begin(), each.end(), -1.0f);
      outputs.push_back(each.data());
    }
    fused_->Begin(inputs.data(), outputs.data());
  }

  using Pairs = std::pair<uint64_t, uint64_t>;
  std::unique_ptr<FusedOperations> fused_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> outputs_;
  std::vector<float> packed_;
};

TEST_F(PackedRanges, AreComputedWithZerosInTheGaps) {
  Begin();
  for (uint64_t first = 0; first < kCount; ++first) {
    for (uint64_t end = first + 1; end <= kCount; ++end) {
      // One more than the range, which stays.
      std::vector<float> expected(packed_.begin() + static_cast<int64_t>(first),
                                  packed_.begin() + static_cast<int64_t>(end));
      expected.push_back(-1);
      std::vector<float> computed(expected.size(), -1);
      fused_->ComputeOperand(first, end - first, computed.data());
      ASSERT_EQ(computed, expected) << first << " to " << end;
    }
  }
}

TEST_F(PackedRanges, AreUsedOnceEach) {
  for (uint64_t cut = 0; cut <= kCount; ++cut) {
    Begin();
    if (cut > 0) fused_->UseValue(0, cut, packed_.data());
    if (cut < kCount) fused_->UseValue(cut, kCount - cut, packed_.data() + cut);
    ASSERT_EQ(outputs_, inputs_) << "cut at " << cut;
  }
}

}  // namespace
}  // namespace cotune::host
