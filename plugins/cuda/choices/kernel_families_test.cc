#include "plugins/cuda/choices/kernel_families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/kernels/kernel_sources.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::Problem;
using ::testing::IsEmpty;

TEST(KernelFamilyTest, EachRowIsAFamilyOfItsOwnWithASourceThatExists) {
  std::set<std::tuple<Collective, std::string_view, std::string_view>> seen;
  for (const KernelFamily& family : KernelFamilies()) {
    EXPECT_TRUE(seen.insert({family.collective, family.algorithm, family.transport}).second)
        << family.algorithm << " " << family.transport;
    EXPECT_FALSE(SourceOf(SpecOf(family, Problem{})).text.empty()) << family.source;
  }
}

TEST(KernelFamilyTest, EverySourceIsUsedByARow) {
  std::set<std::string_view> unused;
  for (const KernelFile& file : kKernelFiles) {
    const std::string_view name = file.name;
    // Kernels with local operations inside have a table of their own (plugins/cuda/fused).
    const bool has_operations = name.ends_with("_leaves.cu") || name.ends_with("_rows.cu");
    if (name.ends_with(".cu") && !has_operations) unused.insert(name);
  }
  EXPECT_FALSE(unused.empty());
  unused.erase("part.cu");  // no collective: plugins/cuda/parts compiles it
  for (const KernelFamily& family : KernelFamilies()) unused.erase(family.source);
  EXPECT_THAT(unused, IsEmpty());
}

// A kernel gets no address of its peers' buffers that the launch has not looked up.
TEST(KernelFamilyTest, FamiliesThatReachBuffersOfPeersAreRefusedWhereThoseAreNotRegistered) {
  for (const KernelFamily& family : KernelFamilies()) {
    if (family.peer_buffers == PeerBuffers::kNone) continue;
    Problem problem;
    problem.collective = family.collective;
    problem.world_size = 4;
    for (problem.count = 1; problem.count < 1ull << 30; problem.count *= 8) {
      EXPECT_NE(RefusalOf(family, problem), "") << family.algorithm << " " << family.transport;
    }
    EXPECT_TRUE(ReachesPeerSends(family, problem) || ReachesPeerReceives(family));
  }
}

std::string_view NameOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBroadcast:
      return "broadcast";
  }
  return "?";
}

// Why a choice is listed or refused, its price, and how its kernel is compiled and launched. Prices
// are rounded, because compilers differ in the last bit.
std::string TextOf(const Choice& choice) {
  const KernelFamily& family = *choice.family;
  return fmt::format("{}|{}|{:.5g}|{} blocks of {} x {}|chunk {}|{} {}|launch {}, buffers {}\n",
                     choice.name, choice.reason, choice.cost_us, choice.blocks, choice.spec.threads,
                     choice.spec.unroll, choice.chunk_bytes, choice.spec.source,
                     fmt::join(NvrtcOptions(choice.spec), " "), static_cast<int>(family.launch),
                     static_cast<int>(family.peer_buffers));
}

// All that is listed of a family for many problems.
struct Listed {
  std::string text;
  int choices = 0;
  int refusals = 0;
};

using ListedByFamily = std::map<std::string, Listed>;

void AddChoices(const Problem& problem, ListedByFamily& listed) {
  for (const bool has_pdl : {false, true}) {
    for (const Choice& choice : ListChoices(problem, {.has_pdl = has_pdl})) {
      Listed& family = listed[fmt::format("{} {} {}", NameOf(problem.collective),
                                          choice.family->algorithm, choice.family->transport)];
      family.text += TextOf(choice);
      ++(choice.reason.empty() ? family.choices : family.refusals);
      if (!choice.is_default) continue;
      Listed& defaults = listed[fmt::format("{} defaults", NameOf(problem.collective))];
      defaults.text += choice.name + "\n";
      ++defaults.choices;
    }
  }
}

void AddProblemsOf(Collective collective, ListedByFamily& listed) {
  using enum sdk::ElementType;
  using enum sdk::Reduction;
  Problem problem;
  problem.collective = collective;
  for (const sdk::ElementType type : {kF32, kBf16, kU8}) {
    problem.type = type;
    for (const sdk::Reduction reduction : {kSum, kMax}) {
      if (!sdk::Reduces(problem) && reduction != kSum) continue;
      problem.reduction = reduction;
      for (const int world_size : {2, 3, 8}) {
        problem.world_size = world_size;
        for (const int buffers : {0, 1, 2, 3}) {
          problem.in_place = (buffers & 1) != 0;
          problem.is_symmetric = (buffers & 2) != 0;
          for (const uint64_t count :
               {0, 1, 1000, 4097, 65536, 300'001, 1 << 20, 6'000'000, 20'000'000, 1 << 28}) {
            problem.count = count;
            AddChoices(problem, listed);
          }
        }
      }
    }
  }
}

std::string GoldenText() {
  ListedByFamily listed;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kAllToAll, Collective::kBroadcast}) {
    AddProblemsOf(collective, listed);
  }
  std::string text;
  for (const auto& [name, family] : listed) {
    text += fmt::format("{}: {} choices, {} refusals, {:016x}\n", name, family.choices,
                        family.refusals, XXH3_64bits(family.text.data(), family.text.size()));
  }
  return text;
}

// Tuned databases name choices, compiled kernels are cached by their options, and ranks of one job
// may run several builds of one version: what a family lists changes only on purpose. A line for
// each family, so that a new family changes no line but its own and that of the defaults.
TEST(KernelFamilyTest, WhatIsListedIsWhatTheGoldenFileSays) {
  std::ifstream file("plugins/cuda/choices/kernel_families.golden");
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  const std::string text = GoldenText();
  EXPECT_EQ(text, golden)
      << "Where the change of names, prices, kernels or rules is meant, kernel_families.golden is "
         "to hold:\n"
      << text;
}

}  // namespace
}  // namespace cotune::cuda
