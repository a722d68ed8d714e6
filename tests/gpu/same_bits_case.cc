#include <algorithm>

#include "core/base/sha256.h"
#include "fmt/format.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/problem_lists.h"

namespace cotune::gputest {
namespace {

// Calls on other data before each run that is compared: another number of them each time, so that
// no run finds its own data in memory that choices use in turns.
constexpr int kOtherCalls[] = {0, 1, 2};
constexpr Pattern kPattern = Pattern::kRandom;

std::string DigestOf(const std::vector<std::byte>& bytes) {
  return Sha256Hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// The digests of all ranks, in rank order.
Result<std::vector<std::string>> DigestsOfAll(Rank& rank, const std::string& own, uint64_t step) {
  Job& job = rank.job();
  COTUNE_TRY(const StepResult all,
             job.exchange().Step(fmt::format("digest {}", step), own, 0,
                                 job.clock().now_ns() + 2 * rank.deadline_ns()));
  return all.records;
}

// Runs a call, compares its values as far as the choice promises them, and gives its digest.
Result<std::string> RunOnce(Rank& rank, ChoiceCaller& caller, CallBuffers& buffers,
                            const CallData& data) {
  COTUNE_RETURN_IF_ERROR(buffers.Fill(data.sent, data.right));
  COTUNE_RETURN_IF_ERROR(rank.Launch(rank.job(), caller, buffers));
  COTUNE_RETURN_IF_ERROR(rank.Await(rank.job()));
  COTUNE_RETURN_IF_ERROR(rank.CheckAnswer(caller, buffers, kPattern, data, "same bits"));
  COTUNE_TRY(const auto answer, buffers.Read());
  return DigestOf(answer);
}

Status CheckChoice(Rank& rank, ChoiceCaller& caller, CallBuffers& buffers, DataSets& sets,
                   uint64_t& steps) {
  const CallData& data = sets.Next(kPattern, true);
  std::string first;
  for (const int others : kOtherCalls) {
    for (int other = 0; other < others; ++other) {
      COTUNE_RETURN_IF_ERROR(RunOnce(rank, caller, buffers, sets.Next(kPattern, true)));
    }
    COTUNE_TRY(const std::string digest, RunOnce(rank, caller, buffers, data));
    if (first.empty()) first = digest;
    if (digest != first) {
      rank.findings().Wrong(
          fmt::format("rank {}: {}: other bits after {} calls on other data than in the first run",
                      rank.job().rank(), TextOf(caller), others));
    }
  }
  COTUNE_TRY(const std::vector<std::string> all, DigestsOfAll(rank, first, steps++));
  const bool is_equal = std::all_of(all.begin(), all.end(),
                                    [&](const std::string& other) { return other == all.front(); });
  if (caller.problem().cls.collective == Collective::kAllReduce && !is_equal) {
    rank.findings().Wrong(fmt::format("{}: ranks have other bits than rank 0", TextOf(caller)));
  }
  return {};
}

}  // namespace

Status RunSameBits(Rank& rank, const Flags& flags) {
  Job& job = rank.job();
  COTUNE_TRY(const auto classes, ClassesOf(job, flags));
  uint64_t steps = 0;
  for (const ProblemClass& cls : classes) {
    for (const uint64_t count : CountsOf(flags, "1001,70001,1000003")) {
      const Problem problem = rank.OnBuffers(
          Rank::ProblemOf(job, cls.collective, cls.dtype, cls.reduction, count, false));
      COTUNE_TRY(ReadyChoices ready, rank.MakeReady(job, problem));
      DataSets sets = rank.SetsFor(problem);
      COTUNE_TRY(const auto buffers, rank.AllocateBuffers(problem, {Placement{}}));
      for (const auto& caller : ready.callers) {
        if (!caller->choice().is_reproducible) continue;
        ++rank.findings().choices_by_backend[std::string(caller->id().backend())];
        if (Status s = CheckChoice(rank, *caller, *buffers.front(), sets, steps); !s) return s;
      }
    }
  }
  return {};
}

}  // namespace cotune::gputest
