// The places at which a program rounds its values to their dtype.
#ifndef COTUNE_FUSION_ROUNDINGS_H_
#define COTUNE_FUSION_ROUNDINGS_H_

#include <optional>
#include <vector>

#include "core/problem/program_graph.h"
#include "core/problem/tuning_settings.h"
#include "core/recipe/recipe.h"

namespace cotune {

// By value of the recipe's graph: true if the recipe rounds it for all that read it. Inputs are.
std::vector<bool> RoundedBy(const Recipe& recipe);

// The bits of a program must not depend on the recipe that won (docs/decisions/0020-numerics.md).
// Steps compute in f32 (f64 for f64). They round a value for all that read it if it is an operand
// or value of a collective, an output of the program, or leaves the step; other values stay wider.
// Fused recipes have other steps. Each value must therefore be rounded either in both recipes or in
// neither, unless the rounding changes nothing.
class Roundings {
 public:
  // `unfused` is the recipe of a graph without regions. It outlives this. By numerics=same every
  // recipe rounds every value.
  explicit Roundings(const Recipe& unfused, NumericsRule numerics = NumericsRule::kAny);

  // Returns true for an input, and for a value that the unfused recipe rounds for its readers.
  bool IsRoundedInProgram(ValueIndex value) const { return rounded_[Index(value)]; }
  // Returns true if the dtype of a value holds each number that the value may have before it is
  // rounded: rounding changes nothing.
  bool IsExact(ValueIndex value) const { return exact_[Index(value)]; }
  // Returns true if a step may begin or end at the value, which is stored in its dtype there.
  bool MayBeStored(ValueIndex value) const { return IsRoundedInProgram(value) || IsExact(value); }
  // The first value that just one of the recipe, which is of the same graph, and the unfused one
  // rounds although it is not exact; nothing: both give the same bits.
  std::optional<ValueIndex> FirstChanged(const Recipe& recipe) const;

 private:
  static size_t Index(ValueIndex value) { return static_cast<size_t>(value); }
  bool IsExactNode(const ProgramNode& node, Dtype dtype) const;
  bool Fits(const Operand& operand, Dtype dtype) const;

  const ProgramGraph& graph_;
  const NumericsRule numerics_;
  std::vector<bool> rounded_;  // by value
  std::vector<bool> exact_;    // by value
};

}  // namespace cotune

#endif  // COTUNE_FUSION_ROUNDINGS_H_
