// One rank of a test: its job, the choices of a problem made ready, and what it found wrong.
#ifndef COTUNE_TESTS_GPU_RANK_H_
#define COTUNE_TESTS_GPU_RANK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/event_sink.h"
#include "core/choice/choice_caller.h"
#include "core/problem/choice_id.h"
#include "core/problem/program.h"
#include "gpu/driver/cuda_driver.h"
#include "integration/job.h"
#include "tests/gpu/call_buffers.h"
#include "tests/gpu/data_sets.h"
#include "tests/gpu/flags.h"
#include "tests/gpu/reference.h"

namespace cotune::gputest {

// The findings of a test, for its last line and exit code.
class Findings {
 public:
  // Prints the first ones.
  void Wrong(const std::string& text);
  uint64_t wrong = 0;
  uint64_t calls = 0;                                  // whose values were compared
  std::map<std::string, uint64_t> choices_by_backend;  // that were run, problem by problem

  // Notes that a choice of a program has run.
  void RanProgram(const std::string& program, const ChoiceId& choice);
  // For each program, "backend/algorithm" of the choices that ran operations inside of a
  // collective.
  std::map<std::string, std::set<std::string>> fused_by_program;
};

// All choices of one problem on this rank.
struct ReadyChoices {
  std::unique_ptr<Program> program;
  Problem problem;
  std::vector<std::unique_ptr<ChoiceCaller>> callers;
};

// Joins the job that the environment describes (COTUNE_RANK, ...). Every function that talks to
// other ranks is collective. One thread.
class Rank {
 public:
  // Flags: --memory host|cuda, --plugins FOLDERS separated by ':', --backends NAMES, all of which
  // must take part, --set BACKEND.KEY=VALUE separated by '|', --deadline-ms of one call, --buffers
  // symmetric: in memory that the job's backends have registered.
  static Result<std::unique_ptr<Rank>> Join(const Flags& flags);

  Job& job() { return *job_; }
  Findings& findings() { return findings_; }
  int64_t deadline_ns() const { return timeout_ns_; }
  // So many numbers that this rank has not taken before, to make the data of calls from: the first
  // of them. All ranks take as many at the same place in the order of their calls.
  uint32_t TakeSalts(uint32_t count);
  // The data of a problem's calls in the rank's job.
  DataSets SetsFor(const Problem& problem);
  // One set of buffers for each placement; with --buffers symmetric in the region of the rank,
  // where they take the place of the buffers of an earlier call, which must be gone.
  Result<std::vector<std::unique_ptr<CallBuffers>>> AllocateBuffers(
      const Problem& problem, const std::vector<Placement>& placements);
  // For a call that begins now.
  int64_t CallDeadline() const;

  // The problem on the buffers that --buffers names, in this rank's job.
  Problem OnBuffers(Problem problem) const;
  // The problem in the job on plain buffers, with count elements.
  static Problem ProblemOf(Job& job, Collective collective, Dtype dtype, Reduction reduction,
                           uint64_t count, bool in_place, int root = 0);
  // Lists what every backend offers and makes it ready; all ranks are done when it returns.
  // kUnsupported when there is nothing; else the error of a choice that cannot be made ready.
  Result<ReadyChoices> MakeReady(Job& job, const Problem& problem);
  // Starts a call on the job's stream; on host memory it is done afterwards.
  Status Launch(Job& job, ChoiceCaller& caller, const CallBuffers& buffers);
  // Waits until what was launched is done, and it went well by the backends' own word.
  Status Await(Job& job);
  // Compares what was received, and notes what is wrong.
  Status CheckAnswer(const ChoiceCaller& caller, CallBuffers& buffers, Pattern pattern,
                     const CallData& data, std::string_view where);
  // All ranks meet; then the number of a moment that none before has had.
  Result<int64_t> Meet(Job& job, std::string_view step);

 private:
  Rank() = default;
  Status AwaitStream(Job& job);

  std::optional<gpu::CudaDriver> driver_;  // on CUDA memory
  std::unique_ptr<EventSink> warnings_;    // of the job
  std::unique_ptr<Job> job_;
  std::unique_ptr<SymmetricRegion> symmetric_;
  Findings findings_;
  int64_t timeout_ns_ = 0;
  uint32_t salts_taken_ = 0;
};

// "all_reduce/sum/... cuda/one_shot?..." for messages.
std::string TextOf(const ChoiceCaller& caller);

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_RANK_H_
