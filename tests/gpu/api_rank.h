// One rank of a test that is a user of the C API: its group, memory and stream.
#ifndef COTUNE_TESTS_GPU_API_RANK_H_
#define COTUNE_TESTS_GPU_API_RANK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem/problem.h"
#include "integration/capi/cotune.h"
#include "nlohmann/json.hpp"
#include "tests/gpu/call_memory.h"
#include "tests/gpu/flags.h"
#include "tests/gpu/reference.h"

namespace cotune::gputest {

struct DestroyGroup {
  void operator()(cotune_group* group) const { cotune_group_destroy(group); }
};
using Group = std::unique_ptr<cotune_group, DestroyGroup>;

// CLOCK_MONOTONIC, which all processes of a machine share.
int64_t NowNs();

// A line for the runner with the time of now: "event at_ns=... text".
void PrintNow(const char* event, const char* text);

// The document of cotune_explain_json for a call of this problem on plain buffers.
Result<nlohmann::json> Explain(cotune_group* group, const Problem& problem);

// The result of a call of the C API, as a Status with the group's own text.
Status StatusOf(cotune_group* group, cotune_result result, std::string_view call);

// Flags as of Rank::Join. With --choice ID the groups of all ranks begin with the database that
// COTUNE_DATABASE names, which has to make that choice run (force_case.cc writes such ones);
// without it they begin with the default choices. --collective, --count and --symmetric 1 say what
// the calls of a case are. One thread.
class ApiRank {
 public:
  static Result<std::unique_ptr<ApiRank>> Join(const Flags& flags);

  cotune_group* group() { return group_.get(); }
  CallMemory& memory() { return *memory_; }
  void* stream() { return stream_; }
  int rank() const { return rank_; }
  int size() const { return cotune_group_size(group_.get()); }
  int64_t deadline_ns() const { return deadline_ns_; }
  // A group of some ranks with a stream of its own.
  struct Subgroup {
    Group group;
    void* stream = nullptr;
  };
  Result<Subgroup> Split(const char* name, const std::vector<int32_t>& ranks);

  // The call that the flags name, of bf16; without flags an all_reduce of 10,000 elements.
  Problem CaseProblem(const cotune_group* group) const;
  // Memory for it. Collective where --symmetric says so: then it is registered with this group.
  Result<void*> Allocate(cotune_group* group, uint64_t bytes);
  // Whether the table of the group makes this choice run for the case's calls. What runs on
  // registered buffers is no question that cotune_explain answers: there the runner looks for the
  // warning that calls run the default choice.
  Status CheckForced(cotune_group* group, const std::string& choice) const;

  // Notes the backends that run a call of this problem, on plain buffers, by what
  // cotune_explain_json answers: those of its choice, and of the one that runs it in a graph.
  Status NoteBackends(cotune_group* group, const Problem& problem);
  // The same for a choice, "" for none.
  Status NoteBackends(const std::string& choice);
  // The number of calls that were noted, by the name of the backend.
  const std::map<std::string, uint64_t>& calls_by_backend() const { return calls_by_backend_; }

  // Starts a call of this problem.
  static Status Call(cotune_group* group, const Problem& problem, const void* send, void* recv);
  // Waits until a stream is done, and asks the group whether all went well. Ends with the group's
  // word, or with kDeadline when it says nothing for too long.
  Status Await(cotune_group* group, void* stream);
  // The same for a program that waits in cudaStreamSynchronize first, and asks nobody meanwhile.
  Status BlockAndCheck(cotune_group* group, void* stream);
  // Ends the rank's group.
  void Leave() { group_.reset(); }

  // A number that this rank has not taken before, to make the data of a call from: what an earlier
  // call has left in memory that both use is wrong for it. All ranks of a group take it at the same
  // place in the order of their calls.
  uint32_t NextSalt() { return ++last_salt_; }

  // Notes a difference.
  void Expect(const Problem& problem, std::string_view what, std::span<const std::byte> right,
              std::span<const std::byte> answer);
  // Counts a call whose values were compared; wrong: what is wrong with them, or "".
  void Note(std::string_view what, std::string_view wrong);
  uint64_t calls() const { return calls_; }
  uint64_t wrong() const { return wrong_; }

 private:
  ApiRank() = default;

  std::string forced_choice_;  // "": none
  Collective case_collective_ = Collective::kAllReduce;
  uint64_t case_count_ = 0;
  bool is_case_symmetric_ = false;
  int64_t deadline_ns_ = 0;
  int rank_ = -1;                       // also when the group has gone
  std::unique_ptr<CallMemory> memory_;  // outlives the group: its graphs and kernels use it
  Group group_;
  void* stream_ = nullptr;
  uint32_t last_salt_ = 0;
  uint64_t calls_ = 0;
  uint64_t wrong_ = 0;
  std::map<std::string, uint64_t> calls_by_backend_;
};

// A problem as the reference wants it.
Problem ProblemFor(const cotune_group* group, Collective collective, Dtype dtype,
                   Reduction reduction, uint64_t count, int root = 0);

// The cases. As in cases.h.
Status RunChain(ApiRank& rank, const Flags& flags);    // calls that feed each other, in a graph
Status RunTuned(ApiRank& rank, const Flags& flags);    // tune, save, load; sizes in between
Status RunStreams(ApiRank& rank, const Flags& flags);  // each call on another stream; two groups
// The programs of ProgramTexts at --rows, back to back and in one graph, untuned and (--tune 1)
// tuned.
Status RunProgramCalls(ApiRank& rank, const Flags& flags);
// Tunes residual + norm of --rows and --columns while faulty_nvrtc.cc puts a fault into its
// kernels, and compares a call after it. --wrong none|some|all: how many of the choices that reduce
// rows inside of the collective the tune has to find wrong; unfused choices have to be right.
Status RunKernelFault(ApiRank& rank, const Flags& flags);
// --victim, --how kill|stop, --at CALL, --graph 0|1, --queue CALLS at once, --blocks 1: in
// cudaStreamSynchronize, --program 1: of a program, 2: of one that a fused choice runs
Status RunFault(ApiRank& rank, const Flags& flags);
// A group goes while a graph with its call lives; rank --left has gone before, without a word.
Status RunGraphEnd(ApiRank& rank, const Flags& flags);
// all_to_all of --count bf16 a block between plain and registered buffers, captured and not.
Status RunCapturedExchange(ApiRank& rank, const Flags& flags);
Status RunForeign(ApiRank& rank,
                  const Flags& flags);  // a kernel of the caller's outlives the group
// Rank --victim comes --delay-ms late to --calls calls, which lie in a graph with --graph 1;
// --program 1: of a program, 2: of one that a fused choice runs.
Status RunLate(ApiRank& rank, const Flags& flags);
// Ranks that load different tables run by that of rank 0: --own FILE makes --choice run, --other
// FILE makes --other-choice run.
Status RunTables(ApiRank& rank, const Flags& flags);
// Rank --odd calls with another --what: count, collective, dtype, reduction, root or program.
Status RunMismatch(ApiRank& rank, const Flags& flags);
// Registered memory of a captured call is freed and given out again, and the graph is replayed;
// --returns 1: the GPU has the memory back when the graph is gone.
Status RunGraphMemory(ApiRank& rank, const Flags& flags);
// Graphs of a group that has gone are replayed beside calls of another one.
Status RunGraphOutlives(ApiRank& rank, const Flags& flags);
// Two ranks make a group of their own while another rank calls on a group that they have left.
Status RunLeft(ApiRank& rank, const Flags& flags);
// Rank --victim stops itself in the middle of --queue calls; the others have an error, fill their
// buffers and leave the group. Nobody writes into the buffers until there is a file --until.
Status RunCanary(ApiRank& rank, const Flags& flags);

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_API_RANK_H_
