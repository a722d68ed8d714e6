// Choices of one numerics class give the same bits: every choice that reduces, on real processes,
// with data whose sums depend on the order of additions.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "fmt/format.h"
#include "plugins/host/backend.h"
#include "plugins/host/testing/host_ranks.h"
#include "plugins/sdk/testing/ordered_sums.h"

namespace cotune::host {
namespace {

constexpr int64_t kCaseNs = 60 * kSecondNs;
// Shorter than a vector, not a multiple of one, of a cache line or of the ranks, and in several
// chunks of each size.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kCounts[] = {1, 17, 1000, 16411};
#else
constexpr uint64_t kCounts[] = {1, 3, 17, 1000, 16411, 65537};
#endif
constexpr ElementType kFloats[] = {ElementType::kF32, ElementType::kBf16, ElementType::kF16,
                                   ElementType::kF64};
using Bytes = std::vector<std::byte>;

cotune_problem_t ToAbi(const Problem& problem) {
  return AbiProblem(static_cast<uint32_t>(problem.collective) + COTUNE_ALL_REDUCE,
                    ElementTypeToAbi(problem.type),
                    static_cast<uint32_t>(problem.reduction) + COTUNE_SUM, problem.count,
                    problem.world_size, problem.root, problem.in_place);
}

Bytes RandomInput(const Problem& problem, int rank) {
  return sdk::OrderedAddends(problem.type, SendElements(problem), rank, problem.world_size,
                             problem.count);
}

// What the sums, products or averages of a rank are in the order of ranks, rounded once.
Bytes InRankOrder(const Problem& problem, int rank, const std::vector<Bytes>& inputs) {
  if (problem.collective != Collective::kReduceScatter) {
    return sdk::CombinedInRankOrder(problem.type, problem.reduction, inputs);
  }
  std::vector<Bytes> blocks;
  const auto block_bytes = static_cast<ptrdiff_t>(problem.count * ElementBytes(problem.type));
  for (const Bytes& input : inputs) {
    const auto begin = input.begin() + rank * block_bytes;
    blocks.emplace_back(begin, begin + block_bytes);
  }
  return sdk::CombinedInRankOrder(problem.type, problem.reduction, blocks);
}

// What one choice gives on this rank; `failure` says why there is nothing.
Bytes Run(const GroupForTest& group, int rank, const Problem& problem, const char* choice,
          const Bytes& input, std::string& failure) {
  const uint64_t width = ElementBytes(problem.type);
  const uint64_t receive_bytes = ReceiveElements(problem) * width;
  Bytes send = input;
  Bytes receive(receive_bytes);
  std::byte* to = receive.data();
  if (problem.in_place) {
    const bool has_blocks = problem.collective == Collective::kReduceScatter;
    to = send.data() + (has_blocks ? static_cast<uint64_t>(rank) * problem.count * width : 0);
  }
  cotune_error_t error = EmptyError();
  const cotune_status_t status = RunOnce(group.group(), ToAbi(problem), choice, send.data(), to,
                                         MonotonicNs() + kCaseNs, &error);
  if (status != COTUNE_OK) failure = error.message;
  return Bytes(to, to + receive_bytes);
}

std::string TextOf(const Problem& problem) {
  return fmt::format("type {} reduction {} count {}{}", static_cast<int>(problem.type),
                     static_cast<int>(problem.reduction), problem.count,
                     problem.in_place ? " in place" : "");
}

// What the choices of a group have shown so far.
struct Seen {
  uint64_t compared = 0;      // pairs of choices of one class
  uint64_t orders_apart = 0;  // problems in which choices of two classes differ
};

// Runs all choices of a problem; "" when those of one class give the same bits, and those that add
// up in the order of ranks give what plain loops in that order give.
std::string Compare(const GroupForTest& group, int rank, const Problem& problem, Seen& seen) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < problem.world_size; ++r) inputs.push_back(RandomInput(problem, r));
  std::map<std::string, std::pair<std::string, Bytes>> first_of_class;
  const uint64_t width = ElementBytes(problem.type);
  const Bytes in_rank_order = InRankOrder(problem, rank, inputs);
  bool is_apart = false;
  for (const cotune_choice_t& choice : RunnableChoices(group.backend(), ToAbi(problem))) {
    std::string failure;
    Bytes result =
        Run(group, rank, problem, choice.name, inputs[static_cast<size_t>(rank)], failure);
    const std::string where = fmt::format("{}: {}", TextOf(problem), choice.name);
    if (!failure.empty()) return fmt::format("{}: {}", where, failure);
    const std::string numerics = choice.numerics;
    if (numerics.empty()) return fmt::format("{} has no numerics class", where);
    // Which of two zeros is the smaller one is the processor's business, and not that of the loops.
    const bool is_extreme =
        problem.reduction == Reduction::kMin || problem.reduction == Reduction::kMax;
    if (numerics == sdk::kRankOrderNumerics && !is_extreme) {
      const uint64_t wrong = sdk::DifferingElements(result, in_rank_order, width);
      if (wrong > 0) return fmt::format("{} is not in rank order in {} elements", where, wrong);
    }
    const auto [first, is_new] = first_of_class.try_emplace(numerics, choice.name, result);
    if (!is_new) {
      ++seen.compared;
      const uint64_t differing = sdk::DifferingElements(result, first->second.second, width);
      if (differing > 0) {
        return fmt::format("{} differs from {} of class {} in {} elements", where,
                           first->second.first, numerics, differing);
      }
    }
    is_apart = is_apart || result != first_of_class.begin()->second.second;
  }
  if (is_apart) ++seen.orders_apart;
  return "";
}

std::vector<Problem> ProblemsOf(Collective collective, int world_size) {
  std::vector<Problem> problems;
  for (const ElementType type : kFloats) {
    for (const Reduction reduction : kReductions) {
      for (const uint64_t count : kCounts) {
        // Other reductions combine in the same order by the same schedules.
        if (reduction != Reduction::kSum && count > 16411) continue;
        problems.push_back({.collective = collective,
                            .reduction = reduction,
                            .type = type,
                            .count = count,
                            .world_size = world_size,
                            .in_place = problems.size() % 2 == 1});
      }
    }
  }
  return problems;
}

using Parameter = std::tuple<Collective, int>;

class NumericsTest : public testing::TestWithParam<Parameter> {};

TEST_P(NumericsTest, ChoicesOfOneClassGiveTheSameBits) {
  const auto [collective, world_size] = GetParam();
  JobForTest job;
  const std::vector<Problem> problems = ProblemsOf(collective, world_size);
  RankProcesses ranks(
      world_size, [&, collective = collective, world_size = world_size](int rank) -> std::string {
        GroupForTest group(job.host(), "g", rank, AllRanks(world_size), MonotonicNs() + kCaseNs);
        if (group.status() != COTUNE_OK) return group.error().message;
        Seen seen;
        for (const Problem& problem : problems) {
          if (std::string wrong = Compare(group, rank, problem, seen); !wrong.empty()) return wrong;
        }
        if (seen.compared < problems.size() / 4) return "too few choices of one class";
        // Data whose sum is the same in every order could not tell classes apart. Two ranks have
        // but one order, and the ring that ends at the last rank begins at the first.
        const bool has_other_orders =
            world_size > 2 && (collective == Collective::kAllReduce || rank < world_size - 1);
        if (has_other_orders && seen.orders_apart < problems.size() / 3) {
          return fmt::format("orders differ in {} problems only", seen.orders_apart);
        }
        return "";
      });
  EXPECT_EQ(ranks.WaitAll(), "");
}

std::string ParameterName(const testing::TestParamInfo<Parameter>& info) {
  const bool is_scattered = std::get<0>(info.param) == Collective::kReduceScatter;
  return std::string(is_scattered ? "ReduceScatter" : "AllReduce") + "On" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, NumericsTest,
                         testing::Combine(testing::Values(Collective::kAllReduce,
                                                          Collective::kReduceScatter),
                                          testing::Values(2, 3, 4, 5)),
                         ParameterName);

}  // namespace
}  // namespace cotune::host
