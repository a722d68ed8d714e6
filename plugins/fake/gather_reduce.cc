#include "plugins/fake/gather_reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/float16.h"

namespace cotune::fake {
namespace {

template <typename T>
T Get(const std::string& bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// How a stored type is added up: 16-bit floats in f32, the others as they are.
struct Bf16 {
  using Stored = uint16_t;
  using Sum = float;
  static Sum Load(Stored x) { return F32FromBf16(x); }
  static Stored Store(Sum x) { return Bf16FromF32(x); }
};
struct F16 {
  using Stored = uint16_t;
  using Sum = float;
  static Sum Load(Stored x) { return F32FromF16(x); }
  static Stored Store(Sum x) { return F16FromF32(x); }
};
template <typename T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum Load(Stored x) { return x; }
  static Stored Store(Sum x) { return x; }
};

template <typename Sum>
Sum Combine(uint32_t reduction, Sum a, Sum b) {
  switch (reduction) {
    case COTUNE_PRODUCT:
      return static_cast<Sum>(a * b);
    case COTUNE_MIN:
      return std::min(a, b);
    case COTUNE_MAX:
      return std::max(a, b);
    default:
      return static_cast<Sum>(a + b);
  }
}

template <typename Type>
std::string Reduce(const cotune_problem_t& problem, const std::vector<std::string>& sends,
                   uint64_t first) {
  using Stored = typename Type::Stored;
  std::string recv(problem.count * sizeof(Stored), '\0');
  for (uint64_t i = 0; i < problem.count; ++i) {
    auto value = Type::Load(Get<Stored>(sends[0], first + i));
    for (int32_t rank = 1; rank < problem.world_size; ++rank) {
      value = Combine(problem.reduction, value, Type::Load(Get<Stored>(sends[rank], first + i)));
    }
    if (problem.reduction == COTUNE_AVERAGE) {
      value =
          static_cast<decltype(value)>(value / static_cast<decltype(value)>(problem.world_size));
    }
    const Stored stored = Type::Store(value);
    std::memcpy(recv.data() + i * sizeof(Stored), &stored, sizeof(stored));
  }
  return recv;
}

std::string ReduceAny(const cotune_problem_t& problem, const std::vector<std::string>& sends,
                      uint64_t first) {
  const cotune_dtype_t& dtype = problem.dtype;
  if (dtype.code == COTUNE_DTYPE_BFLOAT) return Reduce<Bf16>(problem, sends, first);
  if (dtype.code == COTUNE_DTYPE_FLOAT && dtype.bits == 16)
    return Reduce<F16>(problem, sends, first);
  if (dtype.code == COTUNE_DTYPE_FLOAT && dtype.bits == 32)
    return Reduce<Plain<float>>(problem, sends, first);
  if (dtype.code == COTUNE_DTYPE_FLOAT) return Reduce<Plain<double>>(problem, sends, first);
  if (dtype.code == COTUNE_DTYPE_UINT) return Reduce<Plain<uint8_t>>(problem, sends, first);
  // Sums of integers wrap around; signed arithmetic may not.
  if (dtype.bits == 32) return Reduce<Plain<int32_t>>(problem, sends, first);
  return Reduce<Plain<int64_t>>(problem, sends, first);
}

uint64_t BlockBytes(const cotune_problem_t& problem) {
  return problem.count * problem.dtype.bits / 8;
}

bool HasBlocks(const cotune_problem_t& problem, uint32_t one, uint32_t other) {
  return problem.collective == one || problem.collective == other;
}

}  // namespace

uint64_t SendBytes(const cotune_problem_t& problem) {
  const bool blocks = HasBlocks(problem, COTUNE_REDUCE_SCATTER, COTUNE_ALL_TO_ALL);
  return BlockBytes(problem) * (blocks ? problem.world_size : 1);
}

uint64_t RecvBytes(const cotune_problem_t& problem) {
  const bool blocks = HasBlocks(problem, COTUNE_ALL_GATHER, COTUNE_ALL_TO_ALL);
  return BlockBytes(problem) * (blocks ? problem.world_size : 1);
}

bool CanReduce(const cotune_problem_t& problem) {
  const cotune_dtype_t& dtype = problem.dtype;
  const uint32_t bits = dtype.bits;
  const bool known =
      (dtype.code == COTUNE_DTYPE_FLOAT && (bits == 16 || bits == 32 || bits == 64)) ||
      (dtype.code == COTUNE_DTYPE_BFLOAT && bits == 16) ||
      (dtype.code == COTUNE_DTYPE_INT && (bits == 32 || bits == 64)) ||
      (dtype.code == COTUNE_DTYPE_UINT && bits == 8);
  return known && dtype.lanes == 1 && problem.reduction <= COTUNE_AVERAGE;
}

std::string Receive(const cotune_problem_t& problem, const std::vector<std::string>& sends,
                    int32_t rank) {
  const uint64_t block_bytes = BlockBytes(problem);
  switch (problem.collective) {
    case COTUNE_ALL_REDUCE:
      return ReduceAny(problem, sends, 0);
    case COTUNE_REDUCE_SCATTER:
      return ReduceAny(problem, sends, rank * problem.count);
    case COTUNE_BROADCAST:
      return sends[problem.root];
    default:
      break;
  }
  const uint64_t first = problem.collective == COTUNE_ALL_TO_ALL ? rank * block_bytes : 0;
  std::string recv;
  for (const std::string& send : sends) recv += send.substr(first, block_bytes);
  return recv;
}

}  // namespace cotune::fake
