#include <cstddef>
#include <vector>

#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kCount = 10'000;
constexpr uint64_t kBytes = kCount * 4;
// Longer than a group may take to go.
constexpr int64_t kSpinNs = 30'000'000'000;

}  // namespace

// A kernel of the caller's runs on, as one of another library does that waits for a lost rank: a
// group is made beside it, calls come through, and the group goes before the kernel has ended.
Status RunForeign(ApiRank& rank, const Flags&) {
  const Result<void*> send = rank.memory().Allocate(kBytes);
  const Result<void*> recv = rank.memory().Allocate(kBytes);
  const Result<void*> foreign = rank.memory().MakeStream();
  if (!send || !recv) return tl::make_unexpected((send ? recv : send).error());
  COTUNE_RETURN_IF_ERROR(foreign);
  const std::vector<std::byte> zeroes(kBytes);
  Status done = rank.memory().Write(*send, zeroes);
  if (done) done = rank.memory().Write(*recv, std::vector<std::byte>(kBytes, std::byte{0xFF}));
  const Problem problem =
      ProblemFor(rank.group(), Collective::kAllReduce, Dtype::kF32, Reduction::kSum, kCount);
  if (done) done = ApiRank::Call(rank.group(), problem, *send, *recv);
  if (done) done = rank.Await(rank.group(), rank.stream());
  if (!done) return done;
  COTUNE_TRY(const std::vector<std::byte> answer, rank.memory().Read(*recv, kBytes));
  rank.Expect(problem, "before a kernel of the caller's", zeroes, answer);
  done = rank.memory().Spin(*foreign, kSpinNs);
  if (done) done = ApiRank::Call(rank.group(), problem, *send, *recv);
  if (done) done = rank.Await(rank.group(), rank.stream());
  if (!done) return done;
  rank.Leave();
  COTUNE_TRY(const bool has_ended, rank.memory().IsDone(*foreign));
  if (has_ended) {
    return Fail(ErrorCode::kInternal, "the group has waited for a kernel of its caller's to end");
  }
  return {};
}

}  // namespace cotune::gputest
