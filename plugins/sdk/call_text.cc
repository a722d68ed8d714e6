#include "plugins/sdk/call_text.h"

#include <fmt/format.h>

#include "plugins/sdk/problem.h"

namespace cotune::sdk {
namespace {

constexpr const char* kCollectiveNames[] = {"all_reduce", "all_gather", "reduce_scatter",
                                            "all_to_all", "broadcast"};
constexpr const char* kTypeNames[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};
constexpr const char* kReductionNames[] = {"sum", "product", "min", "max", "average"};

template <size_t kCount>
const char* NameAt(const char* const (&names)[kCount], uint64_t index) {
  return index < kCount ? names[index] : "?";
}

}  // namespace

std::string CallText(const CallFields& call) {
  const auto collective = static_cast<Collective>(call.collective);
  std::string text = fmt::format("{} of {} {}", NameAt(kCollectiveNames, call.collective),
                                 call.count, NameAt(kTypeNames, call.type));
  if (collective == Collective::kAllReduce || collective == Collective::kReduceScatter) {
    text += fmt::format(" ({})", NameAt(kReductionNames, call.reduction));
  }
  if (collective == Collective::kBroadcast) text += fmt::format(" from rank {}", call.root);
  if (call.program != 0) text += fmt::format(" in program {:08x}...", call.program);
  return text;
}

std::string DifferentCallsText(const DifferentCalls& calls) {
  return fmt::format(
      "{} called {} where {} called {} (launch {} of the group); all ranks of a group make the "
      "same calls in the same order, by choices that they agreed on",
      calls.peer, calls.peer_call, calls.self, calls.own_call, calls.launch);
}

}  // namespace cotune::sdk
