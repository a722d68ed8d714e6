#include "core/benchmark/operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/base/float16.h"
#include "core/benchmark/operand_buffers.h"
#include "core/problem/expected_collective.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr uint32_t kSalt = 5;

Problem Make(Collective collective, Reduction reduction, Dtype dtype, int world_size,
             uint64_t count, int root = 0) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.reduction = Reduces(collective) ? reduction : Reduction::kNone;
  problem.cls.dtype = dtype;
  problem.cls.world_size = world_size;
  problem.cls.ranks_per_node = world_size;
  problem.cls.root = collective == Collective::kBroadcast ? root : 0;
  problem.count = count;
  return problem;
}

// One element type with how tests read and write it.
struct F32 {
  using Stored = float;
  static constexpr Dtype kDtype = Dtype::kF32;
  static double Read(Stored x) { return x; }
  static Stored Write(double x) { return static_cast<float>(x); }
};
struct Bf16 {
  using Stored = uint16_t;
  static constexpr Dtype kDtype = Dtype::kBf16;
  static double Read(Stored x) { return F32FromBf16(x); }
  static Stored Write(double x) { return Bf16FromF32(static_cast<float>(x)); }
};
struct F16 {
  using Stored = uint16_t;
  static constexpr Dtype kDtype = Dtype::kF16;
  static double Read(Stored x) { return F32FromF16(x); }
  static Stored Write(double x) { return F16FromF32(static_cast<float>(x)); }
};
struct F64 {
  using Stored = double;
  static constexpr Dtype kDtype = Dtype::kF64;
  static double Read(Stored x) { return x; }
  static Stored Write(double x) { return x; }
};
struct I32 {
  using Stored = int32_t;
  static constexpr Dtype kDtype = Dtype::kI32;
  static double Read(Stored x) { return x; }
  static Stored Write(double x) { return static_cast<int32_t>(std::trunc(x)); }
};
struct I64 {
  using Stored = int64_t;
  static constexpr Dtype kDtype = Dtype::kI64;
  static double Read(Stored x) { return static_cast<double>(x); }
  static Stored Write(double x) { return static_cast<int64_t>(std::trunc(x)); }
};
struct U8 {
  using Stored = uint8_t;
  static constexpr Dtype kDtype = Dtype::kU8;
  static double Read(Stored x) { return x; }
  static Stored Write(double x) { return static_cast<uint8_t>(std::trunc(x)); }
};

template <typename Type>
class OperandsTest : public ::testing::Test {
 public:
  using Stored = typename Type::Stored;
  using Buffer = std::vector<Stored>;

  static std::vector<Buffer> Sends(const Problem& problem, uint32_t salt = kSalt) {
    std::vector<Buffer> sends;
    for (int rank = 0; rank < problem.cls.world_size; ++rank) {
      sends.emplace_back(problem.send_elements());
      for (const OperandBlock& block : SendBlocks(problem, rank, salt)) {
        FillFront(block, std::as_writable_bytes(std::span(sends.back()))
                             .subspan(block.begin_bytes, block.bytes));
      }
    }
    return sends;
  }

  // What `rank` receives, by the evaluator over whole buffers: without a period.
  static Buffer Expected(const Problem& problem, const std::vector<Buffer>& sends, int rank) {
    SentByRanks sent;
    for (const Buffer& each : sends) {
      const auto bytes = std::as_bytes(std::span(each));
      sent.emplace_back(bytes.begin(), bytes.end());
    }
    const auto bytes = ExpectedBytes(problem, rank, sent).value();
    Buffer recv(problem.recv_elements());
    if (!recv.empty()) std::memcpy(recv.data(), bytes.data(), bytes.size());
    return recv;
  }

  static uint64_t Wrong(const Problem& problem, int rank, const Buffer& recv) {
    return CountWrongElements(problem, rank, kSalt, std::as_bytes(std::span(recv))).value();
  }
};

using Types = ::testing::Types<F32, F64, F16, Bf16, I32, I64, U8>;
TYPED_TEST_SUITE(OperandsTest, Types);

TYPED_TEST(OperandsTest, TheResultOfWholeBuffersIsRightAndEachChangedElementIsCounted) {
  using Fixture = OperandsTest<TypeParam>;
  for (Collective collective : AllCollectives()) {
    for (Reduction reduction : AllReductions()) {
      for (int world_size : {1, 2, 3, 64}) {
        for (uint64_t count : {0, 1, 3, 1200}) {
          const Problem problem =
              Make(collective, reduction, TypeParam::kDtype, world_size, count, world_size - 1);
          const auto sends = Fixture::Sends(problem);
          const int rank = world_size / 2;
          auto recv = Fixture::Expected(problem, sends, rank);
          ASSERT_EQ(Fixture::Wrong(problem, rank, recv), 0u) << ToText(problem);
          if (recv.empty()) continue;
          recv.back() = TypeParam::Write(TypeParam::Read(recv.back()) + 1);
          ASSERT_EQ(Fixture::Wrong(problem, rank, recv), 1u) << ToText(problem);
          std::memset(recv.data(), 0xFF, recv.size() * sizeof(recv[0]));
          ASSERT_EQ(Fixture::Wrong(problem, rank, recv), recv.size()) << ToText(problem);
        }
        if (!Reduces(collective)) break;
      }
    }
  }
}

TYPED_TEST(OperandsTest, BlocksThatChangePlacesAndOldResultsShow) {
  using Fixture = OperandsTest<TypeParam>;
  const Problem problem =
      Make(Collective::kAllGather, Reduction::kNone, TypeParam::kDtype, 4, 4096);
  const auto sends = Fixture::Sends(problem);
  auto recv = Fixture::Expected(problem, sends, 0);
  std::swap_ranges(recv.begin(), recv.begin() + 4096, recv.begin() + 4096);
  EXPECT_GT(Fixture::Wrong(problem, 0, recv), 7000u);
  recv = Fixture::Expected(problem, sends, 0);
  std::swap_ranges(recv.begin(), recv.begin() + 1024, recv.begin() + 1024);
  EXPECT_GT(Fixture::Wrong(problem, 0, recv), 1500u);
  recv = Fixture::Expected(problem, sends, 0);
  EXPECT_GT(CountWrongElements(problem, 0, kSalt + 1, std::as_bytes(std::span(recv))).value(),
            15000u);
}

// The check has to find as many elements as the data of a rank matters for.
TYPED_TEST(OperandsTest, AMissingRankShowsWhereverItMatters) {
  using Fixture = OperandsTest<TypeParam>;
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
    for (const Reduction reduction : AllReductions()) {
      for (int world_size = 2; world_size <= 8; ++world_size) {
        const Problem problem = Make(collective, reduction, TypeParam::kDtype, world_size, 3000);
        auto sends = Fixture::Sends(problem);
        const auto right = Fixture::Expected(problem, sends, 0);
        sends.back() = typename Fixture::Buffer(sends.back().size());
        const auto seen = Fixture::Expected(problem, sends, 0);
        uint64_t changed = 0;
        for (size_t i = 0; i < seen.size(); ++i) {
          changed += right[i] != seen[i] ? 1 : 0;
        }
        if (reduction != Reduction::kMax) {
          EXPECT_GT(changed, 500u) << ToText(problem);
        }
        EXPECT_EQ(Fixture::Wrong(problem, 0, seen), changed) << ToText(problem);
      }
    }
  }
}

TYPED_TEST(OperandsTest, AnotherRootAndTheBlocksOfAnotherRankShow) {
  using Fixture = OperandsTest<TypeParam>;
  Problem problem =
      Make(Collective::kBroadcast, Reduction::kNone, TypeParam::kDtype, 3, 5000, /*root=*/1);
  auto sends = Fixture::Sends(problem);
  EXPECT_EQ(Fixture::Wrong(problem, 2, sends[1]), 0u);
  EXPECT_GT(Fixture::Wrong(problem, 2, sends[0]), 4800u);
  for (const Collective collective : {Collective::kAllToAll, Collective::kReduceScatter}) {
    problem = Make(collective, Reduction::kSum, TypeParam::kDtype, 3, 5000);
    sends = Fixture::Sends(problem);
    EXPECT_GT(Fixture::Wrong(problem, 2, Fixture::Expected(problem, sends, 1)), 3000u);
  }
}

// Where dividing rounds. The evaluator alone would allow more than twice as much.
TEST(OperandsAverageTest, AveragesMayBeOffByTwoUnitsInTheLastPlace) {
  const Problem problem = Make(Collective::kAllReduce, Reduction::kAverage, Dtype::kF32, 7, 2000);
  const auto right = OperandsTest<F32>::Expected(problem, OperandsTest<F32>::Sends(problem), 0);
  const auto scaled = [&](float factor) {
    auto seen = right;
    for (float& each : seen) each *= factor;
    return OperandsTest<F32>::Wrong(problem, 0, seen);
  };
  const auto nonzero = static_cast<uint64_t>(
      std::count_if(right.begin(), right.end(), [](float x) { return x != 0; }));
  EXPECT_EQ(scaled(1 + 0x1p-23F), 0u);
  EXPECT_EQ(scaled(1 - 0x1p-23F), 0u);
  EXPECT_EQ(scaled(1 + 0x1p-21F), nonzero);
  EXPECT_EQ(scaled(1 - 0x1p-21F), nonzero);
}

// More than three times what the host makes of it: the rest is copied behind that on the device.
constexpr uint64_t kLongCount = 3 * 128 * 1009 + 77;

TEST(OperandBuffersTest, LongDataGoesOnAsItBegan) {
  const MonotonicClock clock;
  const auto device = MakeHostDevice(clock);
  const int rank = 1;
  for (const bool in_place : {false, true}) {
    for (Collective collective : AllCollectives()) {
      Problem problem = Make(collective, Reduction::kSum, Dtype::kBf16, 3, kLongCount, rank);
      problem.cls.in_place = in_place;
      const auto buffers = *OperandBuffers::Allocate(*device, problem, rank);
      ASSERT_TRUE(buffers->Fill(0));
      const auto sends = OperandsTest<Bf16>::Sends(problem, 0);
      const std::vector<uint16_t>& sent = sends[rank];
      ASSERT_EQ(std::memcmp(buffers->send(), sent.data(), sent.size() * 2), 0) << ToText(problem);
      auto recv = OperandsTest<Bf16>::Expected(problem, sends, rank);
      std::memcpy(buffers->recv(), recv.data(), recv.size() * 2);
      const auto is_right = [&] {
        const OperandCheck check = *buffers->Check(0);
        return check.wrong_elements == 0 && !check.wrote_outside && !check.changed_send;
      };
      // In front, in the first copy, in the last, and at the very end.
      ASSERT_TRUE(is_right()) << ToText(problem);
      for (const uint64_t at : {uint64_t{5}, kLongCount / 2, kLongCount - 100, recv.size() - 1}) {
        auto* found = static_cast<uint16_t*>(buffers->recv()) + at;
        *found = Bf16::Write(Bf16::Read(*found) + 1);
        ASSERT_EQ(buffers->Check(0)->wrong_elements, 1u) << ToText(problem) << " at " << at;
        *found = recv[at];
      }
      ASSERT_TRUE(is_right()) << ToText(problem);
    }
  }
}

TEST(OperandBuffersTest, GuardsAndSendBufferAreWatched) {
  const MonotonicClock clock;
  const std::unique_ptr<Device> device = MakeHostDevice(clock);
  for (bool in_place : {false, true}) {
    Problem problem = Make(Collective::kAllReduce, Reduction::kSum, Dtype::kF32, 1, 100);
    problem.cls.in_place = in_place;
    auto buffers = OperandBuffers::Allocate(*device, problem, 0);
    ASSERT_TRUE(buffers.has_value());
    OperandBuffers& operands = **buffers;
    EXPECT_EQ(operands.send() == operands.recv(), in_place);
    ASSERT_TRUE(operands.Fill(kSalt).has_value());
    std::memmove(operands.recv(), operands.send(), 400);
    Result<OperandCheck> check = operands.Check(kSalt);
    ASSERT_TRUE(check.has_value());
    EXPECT_EQ(check->wrong_elements, 0u);
    EXPECT_FALSE(check->wrote_outside);
    EXPECT_FALSE(check->changed_send);
    static_cast<char*>(operands.recv())[400] = 1;
    EXPECT_TRUE(operands.Check(kSalt)->wrote_outside);
    ASSERT_TRUE(operands.Fill(kSalt + 1).has_value());
    static_cast<char*>(operands.recv())[-1] = 1;
    EXPECT_TRUE(operands.Check(kSalt + 1)->wrote_outside);
    if (in_place) continue;
    ASSERT_TRUE(operands.Fill(kSalt).has_value());
    static_cast<char*>(const_cast<void*>(operands.send()))[0] ^= 1;
    EXPECT_TRUE(operands.Check(kSalt)->changed_send);
  }
}

TEST(OperandBuffersTest, TheResultsOfTheTwoCallsBeforeAreWrong) {
  const MonotonicClock clock;
  const std::unique_ptr<Device> device = MakeHostDevice(clock);
  const Problem problem = Make(Collective::kAllReduce, Reduction::kSum, Dtype::kF32, 1, 5000);
  const auto buffers = *OperandBuffers::Allocate(*device, problem, 0);
  std::vector<std::vector<float>> before;
  for (uint32_t salt = 0; salt < 6; ++salt) {
    ASSERT_TRUE(buffers->Fill(salt).has_value());
    auto* recv = static_cast<float*>(buffers->recv());
    const auto* send = static_cast<const float*>(buffers->send());
    EXPECT_EQ(buffers->Check(salt)->wrong_elements, 5000u) << "poison";
    for (size_t back = 1; back <= 2 && back <= before.size(); ++back) {
      std::copy_n(before[before.size() - back].begin(), 5000, recv);
      EXPECT_GT(buffers->Check(salt)->wrong_elements, 2500u) << back;
    }
    std::copy_n(send, 5000, recv);
    EXPECT_EQ(buffers->Check(salt)->wrong_elements, 0u);
    recv[4999] += 1;
    EXPECT_EQ(buffers->Check(salt)->wrong_elements, 1u);
    before.emplace_back(send, send + 5000);
  }
}

TEST(OperandBuffersTest, CopiesHoldTheSameAndAreCheckedOneByOne) {
  const MonotonicClock clock;
  const std::unique_ptr<Device> device = MakeHostDevice(clock);
  for (const bool in_place : {false, true}) {
    Problem problem = Make(Collective::kAllReduce, Reduction::kSum, Dtype::kF32, 1, 100);
    problem.cls.in_place = in_place;
    const auto buffers = *OperandBuffers::Allocate(*device, problem, 0);
    ASSERT_TRUE(buffers->AddCopies(3).has_value());
    ASSERT_EQ(buffers->copies(), 3);
    ASSERT_TRUE(buffers->Fill(kSalt, 3).has_value());
    for (int32_t copy = 0; copy < 3; ++copy) {
      for (int32_t other = 0; other < copy; ++other) {
        EXPECT_NE(buffers->send(copy), buffers->send(other));
        EXPECT_NE(buffers->recv(copy), buffers->recv(other));
      }
      EXPECT_EQ(std::memcmp(buffers->send(copy), buffers->send(), 400), 0);
      if (!in_place) {
        EXPECT_EQ(buffers->Check(kSalt, copy + 1)->wrong_elements, 100u) << "poison";
      }
      std::memmove(buffers->recv(copy), buffers->send(copy), 400);
      EXPECT_EQ(buffers->Check(kSalt, copy + 1)->wrong_elements, 0u);
    }
    static_cast<float*>(buffers->recv(2))[7] += 1;
    EXPECT_EQ(buffers->Check(kSalt, 2)->wrong_elements, 0u);
    EXPECT_EQ(buffers->Check(kSalt, 3)->wrong_elements, 1u);
    EXPECT_TRUE(buffers->AddCopies(2).has_value());
    EXPECT_EQ(buffers->copies(), 3);
  }
}

// Calls in place compute with the results of earlier ones.
TEST(OperandBuffersTest, ResultsOfTimedCallsInPlaceStayFinite) {
  const MonotonicClock clock;
  const std::unique_ptr<Device> device = MakeHostDevice(clock);
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
    for (const Reduction reduction : AllReductions()) {
      for (const int ranks : {2, 3}) {
        Problem problem = Make(collective, reduction, Dtype::kF32, ranks, 20);
        problem.cls.in_place = true;
        std::vector<std::unique_ptr<OperandBuffers>> buffers;
        for (int rank = 0; rank < ranks; ++rank) {
          buffers.push_back(*OperandBuffers::Allocate(*device, problem, rank));
          ASSERT_TRUE(buffers.back()->AddCopies(2).has_value());
          ASSERT_TRUE(buffers.back()->Fill(0).has_value());
          ASSERT_TRUE(buffers.back()->FillForTiming().has_value());
        }
        for (int call = 0; call < 300; ++call) {
          const int32_t copy = call % 2;
          std::vector<OperandsTest<F32>::Buffer> sends;
          for (const auto& each : buffers) {
            const auto* send = static_cast<const float*>(each->send(copy));
            sends.emplace_back(send, send + problem.send_elements());
          }
          for (int rank = 0; rank < ranks; ++rank) {
            const auto recv = OperandsTest<F32>::Expected(problem, sends, rank);
            std::memcpy(buffers[rank]->recv(copy), recv.data(), recv.size() * sizeof(float));
            const float largest = *std::max_element(recv.begin(), recv.end());
            const float smallest = *std::min_element(recv.begin(), recv.end());
            ASSERT_LE(largest, 250) << ToText(problem) << call;
            ASSERT_GE(smallest, -250) << ToText(problem) << call;
          }
        }
      }
    }
  }
}

TEST(OperandBuffersTest, CopiesAreWantedFromAnEighthOfTheCacheToTwice) {
  constexpr uint64_t kCacheBytes = 50 << 20;
  const auto wanted = [](uint64_t send_bytes) {
    const Problem problem =
        Make(Collective::kAllReduce, Reduction::kSum, Dtype::kF32, 4, send_bytes / 4);
    return CopiesBeyondCache(OperandBuffers::CallBytes(problem), kCacheBytes);
  };
  EXPECT_EQ(wanted(1 << 20), 1);
  EXPECT_EQ(wanted(3 << 20), 1);   // 6 MiB and guards of 6.25
  EXPECT_EQ(wanted(4 << 20), 14);  // 13 times 8 MiB are 104
  EXPECT_EQ(wanted(16 << 20), 5);
  EXPECT_EQ(wanted(49 << 20), 3);
  EXPECT_EQ(wanted(50 << 20), 1);
  for (uint64_t send_bytes = 64 << 10; send_bytes < (100 << 20); send_bytes += 64 << 10) {
    const auto copies = static_cast<uint64_t>(wanted(send_bytes));
    if (copies > 1) {
      EXPECT_GE((copies - 1) * 2 * (send_bytes + 512), 2 * kCacheBytes);
      EXPECT_LT((copies - 2) * 2 * (send_bytes + 512), 2 * kCacheBytes);
    }
  }
  EXPECT_EQ(CopiesBeyondCache(1 << 20, 0), 1);
}

TEST(OperandBuffersTest, InPlaceBlocksLieWhereTheAbiSays) {
  const MonotonicClock clock;
  const std::unique_ptr<Device> device = MakeHostDevice(clock);
  Problem gather = Make(Collective::kAllGather, Reduction::kNone, Dtype::kI32, 4, 10);
  gather.cls.in_place = true;
  auto gather_buffers = *OperandBuffers::Allocate(*device, gather, 2);
  EXPECT_EQ(
      static_cast<const char*>(gather_buffers->send()) - static_cast<char*>(gather_buffers->recv()),
      80);
  Problem scatter = Make(Collective::kReduceScatter, Reduction::kSum, Dtype::kI32, 4, 10);
  scatter.cls.in_place = true;
  auto scatter_buffers = *OperandBuffers::Allocate(*device, scatter, 3);
  EXPECT_EQ(static_cast<char*>(scatter_buffers->recv()) -
                static_cast<const char*>(scatter_buffers->send()),
            120);
}

}  // namespace
}  // namespace cotune
