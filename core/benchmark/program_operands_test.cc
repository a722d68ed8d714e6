#include "core/benchmark/program_operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/problem/program_evaluator.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr uint64_t kRows = 12;

// A program's operands on all ranks, in host memory. The evaluator runs its calls.
class OperandsOfRanks {
 public:
  OperandsOfRanks(const std::string& text, int ranks)
      : program_(*Program::Bind(*ProgramGraph::Parse(text),
                                {MemoryKind::kHost, ranks, ranks, BufferClass::kPlain})),
        problem_(program_.ProblemAt(program_.BytesOf(0, kRows), 7)) {
    EXPECT_EQ(program_.RowsAt(problem_), kRows);
    for (int rank = 0; rank < ranks; ++rank) {
      operands_.push_back(
          *ProgramOperands::Allocate(*device_, program_, problem_, rank, /*symmetric=*/nullptr));
    }
  }
  CellOperands& operator[](size_t rank) { return *operands_[rank]; }
  size_t ranks() const { return operands_.size(); }
  const ProgramGraph& graph() const { return program_.graph(); }

  std::byte* OutputOf(size_t rank, size_t output, int32_t copy = 0) {
    return static_cast<std::byte*>(ArgumentsOf(rank, copy).outputs[output]);
  }
  uint64_t OutputBytes(size_t output) const {
    return program_.BytesOf(graph().outputs()[output].value, kRows);
  }
  EvaluatedValue ReadOutput(size_t rank, size_t output, int32_t copy) {
    const ValueType& type = graph().type(graph().outputs()[output].value);
    return Decode(type, program_.RowsOf(graph().outputs()[output].value, kRows),
                  {OutputOf(rank, output, copy), OutputBytes(output)});
  }

  void Fill(uint32_t salt, int32_t copies = 1) {
    for (const auto& each : operands_) ASSERT_TRUE(each->Fill(salt, copies).has_value());
  }
  void Call(int32_t copy = 0) {
    std::vector<std::vector<std::vector<std::byte>>> inputs;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      auto& of_rank = inputs.emplace_back();
      for (size_t i = 0; i < graph().inputs().size(); ++i) {
        const auto* begin = static_cast<const std::byte*>(ArgumentsOf(rank, copy).inputs[i]);
        of_rank.emplace_back(begin, begin + program_.BytesOf(static_cast<ValueIndex>(i), kRows));
      }
    }
    const auto results =
        *EvaluateProgram(graph(), kRows, static_cast<int>(ranks()), std::move(inputs));
    for (size_t rank = 0; rank < ranks(); ++rank) {
      for (size_t output = 0; output < graph().outputs().size(); ++output) {
        const std::vector<std::byte> bytes = Encode(results[rank][output]);
        std::memcpy(OutputOf(rank, output, copy), bytes.data(), bytes.size());
      }
    }
  }

 private:
  LaunchArguments ArgumentsOf(size_t rank, int32_t copy) {
    LaunchArguments arguments;
    operands_[rank]->SetAddresses(arguments, copy);
    return arguments;
  }

  const MonotonicClock clock_;
  const std::unique_ptr<Device> device_ = MakeHostDevice(clock_);
  const Program program_;
  const Problem problem_;
  std::vector<std::unique_ptr<CellOperands>> operands_;
};

// The second output differs between ranks, the others do not.
constexpr char kNorm[] =
    "%x = input f32 [R, 64]\n%g = input f32 [1, 64] replicated\n"
    "%r = input f32 [R, 64] replicated\n%s = all_reduce sum %x\n%t = add %s, %r\n"
    "%y = rms_norm %t, %g\n%z = add %y, %x\nreturn %y, %z, %t into %r\n";

// Gives the next bits to the first element that is not zero.
void AddUlp(std::byte* output) {
  float value = 0;
  for (; value == 0; output += sizeof(value)) std::memcpy(&value, output, sizeof(value));
  output[-static_cast<ptrdiff_t>(sizeof(value))] ^= std::byte{1};
}

TEST(ProgramOperandsTest, ReplicatedOutputsHaveOneHashOnAllRanksUnlessTheirBitsDiffer) {
  for (const int ranks : {2, 3}) {
    OperandsOfRanks operands(kNorm, ranks);
    ASSERT_EQ(operands[0].ReplicatedOutputs(),
              (std::vector<std::string>{"output 1", "output 3 into r"}));
    std::vector<std::vector<uint64_t>> of_salts;
    for (const uint32_t salt : {0, 1, 2}) {
      operands.Fill(salt);
      operands.Call();
      const OperandCheck first = *operands[0].Check(salt, 1);
      ASSERT_TRUE(first.is_right());
      ASSERT_EQ(first.replicated_hashes.size(), 2u);
      of_salts.push_back(first.replicated_hashes);
      const OperandCheck last = *operands[ranks - 1].Check(salt, 1);
      EXPECT_EQ(last.replicated_hashes, first.replicated_hashes);
      // An output that may differ between ranks does not count.
      AddUlp(operands.OutputOf(ranks - 1, 1));
      EXPECT_EQ(operands[ranks - 1].Check(salt, 1)->replicated_hashes, first.replicated_hashes);
      // Twice, because the second time an image has these bits.
      AddUlp(operands.OutputOf(ranks - 1, 0));
      for (int i = 0; i < 2; ++i) {
        const OperandCheck other = *operands[ranks - 1].Check(salt, 1);
        ASSERT_TRUE(other.is_right()) << "within the bound";
        EXPECT_NE(other.replicated_hashes[0], first.replicated_hashes[0]);
        EXPECT_EQ(other.replicated_hashes[1], first.replicated_hashes[1]);
      }
      const OperandCheck other = *operands[ranks - 1].Check(salt, 1);
      AddUlp(operands.OutputOf(0, 0));
      EXPECT_EQ(operands[0].Check(salt, 1)->replicated_hashes, other.replicated_hashes)
          << "the same bits on both";
    }
    EXPECT_NE(of_salts[0][0], of_salts[1][0]);
    EXPECT_NE(of_salts[1][0], of_salts[2][0]);
  }
}

TEST(ProgramOperandsTest, ResultsThatAreNoImagesAnyMoreAreHashedAsWell) {
  OperandsOfRanks operands(kNorm, 2);
  operands.Fill(0);
  operands.Call();
  std::vector<uint64_t> seen;
  for (size_t element = 0; seen.size() < 8; ++element) {
    std::byte* const at = operands.OutputOf(0, 0) + element * sizeof(float);
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    if (value == 0) continue;
    *at ^= std::byte{1};
    const OperandCheck check = *operands[0].Check(0, 1);
    ASSERT_TRUE(check.is_right());
    EXPECT_EQ(operands[0].Check(0, 1)->replicated_hashes, check.replicated_hashes);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), check.replicated_hashes[0]), 0);
    seen.push_back(check.replicated_hashes[0]);
  }
}

TEST(ProgramOperandsTest, EveryCopyCountsForTheHashAndAWrongOneHasNone) {
  OperandsOfRanks operands(kNorm, 2);
  for (size_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(operands[rank].AddCopies(3).has_value());
  operands.Fill(0, 3);
  for (int32_t copy = 0; copy < 3; ++copy) operands.Call(copy);
  const OperandCheck all = *operands[0].Check(0, 3);
  ASSERT_EQ(all.replicated_hashes.size(), 2u);
  EXPECT_EQ(operands[1].Check(0, 3)->replicated_hashes, all.replicated_hashes);
  for (int32_t copy = 0; copy < 3; ++copy) {
    AddUlp(operands.OutputOf(1, 0, copy));
    const OperandCheck other = *operands[1].Check(0, 3);
    ASSERT_TRUE(other.is_right());
    EXPECT_NE(other.replicated_hashes[0], all.replicated_hashes[0]) << copy;
    AddUlp(operands.OutputOf(1, 0, copy));
  }
  *operands.OutputOf(1, 0, 2) ^= std::byte{0xFF};
  operands.OutputOf(1, 0, 2)[3] ^= std::byte{0x41};
  EXPECT_FALSE(operands[1].Check(0, 3)->is_right());
  EXPECT_TRUE(operands[1].Check(0, 3)->replicated_hashes.empty());
}

// Programs that overwrite what they read.
constexpr const char* kOverwriting[] = {
    // The stream itself, to which a residual, a bias, or both are added.
    "%x = input bf16 [R, 64]\n%r = input bf16 [R, 64]\n%s = all_reduce sum %x\n"
    "%t = add %s, %r\nreturn %t into %x\n",
    "%x = input f32 [R, 64]\n%b = input f32 [1, 64] replicated\n"
    "%r = input f32 [R, 64] replicated\n%s = all_reduce sum %x\n%t = add %s, %r\n"
    "%u = add %t, %b\nreturn %u into %x\n",
    // The residual.
    kNorm,
    // One by way of the other.
    "%x = input f16 [R, 64]\n%r = input f16 [R, 64]\n%q = input f16 [R, 64]\n"
    "%s = all_reduce sum %x\n%t = add %s, %r\n%u = add %r, %q\n"
    "return %t into %x, %u into %r\n",
    "%x = input f32 [R, 64]\n%r = input f32 [R, 64]\n%p = all_reduce product %x\n"
    "%t = mul %p, %r\nreturn %t into %x\n",
};

double LargestResult(OperandsOfRanks& operands, int32_t copy) {
  double largest = 0;
  for (size_t rank = 0; rank < operands.ranks(); ++rank) {
    for (size_t output = 0; output < operands.graph().outputs().size(); ++output) {
      for (const Bounded& each : operands.ReadOutput(rank, output, copy).floats) {
        if (!std::isfinite(each.value)) return std::numeric_limits<double>::infinity();
        largest = std::max(largest, std::fabs(each.value));
      }
    }
  }
  return largest;
}

TEST(ProgramOperandsTest, ResultsOfTimedCallsThatOverwriteInputsStayFinite) {
  for (const char* const text : kOverwriting) {
    for (const int ranks : {2, 3}) {
      OperandsOfRanks operands(text, ranks);
      for (const bool is_added : {false, true}) {
        for (size_t rank = 0; rank < operands.ranks(); ++rank) {
          ASSERT_TRUE(operands[rank].AddCopies(2).has_value());
          ASSERT_TRUE(operands[rank].FillForTiming(1).has_value());
        }
        const int32_t copy = is_added ? 1 : 0;
        for (int call = 0; call < 200; ++call) operands.Call(copy);
        EXPECT_LE(LargestResult(operands, copy), 4096) << text << ranks << is_added;
      }
    }
  }
}

}  // namespace
}  // namespace cotune
