#include "tests/gpu/reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/base/check.h"
#include "core/base/float16.h"
#include "core/problem/bounded.h"
#include "core/problem/expected_collective.h"
#include "fmt/format.h"

namespace cotune::gputest {
namespace {

// How elements of a type are read and written, and what they are added up in.
template <typename T>
struct Plain {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint8_t>>;
  using Sum = T;
  static constexpr bool kIsFloat = std::is_floating_point_v<T>;
  static constexpr int kFractionBits = kIsFloat ? std::numeric_limits<T>::digits - 1 : 0;
  static Sum Widen(Bits bits) { return std::bit_cast<T>(bits); }
  static Bits Narrow(Sum value) { return std::bit_cast<Bits>(value); }
};

template <auto kWiden, auto kNarrow, int kFraction>
struct Half {
  using Bits = uint16_t;
  using Sum = float;
  static constexpr bool kIsFloat = true;
  static constexpr int kFractionBits = kFraction;
  static Sum Widen(Bits bits) { return kWiden(bits); }
  static Bits Narrow(Sum value) { return kNarrow(value); }
};

template <class Body>
auto WithType(Dtype dtype, Body body) {
  switch (dtype) {
    case Dtype::kF32:
      return body(Plain<float>());
    case Dtype::kF64:
      return body(Plain<double>());
    case Dtype::kF16:
      return body(Half<F32FromF16, F16FromF32, 10>());
    case Dtype::kBf16:
      return body(Half<F32FromBf16, Bf16FromF32, 7>());
    case Dtype::kI32:
      return body(Plain<int32_t>());
    case Dtype::kI64:
      return body(Plain<int64_t>());
    default:  // collectives have no other dtypes than u8 beside these
      break;
  }
  return body(Plain<uint8_t>());
}

template <class Type>
typename Type::Bits Load(const std::byte* base, uint64_t index) {
  typename Type::Bits bits;
  std::memcpy(&bits, base + index * sizeof(bits), sizeof(bits));
  return bits;
}

template <class Type>
void Store(typename Type::Bits bits, std::byte* base, uint64_t index) {
  std::memcpy(base + index * sizeof(bits), &bits, sizeof(bits));
}

// A number that looks random and is the same everywhere (the finaliser of splitmix64).
uint64_t Mixed(uint64_t salt, uint64_t rank, uint64_t index) {
  uint64_t x = index * 0x9E3779B97F4A7C15ull + rank * 0xD1B54A32D192ED03ull +
               salt * 0x8CB92BA72F3D8DD7ull + 0x632BE59BD9B4E019ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

template <class Type>
typename Type::Bits ExactElement(const ProblemClass& cls, uint64_t mixed) {
  using Sum = typename Type::Sum;
  if (cls.reduction == Reduction::kProduct) {
    constexpr double kFactors[] = {1, 2, 0.5, -1};
    constexpr int kWholeFactors[] = {1, 2, 3, 1};
    return Type::Narrow(Type::kIsFloat ? static_cast<Sum>(kFactors[mixed % 4])
                                       : static_cast<Sum>(kWholeFactors[mixed % 4]));
  }
  const bool is_float_average = Type::kIsFloat && cls.reduction == Reduction::kAverage;
  const bool is_signed = std::is_signed_v<Sum> && !is_float_average;
  const int value = static_cast<int>(mixed % 31);
  return Type::Narrow(static_cast<Sum>(is_signed ? value - 15 : value));
}

template <class Type>
typename Type::Bits RandomFloat(uint64_t mixed) {
  const double whole = static_cast<double>(static_cast<int64_t>(mixed) >> 10);
  return Type::Narrow(static_cast<typename Type::Sum>(whole * 0x1p-53));
}

// All ranks draw from one kind at an index, so that no partial result is rounded: the answer does
// not depend on how often a backend rounds.
template <class Type>
typename Type::Bits SpecialElement(const ProblemClass& cls, uint64_t kind, uint64_t mixed,
                                   bool with_nan) {
  using Bits = typename Type::Bits;
  constexpr int kBits = sizeof(Bits) * 8;
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (kBits - 1));
  const auto fraction_mask = static_cast<Bits>((Bits{1} << Type::kFractionBits) - 1);
  const auto infinity = static_cast<Bits>(~kSign & ~fraction_mask);
  const auto sign = static_cast<Bits>((mixed >> 32) % 2 == 0 ? 0 : kSign);
  const Bits one = Type::Narrow(1);
  const bool averages = cls.reduction == Reduction::kAverage;
  switch (kind % 6) {
    case 0:  // NaN here and there, numbers on the other ranks
      if (with_nan && mixed % 2 == 0) {
        return static_cast<Bits>(infinity | Bits{1} << (Type::kFractionBits - 1) | sign);
      }
      break;
    case 1:
      if (mixed % 2 == 0) return static_cast<Bits>(infinity | (with_nan ? sign : 0));
      break;
    case 2:
      return sign;
    case 3:
      if (averages) break;  // dividing rounds them
      // Small enough that 8 of them add up to a subnormal number, which is exact.
      return static_cast<Bits>(((mixed & fraction_mask) >> 3) | 1 | sign);
    case 4: {
      if (averages) break;  // whether the sum overflows first is the backend's affair
      const bool is_negative = cls.reduction != Reduction::kProduct && kind / 6 % 2 == 1;
      return static_cast<Bits>((infinity - 1) | (is_negative ? kSign : 0));
    }
    default:
      break;
  }
  return static_cast<Bits>(one | sign);
}

constexpr uint64_t kEscaped[] = {kCannotBeSent, kCannotBeSent ^ 1};

template <class Type>
typename Type::Bits BitsElement(uint64_t mixed, uint64_t mixed_of_eight_bytes, uint64_t index) {
  using Bits = typename Type::Bits;
  if (mixed_of_eight_bytes >> 60 == 0) {
    const uint64_t place = index * sizeof(Bits) % sizeof(uint64_t);
    return static_cast<Bits>(kEscaped[mixed_of_eight_bytes % 2] >> 8 * place);
  }
  switch (mixed >> 60) {
    case 0:
      return static_cast<Bits>(~Bits{0});
    case 1:
      return 0;
    default:
      return static_cast<Bits>(mixed);
  }
}

template <class Type>
typename Type::Bits Element(const ProblemClass& cls, int rank, Pattern pattern, uint32_t salt,
                            bool with_nan, uint64_t index) {
  const uint64_t mixed = Mixed(salt, static_cast<uint64_t>(rank) + 1, index);
  if (pattern == Pattern::kExact) return ExactElement<Type>(cls, mixed);
  if constexpr (Type::kIsFloat) {
    if (pattern == Pattern::kRandom) return RandomFloat<Type>(mixed);
    if (pattern == Pattern::kSpecial) {
      return SpecialElement<Type>(cls, Mixed(salt, 0, index), mixed, with_nan);
    }
  }
  const uint64_t eight_bytes = index * sizeof(typename Type::Bits) / sizeof(uint64_t);
  return BitsElement<Type>(mixed, Mixed(~salt, static_cast<uint64_t>(rank) + 1, eight_bytes),
                           index);
}

// Of two floats. NaN stays.
template <typename Sum>
Sum Combine(Sum a, Sum b, Reduction reduction) {
  switch (reduction) {
    case Reduction::kMin:
      return a < b || std::isnan(a) ? a : b;
    case Reduction::kMax:
      return a > b || std::isnan(a) ? a : b;
    case Reduction::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

// The reduction of floats in rank order.
template <class Type>
typename Type::Bits Reduced(const Problem& problem, Pattern pattern, uint32_t salt, bool with_nan,
                            uint64_t index) {
  const ProblemClass& cls = problem.cls;
  const auto element = [&](int rank) {
    return Type::Widen(Element<Type>(cls, rank, pattern, salt, with_nan, index));
  };
  typename Type::Sum total = element(0);
  for (int rank = 1; rank < cls.world_size; ++rank) {
    total = Combine(total, element(rank), cls.reduction);
  }
  if (cls.reduction == Reduction::kAverage) {
    total /= static_cast<typename Type::Sum>(cls.world_size);
  }
  return Type::Narrow(total);
}

// The bounds of an answer are those of its element `index`.
template <class Type>
bool Agrees(Agreement agreement, typename Type::Bits right, typename Type::Bits answer,
            const EvaluatedValue* bounded, uint64_t index) {
  if (right == answer) return true;
  if constexpr (!Type::kIsFloat) return false;
  const auto a = static_cast<double>(Type::Widen(right));
  const auto b = static_cast<double>(Type::Widen(answer));
  switch (agreement) {
    case Agreement::kBits:
      return false;
    case Agreement::kValues:
      return std::isnan(a) && std::isnan(b);
    case Agreement::kUnsignedZeros:
      return (std::isnan(a) && std::isnan(b)) || (a == 0 && b == 0);
    case Agreement::kBounds: {
      EvaluatedValue element;
      element.type = bounded->type;
      element.rows = 1;
      element.floats = {bounded->floats[index]};
      return CountWrong(element, std::as_bytes(std::span(&answer, 1))) == 0;
    }
  }
  return false;
}

template <class Type>
std::string TextOf(typename Type::Bits bits) {
  const uint64_t wide = bits;
  if constexpr (Type::kIsFloat) {
    return fmt::format("{:#x} ({})", wide, static_cast<double>(Type::Widen(bits)));
  }
  return fmt::format("{:#x}", wide);
}

// Whether reducing such data in another order may give other bits, or what is right is open.
bool Rounds(Dtype dtype, Pattern pattern) {
  return IsFloat(dtype) && (pattern == Pattern::kRandom || pattern == Pattern::kSpecial);
}

SentByRanks SentByAll(const Problem& problem, Pattern pattern, uint32_t salt, bool with_nan) {
  SentByRanks sent;
  for (int rank = 0; rank < problem.cls.world_size; ++rank) {
    sent.push_back(SendData(problem, rank, pattern, salt, with_nan));
  }
  return sent;
}

}  // namespace

std::string_view Name(Pattern pattern) {
  switch (pattern) {
    case Pattern::kExact:
      return "exact";
    case Pattern::kRandom:
      return "random";
    case Pattern::kSpecial:
      return "special";
    case Pattern::kBits:
      return "bits";
  }
  return "invalid";
}

std::vector<std::byte> SendData(const Problem& problem, int rank, Pattern pattern, uint32_t salt,
                                bool with_nan) {
  std::vector<std::byte> data(problem.send_elements() * SizeBytes(problem.cls.dtype));
  WithType(problem.cls.dtype, [&]<class Type>(Type) {
    for (uint64_t i = 0; i < problem.send_elements(); ++i) {
      Store<Type>(Element<Type>(problem.cls, rank, pattern, salt, with_nan, i), data.data(), i);
    }
  });
  return data;
}

std::vector<std::byte> RightAnswer(const Problem& problem, int rank, Pattern pattern, uint32_t salt,
                                   bool with_nan) {
  if (!Reduces(problem.cls.collective) || !Rounds(problem.cls.dtype, pattern)) {
    const Result<std::vector<std::byte>> answer =
        ExpectedBytes(problem, rank, SentByAll(problem, pattern, salt, with_nan));
    COTUNE_CHECK(answer.has_value(), "a problem of the tests has a result");
    return *answer;
  }
  std::vector<std::byte> data(problem.recv_elements() * SizeBytes(problem.cls.dtype));
  const uint64_t first = problem.cls.collective == Collective::kReduceScatter
                             ? static_cast<uint64_t>(rank) * problem.count
                             : 0;
  WithType(problem.cls.dtype, [&]<class Type>(Type) {
    if constexpr (Type::kIsFloat) {
      for (uint64_t i = 0; i < problem.recv_elements(); ++i) {
        Store<Type>(Reduced<Type>(problem, pattern, salt, with_nan, first + i), data.data(), i);
      }
    }
  });
  return data;
}

std::optional<EvaluatedValue> BoundedAnswer(const Problem& problem, int rank, Pattern pattern,
                                            uint32_t salt) {
  const ProblemClass& cls = problem.cls;
  const bool is_rounded = pattern == Pattern::kRandom ||
                          (pattern == Pattern::kExact && cls.reduction == Reduction::kAverage);
  if (!Reduces(cls.collective) || !IsFloat(cls.dtype) || !is_rounded) return std::nullopt;
  Result<EvaluatedValue> answer =
      ExpectedValue(problem, rank, SentByAll(problem, pattern, salt, true));
  COTUNE_CHECK(answer.has_value(), "a problem of the tests has a result");
  return std::move(*answer);
}

Agreement PromiseOf(const ChoiceId& choice, const Problem& problem, Pattern pattern) {
  const ProblemClass& cls = problem.cls;
  const bool keeps_rank_order =
      choice.backend() == "cuda" && choice.algorithm() != "ring" && choice.algorithm() != "tree";
  if (!Reduces(cls.collective)) return Agreement::kBits;
  const bool picks = cls.reduction == Reduction::kMin || cls.reduction == Reduction::kMax;
  if (pattern == Pattern::kSpecial) {
    return picks ? Agreement::kUnsignedZeros : Agreement::kValues;
  }
  if (keeps_rank_order || picks) return Agreement::kBits;
  const bool is_rounded = pattern == Pattern::kRandom || cls.reduction == Reduction::kAverage;
  return is_rounded && IsFloat(cls.dtype) ? Agreement::kBounds : Agreement::kBits;
}

bool KeepsNan(std::string_view backend, const Problem& problem) {
  const bool picks =
      problem.cls.reduction == Reduction::kMin || problem.cls.reduction == Reduction::kMax;
  return !(backend == "nccl" && picks);
}

Mismatches Compare(const Problem& problem, Agreement agreement, std::span<const std::byte> right,
                   std::span<const std::byte> answer, const EvaluatedValue* bounded) {
  COTUNE_CHECK(agreement != Agreement::kBounds || bounded != nullptr, "the answer has bounds");
  Mismatches found;
  if (right.empty() || std::memcmp(right.data(), answer.data(), right.size()) == 0) return found;
  WithType(problem.cls.dtype, [&]<class Type>(Type) {
    for (uint64_t i = 0; i < problem.recv_elements(); ++i) {
      const auto wanted = Load<Type>(right.data(), i);
      const auto seen = Load<Type>(answer.data(), i);
      if (Agrees<Type>(agreement, wanted, seen, bounded, i)) continue;
      if (found.count++ == 0) {
        found.first =
            fmt::format("element {} is {}, not {}", i, TextOf<Type>(seen), TextOf<Type>(wanted));
      }
    }
  });
  return found;
}

}  // namespace cotune::gputest
