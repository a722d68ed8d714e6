// The collectives: arguments checked, then run by the group's table.
#include "fmt/format.h"
#include "integration/capi/call_arguments.h"
#include "integration/capi/group_state.h"

namespace cotune::capi {
namespace {

cotune_result RunCall(cotune_group* group, cotune_collective collective, const void* send,
                      void* recv, uint64_t count, cotune_dtype dtype, cotune_reduction reduction,
                      int32_t root) {
  return Guard(group, [&](cotune_group& self) -> Status {
    COTUNE_TRY(Call call,
               MakeCall(collective, dtype, reduction, root, count, self.job().world_size()));
    call.send = send;
    call.recv = recv;
    call.timeout_ns = self.call_timeout_ns;
    call.stream = self.stream;
    if (!self.has_said_table) SayTable(self);
    return self.dispatcher->Run(call);
  });
}

}  // namespace

Result<Call> MakeCall(cotune_collective collective, cotune_dtype dtype, cotune_reduction reduction,
                      int32_t root, uint64_t count, int world_size) {
  const auto unknown = [](const char* what, int32_t value) {
    return Fail(ErrorCode::kUsage, fmt::format("there is no {} {}", what, value), what, "",
                "use the constants of cotune.h");
  };
  if (collective < COTUNE_COLLECTIVE_ALL_REDUCE || collective > COTUNE_COLLECTIVE_BROADCAST) {
    return unknown("collective", collective);
  }
  if (dtype < COTUNE_F32 || dtype > COTUNE_U8) return unknown("dtype", dtype);
  if (reduction < 0 || reduction > COTUNE_REDUCE_AVERAGE) return unknown("reduction", reduction);
  Call call;
  call.collective = static_cast<Collective>(collective);
  call.dtype = static_cast<Dtype>(dtype);
  call.reduction = static_cast<Reduction>(reduction);
  call.root = root;
  call.count = count;
  // Further on bytes are counted in 64 bits.
  const uint64_t count_max = INT64_MAX / (SizeBytes(call.dtype) * world_size);
  if (count > count_max) {
    return Fail(ErrorCode::kUsage, fmt::format("{} elements are too many", count), "count",
                count > INT64_MAX ? "as a signed number it is negative"
                                  : "no memory can hold buffers of that size",
                fmt::format("at most {} fit", count_max));
  }
  return call;
}

}  // namespace cotune::capi

extern "C" {

cotune_result cotune_all_reduce(cotune_group* group, const void* send, void* recv, uint64_t count,
                                cotune_dtype dtype, cotune_reduction reduction) {
  return cotune::capi::RunCall(group, COTUNE_COLLECTIVE_ALL_REDUCE, send, recv, count, dtype,
                               reduction, 0);
}

cotune_result cotune_all_gather(cotune_group* group, const void* send, void* recv, uint64_t count,
                                cotune_dtype dtype) {
  return cotune::capi::RunCall(group, COTUNE_COLLECTIVE_ALL_GATHER, send, recv, count, dtype, 0, 0);
}

cotune_result cotune_reduce_scatter(cotune_group* group, const void* send, void* recv,
                                    uint64_t count, cotune_dtype dtype,
                                    cotune_reduction reduction) {
  return cotune::capi::RunCall(group, COTUNE_COLLECTIVE_REDUCE_SCATTER, send, recv, count, dtype,
                               reduction, 0);
}

cotune_result cotune_all_to_all(cotune_group* group, const void* send, void* recv, uint64_t count,
                                cotune_dtype dtype) {
  return cotune::capi::RunCall(group, COTUNE_COLLECTIVE_ALL_TO_ALL, send, recv, count, dtype, 0, 0);
}

cotune_result cotune_broadcast(cotune_group* group, const void* send, void* recv, uint64_t count,
                               cotune_dtype dtype, int32_t root) {
  return cotune::capi::RunCall(group, COTUNE_COLLECTIVE_BROADCAST, send, recv, count, dtype, 0,
                               root);
}

}  // extern "C"
