#include "tests/gpu/data_sets.h"

#include <algorithm>

namespace cotune::gputest {
namespace {

// Sets of large problems take much memory, and time to make.
constexpr uint64_t kSmallBytesMax = 1 << 20;
constexpr uint64_t kMediumBytesMax = 16 << 20;

}  // namespace

CallData DataFor(const Problem& problem, int rank, Pattern pattern, uint32_t salt, bool with_nan) {
  return {SendData(problem, rank, pattern, salt, with_nan),
          RightAnswer(problem, rank, pattern, salt, with_nan),
          BoundedAnswer(problem, rank, pattern, salt)};
}

uint32_t DataSets::CountFor(const Problem& problem) {
  const uint64_t bytes =
      std::max(problem.send_elements(), problem.recv_elements()) * SizeBytes(problem.cls.dtype);
  if (bytes <= kSmallBytesMax) return 61;
  return bytes <= kMediumBytesMax ? 7 : 5;
}

const CallData& DataSets::Next(Pattern pattern, bool with_nan) {
  const uint32_t salt = first_salt_ + calls_++ % CountFor(problem_);
  const auto key = std::tuple(pattern, salt, with_nan);
  const auto found = data_.find(key);
  if (found != data_.end()) return found->second;
  return data_.emplace(key, DataFor(problem_, rank_, pattern, salt, with_nan)).first->second;
}

}  // namespace cotune::gputest
