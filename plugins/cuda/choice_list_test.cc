#include "plugins/cuda/choice_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using border::Collective;
using border::ElementType;
using border::Problem;
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
    for (const ElementType type : border::kElementTypes) {
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

TEST(ChoiceListTest, AStepFitsIntoScratch) {
  ForEachProblem([](const Problem& problem) {
    for (const Choice& choice : Runnable(problem)) {
      if (choice.is_copy) continue;
      ASSERT_NE(choice.spec.transport, Transport::kZeroCopy) << "no buffer is registered";
      // As the kernels lay it out: a slot for each rank, twice when results travel too; a broadcast
      // has one sender and a greeting of each thread of each rank.
      const auto threads =
          static_cast<uint64_t>(choice.blocks) * static_cast<uint64_t>(choice.spec.threads);
      const uint64_t packs = threads * static_cast<uint64_t>(choice.spec.unroll);
      const auto ranks = static_cast<uint64_t>(problem.world_size);
      if (choice.spec.transport == Transport::kFlagged) {
        // Three slots of what is sent and two of results, from every peer, in the part of a block.
        EXPECT_LE(5 * (ranks - 1) * static_cast<uint64_t>(choice.chunk_bytes), kFlaggedBlockBytes)
            << choice.name;
        EXPECT_LE(choice.blocks * kFlaggedBlockBytes, kArenaBytes - kFlaggedBegin) << choice.name;
        continue;
      }
      if (choice.spec.transport == Transport::kBits) {
        // A group of each thread of each peer: its packs and eight bytes.
        EXPECT_LE((ranks - 1) * (packs * 16 + threads * 8), kLamportBytes) << choice.name;
        continue;
      }
      uint64_t slots = ranks * packs;
      if (choice.spec.algorithm == Algorithm::kTwoShot) slots *= 2;
      if (problem.collective == Collective::kBroadcast) slots = packs + ranks * threads;
      const bool is_lamport = choice.spec.transport == Transport::kLamport;
      EXPECT_LE(slots * (is_lamport ? 16 : 32), is_lamport ? kLamportBytes : kLlBytes)
          << choice.name;
    }
  });
}

TEST(ChoiceListTest, FlagBitsAreAFewChoicesForDataThatIsOnlyMoved) {
  ForEachProblem([](const Problem& problem) {
    int found = 0;
    for (const Choice& choice : Runnable(problem)) {
      if (choice.is_copy || choice.spec.transport != Transport::kBits) continue;
      ++found;
      EXPECT_TRUE(FindChoice(problem, choice.name, {}).has_value()) << choice.name;
    }
    const uint64_t bytes = border::ProblemBytes(problem);
    const bool is_offered = problem.world_size > 1 && !border::Reduces(problem) &&
                            bytes >= 8u << 10 && bytes <= 32u << 20;
    EXPECT_EQ(found > 0, is_offered) << static_cast<int>(problem.collective) << " " << bytes;
    EXPECT_LE(found, 8);
  });
}

TEST(ChoiceListTest, OnlyFloatsThatAreReducedSayThemselvesThatTheyAreThere) {
  ForEachProblem([](const Problem& problem) {
    for (const Choice& choice : Runnable(problem)) {
      if (choice.is_copy || choice.spec.transport != Transport::kLamport) continue;
      EXPECT_TRUE(border::Reduces(problem)) << "data that is only moved keeps every bit";
      EXPECT_TRUE(problem.type == ElementType::kF32 || problem.type == ElementType::kF16 ||
                  problem.type == ElementType::kBf16);
    }
  });
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
                            "two_shot?blocks=8&pdl=1&threads=100&transport=lamport&unroll=4",
                            "two_shot?blocks=8&pdl=1&threads=512&transport=lamport&unroll=3",
                            "two_shot?blocks=8&pdl=1&threads=512&transport=lamport&unroll=4x"}) {
    EXPECT_FALSE(FindChoice(problem, wrong, {}).has_value()) << wrong;
  }
  const auto unknown = FindChoice(problem, "ring", {});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().status, COTUNE_INVALID_ARGUMENT);
  const Problem large = ProblemOf(Collective::kAllReduce, ElementType::kF32, 1 << 24, 4);
  const auto refused = FindChoice(large, "one_shot?transport=lamport", {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
  EXPECT_THAT(refused.error().message, HasSubstr("not offered above"));
}

TEST(ChoiceListTest, ChunksAreAFewChoicesOfLargeSizes) {
  ForEachProblem([](const Problem& problem) {
    int flagged = 0;
    for (const Choice& choice : Runnable(problem)) {
      if (choice.is_copy || choice.spec.transport != Transport::kFlagged) continue;
      ++flagged;
      EXPECT_GE(choice.chunk_bytes, 4 << 10);
      const auto found = FindChoice(problem, choice.name, {});
      ASSERT_TRUE(found.has_value()) << choice.name;
      EXPECT_EQ(found->chunk_bytes, choice.chunk_bytes);
    }
    const bool is_large = problem.world_size > 1 && border::ProblemBytes(problem) >= 256u << 10;
    EXPECT_EQ(flagged > 0, is_large) << problem.count;
    EXPECT_LE(flagged, 12);
  });
}

TEST(ChoiceListTest, ChunksOfAnotherSizeAreFoundByName) {
  const Problem problem = ProblemOf(Collective::kAllGather, ElementType::kU8, 100'000, 4);
  const std::string name =
      "direct?blocks=128&chunk=32768&pdl=1&threads=512&transport=flagged&unroll=2";
  for (const Choice& choice : Runnable(problem)) EXPECT_NE(choice.name, name);
  const auto found = FindChoice(problem, name, {});
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->blocks, 128);
  EXPECT_EQ(found->chunk_bytes, 32768);
  EXPECT_EQ(found->spec.threads, 512);
  EXPECT_EQ(found->spec.unroll, 2);
  for (const char* wrong : {
           "direct?blocks=129&chunk=8192&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&chunk=262144&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&chunk=0&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&chunk=8200&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&pdl=1&threads=512&transport=flagged&unroll=2",
           "direct?blocks=16&chunk=8192&pdl=1&threads=512&transport=ll&unroll=2",
       }) {
    EXPECT_FALSE(FindChoice(problem, wrong, {}).has_value()) << wrong;
  }
}

TEST(ChoiceListTest, RegisteredBuffersAreUsedWhereTheyLie) {
  for (const Collective collective : kCollectives) {
    for (const int world_size : {2, 3, 4, 5, 8}) {
      Problem problem = ProblemOf(collective, ElementType::kBf16, 1 << 20, world_size);
      for (const Choice& choice : ListChoices(problem, {})) {
        if (choice.spec.transport != Transport::kZeroCopy) continue;
        EXPECT_THAT(choice.reason, HasSubstr("registered"));
      }
      problem.is_symmetric = true;
      int found = 0;
      for (const Choice& choice : Runnable(problem)) {
        if (choice.spec.transport != Transport::kZeroCopy) continue;
        ++found;
        EXPECT_LE(choice.blocks, 128);
        EXPECT_EQ(choice.chunk_bytes, 0);
        EXPECT_TRUE(FindChoice(problem, choice.name, {}).has_value()) << choice.name;
      }
      EXPECT_GT(found, 0);
      EXPECT_LE(found, 8);
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

}  // namespace
}  // namespace cotune::cuda
