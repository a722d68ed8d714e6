#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/gpu/api_program.h"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

// Choices that have run.
struct JudgedChoices {
  // Choices that reduce rows inside of the collective.
  std::vector<std::string> right;
  std::vector<std::string> wrong;
  // Choices without rows.
  std::vector<std::string> leaves_wrong;
  std::vector<std::string> unfused_wrong;
};

JudgedChoices JudgedOf(const nlohmann::json& explained) {
  JudgedChoices judged;
  for (const nlohmann::json& size : explained.value("measured", nlohmann::json::array())) {
    for (const nlohmann::json& choice : size.value("choices", nlohmann::json::array())) {
      const std::string name = choice.value("choice", "");
      const bool is_wrong = choice.value("outcome", "") == "wrong_result";
      const bool has_rows = name.find("_rows?") != std::string::npos;
      const bool is_fused = name.find("fuse=") != std::string::npos;
      if (is_wrong && !has_rows) {
        (is_fused ? judged.leaves_wrong : judged.unfused_wrong).push_back(name);
      }
      if (!has_rows) continue;
      // A choice that never ran is neither.
      const bool has_run = is_wrong || choice.value("time_us", nlohmann::json()).is_number();
      if (has_run) (is_wrong ? judged.wrong : judged.right).push_back(name);
    }
  }
  return judged;
}

// The reason for which the tune has not judged its choices as it has to; "" if it has.
std::string FaultOf(const JudgedChoices& judged, const std::string& wanted) {
  if (!judged.unfused_wrong.empty()) {
    return "an unfused choice is found wrong: " + judged.unfused_wrong.front();
  }
  if (wanted == "none") {
    if (!judged.wrong.empty()) return "found wrong: " + judged.wrong.front();
    if (!judged.leaves_wrong.empty()) return "found wrong: " + judged.leaves_wrong.front();
    return judged.right.empty() ? "no choice with rows has run" : "";
  }
  if (judged.wrong.empty()) return "no choice is found wrong";
  if (wanted == "all" && !judged.right.empty()) return "found right: " + judged.right.front();
  return "";
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
    rank.Note("tune", FaultOf(judged, flags.Text("wrong", "none")));
    fmt::print("judged right={} wrong={} winner={}\n", judged.right.size(), judged.wrong.size(),
               explained.value("choice", ""));
  }
  constexpr uint32_t kSalt = 3;
  COTUNE_RETURN_IF_ERROR(program.Fill(kSalt));
  COTUNE_RETURN_IF_ERROR(program.Enqueue(rank.group()));
  COTUNE_RETURN_IF_ERROR(rank.Await(rank.group(), rank.stream()));
  return program.Check(kSalt, "after the tune");
}

}  // namespace cotune::gputest
