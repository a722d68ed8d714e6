// Entries for tests and benchmarks: one with every field set, and random ones.
#ifndef COTUNE_CORE_TESTING_DATABASE_ENTRIES_H_
#define COTUNE_CORE_TESTING_DATABASE_ENTRIES_H_

#include <cstdint>
#include <random>
#include <string_view>

#include "core/database/tuned_database_entry.h"

namespace cotune {

// The id that the text names; aborts when it is none.
ChoiceId IdForTest(std::string_view text);

// 4 ranks on a machine "cpu_model" = "model a"; host 1.0; host/ring wins over the default
// host/tree.
DatabaseEntry EntryForTest(uint64_t count);

// The canonical text of a program with one collective and one part, and its digest.
extern const std::string_view kProgramTextForTest;
uint64_t ProgramDigestForTest();

// Draws from a few machines, classes and counts, so that identities collide; measured in one of a
// few seconds.
DatabaseEntry RandomEntryForTest(std::mt19937_64& random);

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_DATABASE_ENTRIES_H_
