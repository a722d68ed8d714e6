// Every collective, type, reduction and choice on real processes, against the reference evaluator.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "plugins/testing/exact_data.h"
#include "plugins/testing/rank_processes.h"

namespace cotune::backend_test {
namespace {

using sdk::ElementTypeToAbi;
using sdk::kElementTypes;
using sdk::kReductions;

constexpr int64_t kCaseNs = 60 * kSecondNs;
constexpr uint64_t kCounts[] = {0, 1, 2, 3, 17, 1000, 65537};
// Instrumented code is slow; it has nothing new to find in the many variants of a long buffer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsInstrumented = true;
#else
constexpr bool kIsInstrumented = false;
#endif
constexpr std::byte kPoison{0xa5};

struct Case {
  Problem problem;
  bool in_place = false;
  size_t misalignment = 0;  // bytes
};

cotune_problem_t ToAbi(const Case& c) {
  const uint32_t reduction =
      Reduces(c.problem) ? static_cast<uint32_t>(c.problem.reduction) + COTUNE_SUM : 0u;
  return AbiProblem(static_cast<uint32_t>(c.problem.collective) + COTUNE_ALL_REDUCE,
                    ElementTypeToAbi(c.problem.type), reduction, c.problem.count,
                    c.problem.world_size, c.problem.root, c.in_place);
}

// One rank's buffers: guarded on both sides, misaligned when the case says so.
class Buffers {
 public:
  Buffers(const Case& c, int rank, const std::vector<std::byte>& input)
      : width_(ElementBytes(c.problem.type)), input_(input) {
    const uint64_t send_bytes = input.size();
    receive_bytes_ = ReceiveElements(c.problem) * width_;
    const uint64_t block_bytes = c.problem.count * width_;
    const uint64_t larger = std::max(send_bytes, receive_bytes_);
    receive_memory_.assign(larger + 2 * kGuard + c.misalignment, kPoison);
    std::byte* base = receive_memory_.data() + kGuard + c.misalignment;
    receive_ = base;
    if (c.in_place) {
      const uint64_t offset = static_cast<uint64_t>(rank) * block_bytes;
      std::byte* send = base;
      if (c.problem.collective == Collective::kAllGather) send = base + offset;
      if (c.problem.collective == Collective::kReduceScatter) receive_ = base + offset;
      if (send_bytes > 0) std::memcpy(send, input.data(), send_bytes);
      send_ = send;
    } else {
      send_memory_.assign(send_bytes + c.misalignment + 1, kPoison);
      if (send_bytes > 0)
        std::memcpy(send_memory_.data() + c.misalignment, input.data(), send_bytes);
      send_ = send_memory_.data() + c.misalignment;
    }
  }

  const void* send() const { return send_; }
  void* receive() { return receive_; }

  // Compares element by element; empty when all is as it must be.
  std::string Compare(const std::vector<std::byte>& expected) const {
    const bool is_equal =
        receive_bytes_ == 0 || std::memcmp(receive_, expected.data(), receive_bytes_) == 0;
    for (uint64_t i = 0; !is_equal && i < receive_bytes_ / width_; ++i) {
      if (std::memcmp(receive_ + i * width_, expected.data() + i * width_, width_) != 0) {
        return "element " + std::to_string(i) + " is " + Hex(receive_ + i * width_) + ", not " +
               Hex(expected.data() + i * width_);
      }
    }
    for (size_t i = 0; i < kGuard; ++i) {
      if (receive_memory_[i] != kPoison ||
          receive_memory_[receive_memory_.size() - 1 - i] != kPoison) {
        return "wrote outside the receive buffer";
      }
    }
    const bool separate = !send_memory_.empty();
    if (separate && !input_.empty() && std::memcmp(send_, input_.data(), input_.size()) != 0) {
      return "changed the send buffer";
    }
    return "";
  }

 private:
  static constexpr size_t kGuard = 64;

  std::string Hex(const std::byte* at) const {
    std::string text;
    for (size_t b = width_; b > 0; --b) {
      char digits[3];
      std::snprintf(digits, sizeof(digits), "%02x", std::to_integer<unsigned>(at[b - 1]));
      text += digits;
    }
    return text;
  }

  size_t width_;
  const std::vector<std::byte>& input_;
  std::vector<std::byte> send_memory_;
  std::vector<std::byte> receive_memory_;
  const std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
  uint64_t receive_bytes_ = 0;
};

// Everything that is sent in a case, and what a rank has to receive.
struct Data {
  Data(const Problem& problem, int rank) {
    for (int r = 0; r < problem.world_size; ++r) inputs.push_back(ExactInput(problem, r));
    expected = ExpectedOutput(problem, rank, inputs);
  }
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::byte> expected;
};

bool HaveSameData(const Problem& a, const Problem& b) {
  return a.type == b.type && a.reduction == b.reduction && a.count == b.count && a.root == b.root;
}

// Runs all choices of one case on this rank. `runs` counts them.
std::string RunCase(const GroupForTest& group, int rank, const Case& c, const Data& data,
                    int& runs) {
  const cotune_problem_t problem = ToAbi(c);
  for (const cotune_choice_t& choice : RunnableChoices(group.backend(), problem)) {
    Buffers buffers(c, rank, data.inputs[static_cast<size_t>(rank)]);
    cotune_error_t error = EmptyError();
    const cotune_status_t status = RunOnce(group.group(), problem, choice.name, buffers.send(),
                                           buffers.receive(), MonotonicNs() + kCaseNs, &error);
    std::string wrong = status == COTUNE_OK
                            ? buffers.Compare(data.expected)
                            : "status " + std::to_string(status) + ": " + error.message;
    ++runs;
    if (wrong.empty()) continue;
    return std::string(choice.name) + " type " + std::to_string(static_cast<int>(c.problem.type)) +
           " reduction " + std::to_string(static_cast<int>(c.problem.reduction)) + " count " +
           std::to_string(c.problem.count) + " root " + std::to_string(c.problem.root) +
           (c.in_place ? " in place" : "") + ": " + wrong;
  }
  return "";
}

std::vector<Case> CasesOf(Collective collective, int world_size) {
  std::vector<Case> cases;
  Problem problem{.collective = collective, .world_size = world_size};
  for (const ElementType type : kElementTypes) {
    for (const Reduction reduction : kReductions) {
      if (!Reduces(problem) && reduction != Reduction::kSum) continue;
      for (const uint64_t count : kCounts) {
        const bool plain = reduction == Reduction::kSum && ElementBytes(type) == 2;
        if (kIsInstrumented && count > 1000 && !plain) continue;
        for (const bool in_place : {false, true}) {
          problem.type = type;
          problem.reduction = reduction;
          problem.count = count;
          problem.root = collective == Collective::kBroadcast
                             ? static_cast<int>(cases.size()) % world_size
                             : 0;
          const size_t misalignment =
              cases.size() % 3 == 0 ? 0 : cases.size() % 3 * 3 - 2;  // 0, 1, 4
          cases.push_back({problem, in_place, misalignment});
        }
      }
    }
  }
  return cases;
}

using Parameter = std::tuple<Collective, int>;

class CollectivesTest : public testing::TestWithParam<Parameter> {};

TEST_P(CollectivesTest, EqualsTheEvaluator) {
  const auto [collective, world_size] = GetParam();
  JobForTest job;
  const std::vector<Case> cases = CasesOf(collective, world_size);
  RankProcesses ranks(world_size, [&, world_size = world_size](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, AllRanks(world_size), MonotonicNs() + kCaseNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    int runs = 0;
    std::optional<Data> data;
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      if (i == 0 || !HaveSameData(c.problem, cases[i - 1].problem)) data.emplace(c.problem, rank);
      if (std::string wrong = RunCase(group, rank, c, *data, runs); !wrong.empty()) return wrong;
    }
    return runs >= static_cast<int>(cases.size()) ? "" : "ran less than one choice a case";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// What the check says about buffers into which a call wrote `received`.
std::string CheckOf(const Case& c, const Data& data, const std::vector<std::byte>& received) {
  Buffers buffers(c, 0, data.inputs[0]);
  std::memcpy(buffers.receive(), received.data(), received.size());
  return buffers.Compare(data.expected);
}

TEST(CheckTest, AWrongByteAndSwappedBlocksShow) {
  const Case c{.problem = {.collective = Collective::kAllToAll,
                           .type = ElementType::kBf16,
                           .count = 100,
                           .world_size = 3}};
  const Data data(c.problem, 0);
  EXPECT_EQ(CheckOf(c, data, data.expected), "");
  for (size_t i = 0; i < data.expected.size(); ++i) {
    std::vector<std::byte> received = data.expected;
    received[i] ^= std::byte{1};
    ASSERT_NE(CheckOf(c, data, received), "") << "byte " << i;
  }
  std::vector<std::byte> received = data.expected;
  std::swap_ranges(received.begin(), received.begin() + 200, received.begin() + 200);
  EXPECT_NE(CheckOf(c, data, received), "");
}

TEST(CheckTest, AMissingRankAnotherBlockAndAnotherRootShow) {
  for (const ElementType type : kElementTypes) {
    for (const Reduction reduction : kReductions) {
      Case c{.problem = {.collective = Collective::kReduceScatter,
                         .reduction = reduction,
                         .type = type,
                         .count = 300,
                         .world_size = 3}};
      Data data(c.problem, 0);
      EXPECT_NE(CheckOf(c, data, ExpectedOutput(c.problem, 1, data.inputs)), "");
      auto without = data.inputs;
      without[2] = without[1];
      EXPECT_NE(CheckOf(c, data, ExpectedOutput(c.problem, 0, without)), "");
      c.problem.collective = Collective::kBroadcast;
      data = Data(c.problem, 0);
      c.problem.root = 1;
      EXPECT_NE(CheckOf(c, data, ExpectedOutput(c.problem, 0, data.inputs)), "");
    }
  }
}

std::string ParameterName(const testing::TestParamInfo<Parameter>& info) {
  const char* names[] = {"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Broadcast"};
  return std::string(names[static_cast<int>(std::get<0>(info.param))]) + "On" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    All, CollectivesTest,
    testing::Combine(testing::Values(Collective::kAllReduce, Collective::kAllGather,
                                     Collective::kReduceScatter, Collective::kAllToAll,
                                     Collective::kBroadcast),
                     testing::Values(1, 2, 3, 4, 5, 8)),
    ParameterName);

}  // namespace
}  // namespace cotune::backend_test
