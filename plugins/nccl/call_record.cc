#include "plugins/nccl/call_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "plugins/sdk/call_text.h"

namespace cotune::nccl {

static_assert(std::is_trivially_copyable_v<CallRecord>);
static_assert(sizeof(CallRecord) == 120, "the record has no padding");

CallRecord RecordOf(const Problem& problem, std::string_view choice) {
  CallRecord record;
  record.count = problem.count;
  record.program = problem.program_digest;
  record.collective = static_cast<uint8_t>(problem.collective);
  record.type = static_cast<uint8_t>(problem.type);
  if (sdk::Reduces(problem)) record.reduction = static_cast<uint8_t>(problem.reduction);
  if (problem.collective == Collective::kBroadcast) {
    record.root = static_cast<uint8_t>(problem.root);
  }
  record.is_symmetric = problem.is_symmetric ? 1 : 0;
  const size_t length = std::min(choice.size(), record.choice.size());
  std::copy_n(choice.begin(), length, record.choice.begin());
  return record;
}

std::string CallText(const CallRecord& record) {
  const auto end = std::find(record.choice.begin(), record.choice.end(), '\0');
  std::string choice(record.choice.begin(), end);
  for (char& letter : choice) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return fmt::format("{} by {}{}",
                     sdk::CallText({.collective = record.collective,
                                    .type = record.type,
                                    .reduction = record.reduction,
                                    .root = record.root,
                                    .count = record.count,
                                    .program = record.program >> 32}),
                     choice, record.is_captured != 0 ? " into a CUDA graph" : "");
}

}  // namespace cotune::nccl
