#include "plugins/sdk/call_record.h"

#include <xxhash.h>

#include <algorithm>

#include "plugins/sdk/call_text.h"

namespace cotune::sdk {

CallRecord RecordOf(const Problem& problem, std::string_view choice) {
  CallRecord record;
  const uint64_t reduction = Reduces(problem) ? static_cast<uint64_t>(problem.reduction) : 0;
  record.kind = static_cast<uint64_t>(problem.collective) |
                (static_cast<uint64_t>(problem.type) << 8) | (reduction << 16) |
                (static_cast<uint64_t>(problem.root) << 24) | (problem.program_digest >> 32 << 32);
  record.count = problem.count;
  const uint64_t words[] = {record.kind, record.count, problem.program_digest};
  const XXH32_hash_t of_problem = XXH32(words, sizeof(words), 0);
  record.digest = XXH32(choice.data(), choice.size(), of_problem);
  return record;
}

CallRecord RecordOf(const Program& region, std::string_view choice) {
  const auto node =
      std::find_if(region.nodes.begin(), region.nodes.end(),
                   [](const ProgramNode& each) { return each.collective.has_value(); });
  // CheckProgram and the shell let no region through that has no collective.
  Problem problem = node == region.nodes.end() ? Problem() : *node->collective;
  problem.program_digest = RecordedDigestOf(region);
  return RecordOf(problem, choice);
}

uint64_t RecordedDigestOf(const Program& region) {
  return region.digest ^ (region.rounds_values ? 1 : 0);
}

std::string TextOf(uint64_t kind, uint64_t count) {
  return CallText({.collective = kind & 0xff,
                   .type = (kind >> 8) & 0xff,
                   .reduction = (kind >> 16) & 0xff,
                   .root = (kind >> 24) & 0xff,
                   .count = count,
                   .program = kind >> 32});
}

}  // namespace cotune::sdk
