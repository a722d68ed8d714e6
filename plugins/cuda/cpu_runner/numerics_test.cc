// Choices of one numerics class give the same bits: every variant is held to the class that the
// list of choices gives it, with data whose sums depend on the order of additions. The classes come
// from the list alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "plugins/cuda/cpu_runner/copy_engine_call.h"
#include "plugins/cuda/cpu_runner/kernel_call.h"
#include "plugins/cuda/cpu_runner/numerics_classes.h"
#include "plugins/cuda/cpu_runner/sdk_problem.h"
#include "plugins/sdk/testing/ordered_sums.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::ElementType;
using sdk::Reduction;
using ::testing::IsEmpty;

constexpr ElementType kFloats[] = {ElementType::kF32, ElementType::kF64, ElementType::kF16,
                                   ElementType::kBf16};
constexpr std::string_view kQueued[] = {"ring.", "tree."};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// ---- Data and what must come out ----

Bytes FromStd(const std::vector<std::byte>& bytes) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(bytes.data());
  return Bytes(begin, begin + bytes.size());
}

Bytes FirstOf(const Bytes& bytes, size_t size) {
  return Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
}

// Elements of all ranks, of which a call takes the first ones, and what they are in rank order.
struct Addends {
  std::vector<Bytes> of_ranks;
  Bytes in_rank_order;
};

// Elements of a block of reduce_scatter: less than a pack, no whole packs, many chunks of the
// smallest size.
constexpr uint64_t kBlockCounts[] = {1, 3, 17, 300, 1025};
constexpr uint64_t kElementsMax = 8 * 1025;

const Addends& AddendsOf(const KernelVariant& v) {
  using Key = std::tuple<std::string_view, std::string_view, int>;
  static auto& made = *new std::map<Key, std::unique_ptr<Addends>>();
  auto& addends = made[{v.type, v.reduction, v.world_size}];
  if (addends != nullptr) return *addends;
  addends = std::make_unique<Addends>();
  const sdk::Problem problem = SdkProblem({v.collective, v.type, v.reduction}, false);
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < v.world_size; ++r) {
    inputs.push_back(sdk::OrderedAddends(problem.type, kElementsMax, r, v.world_size, /*salt=*/1));
    addends->of_ranks.push_back(FromStd(inputs.back()));
  }
  addends->in_rank_order =
      FromStd(sdk::CombinedInRankOrder(problem.type, problem.reduction, inputs));
  return *addends;
}

// One call: what ranks send is the beginning of their addends.
struct OrderedCall {
  const KernelVariant* variant;
  CallShape shape;
  uint64_t seed = 1;
};

bool IsScattered(const KernelVariant& v) { return v.collective == "REDUCE_SCATTER"; }

uint64_t SentBytes(const OrderedCall& call) {
  const KernelVariant& v = *call.variant;
  const auto blocks = static_cast<uint64_t>(IsScattered(v) ? v.world_size : 1);
  return call.shape.count * blocks * ElementBytes(v.type);
}

std::vector<Bytes> InputsOf(const OrderedCall& call) {
  std::vector<Bytes> inputs;
  for (const Bytes& all : AddendsOf(*call.variant).of_ranks) {
    inputs.push_back(FirstOf(all, SentBytes(call)));
  }
  return inputs;
}

std::string TextOf(const OrderedCall& call) {
  return fmt::format("{} count {} grid {}x{} chunk {}{}", NameOf(*call.variant), call.shape.count,
                     call.shape.blocks, call.shape.threads, call.shape.chunk_bytes,
                     call.shape.in_place ? " in place" : "");
}

// What each rank receives.
std::vector<Bytes> Results(RanksOnCpu& ranks, const OrderedCall& call,
                           const std::vector<Bytes>& inputs) {
  std::vector<Bytes> results;
  const auto run = [&](auto launch, const auto& made) {
    EXPECT_TRUE(ranks.Run(launch, call.seed)) << TextOf(call);
    EXPECT_EQ(ranks.failure(0).is_set, 0u) << TextOf(call);
    for (int r = 0; r < ranks.world_size(); ++r) results.push_back(made.Received(r));
  };
  if (call.variant->transport == "COPY_ENGINE") {
    AddingCall made(*call.variant, inputs, call.shape.offset_bytes,
                    static_cast<unsigned int>(call.seed));
    run([&](int rank) { made.Run(ranks, rank); }, made);
  } else {
    Call made(*call.variant, call.shape, inputs);
    run([&](int rank) { made.Launch(ranks, rank); }, made);
  }
  return results;
}

// What an all_reduce gives every rank, and what a reduce_scatter gives all ranks side by side: the
// same for the same addends. `wrong` says when the ranks of an all_reduce differ.
Bytes WholeResult(RanksOnCpu& ranks, const OrderedCall& call, std::string& wrong) {
  const std::vector<Bytes> results = Results(ranks, call, InputsOf(call));
  if (!IsScattered(*call.variant)) {
    const bool are_equal = std::all_of(results.begin(), results.end(),
                                       [&](const Bytes& each) { return each == results[0]; });
    if (!are_equal) wrong = TextOf(call) + ": ranks differ";
    return results[0];
  }
  Bytes whole;
  for (const Bytes& each : results) whole.insert(whole.end(), each.begin(), each.end());
  return whole;
}

uint64_t Differing(const Bytes& a, const Bytes& b, size_t width) {
  EXPECT_EQ(a.size(), b.size());
  uint64_t differing = 0;
  for (size_t at = 0; at < std::min(a.size(), b.size()); at += width) {
    if (!std::equal(a.begin() + static_cast<ptrdiff_t>(at),
                    a.begin() + static_cast<ptrdiff_t>(at + width),
                    b.begin() + static_cast<ptrdiff_t>(at))) {
      ++differing;
    }
  }
  return differing;
}

// "" when the bits of the call are those of the loop in rank order.
std::string WrongInRankOrder(RanksOnCpu& ranks, const OrderedCall& call) {
  std::string wrong;
  const Bytes seen = WholeResult(ranks, call, wrong);
  if (!wrong.empty()) return wrong;
  const Bytes right = FirstOf(AddendsOf(*call.variant).in_rank_order, SentBytes(call));
  const uint64_t differing = Differing(seen, right, ElementBytes(call.variant->type));
  if (differing == 0) return "";
  return fmt::format("{}: {} elements are not in rank order", TextOf(call), differing);
}

// ---- Shapes ----

// Grids from one block to more than run at once, and chunks from the smallest to one for all.
std::vector<CallShape> ShapesOf(const KernelVariant& v) {
  const size_t offset = v.transport == "COPY_ENGINE" ? 8 : ElementBytes(v.type);
  std::vector<CallShape> shapes = {
      {.blocks = 1, .threads = 8, .chunk_bytes = 512},
      {.blocks = 3, .threads = 16, .offset_bytes = offset, .chunk_bytes = 1024},
      {.blocks = 2, .threads = 64, .in_place = v.transport != "COPY_ENGINE", .chunk_bytes = 4096},
      {.blocks = 5, .threads = 32, .resident_blocks = 2, .chunk_bytes = 512},
  };
  if (kIsSanitized) shapes.resize(2);
  return shapes;
}

// A sum of all blocks of a reduce_scatter is an all_reduce of as many elements.
std::vector<uint64_t> CountsOf(const KernelVariant& v) {
  std::vector<uint64_t> counts;
  const auto world = static_cast<uint64_t>(v.world_size);
  for (const uint64_t count : kBlockCounts) {
    if (kIsSanitized && count % 2 == 0) continue;
    counts.push_back(count);
    if (!IsScattered(v)) counts.push_back(count * world);
  }
  return counts;
}

// ---- The classes ----

TEST(NumericsClassTest, EveryClassIsOneThatIsTested) {
  std::set<std::string> others;
  for (const auto& [of, classes] : ListedClasses()) {
    for (const std::string& each : classes) {
      const bool is_queued = std::any_of(std::begin(kQueued), std::end(kQueued),
                                         [&](auto begin) { return each.starts_with(begin); });
      const bool is_known = each == sdk::kExactNumerics || each == sdk::kRankOrderNumerics;
      if (!is_known && !is_queued) others.insert(NameOf(*of.family) + ": " + each);
    }
  }
  EXPECT_THAT(others, IsEmpty());
  EXPECT_GT(ListedClasses().size(), 500u);
}

// Kernels around copies that only move data do not depend on the collective.
bool RunsFamily(const KernelVariant& v, const KernelFamily& family) {
  const bool is_same = &FamilyOf(v) == &family;
  return is_same || (family.launch == Launch::kCopies && FamilyOf(v).launch == Launch::kCopies);
}

// Whether a variant of the class runs the family and does what else is asked.
template <typename Fits>
bool HasVariant(const KernelFamily& family, std::string_view numerics, Fits fits) {
  for (const int world_size : kOrderedWorlds) {
    for (const KernelVariant* v : VariantsOfClass(numerics, world_size)) {
      if (RunsFamily(*v, family) && fits(*v)) return true;
    }
  }
  return false;
}

// No family of a class is left out, no type that it adds up, and no number of ranks.
TEST(NumericsClassTest, EveryFamilyOfAClassHasVariants) {
  std::set<std::string> missing;
  for (const auto& [of, classes] : ListedClasses()) {
    ASSERT_FALSE(classes.empty());
    const std::string& numerics = *classes.begin();
    const std::string begin = numerics.substr(0, numerics.find('.'));
    const std::string name = fmt::format("{} ({})", NameOf(*of.family), begin);
    const int world_size = of.world_size;
    const auto is_world = [&](const KernelVariant& v) { return v.world_size == world_size; };
    const auto is_type = [&, type = WordOf(of.type)](const KernelVariant& v) {
      return v.type == type;
    };
    const auto is_any = [](const KernelVariant&) { return true; };
    if (!HasVariant(*of.family, begin, is_any)) missing.insert(name);
    if (numerics != sdk::kRankOrderNumerics) continue;
    EXPECT_EQ(classes.size(), 1u) << name;
    if (!HasVariant(*of.family, begin, is_world)) {
      missing.insert(fmt::format("{} on {} ranks", name, world_size));
    }
    if (!HasVariant(*of.family, begin, is_type)) {
      missing.insert(fmt::format("{} of {}", name, WordOf(of.type)));
    }
  }
  EXPECT_THAT(missing, IsEmpty());
}

// ---- The data ----

// Otherwise the tests below could not fail: other orders than that of the ranks give other bits.
TEST(NumericsDataTest, SumsDependOnTheOrderOfAdditions) {
  for (const ElementType type : kFloats) {
    for (const int world_size : kOrderedWorlds) {
      std::vector<std::vector<std::byte>> inputs;
      for (int r = 0; r < world_size; ++r) {
        inputs.push_back(sdk::OrderedAddends(type, kElementsMax, r, world_size, 1));
      }
      const auto expect_other_bits = [&](const std::vector<int>& order, const char* name) {
        for (const Reduction reduction : {Reduction::kSum, Reduction::kAverage}) {
          const auto seen = sdk::CombinedInOrder(type, reduction, inputs, order);
          const auto right = sdk::CombinedInRankOrder(type, reduction, inputs);
          EXPECT_GT(sdk::DifferingElements(seen, right, sdk::ElementBytes(type)),
                    kElementsMax / 100)
              << WordOf(type) << " on " << world_size << " ranks, " << name;
        }
      };
      std::vector<int> order(static_cast<size_t>(world_size));
      std::iota(order.rbegin(), order.rend(), 0);
      expect_other_bits(order, "the last rank first");
      // A rank's own value in front of the others. Two numbers have but one sum: rank 1 may do so.
      for (int own = 2; own < world_size; ++own) {
        std::iota(order.begin(), order.end(), 0);
        std::rotate(order.begin(), order.begin() + own, order.begin() + own + 1);
        expect_other_bits(order, "the own value first");
        // The order of a ring that begins behind this rank.
        std::iota(order.begin(), order.end(), 0);
        std::rotate(order.begin(), order.begin() + own, order.end());
        expect_other_bits(order, "around a ring");
      }
    }
  }
}

// ---- The kernels ----

class NumericsTest : public ::testing::TestWithParam<int> {};

TEST_P(NumericsTest, ChoicesInRankOrderGiveTheBitsOfALoopInRankOrder) {
  RanksOnCpu ranks(GetParam());
  uint64_t seed = 0;
  for (const KernelVariant* v : VariantsOfClass(sdk::kRankOrderNumerics, GetParam())) {
    for (CallShape shape : ShapesOf(*v)) {
      for (const uint64_t count : CountsOf(*v)) {
        shape.count = count;
        ASSERT_EQ(WrongInRankOrder(ranks, {v, shape, ++seed}), "");
      }
    }
  }
  EXPECT_GT(seed, 50u);  // calls
}

// Grid and chunk name the class of a ring or a tree. Returns what it gives with three of them;
// `wrong` says when threads, addresses or schedules matter, too.
std::vector<Bytes> ResultsOfGrids(RanksOnCpu& ranks, const KernelVariant& v, std::string& wrong) {
  std::vector<Bytes> of_grids;
  for (const auto& [blocks, chunk_bytes] : {std::pair(1u, 512), {2u, 512}, {2u, 1024}}) {
    CallShape shape = {.count = IsScattered(v) ? 1025u : 4099u,
                       .blocks = blocks,
                       .threads = 8,
                       .chunk_bytes = chunk_bytes};
    of_grids.push_back(WholeResult(ranks, {&v, shape, /*seed=*/1}, wrong));
    shape.threads = 32;
    shape.offset_bytes = ElementBytes(v.type);
    const OrderedCall again = {&v, shape, /*seed=*/2};
    if (WholeResult(ranks, again, wrong) != of_grids.back()) wrong = TextOf(again);
  }
  return of_grids;
}

TEST_P(NumericsTest, RingsAndTreesAreClassesOfTheirOwn) {
  RanksOnCpu ranks(GetParam());
  size_t sums = 0;
  for (const std::string_view numerics : kQueued) {
    for (const KernelVariant* v : VariantsOfClass(numerics, GetParam())) {
      std::string wrong;
      const std::vector<Bytes> of_grids = ResultsOfGrids(ranks, *v, wrong);
      ASSERT_EQ(wrong, "");
      // Minima and maxima are the same in any order, but for the sign of a zero, and few products
      // of 16 bits differ.
      if (v->reduction != "SUM" && v->reduction != "AVERAGE") continue;
      ++sums;
      // A tree on three ranks with the first one on top adds up in their order.
      const size_t width = ElementBytes(v->type);
      const Bytes right = FirstOf(AddendsOf(*v).in_rank_order, of_grids[0].size());
      uint64_t differing = 0;
      for (const Bytes& each : of_grids) differing += Differing(each, right, width);
      EXPECT_GT(differing, right.size() / width / 100) << NameOf(*v) << " in rank order";
      // The last of three to add its own takes the sum of the other two, in either direction.
      if (IsScattered(*v) && GetParam() == 3) continue;
      EXPECT_GT(Differing(of_grids[0], of_grids[1], width), 0u) << NameOf(*v) << ", blocks";
      EXPECT_GT(Differing(of_grids[1], of_grids[2], width), 0u) << NameOf(*v) << ", chunks";
    }
  }
  EXPECT_GE(sums, 3u);
}

// The addends of batches of up to so many rows; in every block of a reduce_scatter a batch of its
// own, by block and rank.
constexpr uint64_t kColumns = 40;
constexpr uint64_t kRows[] = {1, 2, 3, 7, 64, 257, 1024};
constexpr uint64_t kRowsMax = kIsSanitized ? 7 : 1024;

std::vector<std::vector<Bytes>> BatchesOf(const KernelVariant& v) {
  const sdk::Problem problem = SdkProblem({v.collective, v.type, v.reduction}, false);
  std::vector<std::vector<Bytes>> batches(static_cast<size_t>(IsScattered(v) ? v.world_size : 1));
  for (size_t b = 0; b < batches.size(); ++b) {
    for (int r = 0; r < v.world_size; ++r) {
      batches[b].push_back(FromStd(
          sdk::OrderedAddends(problem.type, kColumns * kRowsMax, r, v.world_size, /*salt=*/b)));
    }
  }
  return batches;
}

// What the ranks send when batches have so many bytes.
std::vector<Bytes> FirstRows(const std::vector<std::vector<Bytes>>& batches, size_t bytes) {
  std::vector<Bytes> inputs(batches[0].size());
  for (size_t r = 0; r < inputs.size(); ++r) {
    for (const std::vector<Bytes>& batch : batches) {
      const Bytes part = FirstOf(batch[r], bytes);
      inputs[r].insert(inputs[r].end(), part.begin(), part.end());
    }
  }
  return inputs;
}

// The result of a token, which is a row, does not depend on the tokens behind it.
TEST_P(NumericsTest, AnElementDoesNotDependOnTheCountOfTheCall) {
  RanksOnCpu ranks(GetParam());
  std::set<const KernelFamily*> seen;
  for (const KernelVariant* v : VariantsOfClass(sdk::kRankOrderNumerics, GetParam())) {
    if (v->reduction != "SUM" || !seen.insert(&FamilyOf(*v)).second) continue;
    const size_t width = ElementBytes(v->type);
    const std::vector<std::vector<Bytes>> batches = BatchesOf(*v);
    std::vector<Bytes> before;
    for (const uint64_t rows : kRows) {
      if (rows > kRowsMax) break;
      const CallShape shape = {.count = rows * kColumns, .threads = 64, .chunk_bytes = 4096};
      const OrderedCall call = {v, shape, rows};
      const auto results = Results(ranks, call, FirstRows(batches, rows * kColumns * width));
      for (size_t r = 0; r < before.size(); ++r) {
        const Bytes begin = FirstOf(results[r], before[r].size());
        ASSERT_EQ(Differing(begin, before[r], width), 0u) << TextOf(call) << " rank " << r;
      }
      before = results;
    }
  }
  EXPECT_GE(seen.size(), 7u);
}

// ---- Data that is moved, integers, and minima and maxima of them ----

std::vector<Bytes> RandomBytes(const Problem& p, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Bytes> inputs;
  for (int r = 0; r < p.world_size; ++r) {
    inputs.emplace_back(SendElements(p) * ElementBytes(p.type));
    for (unsigned char& byte : inputs.back()) byte = static_cast<unsigned char>(random());
  }
  return inputs;
}

template <class ExactCall, typename Launch>
std::string WrongExactCall(RanksOnCpu& ranks, ExactCall& call, Launch launch, uint64_t seed) {
  if (!ranks.Run(launch, seed)) return "it did not end";
  return call.Difference();
}

std::string WrongExactCall(RanksOnCpu& ranks, const KernelVariant& v, CallShape shape,
                           uint64_t seed) {
  shape.root = static_cast<int>(seed) % v.world_size;
  const Problem p{v.collective, v.type, v.reduction, shape.count, v.world_size, shape.root};
  const std::vector<Bytes> inputs = RandomBytes(p, seed);
  if (v.transport == "COPY_ENGINE") {
    AddingCall call(v, inputs, shape.offset_bytes, static_cast<unsigned int>(seed));
    return WrongExactCall(
        ranks, call, [&](int rank) { call.Run(ranks, rank); }, seed);
  }
  // Data that a rank still has to send would be overwritten: the list refuses it.
  if (v.transport == "ZERO_COPY" && v.collective == "ALL_TO_ALL") shape.in_place = false;
  Call call(v, shape, inputs);
  return WrongExactCall(
      ranks, call, [&](int rank) { call.Launch(ranks, rank); }, seed);
}

TEST_P(NumericsTest, ExactChoicesGiveTheBitsOfTheEvaluator) {
  RanksOnCpu ranks(GetParam());
  uint64_t seed = 0;
  for (const KernelVariant* v : VariantsOfClass(sdk::kExactNumerics, GetParam())) {
    if (FamilyOf(*v).launch == Launch::kCopies) continue;  // below
    for (CallShape shape : ShapesOf(*v)) {
      for (const uint64_t count : {3u, 300u, 1025u}) {
        shape.count = count;
        ASSERT_EQ(WrongExactCall(ranks, *v, shape, ++seed), "");
      }
    }
  }
  EXPECT_GT(seed, 50u);  // calls
}

TEST_P(NumericsTest, CopiesGiveTheBitsOfTheEvaluator) {
  RanksOnCpu ranks(GetParam());
  uint64_t seed = 0;
  for (const auto& [of, classes] : ListedClasses()) {
    // Copies move bytes, of whatever type.
    if (of.family->launch != Launch::kCopies || of.type != ElementType::kU8) continue;
    if (of.world_size != GetParam()) continue;
    EXPECT_EQ(classes, std::set<std::string>{sdk::kExactNumerics});
    for (const uint64_t count : {3u, 1025u, 5001u}) {
      sdk::Problem problem;
      problem.collective = of.family->collective;
      problem.type = of.type;
      problem.count = count;
      problem.world_size = GetParam();
      problem.is_symmetric = true;
      ++seed;
      MovingCall call(problem, RandomBytes(ProblemInWords(problem), seed),
                      static_cast<unsigned int>(seed));
      ASSERT_EQ(WrongExactCall(
                    ranks, call, [&](int rank) { call.Run(ranks, rank); }, seed),
                "");
    }
  }
  EXPECT_GT(seed, 0u);
}

INSTANTIATE_TEST_SUITE_P(Ranks, NumericsTest, ::testing::ValuesIn(kOrderedWorlds),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace cotune::cuda::cpu
