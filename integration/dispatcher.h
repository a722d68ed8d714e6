// Runs calls by the tuned table: look up by size, take the cached plan, launch.
#ifndef COTUNE_INTEGRATION_DISPATCHER_H_
#define COTUNE_INTEGRATION_DISPATCHER_H_

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/choice/choice_caller.h"
#include "core/selection/dispatch_table.h"
#include "integration/agreed_choices.h"
#include "integration/job.h"
#include "integration/nearby_choice.h"

namespace cotune {

// One collective call of this rank.
struct Call {
  Collective collective = Collective::kAllReduce;
  Dtype dtype = Dtype::kF32;
  Reduction reduction = Reduction::kNone;
  int32_t root = 0;
  uint64_t count = 0;  // as in the ABI's table
  const void* send = nullptr;
  void* recv = nullptr;
  void* stream = nullptr;  // cudaStream_t of a call on CUDA memory
  int64_t timeout_ns = 30'000'000'000;
};

// One call of a program by this rank.
struct ProgramCall {
  const ProgramGraph* graph = nullptr;  // of a program with collectives
  uint64_t rows = 1;                    // R
  // One address for each input and output, in their order; an output that overwrites an input has
  // that input's. NULL only where a value has no rows.
  std::span<const void* const> inputs{};
  std::span<void* const> outputs{};
  void* stream = nullptr;  // as in Call
  int64_t timeout_ns = 30'000'000'000;
};

// The choice that a call would run, and why.
struct CallExplanation {
  ChoiceId choice;
  // The winner that the table has for the call runs it, or the agreed choice if is_agreed is true.
  bool from_table = false;
  // The ranks have agreed on it for the collectives of the call (Agree), and without that the call
  // would run another choice.
  bool is_agreed = false;
  // The setting `force_choice` gives it the choice, whatever else the call would run. A program
  // runs that choice in one of its steps.
  bool is_forced = false;
  // The reason for which a collective of the call does not run its forced choice; "" if each of
  // them does, and if none is forced.
  std::string forced_refused{};
  // The winner cannot run it, and a next best choice of the nearest measured size does. Neither of
  // the two: the backend's own default, because the table has no row for the call, or because none
  // of the row's choices can run it.
  bool is_next_best = false;
  // The range of the row, if a choice of the row runs.
  uint64_t first_bytes = 0, end_bytes = UINT64_MAX;
  // The row by which the call runs, if it has none of its own: that call was measured, not this
  // one.
  std::optional<DispatchKey> relative{};
  std::string table_choice_refused{};  // the table's choice, why it cannot run; "" when it does
  // It is the winner of the next measured size, of so many bytes, because that of the call's range
  // is not listed for it; 0: it is not.
  uint64_t next_size_bytes = 0;
  // Calls of the choice cannot be captured in a CUDA graph: those that are run this one, or nothing
  // where it is not set.
  bool is_eager = false;
  std::optional<ChoiceId> choice_in_graphs{};
};

// Collective in the sense of its job: every rank makes the same calls in the same order. Run is for
// one thread at a time; SetTable may be called between calls. One dispatcher a job, destroyed
// before it; a tune of the job drops its plans.
class Dispatcher {
 public:
  // marks_calls: the observer of the job gets Stage::kDispatch before each call. False saves that
  // for an observer that takes no marks.
  explicit Dispatcher(Job& job, bool marks_calls = true);
  ~Dispatcher();

  // The table that every rank has committed. Not while a call runs.
  void SetTable(DispatchTable table);
  const DispatchTable& table() const { return *table_.load(std::memory_order_acquire); }

  // Runs the call to its end; on CUDA memory only enqueues it. With a cached plan and
  // memory that is not registered: no lock, no allocation before the launch. kUsage for a malformed
  // call; any other failure stops the group (Job::stop), so that every later call gives the same
  // error. So does a loss that the control channel knows of.
  Status Run(const Call& call);
  // The same for a program. kUsage also when it does not fit the group, or its rows not the ranks.
  Status Run(const ProgramCall& call);
  // Agrees on a choice for each collective of the program at these numbers of rows, none: at all of
  // them. It is the first of those that the table has for the program which other programs can
  // share, without the operations that it runs with the collective, or the default; a collective
  // that has one keeps it. From now on calls of such a collective run by it, whatever program it
  // stands in and whatever buffers this rank gives it, so that ranks with other programs and
  // buffers around it run it alike. Collective in the sense of the job.
  Status Agree(const ProgramGraph& graph, std::span<const uint64_t> rows);
  // Returns whether there is such a choice for all collectives of the program.
  Result<bool> IsAgreed(const ProgramGraph& graph, uint64_t rows);
  // Makes the plan ready that the call would run. Collective in the sense of the job.
  Status Prepare(const ProgramCall& call);

  // Whether all calls so far went well, as far as they have run. An error as of Run.
  Status Health();

  // Not collective: waits for no other rank, and changes nothing that decides what this one does.
  // Makes the plan ready where a rank can do that alone.
  Result<CallExplanation> Explain(const Call& call);
  // Needs no operands.
  Result<CallExplanation> Explain(const ProgramCall& call);

 private:
  // The key of a cached plan: two calls with equal keys run the same plan.
  struct PlanKey {
    Problem problem;
    int32_t choice_index = DispatchTable::kNoChoice;
    const DispatchTable* table = nullptr;  // nullptr: the index is one of composed_
    bool operator==(const PlanKey&) const = default;
  };
  struct PlanKeyHash {
    size_t operator()(const PlanKey& key) const;
  };
  struct CachedPlan;
  using PlanList = std::list<std::unique_ptr<CachedPlan>>;
  // The latest call that had plain buffers, by all that its plan depends on.
  struct LatestCall {
    const DispatchTable* table = nullptr;
    CachedPlan* plan = nullptr;  // nullptr: there is none
    uint64_t count = 0;
    int32_t root = 0;
    Collective collective = Collective::kAllReduce;
    Dtype dtype = Dtype::kF32;
    Reduction reduction = Reduction::kNone;
    bool in_place = false;
    bool operator==(const LatestCall&) const = default;
  };

  // A call of which a collective is forced.
  struct ForcedCall {
    std::optional<PlanKey> key{};  // nothing: it runs what it would run without the setting
    std::string refused{};         // as forced_refused of CallExplanation
  };
  // The key of a call, and its entry in forced_; nullptr: none of its collectives is forced.
  struct CallKey {
    PlanKey key;
    const ForcedCall* forced = nullptr;
  };

  // The latest call of a program, likewise.
  struct LatestProgram {
    const DispatchTable* table = nullptr;
    CachedPlan* plan = nullptr;
    uint64_t digest = 0;
    uint64_t rows = 0;
  };

  // The collectives of a program on plain buffers, each as the program calls it: some may be in
  // place.
  static std::vector<Problem> StepsOf(const Program& program, const Problem& anchor);
  // Returns the problem by which the collective is agreed. Another rank may have it in another
  // program and call it with other buffers, so the program and the buffers are left out.
  static Problem AsAgreed(Problem problem);
  // The same collectives without what may differ between ranks: none is in place.
  static std::vector<Problem> CollectivesOf(const Program& program, const Problem& anchor);
  // Returns a candidate for each collective if ranks with other programs can run these beside a
  // rank that runs its program by this choice of the table; else nothing.
  std::vector<AgreedChoices::Candidate> StepsToAgree(const Program& program, const Problem& anchor,
                                                     const ChoiceId& id) const;
  // The choices that may run each collective of a program by the table; none: the default.
  std::vector<AgreedChoices::Candidates> CandidatesOf(const DispatchTable& table,
                                                      const Program& program,
                                                      const Problem& anchor) const;
  Status AgreeOnAllRows(const Program& bound);
  // Returns the choice that runs an agreed collective. It follows from the collective out of place,
  // as another rank may call it. kUnsupported: the step is in place, and that choice cannot be.
  Result<ChoiceId> AgreedChoiceOf(const Problem& step, const AgreedChoices::Candidates& agreed,
                                  void* stream) const;
  // Returns whether the choice runs the collective, which is on plain buffers: a choice that is not
  // listed for it is made ready to find out. kUnsupported: that would be within a capture.
  Result<bool> Takes(const Program& single, const Problem& step, const NearbyChoice& nearby,
                     void* stream) const;
  // Finds the choice of an agreed collective, which may be listed for another count only.
  std::optional<NearbyChoice> FindAgreed(const Problem& step, const ChoiceId& id) const;
  // Finds the choice of a program on plain buffers that is listed for it, or whose steps are found
  // as those of agreed collectives.
  std::optional<NearbyChoice> FindAgreedSteps(const Program& program, const Problem& problem,
                                              const ChoiceId& id) const;
  // Returns the default of a step on plain buffers; that of an agreed collective is equal on ranks
  // that call it in place and on ranks that do not.
  Result<ChoiceId> DefaultOf(const Problem& step) const;
  // Returns the key by which a call runs if all its collectives are agreed, which may be `key`
  // itself, and nothing if one is not agreed. `key` is that of the call on plain buffers, in place
  // or not; a call on registered buffers has to ask with it, too. kUnsupported: as AgreedChoiceOf.
  // program: nullptr for that of the key's collective alone. stream: that of the call.
  Result<std::optional<PlanKey>> Followed(const PlanKey& key, const Program* program, void* stream);
  // Returns the key of a call that runs this choice, which need not be one of the table.
  PlanKey ComposedKey(const Problem& problem, ChoiceId id);
  // Returns the key of a call with forced collectives, by the key that the table alone gives on
  // these buffers, and warns once of each collective that its forced choice does not run. An agreed
  // collective decides out of place, as another rank may call it. The entry is valid until keys are
  // derived anew. kUnsupported: as AgreedChoiceOf. program: nullptr for that of the key's
  // collective alone.
  Result<const ForcedCall*> Forced(const PlanKey& key, const Program* program, void* stream);
  Result<ForcedCall> MakeForced(const PlanKey& key, const Program* program, void* stream);
  // Returns the forced choice of a collective if it runs it; else nothing, and why in `refused`,
  // unless the collective is not forced.
  Result<std::optional<ChoiceId>> ForcedStep(const Problem& step, void* stream,
                                             std::string& refused) const;
  // Returns the choice of a collective that is not forced, in a program in which others are: that
  // of the agreement, or the first one of the table that it runs by itself, or the default.
  Result<ChoiceId> UnforcedStep(const PlanKey& key, const Program& program, size_t place,
                                const Problem& step, void* stream) const;
  // Returns the entry of a call on registered buffers if its forced choice runs on such buffers and
  // its backend has taken these; else nullptr.
  Result<const ForcedCall*> ForcedOnRegistered(const Call& call, const PlanKey& symmetric);
  void WarnOfRefusal(const Problem& step, const std::string& refused);
  // Forgets the keys that follow from agreements, settings and lists.
  void ForgetDerivedKeys();
  // Returns the first choice that the table has for the program, in the order in which they are
  // tried, that runs its collectives by these agreed choices, with operations or without; `agreed`
  // if there is none. Other ranks need not run the same.
  ChoiceId FusedOf(const PlanKey& key, const Program& program, ChoiceId agreed) const;
  // Returns whether the key without an agreement runs this choice: the table has it for the key, or
  // the table has none and it is the default.
  bool RunsAnyway(const PlanKey& key, const Program& program, const ChoiceId& id) const;
  // The choice of a key that has one.
  const ChoiceId& ChosenBy(const PlanKey& key) const;

  // Fails if a plugin call is stuck or the group is stopped. Every call starts with it.
  Status MayRun() const;
  // The same question without the reason, answered by a few loads. A no is for good.
  bool CanRun() const { return job_.stuck() == nullptr && !job_.stop().is_set(); }
  int64_t DeadlineOf(int64_t timeout_ns) const;
  // The time until which a choice is made ready for a call. A short setting for measurements does
  // not shorten it, because a call has its own timeout.
  int64_t PrepareDeadlineNs() const;
  // The program bound to the group, and to memory of this kind for its operands; valid until
  // another graph is asked for.
  Result<const Program*> Bound(const ProgramGraph& graph,
                               BufferClass buffers = BufferClass::kPlain);
  // The problem of the program's anchor. kUsage: R does not fit the group.
  Result<Problem> ProblemOf(const Program& program, uint64_t rows) const;
  Status CheckOperands(const Program& program, const ProgramCall& call) const;
  Result<CachedPlan*> PlanOf(const ProgramCall& call);
  struct ProgramKey {
    const Program* program = nullptr;
    CallKey call;
  };
  // Returns the key of a forced choice that a collective of the program runs, or else that of the
  // agreed choices, if all its collectives are agreed, and otherwise that of the table. Registered
  // operands run as plain ones if the program is agreed, if the table does not know them, or if the
  // backend of their winner has not taken their memory. A call without operands is one with plain
  // ones.
  Result<ProgramKey> KeyOf(const ProgramCall& call, const DispatchTable& table);
  // Returns whether all ranks have registered all operands, with that backend if one is given.
  bool IsSymmetric(const Program& program, const ProgramCall& call,
                   std::string_view backend = {}) const;
  // Memory that the call uses stays as long as a graph does that the call is captured into.
  void NoteOperands(const ProgramCall& call);
  // The call of the one collective that the program is.
  static Call AsCall(const Program& program, const Problem& problem, const ProgramCall& call);
  Result<CallExplanation> ExplainCall(const CallKey& call, const Program& program);
  Result<CallExplanation> ExplainKey(const PlanKey& key, const Program& program);

  Result<Problem> ProblemOf(const Call& call) const;
  bool IsInPlace(const Call& call) const;
  bool HasBuffers(const Call& call) const;
  // The call by all that its plan depends on, with the plan of the latest call.
  LatestCall WithLatestPlan(const Call& call) const;
  // Returns the plan of the latest call if this one equals it, without a lookup; else nullptr.
  CachedPlan* LatestPlan(const Call& call) const;
  Result<CachedPlan*> PlanOf(const Call& call);
  // Runs a call that needs more than the latest plan: one that is unlike the latest call (latest is
  // nullptr), or whose plan cannot be captured.
  Status RunUnlikeLatest(const Call& call, CachedPlan* latest);
  Status Launch(ChoiceCaller& caller, const Call& call);
  // Whether all ranks have registered the call's buffers, with that backend if one is given.
  bool IsSymmetric(const Call& call, const Problem& problem, std::string_view backend = {}) const;
  // Returns the key of the forced choice, or else of the agreed one, if there is one, and otherwise
  // that of the table. Registered buffers run as plain ones if the call is agreed, if the table
  // does not know them, or if the backend of their winner has not taken their memory.
  Result<CallKey> KeyOf(const Call& call, const Problem& problem, const DispatchTable& table);
  // Names the choice that runs calls of the key, and the reason where the table's does not; leaves
  // the ranges out.
  Result<CallExplanation> ChosenFor(const PlanKey& key, const Program& program);
  static CallExplanation ExplainPlan(const CachedPlan& plan);
  // Explains a choice without its plan if all ranks make the plan ready together: that waits for a
  // call, because other ranks may not be asked at all. Nothing: this rank can make it ready alone.
  std::optional<CallExplanation> ExplainUnprepared(const PlanKey& key, const Program& program,
                                                   const Choice& choice) const;
  // The plan from the cache, or a new one. program: nullptr for that of the key's collective alone.
  Result<CachedPlan*> PlanFor(const PlanKey& key, const Program* program);
  Result<std::unique_ptr<CachedPlan>> Prepare(const PlanKey& key, const Program& program);
  // Makes the plan of a key with this choice ready.
  Result<std::unique_ptr<CachedPlan>> PrepareChoice(const PlanKey& key, const Program& program,
                                                    const Choice& choice);
  // Returns the winners that may run calls of a key that has a choice, as they are listed, in the
  // order in which they are tried.
  std::vector<NearbyChoice> WinnersFor(const PlanKey& key, const Program& program) const;
  // Returns whether the table's choice may run calls of the key though no list is known that has
  // it.
  bool MayRunUnlisted(const PlanKey& key) const;
  // Returns the choices that may run the call, in the order in which they are tried: those of the
  // table (AttemptsOf), and then the default; the winner alone if it is listed for the call.
  // `refused`: why the table's choice is not the first.
  Result<std::vector<Attempt>> AttemptsFor(const PlanKey& key, const Program& program,
                                           std::string& refused) const;
  // Makes the plan ready. nullptr: the choice cannot run the call, on no rank, and `refused` says
  // why if it is a winner. An error: other ranks may run it.
  Result<std::unique_ptr<CachedPlan>> Try(const PlanKey& key, const Program& program,
                                          const Attempt& attempt, std::string& refused);
  // Returns whether calls of the choice cannot be captured in a CUDA graph.
  static bool IsEager(const Problem& problem, const Choice& choice) {
    return problem.cls.memory == MemoryKind::kCuda && !choice.is_capturable;
  }
  // Returns the choice that runs captured calls in the place of one that cannot be captured: the
  // default runs each collective whose choice cannot be. Nothing: that is the same choice, or
  // cannot be captured either.
  std::optional<Choice> ChoiceInGraphs(const Program& program, const Problem& problem,
                                       const ChoiceId& eager) const;
  // The id of that choice, for a program on plain buffers.
  Result<ChoiceId> StepsInGraphs(const Program& program, const Problem& problem,
                                 const ChoiceId& eager) const;
  // Makes that choice ready if the plan's own choice cannot be captured.
  Status PrepareForGraphs(CachedPlan& plan, int64_t deadline_ns);
  // Returns the choice of the plan that runs a call on this stream. kUnsupported: the stream is
  // captured in a graph, and no choice of the plan can be.
  Result<ChoiceCaller*> CallerFor(CachedPlan& plan, void* stream);
  // Parts load code and take memory, which breaks a capture. kUnsupported: the stream is captured.
  Status MayPrepare(const Program& program, void* stream);
  // A call whose plan failed: where it is captured, the error says so, and how to prepare it.
  Status WithCapture(Status status, void* stream);
  // Tells the user, on rank 0 and once a group, that a call runs the default because the table has
  // neither a row for it nor a relative's, and how to tune it.
  void SayUntuned(const PlanKey& key, const Program& program);
  // Stops the group where the failure ends it; gives what it was stopped with.
  Status Remember(Status status);
  // A group that a peer has aborted: the control channel may know why, a rank of the group that was
  // lost. The loss of a rank outside the group is only mentioned.
  Status WithLoss(Status status);
  // Asks the control channel for an answer of the job's first rank. Returns the error where that
  // rank is lost, and nothing where it answers.
  std::optional<Error> SilentFirstRank();
  // Finds the culprit of a deadline that passed without a known one: every rank that notices it
  // or has found a culprit puts a word into the job's store, and the first rank without a word is
  // named. A rank whose own plan did not end searches for nobody.
  Status WithLostRanks(Status status);
  void DropPlans();
  // Collective in the sense of the job, as the ranks set their tables in the same order.
  void DropOldestTable();

  Job& job_;
  const bool marks_calls_;
  const int rank_;
  const int world_size_;
  const int32_t ranks_per_node_;
  std::atomic<const DispatchTable*> table_;
  // Cached plans of earlier tables name their table. The oldest goes, with its plans, when there
  // are too many; the last is in force.
  std::vector<std::unique_ptr<DispatchTable>> tables_;
  PlanList plans_;  // most recently used first
  std::unordered_map<PlanKey, PlanList::iterator, PlanKeyHash> plan_of_;
  LatestCall latest_;
  LatestProgram latest_program_;
  // By the graph's digest and the memory of the operands.
  std::map<std::pair<uint64_t, BufferClass>, std::unique_ptr<Program>> programs_;
  bool has_said_untuned_ = false;
  std::set<std::string> eager_;  // choices of which it was said that they cannot be captured
  AgreedChoices agreed_;
  std::vector<ChoiceId> composed_;  // agreed choices that differ from the table, and forced ones
  // The keys of agreed calls, by the key that the table alone gives on plain buffers.
  std::unordered_map<PlanKey, PlanKey, PlanKeyHash> followed_;
  // Calls with forced collectives, likewise.
  std::unordered_map<PlanKey, ForcedCall, PlanKeyHash> forced_;
  std::set<Collective> warned_of_refusal_;
  // The answers that Takes got by making a choice ready. Unlike followed_ they outlive agreements
  // and tables, because a capture cannot get them anew.
  mutable std::map<std::pair<Problem, ChoiceId>, bool> taken_;
  // Digest and rows of programs all of whose collectives have an agreed choice.
  std::set<std::pair<uint64_t, uint64_t>> agreed_programs_;
  // Calls that no choice runs, so that none is tried again.
  std::unordered_map<PlanKey, Error, PlanKeyHash> refused_;
  int64_t last_timeout_ns_ = 0;  // of a call
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_DISPATCHER_H_
