// The data of the calls of one problem on this rank.
#ifndef COTUNE_TESTS_GPU_DATA_SETS_H_
#define COTUNE_TESTS_GPU_DATA_SETS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/problem.h"
#include "tests/gpu/reference.h"

namespace cotune::gputest {

// This rank sends the one, and has to receive the other.
struct CallData {
  std::vector<std::byte> sent;
  std::vector<std::byte> right;
  std::optional<EvaluatedValue> bounded;
};
CallData DataFor(const Problem& problem, int rank, Pattern pattern, uint32_t salt, bool with_nan);

// Gives each call other data than the calls before it: all choices use the same scratch memory, and
// a kernel that reads there before its peers have written finds data of earlier calls, which must
// not be right. Kernels keep a few steps there (kStepBuffers in kernel_abi.h). Sets are made when
// they are first used, and kept. All ranks take the same ones in the same order. One thread.
class DataSets {
 public:
  // Salts from first_salt on, as many as the problem has sets.
  DataSets(const Problem& problem, int rank, uint32_t first_salt)
      : problem_(problem), rank_(rank), first_salt_(first_salt) {}

  // The number of calls after which data repeats: a prime number. Small problems have more.
  static uint32_t CountFor(const Problem& problem);

  // The data of the next call; valid as long as this object.
  const CallData& Next(Pattern pattern, bool with_nan);

 private:
  const Problem problem_;
  const int rank_;
  const uint32_t first_salt_;
  uint32_t calls_ = 0;
  std::map<std::tuple<Pattern, uint32_t, bool>, CallData> data_;
};

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_DATA_SETS_H_
