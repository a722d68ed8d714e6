// Writes independent collectives of a program as one of a packed value.
#ifndef COTUNE_FUSION_BUCKET_H_
#define COTUNE_FUSION_BUCKET_H_

#include <cstdint>

#include "core/base/status.h"
#include "core/problem/program_graph.h"
#include "core/recipe/recipe_source.h"

namespace cotune {

// The value of the key `via` in the ids of this form.
inline constexpr char kBucket[] = "bucket";

// The form in which collectives run in buckets of 2 to 16: all_reduces or broadcasts of one
// reduction, root and dtype that do not depend on each other. The graph is that of the program with
// copies, which are casts to the same dtype, of the operands and values that lie in memory of the
// caller or in another bucket. Its local operations stand next to the collectives that they belong
// to. A function of the graph alone. kUnsupported: no collectives can be packed, with the reason.
Result<Form> BucketForm(const ProgramGraph& graph);

}  // namespace cotune

#endif  // COTUNE_FUSION_BUCKET_H_
