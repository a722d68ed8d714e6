// Calls of a program through the C API that are compared with the reference evaluator, value by
// value.
#ifndef COTUNE_TESTS_MULTI_PROCESS_TESTING_CHECKED_PROGRAM_H_
#define COTUNE_TESTS_MULTI_PROCESS_TESTING_CHECKED_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/problem/program.h"
#include "core/problem/program_evaluator.h"
#include "integration/capi/cotune.h"

namespace cotune {

// A program with the operands of one call of this rank, and what must come out.
class CheckedProgram {
 public:
  // salt: another set of data.
  CheckedProgram(const std::string& text, uint64_t rows, int rank, int world_size, uint32_t salt);
  ~CheckedProgram();
  CheckedProgram(const CheckedProgram&) = delete;
  CheckedProgram& operator=(const CheckedProgram&) = delete;

  const cotune_program* handle() const { return handle_; }
  const ProgramGraph& graph() const { return graph_; }

  struct Outcome {
    cotune_result result = COTUNE_SUCCESS;  // of the call
    std::string error;                      // of the call; "" where it succeeded
    // A value of a call that succeeded, or after any call an input that no output overwrites and
    // that has changed; "" where all is right.
    std::string wrong;
    bool is_right() const { return result == COTUNE_SUCCESS && wrong.empty(); }
  };
  Outcome Call(cotune_group* group);

  // "" when the call succeeds with right values; else what is wrong.
  std::string Run(cotune_group* group);

 private:
  uint64_t RowBytes(ValueIndex value) const;
  bool IsOverwritten(size_t input) const;
  std::vector<std::byte>& BytesOfOutput(size_t output);
  cotune_tensor Tensor(ValueIndex value, void* data);
  std::string WhatIsWrong(bool has_succeeded);

  const ProgramGraph graph_;
  const Program program_;
  const uint64_t rows_;
  cotune_program* handle_ = nullptr;
  std::vector<std::vector<std::byte>> sent_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::vector<std::byte>> outputs_;
  std::vector<EvaluatedValue> expected_;
  std::vector<int64_t> sizes_;
};

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_TESTING_CHECKED_PROGRAM_H_
