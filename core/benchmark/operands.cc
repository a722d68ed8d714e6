#include "core/benchmark/operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/float16.h"

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

double Reduced(const Problem& problem, uint64_t index, uint32_t salt) {
  int64_t value = SendValue(problem, 0, index, salt);
  for (int rank = 1; rank < problem.cls.world_size; ++rank) {
    const int64_t other = SendValue(problem, rank, index, salt);
    switch (problem.cls.reduction) {
      case Reduction::kProduct:
        value *= other;
        break;
      case Reduction::kMin:
        value = std::min(value, other);
        break;
      case Reduction::kMax:
        value = std::max(value, other);
        break;
      default:
        value += other;
    }
  }
  if (problem.cls.reduction != Reduction::kAverage) return static_cast<double>(value);
  const double mean = static_cast<double>(value) / problem.cls.world_size;
  const Dtype dtype = problem.cls.dtype;
  const bool is_integer = dtype == Dtype::kI32 || dtype == Dtype::kI64 || dtype == Dtype::kU8;
  return is_integer ? std::trunc(mean) : mean;
}

template <typename T>
void Put(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
T Get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
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
      return Put(static_cast<uint8_t>(value), at);
  }
}

double Decode(Dtype dtype, const std::byte* at) {
  switch (dtype) {
    case Dtype::kF32:
      return Get<float>(at);
    case Dtype::kF64:
      return Get<double>(at);
    case Dtype::kF16:
      return F32FromF16(Get<uint16_t>(at));
    case Dtype::kBf16:
      return F32FromBf16(Get<uint16_t>(at));
    case Dtype::kI32:
      return Get<int32_t>(at);
    case Dtype::kI64:
      return static_cast<double>(Get<int64_t>(at));
    case Dtype::kU8:
      return Get<uint8_t>(at);
  }
  return 0;
}

// Relative size of two units in the last place; 0: exact.
double Tolerance(const Problem& problem) {
  if (problem.cls.reduction != Reduction::kAverage) return 0;
  switch (problem.cls.dtype) {
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

// A block of `elements` whose element j holds value_at((first + j) % kPeriod).
template <typename ValueAt>
OperandBlock MakeBlock(Dtype dtype, uint64_t begin_bytes, uint64_t elements, uint64_t first,
                       ValueAt value_at) {
  const uint64_t size_bytes = SizeBytes(dtype);
  OperandBlock block{begin_bytes, elements * size_bytes, {}};
  block.period.resize(kPeriod * size_bytes);
  for (uint64_t k = 0; k < kPeriod; ++k) {
    Encode(dtype, value_at((first + k) % kPeriod), block.period.data() + k * size_bytes);
  }
  return block;
}

uint64_t CountWrongInRun(const Problem& problem, uint64_t elements, const std::byte* expected,
                         const std::byte* found) {
  const uint64_t size_bytes = SizeBytes(problem.cls.dtype);
  if (std::memcmp(expected, found, elements * size_bytes) == 0) return 0;
  const double tolerance = Tolerance(problem);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < elements; ++i) {
    const double right = Decode(problem.cls.dtype, expected + i * size_bytes);
    const double seen = Decode(problem.cls.dtype, found + i * size_bytes);
    // Written so that NaN counts as wrong.
    if (!(std::fabs(seen - right) <= tolerance * std::fabs(right))) ++wrong;
  }
  return wrong;
}

}  // namespace

std::vector<OperandBlock> SendBlocks(const Problem& problem, int rank, uint32_t salt) {
  return {MakeBlock(problem.cls.dtype, 0, problem.send_elements(), 0,
                    [&](uint64_t k) { return SendValue(problem, rank, k, salt); })};
}

std::vector<OperandBlock> ExpectedBlocks(const Problem& problem, int rank, uint32_t salt) {
  const ProblemClass& cls = problem.cls;
  if (Reduces(cls.collective)) {
    const uint64_t first = cls.collective == Collective::kReduceScatter ? rank * problem.count : 0;
    return {MakeBlock(cls.dtype, 0, problem.count, first,
                      [&](uint64_t k) { return Reduced(problem, k, salt); })};
  }
  const bool is_broadcast = cls.collective == Collective::kBroadcast;
  const uint64_t first = cls.collective == Collective::kAllToAll ? rank * problem.count : 0;
  std::vector<OperandBlock> blocks;
  for (int block = 0; block < (is_broadcast ? 1 : cls.world_size); ++block) {
    const int sender = is_broadcast ? cls.root : block;
    blocks.push_back(MakeBlock(cls.dtype, block * problem.count * SizeBytes(cls.dtype),
                               problem.count, first,
                               [&](uint64_t k) { return SendValue(problem, sender, k, salt); }));
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

uint64_t CountWrongElements(const Problem& problem, int rank, uint32_t salt,
                            std::span<const std::byte> recv) {
  uint64_t wrong = 0;
  for (const OperandBlock& block : ExpectedBlocks(problem, rank, salt)) {
    for (uint64_t done = 0; done < block.bytes;) {
      const uint64_t run = std::min<uint64_t>(block.period.size(), block.bytes - done);
      wrong += CountWrongInRun(problem, run / SizeBytes(problem.cls.dtype), block.period.data(),
                               recv.data() + block.begin_bytes + done);
      done += run;
    }
  }
  return wrong;
}

}  // namespace cotune
