// Regions that kernels take and refuse, the choices that are listed for them, and the text of their
// operations.
#include "plugins/cuda/fused/fused_list.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem/program_graph.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/fused/row_list.h"
#include "plugins/cuda/group/call_record.h"
#include "plugins/cuda/kernels/kernel_sources.h"
#include "plugins/cuda/testing/part_graph.h"
#include "plugins/cuda/testing/region_cases.h"

namespace cotune::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 4;
constexpr uint64_t kRows = 256;

sdk::Program Region(std::string_view text, int world_size = kRanks) {
  return RegionOf(ProgramGraph::Parse(text).value().Lower(), kRows, world_size);
}

std::string WhyRefused(std::string_view text) {
  const auto region = LeafRegionOf(Region(text));
  return region ? "" : region.error().message;
}

TEST(LeafRegionTest, EachRefusalHasItsReason) {
  constexpr char kSum[] = "program p\n%x = input bf16 [R, 64]\n%s = all_reduce sum %x\n";
  EXPECT_THAT(
      WhyRefused("program p\n%x = input bf16 [R, 64]\n%s = broadcast %x, root=0\n%y = neg %s\n"
                 "return %y\n"),
      HasSubstr("only all_reduce"));
  EXPECT_THAT(WhyRefused("program p\n%x = input f32 [R, 64]\n%n = row_sum %x\n%z = mul %x, %n\n"
                         "%s = all_reduce sum %z\n%y = neg %s\nreturn %y\n"),
              HasSubstr("before the collective reduces rows"));
  EXPECT_THAT(WhyRefused("program p\n%x = input f32 [1, 64]\n%b = input f32 [R, 64]\n"
                         "%s = all_reduce sum %x\n%z = add %b, %s\n%n = row_sum %z\n"
                         "%y = mul %z, %n\nreturn %y\n"),
              HasSubstr("other rows than the collective's"));
  EXPECT_THAT(WhyRefused(std::string(kSum) + "%t = all_reduce sum %s\n%y = neg %t\nreturn %y\n"),
              HasSubstr("value 1 belongs to two collectives"));
  EXPECT_THAT(WhyRefused("program p\n%x = input bf16 [R, 64]\n%v = neg %x\n%s = all_reduce sum %v\n"
                         "%y = add %s, %v\nreturn %y\n"),
              HasSubstr("value 1 before the collective is read after it"));
}

// Rows that are no whole leaves go to the kernels of rows if a leaf has to know its row.
TEST(LeafRegionTest, OddRowsAreTakenAsRows) {
  const auto has_rows = [](int columns, const char* rows_of_b, const char* nodes) {
    const std::string shape = ", " + std::to_string(columns) + "]\n";
    return LeafRegionOf(Region("program p\n%x = input bf16 [R" + shape + "%b = input bf16 [" +
                               rows_of_b + shape + nodes))
        .value()
        .has_rows();
  };
  constexpr char kAfter[] = "%s = all_reduce sum %x\n%y = add %s, %b\nreturn %y\n";
  constexpr char kBefore[] = "%z = add %x, %b\n%s = all_reduce sum %z\nreturn %s\n";
  for (const char* const nodes : {kAfter, kBefore}) {
    EXPECT_TRUE(has_rows(12, "1", nodes)) << nodes;
    EXPECT_FALSE(has_rows(16, "1", nodes)) << nodes;
    EXPECT_FALSE(has_rows(12, "R", nodes)) << nodes;
  }
}

// All threads of a row read the number, and one overwrites it.
TEST(LeafRegionTest, ANumberOfTheOperandThatIsOverwrittenIsAnInputOfTheSink) {
  const auto region = LeafRegionOf(
      Region("program p\n%x = input f32 [R, 64]\n%w = input f32 [R, 1]\n%z = mul %x, %w\n"
             "%s = all_reduce sum %z\n%n = row_sum %s\n%y = sub %s, %n\n"
             "return %y into %x, %n into %w\n"));
  ASSERT_TRUE(region.has_value());
  EXPECT_EQ(region->sink().inputs, (std::vector<int>{-1, 1}));
  EXPECT_EQ(region->sink().part.output_into, (std::vector<int32_t>{-1, 1}));
  EXPECT_THAT(LeafRegionText(*region), HasSubstr("SyncRow();"));
  const std::vector<Choice> choices = ListFused(*region, {}).value();
  EXPECT_FALSE(choices.empty());
  for (const Choice& choice : choices) {
    EXPECT_EQ(choice.spec.row_blocks, 1) << choice.name;
  }
}

TEST(LeafRegionTest, EachRefusalOfABucketHasItsReason) {
  const auto why = [](const std::string& nodes) {
    return WhyRefused("program p\n%a = input f32 [R, 64]\n%b = input f32 [R, 64]\n" + nodes);
  };
  EXPECT_EQ(why("%s = all_reduce sum %a\n%t = all_reduce sum %b\n%y = neg %s\n%z = neg %t\n"
                "return %y, %z\n"),
            "");
  EXPECT_THAT(why("%s = all_reduce sum %a\n%t = all_reduce max %b\n%y = neg %s\n%z = neg %t\n"
                  "return %y, %z\n"),
              HasSubstr("different reductions"));
  EXPECT_THAT(why("%s = all_reduce sum %a\n%t = all_reduce sum %b\n%y = neg %s\n%z = relu %t\n"
                  "return %y, %z\n"),
              HasSubstr("different operations"));
  EXPECT_THAT(why("%s = all_reduce sum %a\n%t = all_reduce sum %b\n%y = mul %s, 2\n"
                  "%z = mul %t, 3\nreturn %y, %z\n"),
              HasSubstr("different operations"));
  EXPECT_THAT(why("%s = all_reduce sum %a\n%t = all_reduce sum %b\n%y = add %s, %t\nreturn %y\n"),
              HasSubstr("belongs to two collectives"));
  EXPECT_THAT(WhyRefused("program p\n%a = input f32 [R, 64]\n%b = input f32 [R, 64]\n"
                         "%c = input f32 [1, 64]\n%s = all_reduce sum %a\n%t = all_reduce sum %b\n"
                         "%y = add %s, %c\n%z = add %t, %c\nreturn %y, %z\n"),
              HasSubstr("depend on the row or the column"));
  // The first piece would overwrite what the second one reads.
  EXPECT_THAT(why("%s = all_reduce sum %a\n%t = all_reduce sum %b\n%y = neg %s\n%z = neg %t\n"
                  "return %y into %b, %z\n"),
              HasSubstr("output 0 overwrites an input of another collective"));
}

TEST(LeafRegionTest, ABucketIsCutIntoItsPieces) {
  const auto region = LeafRegionOf(
      Region("program p\n%a = input f32 [R, 3]\n%b = input f32 [1, 13]\n%s = all_reduce sum %a\n"
             "%t = all_reduce sum %b\n%y = mul %s, 2\n%z = mul %t, 2\nreturn %z, %y\n"));
  ASSERT_TRUE(region.has_value());
  ASSERT_EQ(region->pieces.size(), 2u);
  EXPECT_EQ(region->pieces[0].elements, kRows * 3);
  EXPECT_EQ(region->pieces[0].source.inputs, (std::vector<int>{0}));
  EXPECT_EQ(region->pieces[0].outputs, (std::vector<int>{1}));
  EXPECT_EQ(region->pieces[1].elements, 13u);
  EXPECT_EQ(region->pieces[1].source.inputs, (std::vector<int>{1}));
  EXPECT_EQ(region->pieces[1].outputs, (std::vector<int>{0}));
  // Whole leaves of 8 elements.
  EXPECT_EQ(region->problem.count, kRows * 3 + 16);
}

// Elements that depend on neither row nor column do not have their width in the text.
TEST(LeafRegionTest, OneKernelServesElementsOfAnyWidth) {
  const auto text = [](const std::string& columns, const char* others) {
    const auto region = LeafRegionOf(Region("program p\n%a = input f32 [R, " + columns + "]\n" +
                                            "%b = input f32 [R, " + others + "]\n" +
                                            "%s = all_reduce sum %a\n%t = all_reduce sum %b\n" +
                                            "%y = mul %s, 2\n%z = mul %t, 2\nreturn %y, %z\n"));
    return region ? LeafRegionText(*region) : region.error().message;
  };
  EXPECT_EQ(text("65536", "4099"), text("16", "5"));
  const auto single = [](const std::string& columns) {
    const auto region =
        LeafRegionOf(Region("program p\n%a = input f32 [R, " + columns + "]\n" +
                            "%s = all_reduce sum %a\n%y = mul %s, 2\n" + "return %y\n"));
    return region ? LeafRegionText(*region) : region.error().message;
  };
  EXPECT_EQ(single("65536"), single("16"));
}

// The peers' kernels compare records: as many leaves, and other pieces.
TEST(LeafRegionTest, BucketsOfOtherSizesHaveOtherRecords) {
  const auto record = [](const char* sizes) {
    const auto region = LeafRegionOf(Region(std::string("program p\n") + sizes +
                                            "%s = all_reduce sum %a\n%t = all_reduce sum %b\n%y = "
                                            "neg %s\n%z = neg %t\nreturn %y, %z\n"));
    EXPECT_EQ(region->problem.count, 64u);
    return RecordOf(region->problem, "one_shot_leaves").word[1];
  };
  const auto first = record("%a = input f32 [1, 24]\n%b = input f32 [1, 40]\n");
  EXPECT_NE(first, record("%a = input f32 [1, 40]\n%b = input f32 [1, 24]\n"));
  EXPECT_NE(first, record("%a = input f32 [1, 24]\n%b = input f32 [1, 33]\n"));
  EXPECT_EQ(first, record("%a = input f32 [1, 24]\n%b = input f32 [1, 40]\n"));
}

TEST(LeafRegionTest, ARegionIsCutAtItsCollective) {
  const auto region = LeafRegionOf(
      Region("program p\n%r = input bf16 [R, 64]\n%x = input f32 [R, 64]\n%v = cast %x, to=bf16\n"
             "%s = all_reduce sum %v\n%y = add %s, %r\n%z = relu %y\nreturn %z into %r, %y\n"));
  ASSERT_TRUE(region.has_value());
  EXPECT_EQ(region->problem.count, kRows * 64);
  EXPECT_EQ(region->source().inputs, (std::vector<int>{1}));
  EXPECT_EQ(region->source().part.nodes.size(), 1u);
  EXPECT_EQ(region->sink().inputs, (std::vector<int>{-1, 0}));
  EXPECT_EQ(region->sink().part.nodes.size(), 2u);
  // The output overwrites what is input 1 of the sink.
  EXPECT_EQ(region->sink().part.output_into, (std::vector<int32_t>{1, -1}));
}

TEST(FusedListTest, ChoicesFollowTheTypeAndTheSizeAndNoneIsTheDefault) {
  for (const RegionCase& each : RegionCases()) {
    const LeafRegion region = LeafRegionAt(each, kRows, kRanks);
    const auto choices = ListFused(region, {});
    ASSERT_TRUE(choices.has_value());
    size_t can_run = 0;
    for (const Choice& choice : *choices) {
      EXPECT_FALSE(choice.is_default) << choice.name;
      EXPECT_LE(choice.name.size(), 95u);
      if (!choice.reason.empty()) continue;
      ++can_run;
      const auto found = FindFused(region, choice.name, {});
      ASSERT_TRUE(found.has_value()) << choice.name;
      EXPECT_EQ(found->blocks, choice.blocks);
      const bool is_integer = !sdk::IsFloat(region.problem.type);
      EXPECT_EQ(choice.numerics, is_integer ? sdk::kExactNumerics : sdk::kRankOrderNumerics);
      const bool has_escapes = is_integer || region.problem.type == sdk::ElementType::kF64;
      EXPECT_THAT(choice.name, HasSubstr(has_escapes ? "transport=escape" : "transport=lamport"));
    }
    // Rows of few leaves have one shape.
    EXPECT_GE(can_run, region.has_rows() ? 1u : 2u) << each.name;
  }
}

TEST(FusedListTest, OneRankHasNoFusedChoice) {
  const auto region =
      LeafRegionOf(Region("program p\n%x = input bf16 [R, 64]\n%s = all_reduce sum %x\n"
                          "%y = neg %s\nreturn %y\n",
                          1));
  ASSERT_TRUE(region.has_value());
  EXPECT_FALSE(ListFused(*region, {}).has_value());
}

// The winner of one size runs at its neighbours.
TEST(FusedListTest, AChoiceOfAnotherSizeIsFoundByItsName) {
  const RegionCase each = RegionCases().front();
  const auto large = ListFused(LeafRegionAt(each, 1 << 16, kRanks), {});
  ASSERT_TRUE(large.has_value());
  const LeafRegion small = LeafRegionAt(each, 300, kRanks);
  size_t found = 0;
  for (const Choice& choice : *large) {
    if (choice.reason.empty() && FindFused(small, choice.name, {})) ++found;
  }
  EXPECT_GT(found, 2u);
  EXPECT_FALSE(FindFused(small,
                         "one_shot_leaves?blocks=9999&pdl=1&threads=512&transport=lamport"
                         "&unroll=1",
                         {})
                   .has_value());
}

// An all_reduce of so many bytes of bf16 with a bias and a relu.
LeafRegion BiasRegion(uint64_t bytes, int world_size) {
  return LeafRegionAt({"bias", ProgramGraph::Parse("program p\n%x = input bf16 [R, 8192]\n"
                                                   "%b = input bf16 [1, 8192]\n"
                                                   "%s = all_reduce sum %x\n%z = add %s, %b\n"
                                                   "%y = relu %z\nreturn %y\n")
                                   ->Lower()},
                      bytes / (2 * 8192), world_size);
}
std::vector<Choice> ChoicesOf(const LeafRegion& region, std::string_view name) {
  std::vector<Choice> choices = ListFused(region, {.has_pdl = true}).value();
  std::erase_if(choices, [&](const Choice& each) { return !each.name.starts_with(name); });
  return choices;
}

constexpr std::string_view kBatched = "one_shot_batched_leaves";

TEST(FusedListTest, BatchesAreForLargeDataOfTwoRanks) {
  const std::vector<Choice> small = ChoicesOf(BiasRegion(2 << 20, 2), kBatched);
  ASSERT_EQ(small.size(), 1u);
  EXPECT_THAT(small.front().reason, HasSubstr("not offered below 4194304 bytes"));
  const std::vector<Choice> of_four = ChoicesOf(BiasRegion(64 << 20, 4), kBatched);
  ASSERT_EQ(of_four.size(), 1u);
  EXPECT_THAT(of_four.front().reason, HasSubstr("more ranks than two"));
  for (const uint64_t bytes : {4 << 20, 16 << 20, 64 << 20}) {
    const std::vector<Choice> large = ChoicesOf(BiasRegion(bytes, 2), kBatched);
    EXPECT_GE(large.size(), 2u);
    for (const Choice& choice : large) {
      EXPECT_EQ(choice.reason, "") << choice.name;
      // It runs at smaller sizes, too, where it is not listed.
      EXPECT_TRUE(FindFused(BiasRegion(1 << 20, 2), choice.name, {.has_pdl = true}).has_value());
    }
  }
  const std::vector<Choice> largest = ChoicesOf(BiasRegion(64 << 20, 2), kBatched);
  EXPECT_EQ(largest.front().blocks, kBatchBlocksMax);
  EXPECT_FALSE(FindFused(BiasRegion(64 << 20, 2),
                         "one_shot_batched_leaves?blocks=513&pdl=1&threads=512&transport=lamport"
                         "&unroll=1",
                         {.has_pdl = true})
                   .has_value());
}

// A tune races the cheapest choices of a region, and of each family the cheapest one first.
TEST(FusedListTest, TheChoicesThatWonOnTwoRanksAreTheCheapest) {
  for (const uint64_t bytes : {8 << 20, 16 << 20, 32 << 20, 64 << 20}) {
    std::vector<Choice> choices = ListFused(BiasRegion(bytes, 2), {.has_pdl = true}).value();
    std::erase_if(choices, [](const Choice& each) { return !each.reason.empty(); });
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.cost_us < b.cost_us; });
    EXPECT_TRUE(choices.front().name.starts_with(kBatched)) << choices.front().name;
    const auto flagged = std::find_if(choices.begin(), choices.end(), [](const Choice& each) {
      return each.spec.transport == "flagged";
    });
    ASSERT_NE(flagged, choices.end());
    EXPECT_EQ(flagged->blocks, 128);
    EXPECT_GE(flagged->chunk_bytes, 16 << 10);
  }
}

uint64_t LeavesOfThread(const LeafRegion& region, const KernelSpec& spec) {
  if (!region.has_rows()) return static_cast<uint64_t>(spec.unroll);
  const auto columns_at_once = static_cast<uint64_t>(8 * spec.row_threads * spec.row_blocks);
  return (region.columns + columns_at_once - 1) / columns_at_once;
}

// Steps of all ranks fit into scratch, in packs of leaves.
TEST(FusedListTest, EveryShapeFitsIntoScratch) {
  for (const RegionCase& each : RegionCases()) {
    for (const int world_size : {2, 3, 4, 8}) {
      for (uint64_t rows = 1; rows < 1 << 20; rows *= 32) {
        const LeafRegion region = LeafRegionAt(each, rows, world_size);
        const auto choices = ListFused(region, {});
        ASSERT_TRUE(choices.has_value());
        const uint64_t leaf_bytes = 8 * sdk::ElementBytes(region.problem.type);
        for (const Choice& choice : *choices) {
          if (!choice.reason.empty()) continue;
          if (choice.spec.transport == "flagged") {
            EXPECT_LE(static_cast<uint64_t>(choice.chunk_bytes), FlaggedSlotBytes(world_size));
            EXPECT_LE(static_cast<uint64_t>(choice.blocks), kRoundBlocksMax);
            continue;
          }
          const uint64_t step_leaves = static_cast<uint64_t>(choice.blocks) *
                                       static_cast<uint64_t>(choice.spec.threads) *
                                       LeavesOfThread(region, choice.spec);
          const bool is_shared = choice.name.starts_with("two_shot");
          const uint64_t exchanges = is_shared ? 2 : 1;
          // A pack with the numbers of a row for each warp of its threads, or each row.
          const int lanes = std::min(choice.spec.row_threads, 32);
          const bool is_split = RowSideOf(choice.spec) == RowSide::kSplit;
          const uint64_t numbers =
              is_split ? 16 * static_cast<uint64_t>(choice.blocks * choice.spec.threads / lanes)
                       : 0;
          EXPECT_LE(
              (step_leaves * leaf_bytes * exchanges + numbers) * static_cast<uint64_t>(world_size),
              kScratchBytes)
              << choice.name;
        }
      }
    }
  }
}

// A family that does not run a region gives its reason.
TEST(FusedListTest, EveryFamilyIsListedOrRefused) {
  for (const RegionCase& each : RegionCases()) {
    for (int world_size = 2; world_size <= 8; ++world_size) {
      for (uint64_t rows = 1; rows < 1 << 22; rows *= 16) {
        const auto choices = ListFused(LeafRegionAt(each, rows, world_size), {});
        ASSERT_TRUE(choices.has_value());
        EXPECT_FALSE(choices->empty());
        if (LeafRegionAt(each, rows, world_size).has_rows()) continue;
        std::set<const KernelFamily*> listed;
        for (const Choice& choice : *choices) listed.insert(choice.family);
        EXPECT_EQ(listed.size(), FusedFamilies().size())
            << each.name << ", " << rows << " rows, " << world_size << " ranks";
      }
    }
  }
}

TEST(FusedListTest, EverySourceIsUsedByAFamily) {
  std::set<std::string_view> unused;
  for (const KernelFile& file : kKernelFiles) {
    if (std::string_view(file.name).ends_with("_leaves.cu")) unused.insert(file.name);
  }
  EXPECT_EQ(unused.size(), 4u);
  for (const KernelFamily& family : FusedFamilies()) unused.erase(family.source);
  EXPECT_THAT(unused, IsEmpty());
}

// Ranks with other operations around the same collective make the same call, and so does a rank
// that has none.
TEST(FusedListTest, TheRecordOfACallIsThatOfTheCollectiveByItself) {
  const auto words = [](const LeafRegion& region) {
    const CallRecord record = RecordOf(region.problem, "one_shot_leaves");
    return std::vector<unsigned int>(std::begin(record.word), std::end(record.word));
  };
  const auto of = [&](const std::string& tail) {
    return words(*LeafRegionOf(
        Region("program p\n%x = input bf16 [R, 64]\n%s = all_reduce sum %x\n" + tail)));
  };
  const std::vector<unsigned int> with_relu = of("%y = relu %s\nreturn %y\n");
  EXPECT_EQ(with_relu, of("%y = neg %s\nreturn %y, %s\n"));
  sdk::Problem alone =
      LeafRegionOf(Region("program p\n%x = input bf16 [R, 64]\n%s = all_reduce sum %x\n"
                          "%y = abs %s\nreturn %y\n"))
          ->problem;
  alone.in_place = true;
  alone.program_digest = 5;
  EXPECT_EQ(with_relu, words(*BareLeafRegion(alone)));
}

TEST(FusedListTest, ACollectiveByItselfHasTheChoicesOfARegion) {
  const LeafRegion region = *LeafRegionOf(Region(
      "program p\n%x = input bf16 [R, 64]\n%s = all_reduce sum %x\n%y = abs %s\nreturn %y\n"));
  const LeafRegion bare = *BareLeafRegion(region.problem);
  const auto listed = ListFused(region, {});
  ASSERT_TRUE(listed.has_value());
  size_t runs = 0;
  for (const Choice& each : *listed) {
    EXPECT_TRUE(IsFusedName(each.name)) << each.name;
    if (!each.reason.empty()) continue;
    const auto found = FindFused(bare, each.name, {});
    ASSERT_TRUE(found.has_value()) << each.name << ": " << found.error().message;
    EXPECT_EQ(std::tuple(found->blocks, found->spec.threads, found->spec.unroll),
              std::tuple(each.blocks, each.spec.threads, each.spec.unroll));
    ++runs;
  }
  EXPECT_GT(runs, 0u);
  EXPECT_FALSE(IsFusedName("one_shot?transport=lamport"));
}

TEST(LeafRegionTextTest, IsThatOfTheGoldenFile) {
  std::string text;
  for (const RegionCase& each : RegionCases()) {
    // One kernel serves every number of rows.
    const std::string of_case = LeafRegionText(LeafRegionAt(each, 1, 2));
    EXPECT_EQ(LeafRegionText(LeafRegionAt(each, 8, 2)), of_case);
    const bool is_golden = each.name == "casts_on_both_sides" || each.name == "bias_relu" ||
                           each.name == "numbers_of_rows" || each.name == "residual_norm" ||
                           each.name == "bucket_residual";
    if (is_golden) text += "// ---- " + each.name + "\n" + of_case;
    if (each.name != "split_residual_norm") continue;
    text += "// ---- split\n" + LeafRegionText(LeafRegionAt(each, 1, 3), RowSide::kSplit);
  }
  std::ifstream file("plugins/cuda/fused/leaf_region.golden");
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << "if the change is meant, this is the new file:\n" << text;
}

// ---- Regions with rows ----

LeafRegion NormRegion(int columns, uint64_t rows, int world_size, const char* dtype = "bf16") {
  std::string text =
      "program p\n%x = input T [R, C]\n%r = input T [R, C]\n%g = input T [1, C]\n"
      "%s = all_reduce sum %x\n%t = add %s, %r\n%y = rms_norm %t, %g, eps=1e-6\n"
      "return %y, %t into %r\n";
  for (size_t at; (at = text.find(" T ")) != std::string::npos;) text.replace(at + 1, 1, dtype);
  for (size_t at; (at = text.find("C]")) != std::string::npos;) {
    text.replace(at, 1, std::to_string(columns));
  }
  return LeafRegionOf(RegionOf(ProgramGraph::Parse(text).value().Lower(), rows, world_size))
      .value();
}

std::vector<std::string> NamesOf(const std::vector<Choice>& choices) {
  std::vector<std::string> names;
  for (const Choice& choice : choices) names.push_back(choice.name);
  return names;
}

TEST(RowListTest, ClustersAreListedForFewRows) {
  const auto names = [](uint64_t rows) {
    return NamesOf(*ListFused(NormRegion(8192, rows, 2), {}));
  };
  const auto shape = [](int cluster, int row) {
    return "one_shot_rows?cluster=" + std::to_string(cluster) +
           "&pdl=1&row=" + std::to_string(row) + "&transport=lamport";
  };
  EXPECT_THAT(names(1), ::testing::IsSupersetOf({shape(8, 128), shape(2, 256), shape(1, 256)}));
  EXPECT_EQ(names(1024), (std::vector<std::string>{shape(1, 512), shape(1, 256), "two_shot_rows",
                                                   "two_shot_split_rows"}));
}

// Widths of models that are in use, each dtype, and all numbers of ranks: a kernel is listed.
TEST(RowListTest, RowsOfModelsHaveAKernel) {
  for (const int columns : {896, 1024, 2048, 2880, 4096, 5120, 7168, 8192, 12288, 16384}) {
    for (const char* const dtype : {"bf16", "f16", "f32"}) {
      for (int world_size = 2; world_size <= 8; ++world_size) {
        const auto choices = ListFused(NormRegion(columns, 16, world_size, dtype), {});
        ASSERT_TRUE(choices.has_value());
        EXPECT_EQ(choices->front().reason, "")
            << columns << " columns of " << dtype << " on " << world_size << " ranks";
      }
    }
  }
}

TEST(RowListTest, RowsThatAreTooLongAreRefusedWithTheReason) {
  const auto choices = ListFused(NormRegion(65536, 16, 2, "f32"), {});
  ASSERT_TRUE(choices.has_value());
  for (const Choice& choice : *choices) {
    if (choice.name == "two_shot_split_rows") continue;  // it has a reason of its own
    EXPECT_THAT(choice.reason, HasSubstr("more registers than there are"));
  }
}

// Two ranks exchange as many bytes in one exchange as in two.
TEST(RowListTest, LargeRegionsOfManyRanksTakeTwoExchanges) {
  const auto reasons = [](uint64_t rows, int world_size) {
    std::vector<Choice> choices = ListFused(NormRegion(8192, rows, world_size), {}).value();
    std::erase_if(choices,
                  [](const Choice& each) { return each.name.find("split") != std::string::npos; });
    return std::pair(choices.front().reason, choices.back().reason);
  };
  EXPECT_EQ(reasons(4096, 2).first, "");
  EXPECT_THAT(reasons(4096, 2).second, HasSubstr("two ranks exchange as many bytes"));
  EXPECT_THAT(reasons(4096, 4).first, HasSubstr("not offered above"));
  EXPECT_EQ(reasons(4096, 4).second, "");
  EXPECT_EQ(reasons(64, 4), std::pair(std::string(), std::string()));
}

// The owner of a row computes for all ranks what it can, which needs operands that all have.
TEST(RowListTest, OwnersReduceRowsIfTheirOperandsAreReplicated) {
  const auto listed = [](const char* flag, int world_size) {
    const std::string text = fmt::format(
        "program p\n%x = input bf16 [R, 8192]\n%r = input bf16 [R, 8192]{}\n"
        "%g = input bf16 [1, 8192]\n%s = all_reduce sum %x\n%t = add %s, %r\n"
        "%y = rms_norm %t, %g, eps=1e-6\nreturn %y, %t into %r\n",
        flag);
    const auto graph = ProgramGraph::Parse(text).value().Lower();
    const LeafRegion region = LeafRegionOf(RegionOf(graph, 256, world_size)).value();
    std::vector<Choice> choices = ListFused(region, {}).value();
    std::erase_if(choices,
                  [](const Choice& each) { return !each.name.starts_with("two_shot_split_rows"); });
    // A choice that is listed is found by its name, and its kernel has the text of owners.
    for (const Choice& choice : choices) {
      const auto found = FindFused(region, choice.name, {});
      EXPECT_EQ(found.has_value(), choice.reason.empty());
      EXPECT_TRUE(!found || RowSideOf(found->spec) == RowSide::kSplit);
    }
    return choices;
  };
  EXPECT_EQ(listed(" replicated", 4).front().reason, "");
  EXPECT_GT(listed(" replicated", 4).size(), 1u);
  EXPECT_EQ(listed("", 4).front().reason,
            "operations up to the last reduction read input 1, which is not replicated");
  EXPECT_THAT(listed(" replicated", 2).front().reason, HasSubstr("two ranks exchange as many"));
}

TEST(RowListTest, OlderGpusHaveNoClusters) {
  const std::vector<Choice> choices = ListFused(NormRegion(8192, 1, 2), {.has_pdl = false}).value();
  for (const Choice& choice : choices) {
    EXPECT_EQ(choice.spec.row_blocks, 1) << choice.name;
    EXPECT_FALSE(choice.spec.uses_pdl);
  }
}

// Elements that are loaded one by one need registers, so that a thread has few of them.
TEST(RowListTest, OddRowsHaveFewLeavesOfAThread) {
  const auto leaves_max = [](int columns, const char* dtype, std::string_view algorithm) {
    const LeafRegion region = NormRegion(columns, 8, 4, dtype);
    int most = 0;
    const std::vector<Choice> choices = ListFused(region, {}).value();
    for (const Choice& choice : choices) {
      if (!choice.reason.empty() || !choice.name.starts_with(algorithm)) continue;
      const int threads = choice.spec.row_threads * choice.spec.row_blocks;
      most = std::max(most, (columns + 8 * threads - 1) / (8 * threads));
    }
    return most;
  };
  EXPECT_EQ(leaves_max(8192, "bf16", "one_shot"), 4);
  EXPECT_EQ(leaves_max(8190, "bf16", "one_shot"), 2);
  EXPECT_EQ(leaves_max(8190, "f32", "one_shot"), 1);
  EXPECT_EQ(leaves_max(8190, "bf16", "two_shot"), 1);
}

// A rank may begin to store its number of a row before threads of another block have read it.
TEST(RowListTest, NumbersThatAreOverwrittenHaveNoClusters) {
  const auto region = LeafRegionOf(
      Region("program p\n%x = input bf16 [R, 8192]\n%w = input f32 [R, 1]\n"
             "%s = all_reduce sum %x\n%f = cast %s, to=f32\n%n = row_sum %f\n%v = mul %n, %w\n"
             "%y = mul %f, %v\n%h = cast %y, to=bf16\nreturn %h, %v into %w\n"));
  const std::vector<Choice> choices = ListFused(*region, {}).value();
  for (const Choice& choice : choices) {
    if (choice.name == "two_shot_split_rows") continue;  // refused, row_split_test
    EXPECT_EQ(choice.reason, "");
    EXPECT_EQ(choice.spec.row_blocks, 1) << choice.name;
  }
}

// Ranks with other columns would exchange other leaves, and find out.
TEST(RowListTest, RegionsOfOtherColumnsHaveOtherRecords) {
  const auto record = [](int columns, uint64_t rows) {
    return RecordOf(NormRegion(columns, rows, 2).problem, "one_shot_rows").word[1];
  };
  EXPECT_NE(record(1024, 8), record(2048, 4));
  EXPECT_EQ(record(1024, 8), record(1024, 8));
}

}  // namespace
}  // namespace cotune::cuda
