// The record of the call that a rank runs at the moment; the others compare it with their own.
#ifndef COTUNE_PLUGINS_SDK_CALL_RECORD_H_
#define COTUNE_PLUGINS_SDK_CALL_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "plugins/sdk/problem.h"
#include "plugins/sdk/program.h"

namespace cotune::sdk {

// Equal on all ranks for calls that fit together. Whether a call is in place is not in it: the
// ranks of a broadcast may differ in that.
struct CallRecord {
  // Collective, type, reduction and root, a byte each, and the high half of the digest of the
  // program that the call is a step of.
  uint64_t kind = 0;
  uint64_t count = 0;   // elements, as in the ABI's table
  uint32_t digest = 0;  // of all this and of the choice that runs it
};

CallRecord RecordOf(const Problem& problem, std::string_view choice);
// The record of a region: that of its first collective, as a step of the region. Ranks that have
// cut one program differently run the same collectives, and differ in the digests of their regions.
CallRecord RecordOf(const Program& region, std::string_view choice);
// The digest by which records tell regions apart: that of the text, and whether every value is
// rounded.
uint64_t RecordedDigestOf(const Program& region);

// "all_reduce of 1024 f32 (sum)", as CallText; for the fields of a record of any rank.
std::string TextOf(uint64_t kind, uint64_t count);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_CALL_RECORD_H_
