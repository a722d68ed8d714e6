// The cases that run on every rank at once. A Status that is no success ends the rank: the group
// cannot go on. What is only wrong is noted in the rank's findings.
#ifndef COTUNE_TESTS_GPU_CASES_H_
#define COTUNE_TESTS_GPU_CASES_H_

#include "tests/gpu/rank.h"

namespace cotune::gputest {

// Every choice of every problem: --collectives, --dtypes, --reductions, --counts and --patterns
// name them; each runs in and out of place, on aligned and on odd addresses.
Status RunValues(Rank& rank, const Flags& flags);

// Every choice captured once, and replayed --replays times on data that changes each time, with
// plain calls between.
Status RunGraphs(Rank& rank, const Flags& flags);

// --calls calls drawn at random by --seed, back to back in batches: collective, type, size, choice
// and address change from one to the next. --groups 2: on two groups and streams at once.
// --delay-us: now and then a rank comes late by up to that much. --split 0,1/2,3: by groups of
// those ranks, all at once.
Status RunSequence(Rank& rank, const Flags& flags);

// Every choice that says it is reproducible gives the same bits on all ranks and three times in a
// row, on data where the order of adding up shows.
Status RunSameBits(Rank& rank, const Flags& flags);

// Every choice of the programs of ProgramTexts (program_values.h) at each of --rows: called as they
// are, and captured once and replayed --replays times, on data that changes; at aligned addresses
// and odd ones.
Status RunPrograms(Rank& rank, const Flags& flags);

// The choices of the programs of ProgramTexts give the same bits on random data at each of --rows
// as others of their numerics class. Exact choices and choices that reduce in rank order also give
// the same bits on all ranks, for replicated outputs, and in batches of other numbers of rows.
Status RunSameBitsOfPrograms(Rank& rank, const Flags& flags);

// Runs nothing: writes a database of one row for each of --requests,
// "NAME:COLLECTIVE:COUNT:plain|symmetric:PARTS" separated by ';', as --folder/NAME.tdb. The row
// makes calls of that collective of bf16 (sum) run by a listed choice whose id has all PARTS, which
// '+' separates; the default choice only where there is no other. Rank 0 prints "forces NAME ID"
// for each. Of two rows for the same calls, the later one is the newer.
Status RunForce(Rank& rank, const Flags& flags);

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_CASES_H_
