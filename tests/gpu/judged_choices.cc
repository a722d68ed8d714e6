#include "tests/gpu/judged_choices.h"

#include <algorithm>
#include <cstddef>

#include "fmt/format.h"

namespace cotune::gputest {
namespace {

// "all_reduce_one_shot_rows.cu" of "cuda/one_shot_rows?cluster=2&...".
std::string KernelOf(const std::string& choice) {
  const size_t begin = choice.find('/') + 1;
  return fmt::format("all_reduce_{}.cu", choice.substr(begin, choice.find('?') - begin));
}

bool HasClusters(const std::string& choice) {
  const size_t at = choice.find("cluster=");
  return at != std::string::npos && choice.compare(at, 10, "cluster=1&") != 0;
}

// The first choice that has to be in the other list; "" if there is none.
template <typename HasToMove>
std::string FirstOf(const std::vector<std::string>& choices, HasToMove has_to_move) {
  const auto found = std::find_if(choices.begin(), choices.end(), has_to_move);
  return found == choices.end() ? "" : *found;
}

}  // namespace

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
      // A choice that never ran is neither; its time is null. A fault may keep a kernel from
      // compiling.
      const auto time_us = choice.find("time_us");
      const bool has_run = is_wrong || (time_us != choice.end() && time_us->is_number());
      if (has_run) (is_wrong ? judged.wrong : judged.right).push_back(name);
    }
  }
  return judged;
}

std::string MisjudgmentOf(const JudgedChoices& judged, const KernelFault& fault) {
  if (!judged.unfused_wrong.empty()) {
    return "an unfused choice is found wrong: " + judged.unfused_wrong.front();
  }
  if (fault.wrong == "none") {
    if (!judged.wrong.empty()) return "found wrong: " + judged.wrong.front();
    if (!judged.leaves_wrong.empty()) return "found wrong: " + judged.leaves_wrong.front();
    return judged.right.empty() ? "no choice with rows has run" : "";
  }
  if (judged.wrong.empty()) return "no choice is found wrong";
  const auto has_fault = [&](const std::string& choice) {
    return fault.kernels.contains(KernelOf(choice));
  };
  const std::string found_right = FirstOf(judged.right, [&](const std::string& choice) {
    const bool acts = fault.wrong == "all" || (fault.wrong == "clusters" && HasClusters(choice));
    return acts && has_fault(choice);
  });
  if (!found_right.empty()) return "found right, and its kernel has the fault: " + found_right;
  const std::string found_wrong = FirstOf(judged.wrong, [&](const std::string& choice) {
    return !has_fault(choice) || (fault.wrong == "clusters" && !HasClusters(choice));
  });
  if (!found_wrong.empty()) return "found wrong, and the fault is not in it: " + found_wrong;
  return "";
}

}  // namespace cotune::gputest
