// The reference of the tests: data for every rank, and the right answer by the reference evaluator.
// Where own kernels promise more than it asks for (the bits of sums in rank order, NaN that stays),
// a loop in rank order gives the answer.
#ifndef COTUNE_TESTS_GPU_REFERENCE_H_
#define COTUNE_TESTS_GPU_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem/choice_id.h"
#include "core/problem/evaluated_value.h"
#include "core/problem/problem.h"

namespace cotune::gputest {

// Eight bytes that own kernels cannot send as they are, and with the lowest bit changed those that
// they send instead: ~kEscapeMask of plugins/cuda, whose special_values_test holds it fast.
inline constexpr uint64_t kCannotBeSent = ~0x5BD1E995A3C59AC3ull;

enum class Pattern {
  kExact,    // small numbers: every order of reducing gives the same bits
  kRandom,   // floats in (-1, 1), integers as kBits
  kSpecial,  // NaN, infinities, zeros of both signs, subnormals, the largest number
  kBits,     // any bits at all, often all ones, all zeros and eight bytes that own kernels escape;
             // for data that is only moved
};

std::string_view Name(Pattern pattern);

// How near the answer has to be.
enum class Agreement {
  kBits,           // the same bits
  kValues,         // the same bits, or NaN for NaN
  kUnsignedZeros,  // as kValues, and a zero of either sign for a zero
  kBounds,         // of floats: within the evaluator's bounds
};

// The send buffer of `rank`: send_elements() long. The same arguments give the same bytes on every
// rank, other salts other bytes. `with_nan` only counts for kSpecial.
std::vector<std::byte> SendData(const Problem& problem, int rank, Pattern pattern, uint32_t salt,
                                bool with_nan = true);

// The data that `rank` must receive: recv_elements() long. Floats that are not kExact are reduced
// in rank order, 16-bit floats in f32 with one rounding at the end.
std::vector<std::byte> RightAnswer(const Problem& problem, int rank, Pattern pattern, uint32_t salt,
                                   bool with_nan = true);
// The same with the evaluator's bounds, for data of which a choice may promise no more (kBounds);
// nothing for other data.
std::optional<EvaluatedValue> BoundedAnswer(const Problem& problem, int rank, Pattern pattern,
                                            uint32_t salt);

// The promise of a choice for such data: bits in rank order by cotune's own kernels, those of rings
// and trees excepted, and the evaluator's bounds by NCCL, by "host" and by those, which add up in
// other orders.
Agreement PromiseOf(const ChoiceId& choice, const Problem& problem, Pattern pattern);
// NCCL's min and max pass NaN over.
bool KeepsNan(std::string_view backend, const Problem& problem);

struct Mismatches {
  uint64_t count = 0;
  std::string first;  // "element 7 is 0x3f80 (1), not 0x4000 (2)"
};

// The elements of `answer` that do not agree with `right`; both are recv_elements() long.
// `bounded`: BoundedAnswer, for kBounds.
Mismatches Compare(const Problem& problem, Agreement agreement, std::span<const std::byte> right,
                   std::span<const std::byte> answer, const EvaluatedValue* bounded = nullptr);

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_REFERENCE_H_
