#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "tests/gpu/api_program.h"
#include "tests/gpu/api_rank.h"
#include "tests/gpu/judged_choices.h"

namespace cotune::gputest {
namespace {

// --wrong, and the lines of --kernels, a file that is absent if no kernel has the fault.
KernelFault FaultOf(const Flags& flags) {
  KernelFault fault = {.wrong = flags.Text("wrong", "none")};
  std::ifstream file(flags.Text("kernels", ""));
  for (std::string line; std::getline(file, line);) fault.kernels.insert(line);
  return fault;
}

}  // namespace

Status RunKernelFault(ApiRank& rank, const Flags& flags) {
  const auto columns = static_cast<uint32_t>(flags.Number("columns", 520));
  const auto rows = static_cast<uint64_t>(flags.Number("rows", 17));
  COTUNE_TRY(auto made, ApiProgram::Make(rank, ResidualNorm(columns), rows));
  ApiPrograms programs;
  programs.push_back(std::move(made));
  COTUNE_RETURN_IF_ERROR(ApiProgram::Tune(rank, programs));
  ApiProgram& program = *programs.front();
  COTUNE_TRY(const nlohmann::json explained, program.Explain(rank.group()));
  // Rank 0 alone knows what was measured.
  if (rank.rank() == 0) {
    const JudgedChoices judged = JudgedOf(explained);
    rank.Note("tune", MisjudgmentOf(judged, FaultOf(flags)));
    fmt::print("judged right={} wrong={} winner={}\n", judged.right.size(), judged.wrong.size(),
               explained.value("choice", ""));
  }
  constexpr uint32_t kSalt = 3;
  COTUNE_RETURN_IF_ERROR(program.Fill(kSalt));
  COTUNE_RETURN_IF_ERROR(program.Enqueue(rank.group()));
  COTUNE_RETURN_IF_ERROR(rank.Await(rank.group(), rank.stream()));
  return program.Check("after the tune");
}

}  // namespace cotune::gputest
