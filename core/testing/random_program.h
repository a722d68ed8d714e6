// Random programs, as texts.
#ifndef COTUNE_CORE_TESTING_RANDOM_PROGRAM_H_
#define COTUNE_CORE_TESTING_RANDOM_PROGRAM_H_

#include <cstdint>
#include <string>

namespace cotune {

// The same text for the same seed on every rank. The root of a broadcast is a rank of world_size.
std::string RandomProgram(uint64_t seed, int world_size);

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_RANDOM_PROGRAM_H_
