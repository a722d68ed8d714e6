#include "plugins/cuda/choices/choice_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::ElementType;
using sdk::Problem;
using ::testing::HasSubstr;

constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll,
                                       Collective::kBroadcast};

Problem ProblemOf(Collective collective, ElementType type, uint64_t count, int world_size) {
  Problem problem;
  problem.collective = collective;
  problem.type = type;
  problem.count = count;
  problem.world_size = world_size;
  return problem;
}

// Calls `body` for problems of all kinds.
template <typename Body>
void ForEachProblem(Body body) {
  for (const Collective collective : kCollectives) {
    for (const ElementType type : sdk::kElementTypes) {
      for (const int world_size : {1, 2, 3, 4, 5, 8}) {
        for (const uint64_t count :
             {0ull, 1ull, 17ull, 1000ull, 65537ull, 3000000ull, 1ull << 30}) {
          body(ProblemOf(collective, type, count, world_size));
        }
      }
    }
  }
}

std::vector<Choice> Runnable(const Problem& problem) {
  std::vector<Choice> choices = ListChoices(problem, {});
  std::erase_if(choices, [](const Choice& choice) { return !choice.reason.empty(); });
  return choices;
}

TEST(ChoiceListTest, EveryProblemHasOneDefaultAndNamesThatDiffer) {
  ForEachProblem([](const Problem& problem) {
    std::set<std::string> names;
    int defaults = 0;
    for (const Choice& choice : ListChoices(problem, {})) {
      EXPECT_TRUE(names.insert(choice.name).second) << choice.name;
      EXPECT_LT(choice.name.size(), 96u);
      EXPECT_LT(choice.reason.size(), 144u) << choice.reason;
      defaults += choice.is_default ? 1 : 0;
      if (choice.is_default) {
        EXPECT_EQ(choice.reason, "");
      }
    }
    EXPECT_EQ(defaults, 1) << static_cast<int>(problem.collective) << " " << problem.count;
  });
}

// The kernels of rings and trees add up as blocks and chunks cut the data; all others call
// ReduceInRankOrder.
TEST(ChoiceListTest, RingsAndTreesAloneHaveNumericsOfTheirOwn) {
  ForEachProblem([](const Problem& problem) {
    const bool has_order =
        sdk::Reduces(problem) && sdk::IsFloat(problem.type) && problem.world_size > 1;
    for (const Choice& choice : Runnable(problem)) {
      const std::string algorithm = choice.name.substr(0, choice.name.find('?'));
      const bool has_own = algorithm == "ring" || algorithm == "tree";
      const std::string own = algorithm + "." + std::to_string(choice.blocks) + "." +
                              std::to_string(choice.chunk_bytes);
      EXPECT_EQ(choice.numerics, !has_order ? "exact"
                                 : has_own  ? own
                                            : "rank_order_f32")
          << choice.name;
      EXPECT_LT(choice.numerics.size(), sizeof(cotune_choice_t::numerics));
    }
  });
}

TEST(ChoiceListTest, AStepFitsIntoScratch) {
  ForEachProblem([](const Problem& problem) {
    for (const Choice& choice : Runnable(problem)) {
      if (choice.is_copy) continue;
      ASSERT_NE(choice.spec.transport, "zero_copy") << "no buffer is registered";
      ASSERT_NE(choice.spec.transport, "copy_engine") << "no buffer is registered";
      if (choice.spec.transport == "queued") continue;  // below
      // As the kernels lay it out: a slot for each rank, twice when results travel too; a broadcast
      // has one sender and a greeting of each thread of each rank.
      const auto threads =
          static_cast<uint64_t>(choice.blocks) * static_cast<uint64_t>(choice.spec.threads);
      const uint64_t packs = threads * static_cast<uint64_t>(choice.spec.unroll);
      const auto ranks = static_cast<uint64_t>(problem.world_size);
      if (choice.spec.transport == "flagged") {
        // Three slots of what is sent and two of results, from every peer, in the part of a block.
        EXPECT_LE(5 * (ranks - 1) * static_cast<uint64_t>(choice.chunk_bytes), kFlaggedBlockBytes)
            << choice.name;
        EXPECT_LE(choice.blocks * kFlaggedBlockBytes, kArenaBytes - kFlaggedBegin) << choice.name;
        continue;
      }
      const bool is_two_shot = choice.family->algorithm == "two_shot";
      uint64_t slots = ranks * packs;
      if (is_two_shot && problem.collective == Collective::kAllReduce) slots *= 2;
      if (!is_two_shot && problem.collective == Collective::kBroadcast) {
        slots = packs + ranks * threads;
      }
      EXPECT_LE(slots * 16, kScratchBytes) << choice.name;
    }
  });
}

TEST(ChoiceListTest, FloatsThatAreReducedSayThemselvesThatTheyAreThereAndAllElseIsEscaped) {
  ForEachProblem([](const Problem& problem) {
    if (problem.world_size == 1) return;
    const bool is_lamport = sdk::Reduces(problem) && (problem.type == ElementType::kF32 ||
                                                      problem.type == ElementType::kF16 ||
                                                      problem.type == ElementType::kBf16);
    int lamport = 0;
    int escape = 0;
    for (const Choice& choice : Runnable(problem)) {
      lamport += choice.spec.transport == "lamport" ? 1 : 0;
      escape += choice.spec.transport == "escape" ? 1 : 0;
      EXPECT_TRUE(FindChoice(problem, choice.name, {}).has_value()) << choice.name;
    }
    EXPECT_EQ(lamport > 0, is_lamport) << static_cast<int>(problem.collective);
    EXPECT_EQ(escape > 0, !is_lamport) << static_cast<int>(problem.collective);
  });
}

TEST(ChoiceListTest, ABroadcastIsPassedOnWhereItIsLargeAndThereIsSomebodyToDoIt) {
  const auto algorithms = [](uint64_t bytes, int world_size) {
    std::set<std::string_view> found;
    const Problem problem = ProblemOf(Collective::kBroadcast, ElementType::kU8, bytes, world_size);
    for (const Choice& choice : Runnable(problem)) {
      if (choice.spec.transport == "escape") found.insert(choice.family->algorithm);
    }
    return found;
  };
  using Set = std::set<std::string_view>;
  EXPECT_EQ(algorithms(1 << 10, 4), Set{"direct"});
  EXPECT_EQ(algorithms(64 << 10, 4), (Set{"direct", "two_shot"}));
  EXPECT_EQ(algorithms(64 << 20, 4), Set{"two_shot"});
  EXPECT_EQ(algorithms(64 << 20, 2), Set{"direct"});
}

TEST(ChoiceListTest, NamesAreFoundAgain) {
  const Problem problem = ProblemOf(Collective::kAllReduce, ElementType::kBf16, 1 << 20, 4);
  for (const Choice& choice : Runnable(problem)) {
    const auto found = FindChoice(problem, choice.name, {});
    ASSERT_TRUE(found.has_value()) << choice.name;
    EXPECT_EQ(found->blocks, choice.blocks);
    EXPECT_EQ(NvrtcOptions(found->spec), NvrtcOptions(choice.spec));
  }
  // Listed at 16 MB and not at this size: it runs all the same.
  const std::string other = "two_shot?blocks=64&pdl=1&threads=512&transport=lamport&unroll=4";
  const auto neighbour = FindChoice(problem, other, {});
  ASSERT_TRUE(neighbour.has_value()) << neighbour.error().message;
  EXPECT_EQ(neighbour->blocks, 64);
  EXPECT_EQ(neighbour->spec.unroll, 4);
  for (const char* wrong : {"two_shot?blocks=0&pdl=1&threads=512&transport=lamport&unroll=4",
                            "two_shot?blocks=fitted&pdl=1&threads=512&transport=lamport&unroll=4",
                            "two_shot?blocks=fit&pdl=1&threads=0&transport=lamport&unroll=4",
                            "two_shot?blocks=08&pdl=1&threads=512&transport=lamport&unroll=4",
                            "two_shot?blocks=8&pdl=1&threads=100&transport=lamport&unroll=4",
                            "two_shot?blocks=8&pdl=1&threads=512&transport=lamport&unroll=3",
                            "two_shot?blocks=8&pdl=1&threads=512&transport=lamport&unroll=4x"}) {
    EXPECT_FALSE(FindChoice(problem, wrong, {}).has_value()) << wrong;
  }
  const auto unknown = FindChoice(problem, "star", {});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().status, COTUNE_INVALID_ARGUMENT);
  const Problem large = ProblemOf(Collective::kAllReduce, ElementType::kF32, 1 << 24, 4);
  const auto refused = FindChoice(large, "one_shot?transport=lamport", {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
  EXPECT_THAT(refused.error().message, HasSubstr("not offered above"));
}

// A grid that covers 4 MiB in one step covers 5,000,002 bytes in one step too, with more blocks.
TEST(ChoiceListTest, AFittedGridGrowsAndShrinksWithTheProblem) {
  const std::string name = "two_shot?blocks=fit&pdl=1&threads=512&transport=lamport&unroll=1";
  const auto find = [&name](uint64_t bytes) {
    return FindChoice(ProblemOf(Collective::kAllReduce, ElementType::kBf16, bytes / 2, 4), name,
                      {});
  };
  // 4 ranks x 512 threads x 16 bytes are 32 KiB a block.
  constexpr uint64_t kBlockBytes = 4 * 512 * 16;
  for (const auto& [bytes, blocks] : std::vector<std::pair<uint64_t, int>>{
           {kBlockBytes, 1},
           {kBlockBytes + 2, 2},
           {4 << 20, 128},
           {5'000'002, 153},
           {256 * kBlockBytes, 256},
           {256 * kBlockBytes + 2, 256},
       }) {
    const auto found = find(bytes);
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ(found->blocks, blocks) << bytes;
    EXPECT_EQ(found->name, name);
  }
  for (const uint64_t bytes : {uint64_t{4} << 20, uint64_t{5'000'002}}) {
    const auto listed =
        Runnable(ProblemOf(Collective::kAllReduce, ElementType::kBf16, bytes / 2, 4));
    EXPECT_TRUE(std::any_of(listed.begin(), listed.end(), [&name](const Choice& choice) {
      return choice.name == name;
    })) << bytes;
  }
  const Problem large = ProblemOf(Collective::kAllReduce, ElementType::kBf16, 32 << 20, 4);
  for (const Choice& choice : Runnable(large)) {
    EXPECT_EQ(choice.name.find("blocks=fit"), std::string::npos) << choice.name;
  }
}

// One step of 8 ranks, which add up and pass on, fills scratch with 128 blocks of 512 threads.
TEST(ChoiceListTest, AFittedGridRunsWhereScratchIsTooSmallForOneStep) {
  const Problem problem = ProblemOf(Collective::kAllReduce, ElementType::kBf16, 8 << 20, 8);
  const auto found =
      FindChoice(problem, "two_shot?blocks=fit&pdl=1&threads=512&transport=lamport&unroll=1", {});
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->blocks, 128);
}

// The number that a fitted grid has at a size names the same kernel and grid there.
TEST(ChoiceListTest, AFittedGridIsTheGridOfItsNumber) {
  ForEachProblem([](const Problem& problem) {
    for (const Choice& choice : Runnable(problem)) {
      const size_t at = choice.name.find("=fit");
      if (at == std::string::npos) continue;
      std::string numbered = choice.name;
      numbered.replace(at + 1, 3, std::to_string(choice.blocks));
      const auto found = FindChoice(problem, numbered, {});
      ASSERT_TRUE(found.has_value()) << found.error().message;
      EXPECT_EQ(found->name, numbered);
      EXPECT_EQ(found->blocks, choice.blocks);
      EXPECT_EQ(NvrtcOptions(found->spec), NvrtcOptions(choice.spec));
    }
  });
}

TEST(ChoiceListTest, ChunksAreAFewChoicesOfLargeSizes) {
  ForEachProblem([](const Problem& problem) {
    int flagged = 0;
    for (const Choice& choice : Runnable(problem)) {
      if (choice.is_copy || choice.spec.transport != "flagged") continue;
      ++flagged;
      EXPECT_GE(choice.chunk_bytes, 4 << 10);
      const auto found = FindChoice(problem, choice.name, {});
      ASSERT_TRUE(found.has_value()) << choice.name;
      EXPECT_EQ(found->chunk_bytes, choice.chunk_bytes);
    }
    const bool is_large = problem.world_size > 1 && sdk::ProblemBytes(problem) >= 1u << 20;
    EXPECT_EQ(flagged > 0, is_large) << problem.count;
    EXPECT_LE(flagged, 6);
  });
}

// The order of times on 2 H200 (bf16): 195, 198, 206, 221, 237, 349 and 356 us.
TEST(ChoiceListTest, EstimatesOfFlaggedAllReducesHaveTheOrderOfTheirTimes) {
  const Problem problem = ProblemOf(Collective::kAllReduce, ElementType::kBf16, 32 << 20, 2);
  constexpr std::pair<int, int> kBlocksAndKiB[] = {{128, 32}, {128, 16}, {64, 32}, {128, 8},
                                                   {64, 16},  {128, 4},  {64, 8}};
  double before_us = 0;
  for (const auto& [blocks, kib] : kBlocksAndKiB) {
    const std::string name = "two_shot?blocks=" + std::to_string(blocks) +
                             "&chunk=" + std::to_string(kib << 10) +
                             "&pdl=0&threads=512&transport=flagged&unroll=4";
    const auto found = FindChoice(problem, name, {});
    ASSERT_TRUE(found.has_value()) << name;
    const double cost_us = found->family->model.cost_us(
        problem, found->family->shares,
        {found->blocks, found->spec.threads, found->spec.unroll, found->chunk_bytes});
    EXPECT_GT(cost_us, before_us) << name;
    before_us = cost_us;
  }
}

TEST(ChoiceListTest, ChunksOfAnotherSizeAreFoundByName) {
  const Problem problem = ProblemOf(Collective::kAllGather, ElementType::kU8, 4'000'000, 4);
  const std::string name =
      "direct?blocks=32&chunk=32768&pdl=1&threads=512&transport=flagged&unroll=2";
  for (const Choice& choice : Runnable(problem)) EXPECT_NE(choice.name, name);
  const auto found = FindChoice(problem, name, {});
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->blocks, 32);
  EXPECT_EQ(found->chunk_bytes, 32768);
  EXPECT_EQ(found->spec.threads, 512);
  EXPECT_EQ(found->spec.unroll, 2);
  for (const char* wrong : {
           "direct?blocks=fit&chunk=8192&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=129&chunk=8192&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&chunk=262144&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&chunk=0&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&chunk=8200&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&chunk=8192&pdl=1&threads=512&transport=escape&unroll=2",
       }) {
    EXPECT_FALSE(FindChoice(problem, wrong, {}).has_value()) << wrong;
  }
}

TEST(ChoiceListTest, RegisteredBuffersAreUsedWhereTheyLie) {
  for (const Collective collective : kCollectives) {
    for (const int world_size : {2, 3, 4, 5, 8}) {
      Problem problem = ProblemOf(collective, ElementType::kBf16, 1 << 20, world_size);
      for (const Choice& choice : ListChoices(problem, {})) {
        if (choice.spec.transport != "zero_copy") continue;
        EXPECT_THAT(choice.reason, HasSubstr("registered"));
      }
      problem.is_symmetric = true;
      int found = 0;
      for (const Choice& choice : Runnable(problem)) {
        if (choice.spec.transport != "zero_copy") continue;
        ++found;
        EXPECT_LE(choice.blocks, 128);
        EXPECT_EQ(choice.chunk_bytes, 0);
        EXPECT_TRUE(FindChoice(problem, choice.name, {}).has_value()) << choice.name;
      }
      EXPECT_GT(found, 0);
      EXPECT_LE(found, 4);
      Problem large = problem;
      large.count = 256 << 20;
      int with_many_stores = 0;
      for (const Choice& choice : Runnable(large)) {
        if (choice.spec.transport != "zero_copy" || choice.spec.unroll != 8) continue;
        ++with_many_stores;
        EXPECT_TRUE(FindChoice(large, choice.name, {}).has_value()) << choice.name;
      }
      EXPECT_EQ(with_many_stores, world_size == 2 && !sdk::Reduces(large) ? 1 : 0);
      problem.in_place = true;
      const auto in_place =
          FindChoice(problem,
                     collective == Collective::kAllReduce ? "two_shot?blocks=16&pdl=1&threads=512&"
                                                            "transport=zero_copy&unroll=2"
                                                          : "direct?blocks=16&pdl=1&threads=512&"
                                                            "transport=zero_copy&unroll=2",
                     {});
      EXPECT_EQ(in_place.has_value(), collective != Collective::kAllToAll);
    }
  }
}

std::vector<Choice> RunnableOf(const Problem& problem, std::string_view transport) {
  std::vector<Choice> choices = Runnable(problem);
  std::erase_if(choices, [&](const Choice& choice) { return choice.spec.transport != transport; });
  return choices;
}

TEST(ChoiceListTest, RingsAndTreesAreAFewChoicesWhoseMessagesFitTheirSlots) {
  ForEachProblem([](const Problem& problem) {
    const auto choices = RunnableOf(problem, "queued");
    EXPECT_LE(choices.size(), 3u);
    for (const Choice& choice : choices) {
      EXPECT_FALSE(choice.is_default) << choice.name;
      // Eight slots for each peer in the part of a block; sums of 16-bit floats travel in f32.
      const bool is_wide = sdk::Reduces(problem) && sdk::IsNarrowFloat(problem.type);
      EXPECT_LE(8 * (problem.world_size - 1) * choice.chunk_bytes * (is_wide ? 2 : 1), 1 << 20)
          << choice.name;
      EXPECT_GE(choice.chunk_bytes, 8 << 10);
      EXPECT_LE(choice.blocks, 64);
      const auto found = FindChoice(problem, choice.name, {});
      ASSERT_TRUE(found.has_value()) << choice.name;
      EXPECT_EQ(found->chunk_bytes, choice.chunk_bytes);
      EXPECT_EQ(NvrtcOptions(found->spec), NvrtcOptions(choice.spec));
    }
  });
}

TEST(ChoiceListTest, RingsAndTreesAreListedWhereTheyMayWin) {
  const auto names = [](Collective collective, uint64_t bytes, int world_size) {
    std::set<std::string> found;
    const Problem problem = ProblemOf(collective, ElementType::kU8, bytes, world_size);
    for (const Choice& choice : RunnableOf(problem, "queued")) found.insert(choice.name);
    return found;
  };
  const std::string tree = "tree?blocks=32&chunk=16384&pdl=1&threads=512&transport=queued&unroll=2";
  const std::string ring = "ring?blocks=64&chunk=16384&pdl=1&threads=512&transport=queued&unroll=2";
  EXPECT_TRUE(names(Collective::kAllReduce, 100 << 10, 8).empty());
  EXPECT_EQ(names(Collective::kAllReduce, 1 << 20, 8), std::set<std::string>{tree});
  EXPECT_EQ(names(Collective::kAllReduce, 16 << 20, 8).size(), 3u);
  EXPECT_EQ(names(Collective::kAllReduce, 64 << 20, 8).count(tree), 0u);
  EXPECT_EQ(names(Collective::kAllReduce, 64 << 20, 8).count(ring), 1u);
  EXPECT_TRUE(names(Collective::kAllReduce, 1 << 20, 2).empty()) << "a tree of two";
  EXPECT_EQ(names(Collective::kBroadcast, 16 << 20, 8), (std::set<std::string>{ring, tree}));
  EXPECT_EQ(names(Collective::kAllGather, 2 << 20, 8), std::set<std::string>{ring});
  EXPECT_EQ(names(Collective::kReduceScatter, 2 << 20, 8), std::set<std::string>{ring});
  EXPECT_TRUE(names(Collective::kAllToAll, 16 << 20, 8).empty());
}

TEST(ChoiceListTest, RingsOfOtherShapesAreFoundByName) {
  const Problem problem = ProblemOf(Collective::kAllReduce, ElementType::kBf16, 8 << 20, 8);
  const std::string name = "ring?blocks=16&chunk=4096&pdl=0&threads=256&transport=queued&unroll=1";
  const auto found = FindChoice(problem, name, {});
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->blocks, 16);
  EXPECT_EQ(found->chunk_bytes, 4096);
  EXPECT_EQ(found->spec.threads, 256);
  for (const char* wrong : {
           "ring?blocks=65&chunk=4096&pdl=1&threads=512&transport=queued&unroll=1",
           "ring?blocks=16&chunk=16384&pdl=1&threads=512&transport=queued&unroll=1",
           "ring?blocks=16&chunk=4096&pdl=1&threads=512&transport=queued&unroll=4",
           "ring?blocks=16&chunk=4096&pdl=1&threads=512&transport=flagged&unroll=1",
           "two_shot?blocks=16&chunk=4096&pdl=1&threads=512&transport=queued&unroll=1",
       }) {
    EXPECT_FALSE(FindChoice(problem, wrong, {}).has_value()) << wrong;
  }
}

TEST(ChoiceListTest, CopyEnginesMoveLargeRegisteredBuffers) {
  constexpr char kName[] = "direct?transport=copy_engine";
  constexpr char kSegmentsName[] = "two_shot?transport=copy_engine";
  for (const Collective collective : kCollectives) {
    for (const int world_size : {2, 8}) {
      Problem problem = ProblemOf(collective, ElementType::kF32, 1 << 20, world_size);
      EXPECT_TRUE(RunnableOf(problem, "copy_engine").empty()) << "not registered";
      problem.is_symmetric = true;
      auto choices = RunnableOf(problem, "copy_engine");
      if (collective == Collective::kAllReduce) {
        EXPECT_TRUE(choices.empty()) << "too small to be listed";
        const auto small = FindChoice(problem, kSegmentsName, {});
        ASSERT_TRUE(small.has_value());
        EXPECT_EQ(small->blocks, 64);
        EXPECT_EQ(small->spec.threads, 512);
        problem.count = 8 << 20;
        choices = RunnableOf(problem, "copy_engine");
        ASSERT_EQ(choices.size(), 1u);
        EXPECT_EQ(choices[0].name, kSegmentsName);
        EXPECT_FALSE(choices[0].spec.uses_pdl);
        problem.in_place = true;
        EXPECT_FALSE(FindChoice(problem, kSegmentsName, {}).has_value());
        continue;
      }
      const bool moves = collective != Collective::kReduceScatter;
      ASSERT_EQ(choices.size(), moves ? 1u : 0u);
      if (!moves) continue;
      EXPECT_EQ(choices[0].name, kName);
      EXPECT_FALSE(choices[0].is_default);
      EXPECT_FALSE(choices[0].spec.uses_pdl);
      EXPECT_TRUE(FindChoice(problem, kName, {}).has_value());
      problem.in_place = true;
      EXPECT_EQ(FindChoice(problem, kName, {}).has_value(), collective != Collective::kAllToAll);
      problem.in_place = false;
      problem.count = 1000;
      EXPECT_TRUE(RunnableOf(problem, "copy_engine").empty());
      EXPECT_TRUE(FindChoice(problem, kName, {}).has_value()) << "it won at a larger size";
    }
  }
}

TEST(ChoiceListTest, OlderGpusGetKernelsWithoutDependentLaunch) {
  const Problem problem = ProblemOf(Collective::kAllReduce, ElementType::kF32, 1000, 2);
  for (const Choice& choice : ListChoices(problem, {.has_pdl = false})) {
    EXPECT_FALSE(choice.spec.uses_pdl) << choice.name;
  }
}

TEST(ChoiceListTest, OneRankCopies) {
  const auto choices = ListChoices(ProblemOf(Collective::kAllGather, ElementType::kU8, 5, 1), {});
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_TRUE(choices[0].is_copy);
}

// Shapes are those of two ranks or more.
TEST(ChoiceListTest, OneRankFindsNoKernel) {
  const Problem problem = ProblemOf(Collective::kAllGather, ElementType::kU8, 4 << 20, 1);
  for (const char* name :
       {"direct?blocks=64&chunk=8192&pdl=1&threads=512&transport=flagged&unroll=1",
        "ring?blocks=64&chunk=8192&pdl=1&threads=512&transport=queued&unroll=1"}) {
    const auto found = FindChoice(problem, name, {});
    ASSERT_FALSE(found.has_value());
    EXPECT_EQ(found.error().status, COTUNE_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace cotune::cuda
