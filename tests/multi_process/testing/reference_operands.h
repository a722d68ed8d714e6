// The operands of a call of a program, and the values that must come out.
#ifndef COTUNE_TESTS_MULTI_PROCESS_TESTING_REFERENCE_OPERANDS_H_
#define COTUNE_TESTS_MULTI_PROCESS_TESTING_REFERENCE_OPERANDS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/status.h"
#include "core/problem/evaluated_value.h"
#include "core/problem/program.h"

namespace cotune {

// The call of one rank. Every rank computes the operands of all ranks, and its own results.
class ReferenceOperands {
 public:
  ReferenceOperands(const Program& program, uint64_t rows, int rank, uint32_t salt);

  // Runs the program once by `run`, on new copies of the operands. An output that overwrites an
  // input has its address. "" when all values are right.
  std::string RunBy(const Program& program, uint64_t rows,
                    const std::function<Status(const LaunchArguments&)>& run) const;

 private:
  std::vector<std::vector<std::byte>> sent_;
  std::vector<EvaluatedValue> expected_;
};

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_TESTING_REFERENCE_OPERANDS_H_
