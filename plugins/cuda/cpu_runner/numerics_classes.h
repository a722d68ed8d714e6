// The numerics classes that the list of choices gives to what the variants compute.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_NUMERICS_CLASSES_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_NUMERICS_CLASSES_H_

#include <compare>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/cuda/choices/kernel_families.h"
#include "plugins/cuda/cpu_runner/kernel_variants.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda::cpu {

// Ranks whose sums can be made in several orders; of two there is one order.
inline constexpr int kOrderedWorlds[] = {3, 4, 5, 8};

// The problems of any size that a family runs.
struct FamilyProblems {
  const KernelFamily* family;
  sdk::ElementType type;
  sdk::Reduction reduction;  // kSum for collectives that only move data
  int world_size;

  auto operator<=>(const FamilyProblems&) const = default;
};

// The classes of the choices that are listed, at sizes from one element to 128 MiB and more, of all
// families that run any of them in kOrderedWorlds.
const std::map<FamilyProblems, std::set<std::string>>& ListedClasses();

// The family whose kernel a variant is.
const KernelFamily& FamilyOf(const KernelVariant& variant);
// "all_reduce two_shot flagged"
std::string NameOf(const KernelFamily& family);

// The variants of a world, copy engines included, that are listed and whose classes begin so.
std::vector<const KernelVariant*> VariantsOfClass(std::string_view numerics, int world_size);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_NUMERICS_CLASSES_H_
