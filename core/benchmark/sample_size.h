// How many calls in a row one sample has.
#ifndef COTUNE_CORE_BENCHMARK_SAMPLE_SIZE_H_
#define COTUNE_CORE_BENCHMARK_SAMPLE_SIZE_H_

#include <cstdint>

#include "core/problem/problem.h"

namespace cotune {

// As many as fit into sample_ns when one takes call_ns, 1 to 1000 of them.
//
// On GPUs 4 at least: calls that follow each other overlap at their ends, by a part of their time
// that differs from choice to choice (the root of a broadcast goes on while the last rank still
// receives). One call alone has no such part, and programs have rows of calls. 3 if they take 10
// samples or more: the overlap is a smaller part of such calls, in which a tune spends most of its
// time.
//
// On host memory 4 as well if they take no longer than 2.5 samples, or as many as fill that time:
// the caches hold what the choice measured before has left, and one call alone pays for it.
//
// On several copies of the operands the sample ends where it began, so that what ran before it has
// used all of them, if that takes no longer than 10 samples: a call that takes longer gains little
// by a cache and, as others are faster, is not in the race for long.
int32_t CallsOfSample(int64_t sample_ns, int64_t call_ns, int32_t copies, MemoryKind memory);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_SAMPLE_SIZE_H_
