// Random programs, as texts.
#ifndef COTUNE_CORE_TESTING_RANDOM_PROGRAM_H_
#define COTUNE_CORE_TESTING_RANDOM_PROGRAM_H_

#include <cstdint>
#include <string>

namespace cotune {

// As many collectives as a random program may have.
inline constexpr int kAnyCollectives = 64;

// The same text for the same seed on every rank. The root of a broadcast is a rank of world_size.
// Magnitudes stay within the range of every dtype, logarithms and roots are taken of positive
// numbers, and no divisor is near zero, so that the bounds of the evaluator are narrow.
// The choices of a program multiply with its collectives, so that two are the most unless a test
// has time for more.
std::string RandomProgram(uint64_t seed, int world_size, int collectives_max = 2);

// A program of 2 to 7 collectives that do not depend on each other and differ in their sizes alone.
// Their operands are inputs, temporaries, outputs, or that of the collective before; their values
// are outputs, or are read by operations that may overwrite inputs.
std::string RandomBucketProgram(uint64_t seed, int world_size);

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_RANDOM_PROGRAM_H_
