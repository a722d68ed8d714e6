#include <unistd.h>

#include <cstddef>
#include <vector>

#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

// Replays a captured call on the group's stream and compares its answer.
Status ReplayAndCompare(ApiRank& rank, const CallMemory::Replay& replay, const Problem& problem,
                        void* send, void* recv, uint32_t salt) {
  const uint64_t recv_bytes = problem.recv_elements() * SizeBytes(problem.cls.dtype);
  COTUNE_RETURN_IF_ERROR(
      rank.memory().Write(recv, std::vector<std::byte>(recv_bytes, std::byte{0xA5})));
  COTUNE_RETURN_IF_ERROR(
      rank.memory().Write(send, SendData(problem, rank.rank(), Pattern::kExact, salt)));
  COTUNE_RETURN_IF_ERROR(replay());
  COTUNE_RETURN_IF_ERROR(rank.Await(rank.group(), rank.stream()));
  COTUNE_TRY(const auto answer, rank.memory().Read(recv, recv_bytes));
  rank.Expect(problem, "a captured call", RightAnswer(problem, rank.rank(), Pattern::kExact, salt),
              answer);
  return {};
}

}  // namespace

// A group goes while a CUDA graph with a call of it lives, and a replay afterwards ends, whatever
// it gives. The runner reads the lines: how long the group took to go.
Status RunGraphEnd(ApiRank& rank, const Flags& flags) {
  if (!rank.memory().is_cuda()) {
    return Fail(ErrorCode::kUsage, "only CUDA memory has graphs");
  }
  const Problem problem = rank.CaseProblem(rank.group());
  const uint64_t width = SizeBytes(problem.cls.dtype);
  COTUNE_TRY(void* const send, rank.Allocate(rank.group(), problem.send_elements() * width));
  COTUNE_TRY(void* const recv, rank.Allocate(rank.group(), problem.recv_elements() * width));
  const auto call = [&] { return ApiRank::Call(rank.group(), problem, send, recv); };
  // Once before, so that the call can be captured.
  COTUNE_RETURN_IF_ERROR(call());
  COTUNE_RETURN_IF_ERROR(rank.Await(rank.group(), rank.stream()));
  COTUNE_TRY(const CallMemory::Replay replay, rank.memory().Capture(rank.stream(), call));
  COTUNE_RETURN_IF_ERROR(ReplayAndCompare(rank, replay, problem, send, recv, 1));
  if (rank.rank() == flags.Number("left", -1)) {
    PrintNow("gone", "");
    _exit(0);
  }
  void* const stream = rank.stream();
  PrintNow("leaving", "");
  rank.Leave();
  PrintNow("left", "");
  COTUNE_RETURN_IF_ERROR(replay());
  COTUNE_RETURN_IF_ERROR(rank.memory().Synchronize(stream));
  PrintNow("replayed", "");
  return {};
}

}  // namespace cotune::gputest
