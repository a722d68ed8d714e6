// Explains which choice a call runs and why.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/counted.h"
#include "fmt/format.h"
#include "integration/capi/call_arguments.h"
#include "integration/capi/explanation.h"
#include "integration/capi/group_state.h"
#include "integration/capi/programs.h"
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

// Adds what the group knows of the sizes around the call, or of those of its relative; of an agreed
// choice, which need not be the winner anywhere, the size of the call. Of a loaded database only
// what was measured on a machine like this one counts, as for the table.
void AddMeasured(const cotune_group& group, Explained& explained) {
  const CallExplanation& call = explained.call;
  const DispatchKey key = call.relative.value_or(DispatchKey::Of(explained.cls));
  const auto row = group.winners.rows().find(key);
  if (row != group.winners.rows().end()) {
    explained.smallest_measured_bytes = row->second.begin()->first;
    explained.largest_measured_bytes = row->second.rbegin()->first;
  }
  for (const DatabaseRow& each : group.database.rows()) {
    const uint64_t bytes = each.problem.bytes();
    const bool is_of_row = call.is_agreed ? bytes == explained.bytes
                                          : *each.winner == call.choice &&
                                                bytes >= call.first_bytes && bytes < call.end_bytes;
    const bool fits = call.from_table && is_of_row && DispatchKey::Of(each.problem.cls) == key &&
                      each.problem.cls.world_size == explained.cls.world_size &&
                      !WhyNotValid(*each.fingerprint, *each.winner, group.job().fingerprint());
    if (!fits) continue;
    // Several entries may be for one size; only one of them counts.
    auto entry = group.database.Find(each.problem, group.job().fingerprint());
    if (entry && entry->fingerprint == *each.fingerprint) {
      std::vector<std::string> not_raced =
          BackendsThatDidNotRace(entry->fingerprint, group.job().fingerprint());
      explained.measured.push_back({std::move(*entry), std::move(not_raced)});
    }
  }
}

// Where the caller wants the explanation, and in which form.
struct Destination {
  bool is_json = false;
  char* buffer = nullptr;
  size_t size = 0;
  size_t* length = nullptr;
};

void Write(const Explained& explained, const Destination& to) {
  const std::string text = to.is_json ? ExplanationJson(explained) : ExplanationText(explained);
  if (to.length != nullptr) *to.length = text.size();
  if (to.size == 0) return;
  const size_t written = std::min(text.size(), to.size - 1);
  std::memcpy(to.buffer, text.data(), written);
  to.buffer[written] = '\0';
}

Status CheckArguments(const void* subject, const char* subject_name, const Destination& to,
                      const char* function) {
  if (subject != nullptr && (to.buffer != nullptr || to.size == 0)) return {};
  return Fail(ErrorCode::kUsage,
              fmt::format("the {} is NULL", subject == nullptr ? subject_name : "buffer"), function,
              "", "a buffer may be NULL with size 0 only");
}

Status ExplainProgram(cotune_group& group, const cotune_program* program, uint64_t rows,
                      const Destination& to) {
  const char* const function =
      to.is_json ? "cotune_explain_program_json" : "cotune_explain_program";
  if (Status given = CheckArguments(program, "program", to, function); !given) return given;
  const Job& job = group.job();
  COTUNE_TRY(const Program bound,
             Program::Bind(program->graph, {group.job().device().kind(), job.world_size(),
                                            job.places().ranks_per_host()}));
  COTUNE_TRY(CallExplanation call,
             group.dispatcher->Explain(ProgramCall{.graph = &program->graph, .rows = rows}));
  const std::string& name = program->graph.name();
  Explained explained{
      .subject = fmt::format("program {} at {}",
                             name.empty() ? fmt::format("{:016x}", program->graph.digest()) : name,
                             Counted(static_cast<int64_t>(rows), "row")),
      .cls = bound.anchor(),
      .bytes = bound.ProblemAtRows(rows, 0).bytes(),
      .rows = rows,
      .program_text = program->graph.ToText(),
      .call = std::move(call)};
  AddMeasured(group, explained);
  Write(explained, to);
  return {};
}

Status Explain(cotune_group& group, const cotune_call* given, const Destination& to) {
  const char* const function = to.is_json ? "cotune_explain_json" : "cotune_explain";
  if (Status right = CheckArguments(given, "call", to, function); !right) return right;
  COTUNE_TRY(const cotune_call options, ReadOptions(given, "cotune_call"));
  COTUNE_TRY(Call call, MakeCall(options.collective, options.dtype, options.reduction, options.root,
                                 options.count, group.job().world_size()));
  SetPretendedBuffers(options.is_in_place != 0, group.job().rank(), call);
  COTUNE_TRY(CallExplanation explanation, group.dispatcher->Explain(call));
  ProblemClass cls = group.job().Class(call.collective, call.dtype, call.reduction);
  cls.in_place = options.is_in_place != 0 && call.collective != Collective::kBroadcast;
  Explained explained{.subject = fmt::format("{} of {} of type {}", Name(call.collective),
                                             Counted(static_cast<int64_t>(call.count), "element"),
                                             Name(call.dtype)),
                      .cls = cls,
                      .bytes = Problem{cls, call.count, 0}.bytes(),
                      .rows = std::nullopt,
                      .program_text = "",
                      .call = std::move(explanation)};
  AddMeasured(group, explained);
  Write(explained, to);
  return {};
}

}  // namespace
}  // namespace cotune::capi

extern "C" cotune_result cotune_explain(cotune_group* group, const cotune_call* call, char* buffer,
                                        size_t size, size_t* length) {
  return cotune::capi::Guard(group, [&](cotune_group& self) {
    return cotune::capi::Explain(self, call, {false, buffer, size, length});
  });
}

extern "C" cotune_result cotune_explain_json(cotune_group* group, const cotune_call* call,
                                             char* buffer, size_t size, size_t* length) {
  return cotune::capi::Guard(group, [&](cotune_group& self) {
    return cotune::capi::Explain(self, call, {true, buffer, size, length});
  });
}

extern "C" cotune_result cotune_explain_program(cotune_group* group, const cotune_program* program,
                                                uint64_t rows, char* buffer, size_t size,
                                                size_t* length) {
  return cotune::capi::Guard(group, [&](cotune_group& self) {
    return cotune::capi::ExplainProgram(self, program, rows, {false, buffer, size, length});
  });
}

extern "C" cotune_result cotune_explain_program_json(cotune_group* group,
                                                     const cotune_program* program, uint64_t rows,
                                                     char* buffer, size_t size, size_t* length) {
  return cotune::capi::Guard(group, [&](cotune_group& self) {
    return cotune::capi::ExplainProgram(self, program, rows, {true, buffer, size, length});
  });
}
