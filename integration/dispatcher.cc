#include "integration/dispatcher.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "core/base/event_sink.h"
#include "core/choice/choice_lists.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/dispatcher_plan.h"
#include "integration/group_stop.h"

namespace cotune {
namespace {

// Plans that are kept; the one used longest ago goes first. A model calls tens of different sizes.
constexpr size_t kPlansMax = 1024;
constexpr size_t kTablesMax = 8;

// How much later than a peer, which has aborted the group, this rank may hear of the same loss:
// twice the interval in which the control channel is read between calls.
constexpr int64_t kLossWaitNs = 1'500'000'000;

// The rank of the job that has the store, which cannot be told anything where it is lost.
constexpr int32_t kStoreRank = 0;

// A choice of the agreed table, or an agreed or forced one, that is listed for the problem and yet
// cannot be made ready: other ranks may run it, so this one must not take another choice by itself.
Error RefusedAlone(const ChoiceId& id, bool is_of_table, Error error) {
  if (EndsTheGroup(error.code)) return error;
  error.code = ErrorCode::kEnvironment;
  error.what = fmt::format("{}{} cannot be made ready: {}", id.text(),
                           is_of_table ? " of the tuned table" : "", error.what);
  error.next_step = "every rank would have to take another choice: mend it, or tune again";
  return error;
}

// "all_reduce sum f32 out of place"; "program NAME".
std::string CallsText(const ProblemClass& cls, const Program& program) {
  if (cls.program_digest == 0) return InWords(DispatchKey::Of(cls));
  const std::string& name = program.graph().name();
  return name.empty() ? fmt::format("program {:016x}", cls.program_digest) : "program " + name;
}

// The command that measures calls of the class.
std::string TuneCommandFor(const ProblemClass& cls) {
  if (cls.program_digest != 0) return "cotune tune --program FILE";
  std::string command =
      fmt::format("cotune tune --collective {} --dtype {}", Name(cls.collective), Name(cls.dtype));
  if (cls.reduction != Reduction::kNone && cls.reduction != Reduction::kSum) {
    command += fmt::format(" --reduction {}", Name(cls.reduction));
  }
  return cls.in_place ? command + " --in-place" : command;
}

// Below it the deadline of a call is taken from the exact clock.
constexpr int64_t kCoarseTimeoutNs = 1'000'000'000;

}  // namespace

size_t Dispatcher::PlanKeyHash::operator()(const PlanKey& key) const {
  const ProblemClass& cls = key.problem.cls;
  uint64_t hash = key.problem.count * 0x9E3779B97F4A7C15ull;
  hash ^= (static_cast<uint64_t>(cls.collective) << 40) ^ (static_cast<uint64_t>(cls.dtype) << 32) ^
          (static_cast<uint64_t>(cls.reduction) << 24) ^
          (static_cast<uint64_t>(cls.in_place) << 20) ^
          (static_cast<uint64_t>(cls.buffer_class) << 21) ^ (static_cast<uint64_t>(cls.root) << 8) ^
          static_cast<uint64_t>(key.choice_index + 1);
  hash ^= cls.program_digest;
  hash *= 0xBF58476D1CE4E5B9ull;
  return hash ^ (hash >> 31);
}

Dispatcher::Dispatcher(Job& job)
    : job_(job),
      rank_(job.rank()),
      world_size_(job.world_size()),
      ranks_per_node_(job.places().ranks_per_host()) {
  tables_.push_back(std::make_unique<DispatchTable>());
  table_.store(tables_.back().get(), std::memory_order_release);
  job_.set_drop_plans([this] { DropPlans(); });
}

Dispatcher::~Dispatcher() { job_.set_drop_plans(nullptr); }

void Dispatcher::DropPlans() {
  latest_ = {};
  latest_program_ = {};
  plan_of_.clear();
  plans_.clear();
  refused_.clear();
  // Lists of choices may change with the tune, and ranks with other programs have other entries.
  ForgetDerivedKeys();
  taken_.clear();
}

void Dispatcher::ForgetDerivedKeys() {
  followed_.clear();
  forced_.clear();
  agreed_.ForgetComputed();
}

void Dispatcher::SetTable(DispatchTable table) {
  if (tables_.size() == kTablesMax) DropOldestTable();
  tables_.push_back(std::make_unique<DispatchTable>(std::move(table)));
  table_.store(tables_.back().get(), std::memory_order_release);
}

void Dispatcher::DropOldestTable() {
  const DispatchTable* const oldest = tables_.front().get();
  if (latest_.table == oldest) latest_ = {};
  if (latest_program_.table == oldest) latest_program_ = {};
  for (auto plan = plans_.begin(); plan != plans_.end();) {
    if ((*plan)->key.table != oldest) {
      ++plan;
      continue;
    }
    plan_of_.erase((*plan)->key);
    plan = plans_.erase(plan);
  }
  std::erase_if(refused_, [&](const auto& each) { return each.first.table == oldest; });
  ForgetDerivedKeys();
  tables_.erase(tables_.begin());
}

bool Dispatcher::IsInPlace(const Call& call) const {
  // Without elements the buffers say nothing, and every rank has to come to the same answer.
  if (call.count == 0) return false;
  const auto* send = static_cast<const std::byte*>(call.send);
  const auto* recv = static_cast<const std::byte*>(call.recv);
  const uint64_t own_block = static_cast<uint64_t>(rank_) * call.count * SizeBytes(call.dtype);
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kAllToAll:
      return send == recv;
    case Collective::kAllGather:
      return send == recv + own_block;
    case Collective::kReduceScatter:
      return recv == send + own_block;
    case Collective::kBroadcast:
      // Only the root has a send buffer, so the other ranks cannot tell.
      return false;
  }
  return false;
}

bool Dispatcher::HasBuffers(const Call& call) const {
  const bool needs_send = call.collective != Collective::kBroadcast || call.root == rank_;
  return call.count == 0 || (call.recv != nullptr && (!needs_send || call.send != nullptr));
}

Result<Problem> Dispatcher::ProblemOf(const Call& call) const {
  Problem problem;
  ProblemClass& cls = problem.cls;
  cls.collective = call.collective;
  cls.dtype = call.dtype;
  cls.reduction = call.reduction;
  cls.memory = job_.device().kind();
  cls.world_size = world_size_;
  cls.ranks_per_node = ranks_per_node_;
  cls.root = call.root;
  cls.in_place = IsInPlace(call);
  problem.count = call.count;
  problem.topology_digest = job_.topology_digest();
  const bool bad_root = call.root < 0 || call.root >= cls.world_size;
  const bool bad_reduction = Reduces(call.collective) != (call.reduction != Reduction::kNone);
  if (bad_root || bad_reduction || (call.root != 0 && call.collective != Collective::kBroadcast)) {
    return Propagate(Validate(cls));
  }
  if (!HasBuffers(call)) {
    return Fail(ErrorCode::kUsage,
                fmt::format("the {} buffer is NULL", call.recv == nullptr ? "receive" : "send"),
                ToText(problem));
  }
  if (IsSymmetric(call, problem)) cls.buffer_class = BufferClass::kSymmetric;
  return problem;
}

bool Dispatcher::IsSymmetric(const Call& call, const Problem& problem,
                             std::string_view backend) const {
  if (call.count == 0) return false;
  const BackendGroups& groups = job_.groups();
  const uint64_t element_bytes = SizeBytes(call.dtype);
  if (!groups.IsRegistered(call.recv, problem.recv_elements() * element_bytes, backend)) {
    return false;
  }
  // Ranks that are not the root have nothing to send, and all ranks must say the same.
  return call.collective == Collective::kBroadcast ||
         groups.IsRegistered(call.send, problem.send_elements() * element_bytes, backend);
}

Result<Dispatcher::CallKey> Dispatcher::KeyOf(const Call& call, const Problem& problem,
                                              const DispatchTable& table) {
  const auto key_on = [&](BufferClass buffers) {
    PlanKey key{problem, DispatchTable::kNoChoice, &table};
    key.problem.cls.buffer_class = buffers;
    key.choice_index = table.Lookup(DispatchKey::Of(key.problem.cls), problem.bytes());
    return key;
  };
  const PlanKey plain = key_on(BufferClass::kPlain);
  const bool is_symmetric = problem.cls.buffer_class == BufferClass::kSymmetric;
  const ForcedCall* forced = nullptr;
  if (!job_.settings().force.empty()) {
    if (is_symmetric) {
      COTUNE_TRY(forced, ForcedOnRegistered(call, key_on(BufferClass::kSymmetric)));
      if (forced != nullptr) return CallKey{*forced->key, forced};
    }
    COTUNE_TRY(forced, Forced(plain, nullptr, call.stream));
    if (forced->key) return CallKey{*forced->key, forced};
  }
  // Another rank may have the collective in a program, where its buffers are plain ones.
  COTUNE_TRY(const std::optional<PlanKey> agreed, Followed(plain, nullptr, call.stream));
  if (agreed) return CallKey{*agreed, forced};
  if (!is_symmetric) return CallKey{plain, forced};
  const PlanKey symmetric = key_on(BufferClass::kSymmetric);
  // The row of registered buffers may have nothing to say of this size.
  if (symmetric.choice_index == DispatchTable::kNoChoice) return CallKey{plain, forced};
  const ChoiceId& winner = table.choices()[static_cast<size_t>(symmetric.choice_index)];
  return CallKey{IsSymmetric(call, problem, winner.backend()) ? symmetric : plain, forced};
}

Status Dispatcher::Run(const Call& call) {
  if (Status may = MayRun(); !may) return may;
  last_timeout_ns_ = call.timeout_ns;
  const Result<CachedPlan*> plan = PlanOf(call);
  if (!plan) return Remember(WithCapture(Propagate(plan), call.stream));
  const Result<ChoiceCaller*> caller = CallerFor(**plan, call.stream);
  if (!caller) return Remember(Propagate(caller));
  LaunchArguments arguments;
  arguments.send = call.send;
  arguments.recv = call.recv;
  arguments.stream = call.stream;
  arguments.deadline_ns = DeadlineOf(call.timeout_ns);
  const void* const operands[] = {call.send, call.recv};
  job_.captured_memory().Note(job_.device(), call.stream, operands);
  MarkStage(job_.observer(), Stage::kDispatch);
  return Remember((*caller)->Launch(arguments, job_.clock()));
}

Status Dispatcher::MayRun() const {
  // A thread may still be inside a call of this object then.
  if (const Error* stuck = job_.stuck()) return tl::make_unexpected(*stuck);
  if (job_.stop().is_set()) return job_.stop().status();
  return {};
}

int64_t Dispatcher::PrepareDeadlineNs() const {
  const int64_t timeout_ns = job_.settings().collective_autotune_timeout_ns;
  return DeadlineAfter(job_.clock().now_ns(), std::max(timeout_ns, last_timeout_ns_));
}

int64_t Dispatcher::DeadlineOf(int64_t timeout_ns) const {
  const Clock& clock = job_.clock();
  const bool is_coarse = timeout_ns >= kCoarseTimeoutNs;
  return DeadlineAfter(is_coarse ? clock.coarse_now_ns() : clock.now_ns(), timeout_ns);
}

Status Dispatcher::Remember(Status status) {
  if (status || !EndsTheGroup(status.error().code)) return status;
  GroupStop& stop = job_.stop();
  if (!stop.is_set()) {
    // Peers that wait for this rank learn of it before their deadline where a backend's abort
    // reaches them, as the host backend's does. On GPUs a kernel of this rank that runs tells them
    // when it gives up; where none runs, peers end when this process does or at their own deadline.
    stop.FreeWaiters();
    status = WithLostRanks(WithLoss(std::move(status)));
    stop.Set(status.error());
  }
  return stop.status();  // the control channel may have been first
}

Status Dispatcher::WithLoss(Status status) {
  Error& error = status.error();
  if (error.code != ErrorCode::kAborted || !error.ranks.empty()) return status;
  std::optional<Error> loss = job_.AwaitLoss(kLossWaitNs);
  if (!loss) loss = job_.FirstLoss();
  if (!loss) loss = SilentFirstRank();
  if (!loss) return status;
  if (Concerns(*loss, job_.groups().job_ranks())) {
    error.ranks = loss->ranks;
    error.code = loss->code;  // kAborted where that rank gave up on purpose
    error.what += "; " + loss->ToText();
    return status;
  }
  // A peer stops a group of living ranks where it finds that they can agree on nothing any more,
  // and for many other reasons.
  error.what +=
      "; a peer has stopped the group, perhaps because the job had lost a rank outside the "
      "group: " +
      loss->ToText();
  return status;
}

// A rank that is in no step of the control channel does not listen for the first rank of the job.
// The peer may have been in one, and have found it silent.
std::optional<Error> Dispatcher::SilentFirstRank() {
  const std::string key = fmt::format("{}/aborted/{}", job_.groups().name(), job_.rank());
  const Status put = job_.exchange().StorePut(key, "");
  if (put || put.error().ranks.empty()) return std::nullopt;
  return put.error();
}

Status Dispatcher::WithLostRanks(Status status) {
  const bool is_late = status.error().code == ErrorCode::kDeadline && status.error().ranks.empty();
  // A rank that has found another one late lives itself, which peers that search must know.
  const bool has_found =
      status.error().code == ErrorCode::kRankLost && !Concerns(status.error(), {kStoreRank});
  if (!is_late && !has_found) return status;
  // Words in the job's store: a rank that does not come costs this group's answer, and nothing
  // else.
  const BackendGroups& groups = job_.groups();
  RankExchange& exchange = job_.exchange();
  const auto key = [&](int rank) { return fmt::format("{}/deadline/{}", groups.name(), rank); };
  // Late enough for ranks whose own deadline comes a little later, and well before twice the
  // call's.
  const int64_t deadline_ns = DeadlineAfter(job_.clock().now_ns(), last_timeout_ns_ / 2);
  Error error = status.error();
  // The control channel may know who it is, and without its first rank there is no store.
  const auto name = [&](const Error& known) {
    if (!Concerns(known, groups.job_ranks())) {
      error.what +=
          "; the ranks cannot find out which of them is late, because the control channel has "
          "failed before: " +
          known.ToText();
      return;
    }
    error.ranks = known.ranks;
    error.code = ErrorCode::kRankLost;
    error.what += "; " + known.ToText();
  };
  const Status put = exchange.StorePut(key(job_.rank()), "");
  // The plan of this very rank has not come to its end: the peers may all have done so.
  if (has_found || IsStillInProgress(error)) return status;
  if (!put) {
    if (!put.error().ranks.empty()) name(put.error());
    return tl::make_unexpected(std::move(error));
  }
  // All ranks without a word are named: the first of them may only be slow to abort its own call.
  std::vector<int> silent;
  for (int rank = 0; rank < job_.world_size(); ++rank) {
    const int64_t until_ns = silent.empty() ? deadline_ns : DeadlineAfter(job_.clock().now_ns(), 0);
    const Result<std::string> word = exchange.StoreGet(key(rank), until_ns);
    if (word) continue;
    if (!word.error().ranks.empty()) {
      name(word.error());
      return tl::make_unexpected(std::move(error));
    }
    silent.push_back(groups.job_ranks()[rank]);
  }
  if (silent.empty()) return tl::make_unexpected(std::move(error));
  error.code = ErrorCode::kRankLost;
  error.what += silent.size() == 1
                    ? fmt::format(
                          "; rank {} has not reported the same: it is lost, or its own call has "
                          "ended",
                          silent.front())
                    : fmt::format(
                          "; ranks {} have not reported the same: they are lost, slow to end their "
                          "own calls, or these have ended",
                          fmt::join(silent, ", "));
  error.ranks = std::move(silent);
  return tl::make_unexpected(std::move(error));
}

Status Dispatcher::Health() {
  if (const Error* stuck = job_.stuck()) return tl::make_unexpected(*stuck);
  if (job_.stop().is_set()) return job_.stop().status();
  for (const BackendMember& member : job_.groups().members()) {
    if (member.group == nullptr) continue;
    if (Status healthy = member.group->Health(); !healthy) return Remember(healthy);
  }
  return {};
}

Result<Dispatcher::CachedPlan*> Dispatcher::PlanOf(const Call& call) {
  const DispatchTable* table = table_.load(std::memory_order_acquire);
  LatestCall wanted{table,           latest_.plan, call.count,     call.root,
                    call.collective, call.dtype,   call.reduction, IsInPlace(call)};
  // Whether buffers are registered changes from call to call.
  const bool is_plain = !job_.groups().HasRegisteredMemory();
  if (is_plain && latest_.plan != nullptr && wanted == latest_ && HasBuffers(call)) {
    return latest_.plan;
  }
  COTUNE_TRY(const Problem problem, ProblemOf(call));
  COTUNE_TRY(const CallKey key, KeyOf(call, problem, *table));
  Result<CachedPlan*> plan = PlanFor(key.key, nullptr);
  wanted.plan = plan && is_plain ? *plan : nullptr;
  latest_ = wanted;
  return plan;
}

Result<Dispatcher::CachedPlan*> Dispatcher::PlanFor(const PlanKey& key, const Program* program) {
  const auto found = plan_of_.find(key);
  if (found != plan_of_.end()) {
    plans_.splice(plans_.begin(), plans_, found->second);
    return plans_.front().get();
  }
  std::optional<Program> single;
  if (program == nullptr) {
    COTUNE_TRY(Program made, Program::SingleCollective(key.problem.cls));
    single = std::move(made);
    program = &*single;
  }
  const auto refused = refused_.find(key);
  if (refused != refused_.end()) return tl::make_unexpected(refused->second);
  Result<std::unique_ptr<CachedPlan>> plan = Prepare(key, *program);
  if (!plan) {
    if (refused_.size() == kPlansMax) refused_.clear();
    if (plan.error().code == ErrorCode::kUnsupported) refused_.emplace(key, plan.error());
    return Propagate(plan);
  }
  if (key.choice_index == DispatchTable::kNoChoice) SayUntuned(key, *program);
  plans_.push_front(std::move(*plan));
  plan_of_.emplace(key, plans_.begin());
  if (plans_.size() > kPlansMax) {
    if (latest_.plan == plans_.back().get()) latest_ = {};
    if (latest_program_.plan == plans_.back().get()) latest_program_ = {};
    plan_of_.erase(plans_.back()->key);
    plans_.pop_back();
  }
  return plans_.front().get();
}

void Dispatcher::SayUntuned(const PlanKey& key, const Program& program) {
  // Without any row the first call has said that nothing is tuned.
  if (rank_ != 0 || key.table->rows().empty() || key.problem.count == 0) return;
  if (job_.lines() == nullptr || has_said_untuned_) return;
  has_said_untuned_ = true;
  EmitLine(*job_.lines(), Severity::kWarning,
           fmt::format("calls of {} run the default choice: the table has other calls, and none "
                       "that is near to these; `{}` tunes them (this is not repeated for further "
                       "calls)",
                       CallsText(key.problem.cls, program), TuneCommandFor(key.problem.cls)));
}

Result<std::unique_ptr<Dispatcher::CachedPlan>> Dispatcher::PrepareChoice(const PlanKey& key,
                                                                          const Program& program,
                                                                          const Choice& choice) {
  auto plan = std::make_unique<CachedPlan>(key, program);
  const int64_t deadline_ns = PrepareDeadlineNs();
  COTUNE_TRY(plan->caller, MakeCaller(job_.groups(), plan->program, key.problem, choice));
  COTUNE_RETURN_IF_ERROR(plan->caller->Precompile(deadline_ns));
  COTUNE_RETURN_IF_ERROR(PrepareForGraphs(*plan, deadline_ns));
  return plan;
}

std::vector<NearbyChoice> Dispatcher::WinnersFor(const PlanKey& key, const Program& program) const {
  const ChoiceId& id = ChosenBy(key);
  std::vector<NearbyChoice> winners;
  if (key.table == nullptr) {
    auto agreed = FindAgreedSteps(program, key.problem, id);
    if (agreed) winners.push_back(*std::move(agreed));
  } else {
    winners = WinnersOf(job_.groups(), program, *key.table, key.problem);
  }
  if (!winners.empty() || !MayRunUnlisted(key)) return winners;
  // Its backend may list it as refused here, because it is not worth trying, and run it. A program
  // that has no such form at this size does not.
  Choice unlisted{.id = id};
  if (key.table != nullptr) {
    if (!HasForm(job_.groups(), program, key.problem, id)) return winners;
    if (const auto measured = AtMeasuredSize(*key.table, program, key.problem)) {
      unlisted = FindChoice(job_.groups(), program, *measured, id).value_or(std::move(unlisted));
    }
  }
  winners.push_back({std::move(unlisted), false});
  return winners;
}

bool Dispatcher::MayRunUnlisted(const PlanKey& key) const {
  // The agreement has asked the backend of each of its choices.
  if (key.table == nullptr) return true;
  // A database of an older version, say, names a choice that its backend lists no more. Yet only a
  // list applies the rule of numerics, and has no choice that cannot run this dtype or place.
  if (job_.groups().numerics() != NumericsRule::kAny) return false;
  return key.table->Find(DispatchKey::Of(key.problem.cls)) != nullptr;
}

// That a choice of the table does not run a call follows from the problem alone, and the choices
// that are tried after it from the table, which is the same on all ranks. So all ranks go on alike,
// without a word to each other.
Result<std::vector<Attempt>> Dispatcher::AttemptsFor(const PlanKey& key, const Program& program,
                                                     std::string& refused) const {
  std::vector<Attempt> attempts;
  if (key.choice_index != DispatchTable::kNoChoice) {
    const std::string id = ChosenBy(key).text();
    std::vector<NearbyChoice> winners = WinnersFor(key, program);
    // No other choice follows one that is listed for the call (Try), and to list others takes time.
    const bool is_last =
        !winners.empty() && winners.front().is_listed_here && winners.front().next_size_bytes == 0;
    if (is_last) {
      attempts.push_back({std::move(winners.front())});
      return attempts;
    }
    if (winners.empty()) {
      refused = fmt::format("{}: {}", id,
                            FindRefusal(job_.groups(), program, key.problem, ChosenBy(key))
                                .value_or("no backend offers it for this call"));
    }
    if (key.table != nullptr) {
      attempts = AttemptsOf(job_.groups(), program, *key.table, key.problem, std::move(winners));
    } else {
      for (NearbyChoice& each : winners) attempts.push_back({std::move(each)});
    }
    const bool has_listed_before =
        !attempts.empty() && attempts.front().kind == Attempt::Kind::kNextBest && refused.empty();
    if (has_listed_before) {
      refused = fmt::format("{}: its backend does not list it for a call of this size", id);
    }
  }
  COTUNE_TRY(Choice fallback, job_.DefaultChoice(program, key.problem));
  attempts.push_back({{std::move(fallback), true}, Attempt::Kind::kDefault});
  return attempts;
}

Result<std::unique_ptr<Dispatcher::CachedPlan>> Dispatcher::Try(const PlanKey& key,
                                                                const Program& program,
                                                                const Attempt& attempt,
                                                                std::string& refused) {
  using Kind = Attempt::Kind;
  const Choice& choice = attempt.nearby.choice;
  Result<std::unique_ptr<CachedPlan>> plan = PrepareChoice(key, program, choice);
  if (plan) {
    (*plan)->next_size_bytes = attempt.nearby.next_size_bytes;
    (*plan)->is_next_best = attempt.kind == Kind::kNextBest;
    if (attempt.kind != Kind::kWinner) (*plan)->table_choice_refused = refused;
    return plan;
  }
  if (attempt.kind == Kind::kDefault) return plan;
  // Ranks with other programs around an agreed collective run its choice, which its backend has
  // taken.
  const bool others_may_run_it = attempt.nearby.is_listed_here || key.table == nullptr;
  if (others_may_run_it || EndsTheGroup(plan.error().code)) {
    return tl::make_unexpected(RefusedAlone(choice.id, key.table != nullptr, plan.error()));
  }
  if (attempt.kind == Kind::kWinner) {
    refused = fmt::format("{}: {}", choice.id.text(), plan.error().ToText());
  }
  return nullptr;
}

Result<std::unique_ptr<Dispatcher::CachedPlan>> Dispatcher::Prepare(const PlanKey& key,
                                                                    const Program& program) {
  std::string refused;
  COTUNE_TRY(const std::vector<Attempt> attempts, AttemptsFor(key, program, refused));
  for (const Attempt& each : attempts) {
    COTUNE_TRY(std::unique_ptr<CachedPlan> plan, Try(key, program, each, refused));
    if (plan != nullptr) return plan;
  }
  return Fail(ErrorCode::kInternal, "a default choice was neither made ready nor refused",
              ToText(key.problem));
}

std::optional<CallExplanation> Dispatcher::ExplainUnprepared(const PlanKey& key,
                                                             const Program& program,
                                                             const Choice& choice) const {
  CallExplanation explanation{.choice = choice.id, .is_eager = IsEager(key.problem, choice)};
  std::optional<Choice> other;
  if (explanation.is_eager) other = ChoiceInGraphs(program, key.problem, choice.id);
  if (other) explanation.choice_in_graphs = other->id;
  const bool is_collective =
      choice.prepare_is_collective || (other && other->prepare_is_collective);
  return is_collective ? std::optional(std::move(explanation)) : std::nullopt;
}

CallExplanation Dispatcher::ExplainPlan(const CachedPlan& plan) {
  CallExplanation explanation{.choice = plan.caller->id(),
                              .is_next_best = plan.is_next_best,
                              .table_choice_refused = plan.table_choice_refused,
                              .next_size_bytes = plan.next_size_bytes,
                              .is_eager = plan.is_eager};
  if (plan.in_graphs != nullptr) explanation.choice_in_graphs = plan.in_graphs->id();
  return explanation;
}

Result<CallExplanation> Dispatcher::ChosenFor(const PlanKey& key, const Program& program) {
  const auto found = plan_of_.find(key);
  if (found != plan_of_.end()) return ExplainPlan(**found->second);
  const auto keep = [&](std::unique_ptr<CachedPlan> plan) {
    CallExplanation chosen = ExplainPlan(*plan);
    // After all others, so that this rank drops no plan that its peers keep.
    if (plans_.size() < kPlansMax) {
      plans_.push_back(std::move(plan));
      plan_of_.emplace(key, std::prev(plans_.end()));
    }
    return chosen;
  };
  std::string refused;
  COTUNE_TRY(const std::vector<Attempt> attempts, AttemptsFor(key, program, refused));
  for (const Attempt& each : attempts) {
    if (auto unprepared = ExplainUnprepared(key, program, each.nearby.choice)) {
      unprepared->next_size_bytes = each.nearby.next_size_bytes;
      unprepared->is_next_best = each.kind == Attempt::Kind::kNextBest;
      if (each.kind != Attempt::Kind::kWinner) unprepared->table_choice_refused = refused;
      return *unprepared;
    }
    COTUNE_TRY(std::unique_ptr<CachedPlan> plan, Try(key, program, each, refused));
    if (plan != nullptr) return keep(std::move(plan));
  }
  return Fail(ErrorCode::kInternal, "a default choice was neither made ready nor refused",
              ToText(key.problem));
}

Result<CallExplanation> Dispatcher::Explain(const Call& call) {
  COTUNE_TRY(const Problem problem, ProblemOf(call));
  COTUNE_TRY(const CallKey key, KeyOf(call, problem, table()));
  COTUNE_TRY(const Program program, Program::SingleCollective(key.key.problem.cls));
  return ExplainCall(key, program);
}

Result<CallExplanation> Dispatcher::ExplainCall(const CallKey& call, const Program& program) {
  // A plan that is made meanwhile may push out what is kept of the call.
  const ForcedCall forced = call.forced == nullptr ? ForcedCall() : *call.forced;
  if (forced.key) {
    Result<CallExplanation> chosen = ChosenFor(call.key, program);
    if (chosen) {
      chosen->is_forced = true;
      chosen->forced_refused = forced.refused;
    }
    return chosen;
  }
  Result<CallExplanation> explanation = ExplainKey(call.key, program);
  if (explanation) explanation->forced_refused = forced.refused;
  return explanation;
}

Result<CallExplanation> Dispatcher::ExplainKey(const PlanKey& key, const Program& program) {
  const DispatchKey dispatch_key = DispatchKey::Of(key.problem.cls);
  Result<CallExplanation> chosen = ChosenFor(key, program);
  if (!chosen) return chosen;
  CallExplanation explanation = std::move(*chosen);
  const bool has_winner = key.choice_index != DispatchTable::kNoChoice;
  explanation.from_table = has_winner && explanation.table_choice_refused.empty();
  explanation.is_agreed = key.table == nullptr;
  if (!has_winner || key.table == nullptr) return explanation;
  if (const DispatchRow* relative = key.table->RelativeOf(dispatch_key)) {
    explanation.relative = relative->key;
  }
  if (!explanation.from_table && !explanation.is_next_best) return explanation;
  const uint64_t bytes = key.problem.bytes();
  const uint64_t next_bytes = explanation.next_size_bytes;
  if (const auto range = key.table->RangeOf(dispatch_key, std::max(bytes, next_bytes))) {
    explanation.first_bytes = range->first_bytes;
    explanation.end_bytes = range->end_bytes;
  }
  // The winner of the next size runs from the measured size below it on, if it is not far above.
  const NextBestOfSize* below = key.table->MeasuredSizeOf(dispatch_key, bytes);
  if (next_bytes > 0 && below != nullptr) {
    explanation.first_bytes = std::max(below->bytes + 1, next_bytes / kNextSizeTimesMax);
  }
  // At the measured size itself the winner runs.
  if (explanation.is_next_best && below != nullptr && below->bytes < bytes) {
    explanation.first_bytes = std::max(explanation.first_bytes, below->bytes + 1);
  }
  return explanation;
}

}  // namespace cotune
