// Verifies the parts of a graph and computes the types of its values; for program_graph.cc.
#ifndef COTUNE_CORE_PROBLEM_PROGRAM_VERIFIER_H_
#define COTUNE_CORE_PROBLEM_PROGRAM_VERIFIER_H_

#include <string>
#include <vector>

#include "core/problem/program_graph.h"

namespace cotune {

// Everything that follows for each value.
struct VerifiedValues {
  std::vector<ValueType> types;
  std::vector<bool> replicated;
  std::vector<int> collectives_behind;  // on the longest path to it
};

tl::expected<VerifiedValues, GraphFault> VerifyValues(const ProgramParts& parts, bool is_part);

// "bf16 [R, 8192]".
std::string ShapeText(const ValueType& type);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_PROGRAM_VERIFIER_H_
