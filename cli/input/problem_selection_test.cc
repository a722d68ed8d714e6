#include "cli/input/problem_selection.h"

#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

TEST(ProblemSelectionTest, DefaultsAreEveryCollectiveInF32AndBothPlacesWhereTheyMatter) {
  const ProblemSelection selection = SelectProblems({}, MemoryKind::kHost, 4).value();
  std::vector<std::string> texts;
  for (const ProblemClass& cls : selection.classes) texts.push_back(ToText(cls));
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "all_reduce/sum/f32/host/plain/out_of_place/world4x4",
                       "all_reduce/sum/f32/host/plain/in_place/world4x4",
                       "all_gather/none/f32/host/plain/out_of_place/world4x4",
                       "all_gather/none/f32/host/plain/in_place/world4x4",
                       "reduce_scatter/sum/f32/host/plain/out_of_place/world4x4",
                       "all_to_all/none/f32/host/plain/out_of_place/world4x4",
                       "broadcast/none/f32/host/plain/out_of_place/world4x4/root0",
                   }));
  ASSERT_EQ(selection.sizes_bytes.size(), 13u);
  EXPECT_EQ(selection.sizes_bytes.front(), 1024u);
  EXPECT_EQ(selection.sizes_bytes.back(), 4u << 20);
  ProblemFlags out_of_place;
  out_of_place.in_place = "no";
  EXPECT_EQ(SelectProblems(out_of_place, MemoryKind::kHost, 4)->classes.size(), 5u);
}

TEST(ProblemSelectionTest, NamesMultiplyAndReductionsHoldWhereTheyApply) {
  ProblemFlags flags;
  flags.collectives = {"all_reduce", "broadcast", "all_reduce"};
  flags.dtypes = {"f32", "bf16"};
  flags.reductions = {"sum", "max"};
  flags.sizes = "4K";
  flags.in_place = "yes";
  const ProblemSelection selection = SelectProblems(flags, MemoryKind::kHost, 2).value();
  std::vector<std::string> texts;
  for (const ProblemClass& cls : selection.classes) texts.push_back(ToText(cls));
  EXPECT_EQ(texts,
            (std::vector<std::string>{"all_reduce/sum/f32/host/plain/in_place/world2x2",
                                      "all_reduce/max/f32/host/plain/in_place/world2x2",
                                      "all_reduce/sum/bf16/host/plain/in_place/world2x2",
                                      "all_reduce/max/bf16/host/plain/in_place/world2x2",
                                      "broadcast/none/f32/host/plain/in_place/world2x2/root0",
                                      "broadcast/none/bf16/host/plain/in_place/world2x2/root0"}));
}

TEST(ProblemSelectionTest, BothPlacesAreMeasuredWhereTheyHaveRowsOfTheirOwn) {
  ProblemFlags flags;
  flags.collectives = {"all_gather", "broadcast"};
  flags.in_place = "both";
  const ProblemSelection selection = SelectProblems(flags, MemoryKind::kHost, 2).value();
  std::vector<std::string> texts;
  for (const ProblemClass& cls : selection.classes) texts.push_back(ToText(cls));
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "all_gather/none/f32/host/plain/out_of_place/world2x2",
                       "all_gather/none/f32/host/plain/in_place/world2x2",
                       "broadcast/none/f32/host/plain/out_of_place/world2x2/root0",
                   }));
}

TEST(ProblemSelectionTest, GpusAreTunedInTheTypesAndSizesThatModelsComputeWith) {
  ProblemFlags flags;
  flags.collectives = {"all_gather"};
  const ProblemSelection on_gpus = SelectProblems(flags, MemoryKind::kCuda, 2).value();
  ASSERT_EQ(on_gpus.classes.size(), 2u);
  EXPECT_EQ(on_gpus.classes[0].dtype, Dtype::kBf16);
  EXPECT_EQ(on_gpus.classes[1].dtype, Dtype::kF32);
  ASSERT_EQ(on_gpus.sizes_bytes.size(), 15u);
  EXPECT_EQ(on_gpus.sizes_bytes[13], 16u << 20);
  EXPECT_EQ(on_gpus.sizes_bytes.back(), 64u << 20);
  flags.dtypes = {"f16"};
  EXPECT_EQ(SelectProblems(flags, MemoryKind::kCuda, 2)->classes.size(), 1u);
}

TEST(ProblemSelectionTest, HintsOfTheSettingsStandInForSizes) {
  ProblemFlags flags;
  EXPECT_EQ(SelectProblems(flags, MemoryKind::kHost, 4, {64, 128})->sizes_bytes,
            (std::vector<uint64_t>{64, 128}));
  flags.sizes = "4K";
  EXPECT_EQ(SelectProblems(flags, MemoryKind::kHost, 4, {64, 128})->sizes_bytes,
            (std::vector<uint64_t>{4096}));
}

TEST(ProblemSelectionTest, AllMeansAll) {
  ProblemFlags flags;
  flags.collectives = {"all"};
  flags.dtypes = {"all"};
  flags.reductions = {"all"};
  flags.in_place = "no";
  // Two collectives reduce: 2 x 7 dtypes x 5 reductions, and 3 x 7 that do not.
  EXPECT_EQ(SelectProblems(flags, MemoryKind::kHost, 4)->classes.size(), 2u * 7 * 5 + 3 * 7);
  // As without --collective, all_reduce and all_gather are measured in place as well.
  flags.in_place.clear();
  EXPECT_EQ(SelectProblems(flags, MemoryKind::kHost, 4)->classes.size(),
            2u * 7 * 5 + 3 * 7 + 7 * 5 + 7);
  flags.collectives = {"all_reduce"};
  EXPECT_EQ(SelectProblems(flags, MemoryKind::kHost, 4)->classes.size(), 7u * 5);
}

TEST(ProblemSelectionTest, HostMemoryHasNoSymmetricBuffers) {
  ProblemFlags flags;
  flags.collectives = {"broadcast"};
  flags.sizes = "4K";
  flags.buffers = {"all"};
  const ProblemSelection on_host = SelectProblems(flags, MemoryKind::kHost, 2).value();
  ASSERT_EQ(on_host.classes.size(), 1u);
  EXPECT_EQ(on_host.classes[0].buffer_class, BufferClass::kPlain);
  EXPECT_EQ(RoundingText(on_host), "symmetric buffers are left out: host memory has none");
  const ProblemSelection on_gpus = SelectProblems(flags, MemoryKind::kCuda, 2).value();
  EXPECT_EQ(on_gpus.classes.size(), 4u) << "two kinds of buffers for each of two types";
  EXPECT_EQ(RoundingText(on_gpus), "");
  flags.buffers = {"symmetric"};
  const auto refused = SelectProblems(flags, MemoryKind::kHost, 2);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().ToText(),
            "host memory has no symmetric buffers (--buffers): its ranks exchange data through "
            "shared memory of their own; leave --buffers out");
  EXPECT_TRUE(SelectProblems(flags, MemoryKind::kCuda, 2).has_value());
}

TEST(ProblemSelectionTest, UnknownNamesGiveListAndNearest) {
  ProblemFlags flags;
  flags.collectives = {"allreduce"};
  Error error = SelectProblems(flags, MemoryKind::kHost, 4).error();
  EXPECT_EQ(error.ToText(),
            "unknown collective 'allreduce' (--collective); known: all_reduce, all_gather, "
            "reduce_scatter, all_to_all, broadcast, all; did you mean all_reduce?");
  flags = {};
  flags.dtypes = {"fp32"};
  error = SelectProblems(flags, MemoryKind::kHost, 4).error();
  EXPECT_EQ(error.where, "--dtype");
  EXPECT_TRUE(error.next_step.ends_with("did you mean f32?")) << error.next_step;
  flags.dtypes = {"float32"};
  error = SelectProblems(flags, MemoryKind::kHost, 4).error();
  EXPECT_TRUE(error.next_step.ends_with(", u8, all; did you mean f32?")) << error.next_step;
  flags.dtypes = {"f8"};
  error = SelectProblems(flags, MemoryKind::kHost, 4).error();
  EXPECT_TRUE(error.next_step.ends_with(", u8, all")) << error.next_step;
  flags = {};
  flags.reductions = {"avg"};
  error = SelectProblems(flags, MemoryKind::kHost, 4).error();
  EXPECT_EQ(error.where, "--reduction");
  flags = {};
  flags.sizes = "1K:2Q";
  error = SelectProblems(flags, MemoryKind::kHost, 4).error();
  EXPECT_EQ(error.where, "--sizes, character 5");
}

TEST(ProblemSelectionTest, NoSizesAtAllAreAMistake) {
  ProblemFlags flags;
  flags.sizes = "";
  const Error error = SelectProblems(flags, MemoryKind::kHost, 4).error();
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_EQ(error.where, "--sizes, character 1");
}

TEST(ProblemSelectionTest, RoundedSizesAreTold) {
  ProblemFlags flags;
  flags.collectives = {"all_reduce", "all_gather"};
  flags.dtypes = {"f32", "u8"};
  flags.sizes = "1001,1200";
  EXPECT_EQ(RoundingText(*SelectProblems(flags, MemoryKind::kHost, 3)),
            "sizes are rounded down to whole elements, the same number for every rank: all_reduce "
            "f32 1001 -> 1000, all_gather f32 1001 -> 996, all_gather u8 1001 -> 999");
  flags.sizes = "12:17:+1";
  EXPECT_TRUE(RoundingText(*SelectProblems(flags, MemoryKind::kHost, 3))
                  .ends_with("all_reduce f32 13 -> 12, all_reduce f32 14 -> 12, "
                             "all_reduce f32 15 -> 12, all_reduce f32 17 -> 16, and 9 more"))
      << RoundingText(*SelectProblems(flags, MemoryKind::kHost, 3));
  flags.sizes = "1200";
  EXPECT_EQ(RoundingText(*SelectProblems(flags, MemoryKind::kHost, 3)), "");
}

TEST(ProblemSelectionTest, SizesWithoutAnElementForEveryRankAreLeftOut) {
  ProblemFlags flags;
  flags.collectives = {"all_reduce", "all_to_all"};
  flags.sizes = "0,3,4,11,12";
  const ProblemSelection selection = *SelectProblems(flags, MemoryKind::kHost, 3);
  ASSERT_EQ(selection.classes.size(), 2u);
  EXPECT_EQ(selection.SizesOf(selection.classes[0]), (std::vector<uint64_t>{4, 11, 12}));
  EXPECT_EQ(selection.SizesOf(selection.classes[1]), (std::vector<uint64_t>{12}));
  EXPECT_EQ(RoundingText(selection),
            "sizes are rounded down to whole elements, the same number for every rank: all_reduce "
            "f32 11 -> 8; left out, since they are less than an element for every rank: all_reduce "
            "f32 0, all_reduce f32 3, all_to_all f32 0, all_to_all f32 3, and 2 more");
  flags.sizes = "4";
  const ProblemSelection one = *SelectProblems(flags, MemoryKind::kHost, 3);
  ASSERT_EQ(one.classes.size(), 1u);
  EXPECT_EQ(one.classes[0].collective, Collective::kAllReduce);
  flags.sizes = "3";
  const Error error = SelectProblems(flags, MemoryKind::kHost, 3).error();
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_EQ(error.ToText(),
            "no size has an element for every rank (--sizes): all_reduce f32 3, all_to_all f32 3; "
            "ask for larger sizes");
  flags.sizes = "0";
  EXPECT_EQ(SelectProblems(flags, MemoryKind::kHost, 3).error().ToText(),
            "no size has an element for every rank (--sizes): all_reduce f32 0, all_to_all f32 0; "
            "ask for larger sizes");
}

TEST(ProblemSelectionTest, ExplainTakesOneCall) {
  ExplainFlags flags;
  flags.collective = "reduce_scatter";
  flags.size = "64K";
  flags.dtype = "f64";
  flags.reduction = "max";
  const Problem problem = SelectProblem(flags, MemoryKind::kHost, 4).value();
  EXPECT_EQ(ToText(problem), "reduce_scatter/max/f64/host/plain/out_of_place/world4x4/count2048");
  flags.size = "64K,1M";
  EXPECT_EQ(SelectProblem(flags, MemoryKind::kHost, 4).error().what, "explain takes one call");
  flags.size = "6x";
  EXPECT_EQ(SelectProblem(flags, MemoryKind::kHost, 4).error().where, "SIZE, character 2");
  flags.collective = "reduce";
  const Error unknown = SelectProblem(flags, MemoryKind::kHost, 4).error();
  EXPECT_EQ(unknown.where, "COLLECTIVE");
  EXPECT_EQ(unknown.next_step.find("all;"), std::string::npos) << unknown.next_step;
}

}  // namespace
}  // namespace cotune::cli
