// The interface of a backend to the pipeline. plugins/loader implements it over the C ABI; tests
// implement it directly.
#ifndef COTUNE_CORE_BACKEND_BACKEND_H_
#define COTUNE_CORE_BACKEND_BACKEND_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"
#include "core/problem/program_graph.h"

namespace cotune {

// Numerics classes that all backends share; docs/decisions/0020-numerics.md.
inline constexpr std::string_view kExactNumerics = "exact";
inline constexpr std::string_view kRankOrderNumerics = "rank_order_f32";

// One way to run a program, as its backend describes it. Equal on all ranks.
struct Choice {
  ChoiceId id;
  bool is_default = false;       // what the backend would pick itself
  bool is_capturable = false;    // its launches, in a CUDA graph
  bool is_reproducible = false;  // same bits on all ranks and from run to run
  bool prepare_is_collective = false;
  // Other ranks may run the collective with other operations around it, or with none. A
  // combination has the flag if each of its steps with operations has it.
  bool fits_any_region = false;
  // Model estimate, < 0: none. Decides which choices race first, and never which one wins.
  double cost_us = -1;
  uint64_t workspace_bytes = 0;
  // Names what decides the bits of its results: equal classes, equal bits. "": unknown, comparable
  // with no other choice.
  std::string numerics{};
};

struct ChoiceList {
  std::vector<Choice> choices;
  std::vector<Refusal> refusals;
};

// The operands of a launch, and the stream that it runs on.
struct LaunchArguments {
  // The buffers of a single collective.
  const void* send = nullptr;
  void* recv = nullptr;
  void* stream = nullptr;   // cudaStream_t; nullptr for host memory
  int64_t deadline_ns = 0;  // absolute, for the whole operation
  // The operands of a program or a part: one address for each input and each output, in their
  // order. The arrays outlive the operation. An output that overwrites an input has its address.
  std::span<const void* const> inputs{};
  std::span<void* const> outputs{};
};

// The patience with operations on host memory, which the plugin ABI grants in the same words.
//
// By when an operation has ended by itself: a backend may ask the other ranks first which one is
// late, and name it. A deadline without end stays one.
constexpr int64_t LatestEndNs(int64_t launched_ns, int64_t deadline_ns) {
  constexpr int64_t kVerdictShare = 8;
  constexpr int64_t kVerdictNsMax = 500'000'000;
  constexpr int64_t kLastTurnNs = 100'000'000;
  const int64_t share_ns = (deadline_ns - launched_ns) / kVerdictShare;
  return DeadlineAfter(deadline_ns, std::clamp<int64_t>(share_ns, 0, kVerdictNsMax) + kLastTurnNs);
}
// An operation ends within this time after the abort of its group.
inline constexpr int64_t kAbortEndNs = 1'000'000'000;

// The warning of an error that leaves an operation in flight.
inline constexpr char kBuffersStayInUse[] =
    "the buffers of the call stay in use until the group is destroyed";

// A choice made ready on this rank for one program at one count. One launch at a time for a group.
// The end of a plan ends its operation.
class Plan {
 public:
  virtual ~Plan() = default;
  // Whether launches may be captured in a CUDA graph, as the choice says. A device captures no
  // other plan.
  virtual bool is_capturable() const { return false; }
  // Starts the operation. CUDA memory: enqueues only. Host memory: the buffers are in use until
  // Progress is done.
  virtual Status Launch(const LaunchArguments& arguments) = 0;
  // Host memory: true when complete, false when until_ns came first (0: one attempt). An error ends
  // the group's use.
  virtual Result<bool> Progress(int64_t until_ns) = 0;
  // Host memory: begins to abort the group of the operation that runs, and does not wait. Nothing
  // for a plan that has no group.
  virtual void Abort() {}
  // True if the group of the operation that runs was aborted on this rank, by any caller.
  virtual bool IsAborted() const { return false; }
  // Launch, then Progress until done; for host memory. An operation that does not end by itself is
  // aborted when LatestEndNs has passed. When Run returns, the operation has ended, unless the
  // error has kBuffersStayInUse: then neither its deadline nor the abort has ended it.
  Status Run(const LaunchArguments& arguments, const Clock& clock);

 private:
  Status AwaitEnd(int64_t launched_ns, int64_t deadline_ns, const Clock& clock);
};

// Returns true if Plan::Run aborted an operation that did not end by itself: the plan of this very
// rank is at fault then, whatever its peers do.
bool IsStillInProgress(const Error& error);

// Ordered ranks that can run the backend's choices. Destroyed after all of its plans.
class BackendGroup {
 public:
  virtual ~BackendGroup() = default;
  // Local unless choice.prepare_is_collective; may be called from several threads.
  virtual Result<std::unique_ptr<Plan>> Prepare(const Program& program, const Problem& problem,
                                                const Choice& choice, int64_t deadline_ns) = 0;
  // Collective: `bytes` of this rank's memory that its peers may reach from now on, for symmetric
  // problems. On all ranks or on none; kUnsupported: this backend does not take such memory, and
  // its group stays as it was.
  virtual Status RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns) = 0;
  // Memory that begins at `data`; no launch that uses it is on its way. Does not wait for the
  // others. What is left when the group goes is unregistered then.
  virtual void UnregisterMemory(void* data) = 0;
  virtual Status Health() = 0;
  // How this rank sends to each rank of the group, in words for people, for example "tcp/eth0"; ""
  // where that is not known, as for itself. Empty: for none of them.
  virtual std::vector<std::string> Connections() { return {}; }
  // Any thread, any time; frees every waiter of this group on host and device in bounded time.
  virtual void Abort() = 0;
};

// A program without a collective at one size, which one rank runs alone.
struct PartRequest {
  const ProgramGraph& part;  // lowered: primitive operations only
  uint64_t rows = 0;         // R
  MemoryKind memory = MemoryKind::kHost;
  int32_t world_size = 1;
  // Every value is rounded to its dtype, so that the bits do not depend on how a program is cut.
  bool rounds_values = false;
};

// The ranks of a group and its name, which is unique in the job and new for every attempt.
struct GroupParameters {
  std::string name;
  int32_t rank = 0;                     // of this process in the group
  std::vector<int32_t> job_ranks;       // rank in the job of every rank of the group
  std::vector<int32_t> host_of_rank{};  // as in Places; empty: all are on one host
  int32_t device = -1;                  // CUDA ordinal, -1 for host
  int64_t deadline_ns = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const std::string& name() const = 0;
  virtual const std::string& version() const = 0;
  // The libraries found at run time that do its work, with their versions; "": it has none, or does
  // not say.
  virtual std::string libraries() const { return ""; }
  // Pure and rank-invariant: depends on the arguments and the backend's version only. Never fails:
  // what cannot run is a refusal with its reason.
  virtual ChoiceList ListChoices(const Program& program, const Problem& problem) const = 0;
  // Collective over the group. kRankLost names the job rank that did not come.
  virtual Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) = 0;
  // Returns whether PreparePart can succeed at all.
  virtual bool has_parts() const { return false; }
  // Local, needs no group; any thread. A plan of a part belongs to the backend, and is launched
  // with inputs and outputs. kUnsupported says why this part cannot run.
  virtual Result<std::unique_ptr<Plan>> PreparePart(const PartRequest& request,
                                                    int64_t deadline_ns);
};

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_BACKEND_H_
