// The ways in which this backend runs a problem.
#ifndef COTUNE_PLUGINS_CUDA_CHOICES_CHOICE_LIST_H_
#define COTUNE_PLUGINS_CUDA_CHOICES_CHOICE_LIST_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/cuda/choices/kernel_families.h"
#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// The families of kernels (kernel_families.h) in the shapes that are worth trying.
struct Choice {
  std::string name;    // "two_shot?blocks=fit&pdl=1&threads=512&transport=lamport&unroll=2"
  std::string reason;  // why it is refused; "": it can run
  double cost_us = -1;
  bool is_default = false;
  std::string numerics;                  // as in the ABI
  bool is_copy = false;                  // one rank: a copy instead of a kernel
  const KernelFamily* family = nullptr;  // of all but copies
  KernelSpec spec;
  int blocks = 1;
  int chunk_bytes = 0;  // of kernels that have chunks: see KernelArguments
};

// The list depends on these besides the problem; they are equal on all ranks of a group.
struct ChoiceLimits {
  bool has_pdl = true;  // sm_90 and newer
};

// All choices of a valid problem by these families, refused ones too, in a fixed order, exactly one
// of those that can run the default. One rank has one choice, a copy. Pure.
std::vector<Choice> ListChoices(const sdk::Problem& problem, const ChoiceLimits& limits,
                                std::span<const KernelFamily> families = KernelFamilies());

// The one of this name. COTUNE_INVALID_ARGUMENT: there is none; COTUNE_UNSUPPORTED: it is refused.
sdk::Result<Choice> FindChoice(const sdk::Problem& problem, std::string_view name,
                               const ChoiceLimits& limits,
                               std::span<const KernelFamily> families = KernelFamilies());

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CHOICES_CHOICE_LIST_H_
