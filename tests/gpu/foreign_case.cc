#include <array>
#include <cstddef>
#include <vector>

#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kCount = 10'000;
constexpr uint64_t kBytes = kCount * 4;
// Longer than a group may take to go.
constexpr int64_t kSpinNs = 30'000'000'000;

struct Buffers {
  void* send = nullptr;
  void* recv = nullptr;
  uint32_t salt = 0;  // their data is made from it
};

}  // namespace

// A kernel of the caller's runs on, as one of another library does that waits for a lost rank: a
// group is made beside it, calls come through, and the group goes before the kernel has ended.
Status RunForeign(ApiRank& rank, const Flags&) {
  std::array<Buffers, 2> calls;
  for (Buffers& each : calls) {
    COTUNE_TRY(each.send, rank.memory().Allocate(kBytes));
    COTUNE_TRY(each.recv, rank.memory().Allocate(kBytes));
    each.salt = rank.NextSalt();
  }
  COTUNE_TRY(void* const foreign, rank.memory().MakeStream());
  const Problem problem =
      ProblemFor(rank.group(), Collective::kAllReduce, Dtype::kF32, Reduction::kSum, kCount);
  COTUNE_RETURN_IF_ERROR(rank.NoteBackends(rank.group(), problem));
  // Writes wait for the whole GPU, so that both calls have their data before the kernel runs.
  for (const Buffers& each : calls) {
    const auto sent = SendData(problem, rank.rank(), Pattern::kExact, each.salt);
    COTUNE_RETURN_IF_ERROR(rank.memory().Write(each.send, sent));
    const std::vector<std::byte> poison(kBytes, std::byte{0xFF});
    COTUNE_RETURN_IF_ERROR(rank.memory().Write(each.recv, poison));
  }
  const auto run = [&](const Buffers& each, const char* what) -> Status {
    COTUNE_RETURN_IF_ERROR(ApiRank::Call(rank.group(), problem, each.send, each.recv));
    COTUNE_RETURN_IF_ERROR(rank.Await(rank.group(), rank.stream()));
    COTUNE_TRY(const std::vector<std::byte> answer, rank.memory().Read(each.recv, kBytes));
    rank.Expect(problem, what, RightAnswer(problem, rank.rank(), Pattern::kExact, each.salt),
                answer);
    return {};
  };
  COTUNE_RETURN_IF_ERROR(run(calls[0], "before a kernel of the caller's"));
  COTUNE_RETURN_IF_ERROR(rank.memory().Spin(foreign, kSpinNs));
  COTUNE_RETURN_IF_ERROR(run(calls[1], "beside a kernel of the caller's"));
  rank.Leave();
  COTUNE_TRY(const bool has_ended, rank.memory().IsDone(foreign));
  if (has_ended) {
    return Fail(ErrorCode::kInternal, "the group has waited for a kernel of its caller's to end");
  }
  return {};
}

}  // namespace cotune::gputest
