#include "core/benchmark/operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/float16.h"
#include "core/problem/expected_collective.h"

namespace cotune {
namespace {

// Values repeat after this many elements. A prime, so that blocks and chunks of round sizes that
// change places show.
constexpr uint64_t kPeriod = 1009;

uint32_t Mix(uint64_t position, uint32_t rank, uint32_t salt) {
  uint64_t x = position * 0x9E3779B97F4A7C15ull + rank * 0xC2B2AE3D27D4EB4Full +
               salt * 0x165667B19E3779F9ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 32;
  return static_cast<uint32_t>(x);
}

// The value at `index` of the send buffer of `rank`. Sums of 64 ranks stay below 256 and products
// below 256, so that u8 and bf16 hold them exactly; for more ranks fewer values are not zero.
int64_t SendValue(const Problem& problem, uint32_t rank, uint64_t index, uint32_t salt) {
  const uint64_t position = index % kPeriod;
  const uint32_t mixed = Mix(position, rank, salt);
  const auto world = static_cast<uint32_t>(problem.cls.world_size);
  switch (problem.cls.reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return world <= 64 ? mixed % 4 : (mixed % world < 48 ? mixed >> 16 & 1 : 0);
    case Reduction::kProduct: {
      const uint32_t chosen = Mix(position, 0, salt);
      const bool doubles =
          rank == chosen % world || rank == (chosen >> 8) % world || rank == (chosen >> 16) % world;
      return doubles ? 2 : 1;
    }
    case Reduction::kMin:
    case Reduction::kMax:
    case Reduction::kNone:
      break;
  }
  return mixed % 251;  // below the poison of u8
}

// The value of TimedSendBlocks at `index`.
int64_t TimedSendValue(const Problem& problem, uint32_t rank, uint64_t index) {
  if (problem.cls.reduction == Reduction::kSum) return 0;
  if (problem.cls.reduction == Reduction::kProduct) return 1;
  return SendValue(problem, rank, index, 0);
}

template <typename T>
void Put(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(value));
}

void Encode(Dtype dtype, double value, std::byte* at) {
  switch (dtype) {
    case Dtype::kF32:
      return Put(static_cast<float>(value), at);
    case Dtype::kF64:
      return Put(value, at);
    case Dtype::kF16:
      return Put(F16FromF32(static_cast<float>(value)), at);
    case Dtype::kBf16:
      return Put(Bf16FromF32(static_cast<float>(value)), at);
    case Dtype::kI32:
      return Put(static_cast<int32_t>(value), at);
    case Dtype::kI64:
      return Put(static_cast<int64_t>(value), at);
    case Dtype::kU8:
    default:  // no collective has another one
      return Put(static_cast<uint8_t>(value), at);
  }
}

std::vector<OperandBlock> SendBlocksOf(const Problem& problem,
                                       const std::function<int64_t(uint64_t index)>& value_at) {
  const uint64_t size_bytes = SizeBytes(problem.cls.dtype);
  OperandBlock block{0, problem.send_elements() * size_bytes, {}};
  block.period.resize(kPeriod * size_bytes);
  for (uint64_t k = 0; k < kPeriod; ++k) {
    Encode(problem.cls.dtype, static_cast<double>(value_at(k)),
           block.period.data() + k * size_bytes);
  }
  return {std::move(block)};
}

// Averages of this data may be off by two units in the last place. The evaluator has more room for
// them: in larger groups, adding up numbers that were divided before may round more often.
double AverageTolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return 0x1p-22;
    case Dtype::kF64:
      return 0x1p-51;
    case Dtype::kF16:
      return 0x1p-9;
    case Dtype::kBf16:
      return 0x1p-6;
    default:
      return 0;
  }
}

// The problem of the first period of each block, or of all of it where it is shorter: the blocks of
// the whole result repeat those of this one.
Problem FirstPeriodOf(Problem problem) {
  problem.count = std::min(problem.count, kPeriod);
  return problem;
}

// What each rank sends to `rank` in FirstPeriodOf(problem).
SentByRanks FirstPeriodSent(const Problem& problem, int rank, uint32_t salt) {
  const uint64_t size_bytes = SizeBytes(problem.cls.dtype);
  const bool has_blocks = problem.send_elements() > problem.count;
  const uint64_t first = has_blocks ? static_cast<uint64_t>(rank) * problem.count : 0;
  SentByRanks sent;
  for (int sender = 0; sender < problem.cls.world_size; ++sender) {
    std::vector<std::byte> period = SendBlocks(problem, sender, salt).front().period;
    const auto begin = period.begin() + static_cast<ptrdiff_t>(first % kPeriod * size_bytes);
    std::rotate(period.begin(), begin, period.end());
    period.resize(FirstPeriodOf(problem).count * size_bytes);
    sent.push_back(std::move(period));
  }
  return sent;
}

EvaluatedValue FrontOf(const EvaluatedValue& value, uint64_t elements) {
  EvaluatedValue front;
  front.type = value.type;
  front.rows = elements;
  const auto cut = [&](const auto& from, auto& to) {
    if (!from.empty()) to.assign(from.begin(), from.begin() + static_cast<ptrdiff_t>(elements));
  };
  cut(value.floats, front.floats);
  cut(value.integers, front.integers);
  return front;
}

// What a reduction gives in FirstPeriodOf(problem).
Result<EvaluatedValue> ReducedPeriod(const Problem& problem, int rank, uint32_t salt) {
  Result<EvaluatedValue> value =
      ExpectedValueOfBlocks(FirstPeriodOf(problem), FirstPeriodSent(problem, rank, salt));
  if (!value || problem.cls.reduction != Reduction::kAverage) return value;
  const double tolerance = AverageTolerance(problem.cls.dtype);
  for (Bounded& each : value->floats) {
    each.bound = std::min(each.bound, tolerance * std::fabs(each.value));
  }
  return value;
}

// Elements of `seen` that are not right. `right` is the nearest to it; `reduced`: what else is, for
// a collective that reduces.
uint64_t CountWrongInRun(uint64_t size_bytes, std::span<const std::byte> right,
                         const std::optional<EvaluatedValue>& reduced,
                         std::span<const std::byte> seen) {
  if (std::memcmp(right.data(), seen.data(), seen.size()) == 0) return 0;
  const uint64_t elements = seen.size() / size_bytes;
  if (reduced && elements == reduced->rows) return CountWrong(*reduced, seen);
  if (reduced) return CountWrong(FrontOf(*reduced, elements), seen);
  uint64_t wrong = 0;
  for (uint64_t at = 0; at < seen.size(); at += size_bytes) {
    if (std::memcmp(right.data() + at, seen.data() + at, size_bytes) != 0) ++wrong;
  }
  return wrong;
}

}  // namespace

std::vector<OperandBlock> SendBlocks(const Problem& problem, int rank, uint32_t salt) {
  return SendBlocksOf(problem,
                      [&](uint64_t index) { return SendValue(problem, rank, index, salt); });
}

std::vector<OperandBlock> TimedSendBlocks(const Problem& problem, int rank) {
  return SendBlocksOf(problem,
                      [&](uint64_t index) { return TimedSendValue(problem, rank, index); });
}

Result<std::vector<OperandBlock>> ExpectedBlocks(const Problem& problem, int rank, uint32_t salt) {
  const Problem part = FirstPeriodOf(problem);
  COTUNE_TRY(const auto expected,
             ExpectedBytesOfBlocks(part, FirstPeriodSent(problem, rank, salt)));
  const uint64_t size_bytes = SizeBytes(problem.cls.dtype);
  std::vector<OperandBlock> blocks;
  for (uint64_t first = 0; first < part.recv_elements(); first += part.count) {
    const auto begin = expected.begin() + static_cast<ptrdiff_t>(first * size_bytes);
    blocks.push_back({first / part.count * problem.count * size_bytes,
                      problem.count * size_bytes,
                      {begin, begin + static_cast<ptrdiff_t>(part.count * size_bytes)}});
  }
  return blocks;
}

void FillFront(const OperandBlock& block, std::span<std::byte> front) {
  for (uint64_t done = 0; done < front.size();) {
    const uint64_t run = std::min<uint64_t>(block.period.size(), front.size() - done);
    std::memcpy(front.data() + done, block.period.data(), run);
    done += run;
  }
}

Result<uint64_t> CountWrongElements(const Problem& problem, int rank, uint32_t salt,
                                    std::span<const std::byte> recv) {
  COTUNE_TRY(const auto blocks, ExpectedBlocks(problem, rank, salt));
  std::optional<EvaluatedValue> reduced;
  if (Reduces(problem.cls.collective)) {
    COTUNE_TRY(EvaluatedValue value, ReducedPeriod(problem, rank, salt));
    reduced = std::move(value);
  }
  uint64_t wrong = 0;
  for (const OperandBlock& block : blocks) {
    for (uint64_t done = 0; done < block.bytes; done += block.period.size()) {
      const uint64_t run = std::min<uint64_t>(block.period.size(), block.bytes - done);
      wrong += CountWrongInRun(SizeBytes(problem.cls.dtype), block.period, reduced,
                               recv.subspan(block.begin_bytes + done, run));
    }
  }
  return wrong;
}

}  // namespace cotune
