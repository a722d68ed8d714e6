// Solution A: choices are made ready in parallel.
#ifndef COTUNE_CORE_PRECOMPILE_H_
#define COTUNE_CORE_PRECOMPILE_H_

#include <cstdint>
#include <span>

#include "core/choice_caller.h"

namespace cotune {

// Precompiles every caller whose prepare is local, on `threads` threads (0: one a core), and
// returns when all are done. Failures stay with their callers. Local: no other rank is involved.
void PrecompileAll(std::span<ChoiceCaller* const> callers, int32_t threads, int64_t deadline_ns);

}  // namespace cotune

#endif  // COTUNE_CORE_PRECOMPILE_H_
