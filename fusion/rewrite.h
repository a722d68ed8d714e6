// Programs in other forms: equal programs with other collectives.
#ifndef COTUNE_FUSION_REWRITE_H_
#define COTUNE_FUSION_REWRITE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/problem/program.h"
#include "core/problem/program_graph.h"
#include "core/problem/tuning_settings.h"
#include "core/recipe/recipe_source.h"

namespace cotune {

// The forms of a program at R rows beside the program as it is, in a fixed order. Adds the reasons
// against the others to `refusals`.
std::vector<Form> Rewrites(const Program& program, uint64_t rows, const FusionRules& rules,
                           std::vector<Refusal>& refusals);

// The form `via` of a program at R rows; "": the program as it is. kUnsupported: the program has no
// such form, or rules leave it out, with the reason.
Result<Form> FormAt(const Program& program, uint64_t rows, const FusionRules& rules,
                    std::string_view via);

// The form that the key `via` of an id names, also one that rules leave out; "": the program as it
// is. kUnsupported: the program has no such form, with the reason.
Result<Form> FormVia(const ProgramGraph& graph, std::string_view via);

}  // namespace cotune

#endif  // COTUNE_FUSION_REWRITE_H_
