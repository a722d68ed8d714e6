// The choices of a tune that meets a wrong kernel, and whether it has judged them rightly.
#ifndef COTUNE_TESTS_GPU_JUDGED_CHOICES_H_
#define COTUNE_TESTS_GPU_JUDGED_CHOICES_H_

#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace cotune::gputest {

// The choices of a tune by what it has found.
struct JudgedChoices {
  // Choices that reduce rows inside of the collective.
  std::vector<std::string> right{};
  std::vector<std::string> wrong{};
  // Choices that run operations inside of it, and reduce no rows.
  std::vector<std::string> leaves_right{};
  std::vector<std::string> leaves_wrong{};
  // Choices of either kind that have not run, so that nobody knows whether they are right.
  struct NotRun {
    std::string choice;
    std::string outcome;  // "precompile_failed", ...
  };
  std::vector<NotRun> not_run{};
  std::vector<std::string> unfused_wrong{};
};

// explained: what cotune_explain gives of a program.
JudgedChoices JudgedOf(const nlohmann::json& explained);

// A fault in the kernels of a tune.
struct KernelFault {
  // The kernels that have to be found wrong: "none", "all", "clusters" (those in which blocks
  // reduce a row together; the others have to be right) or "some" (one or more).
  std::string wrong = "none";
  // The source files of the kernels with the fault, as "all_reduce_one_shot_rows.cu". All choices
  // of other kernels have to be right.
  std::set<std::string> kernels{};
};

// The reason for which the tune has not judged its choices as the fault asks for; "" if it has. A
// choice has to run to be judged: one that has not is a reason, unless a fault of "some" kernels
// may have kept it from running.
std::string MisjudgmentOf(const JudgedChoices& judged, const KernelFault& fault);

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_JUDGED_CHOICES_H_
