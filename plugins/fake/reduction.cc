#include "plugins/fake/reduction.h"

#include <cstring>
#include <type_traits>

#include "plugins/sdk/float16.h"

namespace cotune::fake {
namespace {

// How elements lie in memory (Stored) and in what type they are added up (Sum).
template <typename T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum Read(Stored stored) { return stored; }
  static Stored Write(Sum sum) { return sum; }
};

template <auto kRead, auto kWrite>
struct Half {
  using Stored = uint16_t;
  using Sum = float;
  static Sum Read(Stored stored) { return kRead(stored); }
  static Stored Write(Sum sum) { return kWrite(sum); }
};
using Bfloat16 = Half<sdk::F32FromBf16, sdk::Bf16FromF32>;
using Float16 = Half<sdk::F32FromF16, sdk::F16FromF32>;

// Integers wrap: they are added as unsigned numbers.
template <typename T>
auto Wrapping(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(value);
  } else {
    return value;
  }
}

template <typename T>
T Combine(T a, T b, uint32_t reduction) {
  switch (reduction) {
    case COTUNE_PRODUCT:
      return static_cast<T>(Wrapping(a) * Wrapping(b));
    case COTUNE_MIN:
      return b < a ? b : a;
    case COTUNE_MAX:
      return a < b ? b : a;
    default:
      return static_cast<T>(Wrapping(a) + Wrapping(b));
  }
}

template <typename Type>
void ReduceAs(uint32_t reduction, uint64_t count, const std::vector<std::vector<std::byte>>& blocks,
              std::byte* to) {
  using Stored = typename Type::Stored;
  using Sum = typename Type::Sum;
  const auto read = [&](size_t rank, uint64_t index) {
    Stored stored{};
    std::memcpy(&stored, blocks[rank].data() + index * sizeof(Stored), sizeof(Stored));
    return Type::Read(stored);
  };
  for (uint64_t i = 0; i < count; ++i) {
    Sum sum = read(0, i);
    for (size_t rank = 1; rank < blocks.size(); ++rank) {
      sum = Combine(sum, read(rank, i), reduction);
    }
    if (reduction == COTUNE_AVERAGE) sum = static_cast<Sum>(sum / static_cast<Sum>(blocks.size()));
    const Stored stored = Type::Write(sum);
    std::memcpy(to + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

constexpr uint32_t Key(uint32_t code, uint32_t bits) { return code << 8 | bits; }

}  // namespace

uint32_t ElementBytes(cotune_dtype_t dtype) {
  if (dtype.lanes != 1) return 0;
  switch (Key(dtype.code, dtype.bits)) {
    case Key(COTUNE_DTYPE_FLOAT, 16):
    case Key(COTUNE_DTYPE_FLOAT, 32):
    case Key(COTUNE_DTYPE_FLOAT, 64):
    case Key(COTUNE_DTYPE_BFLOAT, 16):
    case Key(COTUNE_DTYPE_INT, 32):
    case Key(COTUNE_DTYPE_INT, 64):
    case Key(COTUNE_DTYPE_UINT, 8):
      return dtype.bits / 8;
    default:
      return 0;
  }
}

void Reduce(cotune_dtype_t dtype, uint32_t reduction, uint64_t count,
            const std::vector<std::vector<std::byte>>& blocks, std::byte* to) {
  switch (Key(dtype.code, dtype.bits)) {
    case Key(COTUNE_DTYPE_FLOAT, 16):
      return ReduceAs<Float16>(reduction, count, blocks, to);
    case Key(COTUNE_DTYPE_FLOAT, 32):
      return ReduceAs<Plain<float>>(reduction, count, blocks, to);
    case Key(COTUNE_DTYPE_FLOAT, 64):
      return ReduceAs<Plain<double>>(reduction, count, blocks, to);
    case Key(COTUNE_DTYPE_BFLOAT, 16):
      return ReduceAs<Bfloat16>(reduction, count, blocks, to);
    case Key(COTUNE_DTYPE_INT, 32):
      return ReduceAs<Plain<int32_t>>(reduction, count, blocks, to);
    case Key(COTUNE_DTYPE_INT, 64):
      return ReduceAs<Plain<int64_t>>(reduction, count, blocks, to);
    case Key(COTUNE_DTYPE_UINT, 8):
      return ReduceAs<Plain<uint8_t>>(reduction, count, blocks, to);
    default:
      return;
  }
}

}  // namespace cotune::fake
