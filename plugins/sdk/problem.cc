#include "plugins/sdk/problem.h"

#include <fmt/format.h>

#include <optional>

namespace cotune::sdk {
namespace {

constexpr uint32_t kMustUnderstandFlags = 0xffff0000u;

std::optional<Collective> CollectiveFromAbi(uint32_t collective) {
  if (collective < COTUNE_ALL_REDUCE || collective > COTUNE_BROADCAST) return std::nullopt;
  return static_cast<Collective>(collective - COTUNE_ALL_REDUCE);
}

const char* MemoryName(uint32_t kind) { return kind == COTUNE_MEMORY_CUDA ? "CUDA" : "host"; }

// Refuses what a backend cannot do although the problem may be sound.
Result<void> CheckSupport(const cotune_problem_t& p, const ProblemLimits& limits) {
  if (p.memory_kind != limits.memory_kind) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("memory kind {}: only {} memory", p.memory_kind,
                                                MemoryName(limits.memory_kind)));
  }
  const uint32_t known = limits.takes_symmetric ? COTUNE_PROBLEM_SYMMETRIC : 0;
  if ((p.flags & kMustUnderstandFlags & ~known) != 0) {
    const bool is_symmetric = (p.flags & kMustUnderstandFlags) == COTUNE_PROBLEM_SYMMETRIC;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("problem flags {:#x}: {} not known here", p.flags,
                            is_symmetric ? "symmetric buffers are" : "some of them are"));
  }
  if (p.world_size > limits.ranks_max) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("{} ranks: at most {} {}", p.world_size, limits.ranks_max,
                            limits.needs_one_host ? "share memory" : "are a group"));
  }
  if (limits.needs_one_host && p.ranks_per_node != p.world_size) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("{} of {} ranks on each host: all must be on one host to share memory",
                            p.ranks_per_node, p.world_size));
  }
  if (!ElementTypeFromAbi(p.dtype)) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("dtype code {} bits {} lanes {}: only f32 f64 f16 bf16 i32 i64 u8",
                            p.dtype.code, p.dtype.bits, p.dtype.lanes));
  }
  return {};
}

struct Extent {
  uintptr_t begin;
  uintptr_t end;
};

Extent ExtentOf(const void* buffer, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(buffer);
  return {begin, begin + bytes};
}

// The refusals of CheckBuffers are functions of their own, which are not inlined: every call runs
// that one, and needs no space for errors then.
[[gnu::noinline]] Result<void> NullBuffer(const char* which, uint64_t count) {
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("the {} buffer is null and count is {}", which, count));
}

[[gnu::noinline]] Result<void> WrongPlaces(const char* why) {
  return Fail(COTUNE_INVALID_ARGUMENT, why);
}

// The offset of the receive buffer from the send buffer when the operation is in place.
int64_t InPlaceOffset(const Problem& problem, int rank) {
  const auto block = static_cast<int64_t>(problem.count * ElementBytes(problem.type));
  if (problem.collective == Collective::kAllGather) return -rank * block;
  if (problem.collective == Collective::kReduceScatter) return rank * block;
  return 0;
}

}  // namespace

uint64_t ProblemBytes(const Problem& problem) {
  const bool has_blocks =
      problem.collective != Collective::kAllReduce && problem.collective != Collective::kBroadcast;
  const auto blocks = has_blocks ? static_cast<uint64_t>(problem.world_size) : 1;
  return problem.count * blocks * ElementBytes(problem.type);
}

Result<Problem> CheckProblem(const cotune_problem_t& p, const ProblemLimits& limits) {
  if (!COTUNE_HAS_FIELD(cotune_problem_t, &p, topology_digest)) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("problem.struct_size {} is smaller than version 1.0 ({})",
                            p.struct_size, sizeof(cotune_problem_t)));
  }
  const auto collective = CollectiveFromAbi(p.collective);
  if (!collective) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("collective {} is not known here", p.collective));
  }
  COTUNE_RETURN_IF_ERROR(CheckSupport(p, limits));
  if (p.world_size < 1) {
    return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("world_size {} is below 1", p.world_size));
  }
  Problem problem;
  problem.collective = *collective;
  problem.type = *ElementTypeFromAbi(p.dtype);
  problem.count = p.count;
  problem.in_place = (p.flags & COTUNE_PROBLEM_IN_PLACE) != 0;
  problem.is_symmetric = (p.flags & COTUNE_PROBLEM_SYMMETRIC) != 0;
  problem.world_size = p.world_size;
  if (COTUNE_HAS_FIELD(cotune_problem_t, &p, program_digest)) {
    problem.program_digest = p.program_digest;
  }
  problem.root = *collective == Collective::kBroadcast ? p.root : 0;
  if (problem.root < 0 || problem.root >= p.world_size) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("root {} is not a rank of {} ranks", p.root, p.world_size));
  }
  if (Reduces(problem)) {
    const auto reduction = ReductionFromAbi(p.reduction);
    if (!reduction) {
      return Fail(COTUNE_UNSUPPORTED, fmt::format("reduction {} is not known here", p.reduction));
    }
    problem.reduction = *reduction;
  } else if (p.reduction != COTUNE_REDUCTION_NONE) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("collective {} does not reduce, yet reduction is {}", p.collective,
                            p.reduction));
  }
  constexpr uint64_t kLargestCount = uint64_t{1} << 50;
  if (p.count > kLargestCount || p.bytes != ProblemBytes(problem)) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("count {} and bytes {} do not fit together; the ABI's table gives {}",
                            p.count, p.bytes, ProblemBytes(problem)));
  }
  return problem;
}

Result<void> CheckBuffers(const Problem& problem, int rank, const void* send, const void* receive) {
  if (problem.count == 0) return {};
  const bool sends = problem.collective != Collective::kBroadcast || rank == problem.root;
  if (receive == nullptr || (sends && send == nullptr)) {
    return NullBuffer(receive == nullptr ? "receive" : "send", problem.count);
  }
  if (!sends) return {};
  const uint64_t block = problem.count * ElementBytes(problem.type);
  const uint64_t all = ProblemBytes(problem);
  const Extent from = ExtentOf(send, problem.collective == Collective::kAllGather ? block : all);
  const Extent to =
      ExtentOf(receive, problem.collective == Collective::kReduceScatter ? block : all);
  const auto offset = static_cast<uintptr_t>(InPlaceOffset(problem, rank));
  const bool is_in_place = to.begin == from.begin + offset;
  if (problem.in_place && !is_in_place) {
    return WrongPlaces(
        "the problem says in place, but the buffers are not where in place puts them");
  }
  if (!is_in_place && from.begin < to.end && to.begin < from.end) {
    return WrongPlaces("send and receive buffers overlap without being in place");
  }
  return {};
}

}  // namespace cotune::sdk
