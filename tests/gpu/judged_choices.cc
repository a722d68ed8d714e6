#include "tests/gpu/judged_choices.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "fmt/format.h"

namespace cotune::gputest {
namespace {

// "one_shot_rows" of "cuda/one_shot_rows?cluster=2&...".
std::string AlgorithmOf(const std::string& choice) {
  const size_t begin = choice.find('/') + 1;
  return choice.substr(begin, choice.find('?') - begin);
}

// "all_reduce_one_shot_rows.cu" of "cuda/one_shot_rows?cluster=2&...". Leaves in chunks with flags
// have a source of their own.
std::string KernelOf(const std::string& choice) {
  const bool is_flagged = choice.find("transport=flagged") != std::string::npos;
  const std::string algorithm = AlgorithmOf(choice);
  return fmt::format("all_reduce_{}.cu", is_flagged && algorithm == "two_shot_leaves"
                                             ? "two_shot_flagged_leaves"
                                             : algorithm);
}

bool HasClusters(const std::string& choice) {
  const size_t at = choice.find("cluster=");
  return at != std::string::npos && choice.compare(at, 10, "cluster=1&") != 0;
}

// Returns true if the fault makes this choice wrong when its kernel has it.
bool ActsOn(const KernelFault& fault, const std::string& choice) {
  return fault.wrong == "all" || (fault.wrong == "clusters" && HasClusters(choice));
}

// Returns true if the fault may make this choice wrong.
bool MayActOn(const KernelFault& fault, const std::string& choice) {
  return fault.kernels.contains(KernelOf(choice)) &&
         (ActsOn(fault, choice) || fault.wrong == "some");
}

std::string MisjudgmentOfRight(const JudgedChoices& judged) {
  for (const auto* wrong : {&judged.wrong, &judged.leaves_wrong}) {
    if (!wrong->empty()) return "found wrong: " + wrong->front();
  }
  return judged.right.empty() ? "no choice with rows has run" : "";
}

std::string MisjudgmentOfFault(const JudgedChoices& judged, const KernelFault& fault) {
  if (judged.wrong.empty()) return "no choice is found wrong";
  for (const auto* right : {&judged.right, &judged.leaves_right}) {
    for (const std::string& choice : *right) {
      if (ActsOn(fault, choice) && MayActOn(fault, choice)) {
        return "found right, and its kernel has the fault: " + choice;
      }
    }
  }
  for (const auto* wrong : {&judged.wrong, &judged.leaves_wrong}) {
    for (const std::string& choice : *wrong) {
      if (!MayActOn(fault, choice)) return "found wrong, and the fault is not in it: " + choice;
    }
  }
  return "";
}

}  // namespace

JudgedChoices JudgedOf(const nlohmann::json& explained) {
  JudgedChoices judged;
  for (const nlohmann::json& size : explained.value("measured", nlohmann::json::array())) {
    for (const nlohmann::json& choice : size.value("choices", nlohmann::json::array())) {
      const std::string name = choice.value("choice", "");
      const std::string outcome = choice.value("outcome", "");
      const bool is_wrong = outcome == "wrong_result";
      const bool has_rows = AlgorithmOf(name).ends_with("_rows");
      if (!has_rows && name.find("fuse=") == std::string::npos) {
        if (is_wrong) judged.unfused_wrong.push_back(name);
        continue;
      }
      // The time of a choice that never ran is null. A fault may keep a kernel from compiling.
      const auto time_us = choice.find("time_us");
      const bool is_right = !is_wrong && time_us != choice.end() && time_us->is_number();
      if (!is_wrong && !is_right) {
        judged.not_run.push_back({name, outcome});
      } else if (has_rows) {
        (is_wrong ? judged.wrong : judged.right).push_back(name);
      } else {
        (is_wrong ? judged.leaves_wrong : judged.leaves_right).push_back(name);
      }
    }
  }
  return judged;
}

std::string MisjudgmentOf(const JudgedChoices& judged, const KernelFault& fault) {
  if (!judged.unfused_wrong.empty()) {
    return "an unfused choice is found wrong: " + judged.unfused_wrong.front();
  }
  std::string why =
      fault.wrong == "none" ? MisjudgmentOfRight(judged) : MisjudgmentOfFault(judged, fault);
  if (!why.empty()) return why;
  for (const auto& [choice, outcome] : judged.not_run) {
    if (fault.wrong == "some" && MayActOn(fault, choice)) continue;
    return fmt::format("not judged, because it has not run ({}): {}", outcome, choice);
  }
  return "";
}

}  // namespace cotune::gputest
