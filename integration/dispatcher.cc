#include "integration/dispatcher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/event_sink.h"
#include "fmt/format.h"
#include "integration/dispatcher_plan.h"

namespace cotune {
namespace {

constexpr size_t kTablesMax = 8;

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

Dispatcher::Dispatcher(Job& job, bool marks_calls)
    : job_(job),
      marks_calls_(marks_calls),
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
  const auto own_block = [&] {
    return static_cast<uint64_t>(rank_) * call.count * SizeBytes(call.dtype);
  };
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kAllToAll:
      return send == recv;
    case Collective::kAllGather:
      return send == recv + own_block();
    case Collective::kReduceScatter:
      return recv == send + own_block();
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

// A call like the one before it runs by this function, by Launch and by nothing else of this class.
// Other calls, and failures, have functions of their own, because space for errors makes a function
// longer for every call.
Status Dispatcher::Run(const Call& call) {
  if (!CanRun()) return MayRun();
  last_timeout_ns_ = call.timeout_ns;
  CachedPlan* const latest = LatestPlan(call);
  if (latest == nullptr || latest->is_eager) return RunUnlikeLatest(call, latest);
  return Launch(*latest->caller, call);
}

Status Dispatcher::RunUnlikeLatest(const Call& call, CachedPlan* latest) {
  CachedPlan* plan = latest;
  if (plan == nullptr) {
    const Result<CachedPlan*> found = PlanOf(call);
    if (!found) return Remember(WithCapture(Propagate(found), call.stream));
    plan = *found;
  }
  const Result<ChoiceCaller*> caller = CallerFor(*plan, call.stream);
  if (!caller) return Remember(Propagate(caller));
  return Launch(**caller, call);
}

Status Dispatcher::Launch(ChoiceCaller& caller, const Call& call) {
  LaunchArguments arguments;
  arguments.send = call.send;
  arguments.recv = call.recv;
  arguments.stream = call.stream;
  arguments.deadline_ns = DeadlineOf(call.timeout_ns);
  const void* const operands[] = {call.send, call.recv};
  job_.captured_memory().Note(job_.device(), call.stream, operands);
  if (marks_calls_) MarkStage(job_.observer(), Stage::kDispatch);
  Status status = caller.Launch(arguments, job_.clock());
  if (!status) status = Remember(std::move(status));
  return status;
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

Dispatcher::LatestCall Dispatcher::WithLatestPlan(const Call& call) const {
  return {table_.load(std::memory_order_acquire),
          latest_.plan,
          call.count,
          call.root,
          call.collective,
          call.dtype,
          call.reduction,
          IsInPlace(call)};
}

Dispatcher::CachedPlan* Dispatcher::LatestPlan(const Call& call) const {
  // Buffers may be registered in one call and not in the next one.
  if (latest_.plan == nullptr || job_.groups().HasRegisteredMemory()) return nullptr;
  return WithLatestPlan(call) == latest_ && HasBuffers(call) ? latest_.plan : nullptr;
}

Result<Dispatcher::CachedPlan*> Dispatcher::PlanOf(const Call& call) {
  LatestCall wanted = WithLatestPlan(call);
  COTUNE_TRY(const Problem problem, ProblemOf(call));
  COTUNE_TRY(const CallKey key, KeyOf(call, problem, *wanted.table));
  Result<CachedPlan*> plan = PlanFor(key.key, nullptr);
  wanted.plan = plan && !job_.groups().HasRegisteredMemory() ? *plan : nullptr;
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

}  // namespace cotune
