// The collectives: arguments checked, then run by the group's table.
#include "fmt/format.h"
#include "integration/capi/call_arguments.h"
#include "integration/capi/group_state.h"

namespace cotune::capi {
namespace {

// So many elements of any dtype fit in a group of any size.
constexpr uint64_t kCountThatFits = INT64_MAX / (uint64_t{8} * INT32_MAX);

bool IsCollective(cotune_collective value) {
  return value >= COTUNE_COLLECTIVE_ALL_REDUCE && value <= COTUNE_COLLECTIVE_BROADCAST;
}
bool IsDtype(cotune_dtype value) { return value >= COTUNE_F32 && value <= COTUNE_U8; }
bool IsReduction(cotune_reduction value) { return value >= 0 && value <= COTUNE_REDUCE_AVERAGE; }

// Fails as MakeCall.
[[gnu::noinline]] Status CheckArguments(cotune_collective collective, cotune_dtype dtype,
                                        cotune_reduction reduction, uint64_t count,
                                        int world_size) {
  const auto unknown = [](const char* what, int32_t value) {
    return Fail(ErrorCode::kUsage, fmt::format("there is no {} {}", what, value), what, "",
                "use the constants of cotune.h");
  };
  if (!IsCollective(collective)) return unknown("collective", collective);
  if (dtype > COTUNE_U8 && dtype <= COTUNE_F8_E5M2) {
    return Fail(ErrorCode::kUsage, fmt::format("dtype {} is of values in programs alone", dtype),
                "dtype", "", "give COTUNE_U8 and the same count to move such elements");
  }
  if (!IsDtype(dtype)) return unknown("dtype", dtype);
  if (!IsReduction(reduction)) return unknown("reduction", reduction);
  // Further on bytes are counted in 64 bits.
  const uint64_t count_max = INT64_MAX / (SizeBytes(static_cast<Dtype>(dtype)) * world_size);
  if (count > count_max) {
    return Fail(ErrorCode::kUsage, fmt::format("{} elements are too many", count), "count",
                count > INT64_MAX ? "as a signed number it is negative"
                                  : "no memory can hold buffers of that size",
                fmt::format("at most {} fit", count_max));
  }
  return {};
}

Call CallOf(cotune_collective collective, cotune_dtype dtype, cotune_reduction reduction,
            int32_t root, uint64_t count) {
  Call call;
  call.collective = static_cast<Collective>(collective);
  call.dtype = static_cast<Dtype>(dtype);
  call.reduction = static_cast<Reduction>(reduction);
  call.root = root;
  call.count = count;
  return call;
}

// Not inlined: the five collectives hand over registers then, and this function keeps them in some.
[[gnu::noinline]] cotune_result RunCall(cotune_group* group, cotune_collective collective,
                                        const void* send, void* recv, uint64_t count,
                                        cotune_dtype dtype, cotune_reduction reduction,
                                        int32_t root) {
  return Guard(group, [&](cotune_group& self) -> Status {
    // Arguments that fit in every group need neither its size nor a division.
    const bool fit_any_group = IsCollective(collective) && IsDtype(dtype) &&
                               IsReduction(reduction) && count <= kCountThatFits;
    if (!fit_any_group) {
      COTUNE_RETURN_IF_ERROR(
          CheckArguments(collective, dtype, reduction, count, self.job().world_size()));
    }
    Call call = CallOf(collective, dtype, reduction, root, count);
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
  COTUNE_RETURN_IF_ERROR(CheckArguments(collective, dtype, reduction, count, world_size));
  return CallOf(collective, dtype, reduction, root, count);
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
