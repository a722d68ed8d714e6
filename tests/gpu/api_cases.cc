#include <array>
#include <cstdio>
#include <random>
#include <string>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

constexpr Pattern kPattern = Pattern::kExact;

std::span<const std::byte> AsBytes(const std::vector<std::byte>& bytes) { return bytes; }

// A problem with its buffers on this rank.
struct BoundCall {
  Problem problem;
  void* send = nullptr;
  void* recv = nullptr;
  uint32_t salt = 0;  // its data is made from it
};

Result<BoundCall> Bind(ApiRank& rank, cotune_group* group, const Problem& problem) {
  COTUNE_RETURN_IF_ERROR(rank.NoteBackends(group, problem));
  const uint64_t element = SizeBytes(problem.cls.dtype);
  COTUNE_TRY(void* const send, rank.memory().Allocate(problem.send_elements() * element));
  COTUNE_TRY(void* const recv, rank.memory().Allocate(problem.recv_elements() * element));
  return BoundCall{problem, send, recv, 0};
}

uint64_t RecvBytes(const Problem& problem) {
  return problem.recv_elements() * SizeBytes(problem.cls.dtype);
}

// Data that no call before has had.
Status Refill(ApiRank& rank, int rank_in_group, BoundCall& call) {
  call.salt = rank.NextSalt();
  const std::vector<std::byte> poison(RecvBytes(call.problem), std::byte{0xA5});
  if (Status s = rank.memory().Write(call.recv, poison); !s) return s;
  return rank.memory().Write(call.send, SendData(call.problem, rank_in_group, kPattern, call.salt));
}

Status CheckCall(ApiRank& rank, int rank_in_group, const BoundCall& call, std::string_view what) {
  COTUNE_TRY(const auto answer, rank.memory().Read(call.recv, RecvBytes(call.problem)));
  rank.Expect(call.problem, what, RightAnswer(call.problem, rank_in_group, kPattern, call.salt),
              AsBytes(answer));
  return {};
}

// One call of each collective.
Result<std::vector<BoundCall>> BindAll(ApiRank& rank, cotune_group* group, Dtype dtype,
                                       uint64_t count) {
  std::vector<BoundCall> calls;
  for (Collective collective : AllCollectives()) {
    const int root = collective == Collective::kBroadcast ? cotune_group_size(group) - 1 : 0;
    COTUNE_TRY(
        BoundCall call,
        Bind(rank, group, ProblemFor(group, collective, dtype, Reduction::kSum, count, root)));
    calls.push_back(call);
  }
  return calls;
}

Status EnqueueAll(cotune_group* group, const std::vector<BoundCall>& calls) {
  for (const BoundCall& call : calls) {
    if (Status s = ApiRank::Call(group, call.problem, call.send, call.recv); !s) return s;
  }
  return {};
}

// All calls captured in one graph, with an all_gather behind the reduce_scatter that takes what
// that gives; replayed on other data each time.
Status RunGraph(ApiRank& rank, Dtype dtype, uint64_t count, int64_t replays) {
  cotune_group* group = rank.group();
  COTUNE_TRY(std::vector<BoundCall> calls, BindAll(rank, group, dtype, count));
  const BoundCall& scattered = calls[2];
  COTUNE_TRY(
      BoundCall gathered,
      Bind(rank, group, ProblemFor(group, Collective::kAllGather, dtype, Reduction::kNone, count)));
  gathered.send = scattered.recv;
  const auto enqueue = [&]() -> Status {
    if (Status s = EnqueueAll(group, calls); !s) return s;
    return ApiRank::Call(group, gathered.problem, gathered.send, gathered.recv);
  };
  for (BoundCall& call : calls) {
    if (Status s = Refill(rank, rank.rank(), call); !s) return s;
  }
  // A call must have run once before it is captured.
  if (Status s = enqueue(); !s) return s;
  if (Status s = rank.Await(group, rank.stream()); !s) return s;
  COTUNE_TRY(const CallMemory::Replay replay, rank.memory().Capture(rank.stream(), enqueue));
  // Both together are an all_reduce of what the ranks scatter.
  const Problem both = ProblemFor(group, Collective::kAllReduce, dtype, Reduction::kSum,
                                  count * static_cast<uint64_t>(rank.size()));
  for (int64_t i = 0; i < replays; ++i) {
    for (BoundCall& call : calls) {
      if (Status s = Refill(rank, rank.rank(), call); !s) return s;
    }
    const std::vector<std::byte> poison(RecvBytes(gathered.problem), std::byte{0xA5});
    if (Status s = rank.memory().Write(gathered.recv, poison); !s) return s;
    if (Status s = (replay)(); !s) return s;
    if (Status s = rank.Await(group, rank.stream()); !s) return s;
    const std::string what = fmt::format("replay {}", i);
    for (const BoundCall& call : calls) {
      if (Status s = CheckCall(rank, rank.rank(), call, what); !s) return s;
    }
    COTUNE_TRY(const auto answer, rank.memory().Read(gathered.recv, RecvBytes(gathered.problem)));
    rank.Expect(both, what + ", all_gather of reduce_scatter",
                RightAnswer(both, rank.rank(), kPattern, calls[2].salt), AsBytes(answer));
  }
  return {};
}

// Calls of sizes between and beyond what was tuned.
Status RunSizes(ApiRank& rank, std::string_view what) {
  for (const uint64_t count : {uint64_t{1}, uint64_t{300}, uint64_t{511}, uint64_t{5000},
                               uint64_t{70'001}, uint64_t{600'003}}) {
    COTUNE_TRY(std::vector<BoundCall> calls, BindAll(rank, rank.group(), Dtype::kBf16, count));
    for (BoundCall& call : calls) {
      if (Status s = Refill(rank, rank.rank(), call); !s) return s;
    }
    if (Status s = EnqueueAll(rank.group(), calls); !s) return s;
    if (Status s = rank.Await(rank.group(), rank.stream()); !s) return s;
    for (const BoundCall& call : calls) {
      if (Status s = CheckCall(rank, rank.rank(), call, what); !s) return s;
    }
  }
  return {};
}

Status ExpectExplained(ApiRank& rank) {
  constexpr uint64_t kCount = 2048;
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
  call.dtype = COTUNE_BF16;
  call.reduction = COTUNE_REDUCE_SUM;
  call.count = kCount;
  std::array<char, 4096> text{};
  COTUNE_RETURN_IF_ERROR(
      StatusOf(rank.group(), cotune_explain(rank.group(), &call, text.data(), text.size(), nullptr),
               "explain"));
  std::printf("explain %s\n", std::string(text.data()).substr(0, 200).c_str());
  COTUNE_TRY(const nlohmann::json json,
             Explain(rank.group(), ProblemFor(rank.group(), Collective::kAllReduce, Dtype::kBf16,
                                              Reduction::kSum, kCount)));
  const std::string choice = json.value("choice", "");
  const bool names_it =
      !choice.empty() && std::string_view(text.data()).find(choice) != std::string_view::npos;
  if (json.value("source", "") == "table" && names_it) return {};
  return Fail(ErrorCode::kWrongResult, "explain does not name a choice of the tuned table", choice,
              text.data());
}

// In-place sums, one after the other and each on another stream: every one needs what the one
// before has left.
Status RunOnChangingStreams(ApiRank& rank, int64_t calls) {
  constexpr uint64_t kCount = 20'011;
  cotune_group* group = rank.group();
  const Problem problem =
      ProblemFor(group, Collective::kAllReduce, Dtype::kI32, Reduction::kSum, kCount);
  COTUNE_TRY(const BoundCall call, Bind(rank, group, problem));
  std::vector<int32_t> values(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    values[i] = rank.rank() == 0 ? static_cast<int32_t>(i % 7) : 0;
  }
  if (Status s = rank.memory().Write(call.recv, std::as_bytes(std::span(values))); !s) return s;
  std::array<void*, 3> streams{};
  for (void*& stream : streams) {
    COTUNE_TRY(void* const made, rank.memory().MakeStream());
    stream = made;
  }
  void* last = rank.stream();
  uint32_t factor = 1;
  for (int64_t i = 0; i < calls; ++i) {
    last = streams[static_cast<size_t>(i) % streams.size()];
    if (rank.memory().is_cuda()) {
      if (Status s = StatusOf(group, cotune_group_set_stream(group, last), "set_stream"); !s) {
        return s;
      }
    }
    if (Status s = ApiRank::Call(group, problem, call.recv, call.recv); !s) return s;
    if (i > 0) factor *= static_cast<uint32_t>(rank.size());
  }
  if (Status s = rank.Await(group, last); !s) return s;
  if (rank.memory().is_cuda()) {
    if (Status s = StatusOf(group, cotune_group_set_stream(group, rank.stream()), "set_stream");
        !s) {
      return s;
    }
  }
  std::vector<int32_t> right(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    right[i] = static_cast<int32_t>(static_cast<uint32_t>(i % 7) * factor);  // wraps around
  }
  COTUNE_TRY(const auto answer, rank.memory().Read(call.recv, kCount * sizeof(int32_t)));
  rank.Expect(problem, fmt::format("{} calls on 3 streams", calls), std::as_bytes(std::span(right)),
              AsBytes(answer));
  return {};
}

std::vector<int32_t> Reversed(int size) {
  std::vector<int32_t> ranks;
  for (int32_t rank = size - 1; rank >= 0; --rank) ranks.push_back(rank);
  return ranks;
}

// Two groups of all ranks, in other orders, with calls of both under way at the same time.
Status RunTwoGroups(ApiRank& rank, int64_t rounds) {
  COTUNE_TRY(ApiRank::Subgroup second, rank.Split("reversed", Reversed(rank.size())));
  cotune_group* groups[] = {rank.group(), second.group.get()};
  void* streams[] = {rank.stream(), second.stream};
  std::vector<std::vector<BoundCall>> calls;
  for (cotune_group* group : groups) {
    COTUNE_TRY(std::vector<BoundCall> bound, BindAll(rank, group, Dtype::kF32, 3001));
    calls.push_back(bound);
  }
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t g = 0; g < 2; ++g) {
      for (BoundCall& call : calls[g]) {
        if (Status s = Refill(rank, cotune_group_rank(groups[g]), call); !s) return s;
      }
    }
    for (size_t i = 0; i < calls[0].size(); ++i) {
      for (size_t g = 0; g < 2; ++g) {
        const BoundCall& call = calls[g][i];
        if (Status s = ApiRank::Call(groups[g], call.problem, call.send, call.recv); !s) return s;
      }
    }
    for (size_t g = 0; g < 2; ++g) {
      if (Status s = rank.Await(groups[g], streams[g]); !s) return s;
      for (const BoundCall& call : calls[g]) {
        const std::string what = fmt::format("group {}, round {}", g, round);
        if (Status s = CheckCall(rank, cotune_group_rank(groups[g]), call, what); !s) return s;
      }
    }
  }
  return {};
}

}  // namespace

Status RunChain(ApiRank& rank, const Flags& flags) {
  const int64_t replays = flags.Number("replays", 100);
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    for (const uint64_t count : {uint64_t{1000}, uint64_t{30'007}}) {
      if (Status s = RunGraph(rank, dtype, count, replays); !s) return s;
    }
  }
  return {};
}

Status RunTuned(ApiRank& rank, const Flags& flags) {
  const std::string database = flags.Text("database", "");
  const std::array<uint64_t, 4> sizes = {1024, 16 << 10, 256 << 10, 2 << 20};
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.dtypes = 1u << COTUNE_BF16;
  options.sizes_bytes = sizes.data();
  options.size_count = sizes.size();
  options.database_path = database.c_str();
  cotune_tune_report report{};
  report.struct_size = sizeof(report);
  if (Status s = RunSizes(rank, "before the tune"); !s) return s;
  if (Status s = StatusOf(rank.group(), cotune_tune(rank.group(), &options, &report), "tune"); !s) {
    return s;
  }
  std::printf("tune measured=%d known=%d skipped=%d\n", report.measured, report.known,
              report.skipped);
  if (report.is_tuned == 0) return Fail(ErrorCode::kRankLost, "the tune was not committed");
  if (Status s = RunSizes(rank, "after the tune"); !s) return s;
  if (Status s = ExpectExplained(rank); !s) return s;
  if (Status s = RunGraph(rank, Dtype::kBf16, 9001, 20); !s) return s;
  if (Status s = StatusOf(rank.group(), cotune_load(rank.group(), database.c_str()), "load"); !s) {
    return s;
  }
  return RunSizes(rank, "after a load");
}

Status RunStreams(ApiRank& rank, const Flags& flags) {
  if (Status s = RunOnChangingStreams(rank, flags.Number("calls", 50)); !s) return s;
  return RunTwoGroups(rank, flags.Number("rounds", 50));
}

}  // namespace cotune::gputest
