// Explains as text which choice a call runs and why.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/base/counted.h"
#include "fmt/format.h"
#include "integration/capi/call_arguments.h"
#include "integration/capi/group_state.h"
#include "integration/capi/read_options.h"

namespace cotune::capi {
namespace {

// Buffers that are never touched: their addresses say whether the call is in place. A call's bytes
// are less than 2^63 (MakeCall), so that kElsewhere is beyond all blocks and no address overflows.
void SetPretendedBuffers(bool is_in_place, int rank, Call& call) {
  constexpr uintptr_t kHere = uintptr_t{1} << 12;
  constexpr uintptr_t kElsewhere = (uintptr_t{1} << 63) + (uintptr_t{1} << 32);
  const uintptr_t own_block = kHere + rank * call.count * SizeBytes(call.dtype);
  uintptr_t send = kHere;
  uintptr_t recv = is_in_place ? kHere : kElsewhere;
  if (is_in_place && call.collective == Collective::kAllGather) send = own_block;
  if (is_in_place && call.collective == Collective::kReduceScatter) recv = own_block;
  call.send = std::bit_cast<const void*>(send);
  call.recv = std::bit_cast<void*>(recv);
}

std::string RangeText(const CallExplanation& explanation) {
  if (explanation.end_bytes == UINT64_MAX) {
    return fmt::format("sizes of {} bytes and more", explanation.first_bytes);
  }
  return fmt::format("sizes from {} to {} bytes", explanation.first_bytes,
                     explanation.end_bytes - 1);
}

// Why the choice won at the measured sizes of the range. Of a loaded database only what was
// measured on a machine like this one counts, as for the table.
std::string Reasons(const cotune_group& group, const Call& call, bool is_in_place,
                    const CallExplanation& explanation) {
  ProblemClass wanted = group.job().Class(call.collective, call.dtype, call.reduction);
  wanted.in_place = is_in_place && call.collective != Collective::kBroadcast;
  const DispatchKey key = DispatchKey::Of(wanted);
  std::string reasons;
  for (const DatabaseRow& row : group.database.rows()) {
    const uint64_t bytes = row.problem.bytes();
    const bool fits = DispatchKey::Of(row.problem.cls, row.program_digest) == key &&
                      row.problem.cls.world_size == wanted.world_size &&
                      *row.winner == explanation.choice && bytes >= explanation.first_bytes &&
                      bytes < explanation.end_bytes &&
                      !WhyNotValid(*row.fingerprint, *row.winner, group.job().fingerprint());
    if (!fits) continue;
    const Result<DatabaseEntry> entry = row.Decode();
    if (entry) reasons += fmt::format("  at {} bytes: {}\n", bytes, entry->winner.why);
  }
  return reasons;
}

Status Explain(cotune_group& group, const cotune_call* given, char* buffer, size_t size,
               size_t* length) {
  if (given == nullptr || (buffer == nullptr && size > 0)) {
    return Fail(ErrorCode::kUsage,
                fmt::format("the {} is NULL", given == nullptr ? "call" : "buffer"),
                "cotune_explain", "", "a buffer may be NULL with size 0 only");
  }
  const Result<cotune_call> options = ReadOptions(given, "cotune_call");
  if (!options) return Propagate(options);
  Result<Call> call = MakeCall(options->collective, options->dtype, options->reduction,
                               options->root, options->count, group.job().world_size());
  if (!call) return Propagate(call);
  SetPretendedBuffers(options->is_in_place != 0, group.job().rank(), *call);
  const Result<CallExplanation> explanation = group.dispatcher->Explain(*call);
  if (!explanation) return Propagate(explanation);
  std::string text =
      fmt::format("{} of {} of type {} on {} runs {}\n", Name(call->collective),
                  Counted(static_cast<int64_t>(call->count), "element"), Name(call->dtype),
                  Counted(group.job().world_size(), "rank"), explanation->choice.text());
  if (explanation->from_table) {
    text += fmt::format("tuned for {}\n", RangeText(*explanation));
    text += Reasons(group, *call, options->is_in_place != 0, *explanation);
  } else if (!explanation->table_choice_refused.empty()) {
    text += fmt::format(
        "the tuned choice cannot run it ({}): the default choice of the first backend that can\n",
        explanation->table_choice_refused);
  } else {
    text += "not tuned: the default choice of the first backend that can run it\n";
  }
  if (length != nullptr) *length = text.size();
  if (size == 0) return {};
  const size_t written = std::min(text.size(), size - 1);
  std::memcpy(buffer, text.data(), written);
  buffer[written] = '\0';
  return {};
}

}  // namespace
}  // namespace cotune::capi

extern "C" cotune_result cotune_explain(cotune_group* group, const cotune_call* call, char* buffer,
                                        size_t size, size_t* length) {
  return cotune::capi::Guard(group, [&](cotune_group& self) {
    return cotune::capi::Explain(self, call, buffer, size, length);
  });
}
