#include "plugins/cuda/cpu_runner/numerics_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>

#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/cpu_runner/sdk_problem.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::Collective;
using Classes = std::map<FamilyProblems, std::set<std::string>>;

// Elements; every family is listed at one of them.
constexpr uint64_t kCounts[] = {1, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 25};
constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll,
                                       Collective::kBroadcast};

void AppendClasses(sdk::Problem problem, Classes& classes) {
  for (const bool is_symmetric : {false, true}) {
    problem.is_symmetric = is_symmetric;
    for (const uint64_t count : kCounts) {
      problem.count = count;
      for (const Choice& choice : ListChoices(problem, {})) {
        if (!choice.reason.empty()) continue;
        const FamilyProblems of = {choice.family, problem.type, problem.reduction,
                                   problem.world_size};
        classes[of].insert(choice.numerics);
      }
    }
  }
}

Classes ClassesOfAllProblems() {
  Classes classes;
  for (const Collective collective : kCollectives) {
    for (const sdk::ElementType type : sdk::kElementTypes) {
      for (const sdk::Reduction reduction : sdk::kReductions) {
        for (const int world_size : kOrderedWorlds) {
          sdk::Problem problem;
          problem.collective = collective;
          problem.type = type;
          problem.reduction = reduction;
          problem.world_size = world_size;
          if (!sdk::Reduces(problem) && reduction != sdk::Reduction::kSum) continue;
          AppendClasses(problem, classes);
        }
      }
    }
  }
  return classes;
}

// As options of the compiler spell it.
std::string Upper(std::string_view word) {
  std::string upper(word);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

// Empty where no choice of the variant's family is listed.
std::set<std::string> ClassesOf(const KernelVariant& v) {
  const sdk::Problem problem =
      SdkProblem({v.collective, v.type, v.reduction, 0, v.world_size, 0}, false);
  const auto found =
      ListedClasses().find({&FamilyOf(v), problem.type, problem.reduction, v.world_size});
  return found == ListedClasses().end() ? std::set<std::string>() : found->second;
}

}  // namespace

const Classes& ListedClasses() {
  static const auto& classes = *new Classes(ClassesOfAllProblems());
  return classes;
}

const KernelFamily& FamilyOf(const KernelVariant& v) {
  for (const KernelFamily& family : KernelFamilies()) {
    if (WordOf(family.collective) == v.collective && family.algorithm == v.algorithm &&
        Upper(family.transport) == v.transport) {
      return family;
    }
  }
  // One that the runner calls by a name of its own.
  std::abort();
}

std::string NameOf(const KernelFamily& family) {
  return fmt::format("{} {} {}", WordOf(family.collective), family.algorithm, family.transport);
}

std::vector<const KernelVariant*> VariantsOfClass(std::string_view numerics, int world_size) {
  std::vector<const KernelVariant*> found;
  const auto append = [&](std::span<const KernelVariant> variants) {
    for (const KernelVariant& v : variants) {
      if (v.world_size != world_size) continue;
      const std::set<std::string> classes = ClassesOf(v);
      const bool fits = std::all_of(classes.begin(), classes.end(), [&](const std::string& each) {
        return each.starts_with(numerics);
      });
      if (fits && !classes.empty()) found.push_back(&v);
    }
  };
  for (const auto& set : kAllVariantSets) append(*set);
  append(kCopyEngineVariants);
  return found;
}

}  // namespace cotune::cuda::cpu
