// A program as a user of cotune.h calls it, with operands and data on this rank.
#ifndef COTUNE_TESTS_GPU_API_PROGRAM_H_
#define COTUNE_TESTS_GPU_API_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem/program.h"
#include "integration/capi/cotune.h"
#include "nlohmann/json.hpp"
#include "tests/gpu/api_rank.h"
#include "tests/gpu/program_values.h"

namespace cotune::gputest {

// The end of a transformer block with so many columns, whose residual is overwritten.
ProgramText ResidualNorm(uint32_t columns);

class ApiProgram;
using ApiPrograms = std::vector<std::unique_ptr<ApiProgram>>;

// One thread. The rank outlives it.
class ApiProgram {
 public:
  // With operands of its own. kUsage: the text is no program. rows: as FittingRows takes them.
  static Result<std::unique_ptr<ApiProgram>> Make(ApiRank& rank, const ProgramText& text,
                                                  uint64_t rows);

  // The same of ResidualNorm, whose calls run the fastest choice with both of its operations inside
  // of the collective, on GPUs a kernel that reduces rows. All ranks call it; it tunes the group.
  static Result<std::unique_ptr<ApiProgram>> MakeFused(ApiRank& rank, uint32_t columns,
                                                       uint64_t rows);
  // Tunes each program at its number of rows.
  static Status Tune(ApiRank& rank, const ApiPrograms& programs);

  const std::string& name() const { return name_; }
  const cotune_program* handle() const { return handle_.get(); }
  uint64_t rows() const { return rows_; }

  // Writes the inputs of this salt, and poison into the outputs.
  Status Fill(uint32_t salt);
  // Makes the call ready without making it.
  Status Prepare(cotune_group* group);
  Status Enqueue(cotune_group* group);
  // The choice that a call runs.
  Result<std::string> Choice(cotune_group* group) const;
  // The document of cotune_explain_program_json.
  Result<nlohmann::json> Explain(cotune_group* group) const;
  // Compares the outputs of a call that is complete with those of the last Fill's data, and notes
  // what is wrong.
  Status Check(std::string_view what);

 private:
  struct Free {
    void operator()(cotune_program* program) const { cotune_program_free(program); }
  };
  struct Operand {
    void* data = nullptr;
    uint64_t bytes = 0;
    std::vector<int64_t> sizes{};
  };

  ApiProgram(ApiRank& rank, ProgramText text, Program program, uint64_t rows);
  Result<Operand> Allocate(ValueIndex value);

  ApiRank& rank_;
  const std::string name_;
  const Program program_;
  const uint64_t rows_;
  std::unique_ptr<cotune_program, Free> handle_;
  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  std::vector<cotune_tensor> input_tensors_;
  std::vector<cotune_tensor> output_tensors_;
  ProgramValues values_;  // that the last Fill wrote
};

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_API_PROGRAM_H_
