#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <utility>

#include "tests/gpu/api_program.h"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kCount = 10'000;  // of a program
constexpr uint64_t kRows = 5;

}  // namespace

// Some calls after the other. With --blocks nobody asks the group while it waits, as in a program
// that synchronizes its stream. The runner reads the lines: when the victim went, when another rank
// knew.
Status RunFault(ApiRank& rank, const Flags& flags) {
  const int64_t victim = flags.Number("victim", 0);
  const int64_t at = flags.Number("at", 100);
  const int signal = flags.Text("how", "kill") == "kill" ? SIGKILL : SIGSTOP;
  const bool in_graph = flags.Number("graph", 0) != 0;
  const bool blocks = flags.Number("blocks", 0) != 0;
  const int64_t queue = flags.Number("queue", 1);
  const Problem problem = rank.CaseProblem(rank.group());
  const uint64_t width = SizeBytes(problem.cls.dtype);
  const Result<void*> send = rank.Allocate(rank.group(), problem.send_elements() * width);
  const Result<void*> recv = rank.Allocate(rank.group(), problem.recv_elements() * width);
  if (!send || !recv) return tl::make_unexpected((send ? recv : send).error());
  std::function<Status()> call = [&] { return ApiRank::Call(rank.group(), problem, *send, *recv); };
  std::unique_ptr<ApiProgram> program;
  if (flags.Number("program", 0) != 0) {
    COTUNE_TRY(auto made, flags.Number("program", 0) == 2
                              ? ApiProgram::MakeFused(rank, kCount / kRows, kRows)
                              : ApiProgram::Make(rank, ResidualNorm(kCount / kRows), kRows));
    program = std::move(made);
    if (Status s = program->Fill(1); !s) return s;
    call = [&] { return program->Enqueue(rank.group()); };
  }
  CallMemory::Replay run = call;
  for (int64_t i = 0; i < at + 1'000'000; ++i) {
    if (i == at && rank.rank() == victim) {
      PrintNow("gone", "");
      kill(getpid(), signal);
    }
    Status done;
    for (int64_t queued = 0; done && queued < queue; ++queued) done = run();
    if (i == at && done) PrintNow("queued", "");
    if (done) {
      done = blocks ? rank.BlockAndCheck(rank.group(), rank.stream())
                    : rank.Await(rank.group(), rank.stream());
    }
    if (!done) {
      PrintNow("knew", done.error().ToText().c_str());
      return done;
    }
    if (i == 0 && in_graph) {
      COTUNE_TRY(const CallMemory::Replay captured, rank.memory().Capture(rank.stream(), call));
      run = captured;
    }
  }
  return Fail(ErrorCode::kInternal, "no rank was lost");
}

}  // namespace cotune::gputest
