#include "plugins/host/call_record.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace cotune::host {
namespace {

constexpr const char* kCollectiveNames[] = {"all_reduce", "all_gather", "reduce_scatter",
                                            "all_to_all", "broadcast"};
constexpr const char* kTypeNames[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};
constexpr const char* kReductionNames[] = {"sum", "product", "min", "max", "average"};

// What another process wrote may be anything.
template <size_t kCount>
const char* NameAt(const char* const (&names)[kCount], uint64_t index) {
  return index < kCount ? names[index] : "?";
}

}  // namespace

CallRecord RecordOf(const Problem& problem, std::string_view choice) {
  CallRecord record;
  const uint64_t reduction = Reduces(problem) ? static_cast<uint64_t>(problem.reduction) : 0;
  record.kind = static_cast<uint64_t>(problem.collective) |
                (static_cast<uint64_t>(problem.type) << 8) | (reduction << 16) |
                (static_cast<uint64_t>(problem.root) << 24);
  record.count = problem.count;
  const uint64_t words[] = {record.kind, record.count};
  const XXH32_hash_t of_problem = XXH32(words, sizeof(words), 0);
  record.digest = XXH32(choice.data(), choice.size(), of_problem);
  return record;
}

std::string TextOf(uint64_t kind, uint64_t count) {
  const auto collective = static_cast<Collective>(kind & 0xff);
  std::string text = fmt::format("{} of {} {}", NameAt(kCollectiveNames, kind & 0xff), count,
                                 NameAt(kTypeNames, (kind >> 8) & 0xff));
  if (collective == Collective::kAllReduce || collective == Collective::kReduceScatter) {
    text += fmt::format(" ({})", NameAt(kReductionNames, (kind >> 16) & 0xff));
  }
  if (collective == Collective::kBroadcast) text += fmt::format(" from rank {}", kind >> 24);
  return text;
}

}  // namespace cotune::host
