#include "plugins/fake/fake_backend.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "plugins/fake/operation.h"
#include "plugins/fake/part.h"
#include "plugins/fake/reduction.h"
#include "plugins/fake/script.h"
#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/backend_shell.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"
#include "plugins/sdk/settings.h"

namespace cotune::fake {
namespace {

using sdk::Fail;

constexpr int32_t kWarning = 2;  // a severity of the log

class FakeGroup;

class FakePlan {
 public:
  FakePlan(FakeGroup& group, const cotune_problem_t& problem, const ScriptedChoice& choice)
      : group_(group), problem_(problem), choice_(choice) {}

  FakeGroup& group() const { return group_; }
  const ScriptedChoice& choice() const { return choice_; }

  Result<void> Launch(const cotune_launch_t& launch);
  Result<bool> Progress(int64_t until_ns);

 private:
  FakeGroup& group_;
  const cotune_problem_t problem_;
  const ScriptedChoice& choice_;
  int64_t calls_ = 0;
  std::optional<Operation> operation_;
};

// A region, run as its collectives with the operations between them, one after another.
class FakeRegion {
 public:
  FakeRegion(FakeGroup& group, sdk::Program program, const ScriptedChoice& choice)
      : group_(group), program_(std::move(program)), choice_(choice) {}

  FakeGroup& group() const { return group_; }
  const ScriptedChoice& choice() const { return choice_; }

  Result<void> Launch(const cotune_program_launch_t& launch);
  Result<bool> Progress(int64_t until_ns);

 private:
  // Goes on to the next collective. True: there is none, and the outputs are written.
  Result<bool> Advance();
  void Spoil() const;

  FakeGroup& group_;
  const sdk::Program program_;
  const ScriptedChoice& choice_;
  int64_t calls_ = 0;
  // The call that runs, if there is one:
  std::optional<ProgramRun> run_;
  std::optional<Operation> operation_;  // its collective that runs
  std::vector<void*> outputs_;
  int64_t deadline_ns_ = 0;
};

class FakeBackend;

class FakeGroup {
 public:
  using Plan = FakePlan;
  using Region = FakeRegion;

  FakeGroup(FakeBackend& backend, const cotune_group_params_t& params);

  FakeBackend& backend() const { return backend_; }
  GroupState& state() { return state_; }

  int world_size() const { return state_.world_size(); }
  std::optional<Failure> Health() {
    if (state_.aborted) return Failure{COTUNE_ABORTED, 0, -1, "the group was aborted"};
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }
  void Abort() { fake::Abort(state_); }
  Result<std::unique_ptr<Plan>> Prepare(const cotune_problem_t& problem, std::string_view name,
                                        int64_t deadline_ns);
  // Only if the script has regions.
  Result<std::unique_ptr<Region>> PrepareRegion(const sdk::Program& region, std::string_view name,
                                                int64_t deadline_ns);

  // Keeps the first failure of the group and passes it on.
  tl::unexpected<Failure> Break(Failure failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = failure;
    return tl::make_unexpected(std::move(failure));
  }

 private:
  Result<const ScriptedChoice*> Find(std::string_view name) const;
  // The delay, the failure and the meeting of the script.
  Result<void> PrepareByScript(const ScriptedChoice& choice, int64_t deadline_ns);

  FakeBackend& backend_;
  GroupState state_;
  std::mutex mutex_;  // guards what follows
  std::optional<Failure> failure_;
};

// A part, as the script has it behave.
class FakePart {
 public:
  FakePart(FakeBackend& backend, sdk::Program program)
      : backend_(backend), program_(std::move(program)) {}

  FakeBackend& backend() const { return backend_; }

  Result<void> Launch(const cotune_program_launch_t& launch);

 private:
  FakeBackend& backend_;
  const sdk::Program program_;
  int64_t calls_ = 0;
};

class FakeBackend {
 public:
  using Group = FakeGroup;
  using Part = FakePart;
  using Problem = cotune_problem_t;

  static constexpr char kName[] = "fake";
  static constexpr char kVersion[] = "1";
  static constexpr uint32_t kMemoryKind = COTUNE_MEMORY_HOST;
  static constexpr int kRanksMax = 128;
  static constexpr bool kNeedsOneHost = false;  // its data goes through the job's store

  FakeBackend(const cotune_host_t& to_host, Script to_follow)
      : host(to_host), script(std::move(to_follow)), calls(script.breaches.size()) {}

  static Result<std::unique_ptr<FakeBackend>> Create(const cotune_host_t& host, int32_t device);
  int32_t device() const { return -1; }
  const std::string& LibrariesText() const { return script.libraries; }
  static Result<Problem> CheckProblem(const cotune_problem_t& problem);
  Result<std::vector<cotune_choice_t>> ListChoices(const Problem& problem) const;
  Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& params);
  // Whether this rank is the one that the script names: it has made a group by then, and -1 names
  // none.
  bool IsAt(int32_t scripted_rank) const { return scripted_rank >= 0 && scripted_rank == rank; }
  // Only where the script has parts.
  Result<std::unique_ptr<Part>> PreparePart(const sdk::Program& part, int64_t deadline_ns);
  // Only if the script has regions.
  Result<std::vector<cotune_choice_t>> ListRegion(const sdk::Program& region) const;

  const cotune_host_t& host;
  const Script script;
  std::atomic<int32_t> rank = -1;           // in the last group that was made, -1 before
  std::vector<std::atomic<int64_t>> calls;  // so far, that each breach of the script is about
};

FakeGroup::FakeGroup(FakeBackend& backend, const cotune_group_params_t& params)
    : backend_(backend) {
  state_.host = &backend.host;
  state_.name = params.name;
  state_.rank = params.rank;
  state_.job_ranks.assign(params.job_ranks, params.job_ranks + params.world_size);
}

Result<std::unique_ptr<FakeBackend>> FakeBackend::Create(const cotune_host_t& host,
                                                         int32_t /*device*/) {
  const auto text = sdk::Settings(host, kName).Text("script");
  Script script = ParseScript(text.value_or("choice plain default"));
  if (!script.mistake.empty()) {
    return Fail(COTUNE_INVALID_ARGUMENT, "setting fake.script, " + script.mistake);
  }
  if (!script.create_fails.empty()) return Fail(COTUNE_INTERNAL, script.create_fails);
  if (!script.create_unsupported.empty()) {
    return Fail(COTUNE_UNSUPPORTED, script.create_unsupported);
  }
  return std::make_unique<FakeBackend>(host, std::move(script));
}

Result<cotune_problem_t> FakeBackend::CheckProblem(const cotune_problem_t& problem) {
  constexpr uint32_t kMustKnow = 0xFFFF0000u;
  if (problem.memory_kind != COTUNE_MEMORY_HOST)
    return Fail(COTUNE_UNSUPPORTED, "host memory only");
  if ((problem.flags & kMustKnow) != 0) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("unknown flags {:#x}", problem.flags));
  }
  if (problem.collective < COTUNE_ALL_REDUCE || problem.collective > COTUNE_BROADCAST) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("unknown collective {}", problem.collective));
  }
  if (problem.reduction > COTUNE_AVERAGE) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("unknown reduction {}", problem.reduction));
  }
  if (ElementBytes(problem.dtype) == 0) return Fail(COTUNE_UNSUPPORTED, "unknown element type");
  if (problem.world_size < 1 || problem.world_size > kRanksMax) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("1 to {} ranks, not {}", kRanksMax, problem.world_size));
  }
  return problem;
}

double CostUs(const ScriptedChoice& choice, uint64_t bytes) {
  return choice.cost_us + choice.cost_per_kib_us * static_cast<double>(bytes) / 1024;
}

// Empty when the choice can run it.
std::string WhyRefused(const ScriptedChoice& choice, const cotune_problem_t& problem) {
  if (!choice.refuse.empty()) return choice.refuse;
  if ((choice.collectives & (1u << problem.collective)) == 0) return "not for this collective";
  if (problem.bytes < choice.bytes_min)
    return fmt::format("needs at least {} bytes", choice.bytes_min);
  if (problem.bytes > choice.bytes_max)
    return fmt::format("takes at most {} bytes", choice.bytes_max);
  return "";
}

// reason: why it is refused; empty when it can run.
cotune_choice_t EntryOf(const ScriptedChoice& choice, const std::string& reason) {
  uint32_t flags = COTUNE_CHOICE_REPRODUCIBLE;
  if (choice.is_default) flags |= COTUNE_CHOICE_DEFAULT;
  if (choice.collective_prepare) flags |= COTUNE_CHOICE_COLLECTIVE_PREPARE;
  return sdk::ChoiceEntry(choice.name, reason, choice.model_us, flags, choice.numerics);
}

// The collective of a region as a problem of its own.
cotune_problem_t ToAbi(const sdk::Problem& problem) {
  cotune_problem_t abi{};
  abi.struct_size = sizeof(abi);
  abi.collective = COTUNE_ALL_REDUCE + static_cast<uint32_t>(problem.collective);
  abi.reduction = sdk::Reduces(problem) ? COTUNE_SUM + static_cast<uint32_t>(problem.reduction) : 0;
  abi.memory_kind = COTUNE_MEMORY_HOST;
  abi.dtype = sdk::ElementTypeToAbi(problem.type);
  abi.count = problem.count;
  abi.bytes = sdk::ProblemBytes(problem);
  abi.world_size = abi.ranks_per_node = problem.world_size;
  abi.root = problem.root;
  return abi;
}

// The problems of a region's collectives.
std::vector<cotune_problem_t> CollectivesOf(const sdk::Program& region) {
  std::vector<cotune_problem_t> problems;
  for (const sdk::ProgramNode& node : region.nodes) {
    if (node.collective) problems.push_back(ToAbi(*node.collective));
  }
  return problems;
}

// Empty when the choice can run the region.
std::string WhyRegionRefused(const ScriptedChoice& choice, const sdk::Program& region) {
  if (!choice.region_refused.empty()) return choice.region_refused;
  if (choice.fuses == 0) return "runs collectives alone";
  if (choice.keeps_wide && region.rounds_values) return "keeps values wider than their dtype";
  const std::vector<cotune_problem_t> collectives = CollectivesOf(region);
  const size_t operations = region.nodes.size() - collectives.size();
  if (operations > choice.fuses) {
    return fmt::format("fuses at most {} operations, and the region has {}", choice.fuses,
                       operations);
  }
  for (const cotune_problem_t& problem : collectives) {
    if (std::string reason = WhyRefused(choice, problem); !reason.empty()) return reason;
  }
  return "";
}

// The entries of the list, in the script's order.
Result<std::vector<cotune_choice_t>> FakeBackend::ListChoices(const Problem& problem) const {
  if (!script.refuse_all.empty()) return Fail(COTUNE_UNSUPPORTED, script.refuse_all);
  std::vector<cotune_choice_t> entries;
  for (const ScriptedChoice& choice : script.choices) {
    const bool is_missing = choice.missing_on >= 0 && choice.missing_on == rank;
    if (is_missing || choice.only_regions) continue;
    entries.push_back(EntryOf(choice, WhyRefused(choice, problem)));
  }
  return entries;
}

Result<std::vector<cotune_choice_t>> FakeBackend::ListRegion(const sdk::Program& region) const {
  if (!script.refuse_regions.empty()) return Fail(COTUNE_UNSUPPORTED, script.refuse_regions);
  std::vector<cotune_choice_t> entries;
  for (const ScriptedChoice& choice : script.choices) {
    const bool is_missing = choice.missing_on >= 0 && choice.missing_on == rank;
    if (is_missing) continue;
    entries.push_back(EntryOf(choice, WhyRegionRefused(choice, region)));
    if (choice.fits_any_region) entries.back().flags |= COTUNE_CHOICE_FITS_ANY_REGION;
  }
  return entries;
}

Result<std::unique_ptr<FakeGroup>> FakeBackend::Join(const cotune_group_params_t& params) {
  auto group = std::make_unique<FakeGroup>(*this, params);
  if (script.group_fails_on == params.rank) {
    return Fail(COTUNE_INTERNAL, "scripted: group_create fails");
  }
  COTUNE_RETURN_IF_ERROR(Meet(group->state(), "joined the group", params.deadline_ns));
  return group;
}

Result<void> DelayPrepare(const GroupState& state, const ScriptedChoice& choice,
                          int64_t deadline_ns) {
  if (choice.prepare_delay_on >= 0 && choice.prepare_delay_on != state.rank) return {};
  const int64_t end_ns = state.now_ns() + choice.prepare_delay_ms * 1'000'000;
  while (state.now_ns() < end_ns) {
    if (state.aborted) return Fail(COTUNE_ABORTED, "the group was aborted");
    if (state.now_ns() >= deadline_ns) {
      return Fail(COTUNE_DEADLINE_EXCEEDED, "scripted: prepare takes longer than its deadline");
    }
    PauseUntil(state, std::min(end_ns, deadline_ns));
  }
  return {};
}

// As the script has it fail or refuse on this rank.
Result<void> FailPrepare(const GroupState& state, const ScriptedChoice& choice) {
  if (state.name.find(choice.prepare_only_in) == std::string::npos) return {};
  if (choice.prepare_fails_on == state.rank) {
    return Fail(COTUNE_INTERNAL, "scripted: prepare fails");
  }
  if (choice.prepare_refused_on == state.rank) {
    return Fail(COTUNE_UNSUPPORTED, "scripted: prepare refuses");
  }
  return {};
}

Result<const ScriptedChoice*> FakeGroup::Find(std::string_view name) const {
  const auto& choices = backend_.script.choices;
  const auto choice = std::find_if(choices.begin(), choices.end(),
                                   [&](const auto& each) { return each.name == name; });
  if (choice != choices.end()) return &*choice;
  return Fail(COTUNE_UNSUPPORTED, fmt::format("there is no choice {}", name));
}

Result<void> FakeGroup::PrepareByScript(const ScriptedChoice& choice, int64_t deadline_ns) {
  COTUNE_RETURN_IF_ERROR(DelayPrepare(state_, choice, deadline_ns));
  COTUNE_RETURN_IF_ERROR(FailPrepare(state_, choice));
  if (!choice.collective_prepare) return {};
  return Meet(state_, "prepared " + choice.name, deadline_ns);
}

Result<std::unique_ptr<FakePlan>> FakeGroup::Prepare(const cotune_problem_t& problem,
                                                     std::string_view name, int64_t deadline_ns) {
  if (auto failure = Health()) return tl::make_unexpected(*failure);
  COTUNE_TRY(const ScriptedChoice* const choice, Find(name));
  if (const std::string refused = WhyRefused(*choice, problem); !refused.empty()) {
    return Fail(COTUNE_UNSUPPORTED, refused);
  }
  COTUNE_RETURN_IF_ERROR(PrepareByScript(*choice, deadline_ns));
  return std::make_unique<FakePlan>(*this, problem, *choice);
}

Result<std::unique_ptr<FakeRegion>> FakeGroup::PrepareRegion(const sdk::Program& region,
                                                             std::string_view name,
                                                             int64_t deadline_ns) {
  if (auto failure = Health()) return tl::make_unexpected(*failure);
  COTUNE_TRY(const ScriptedChoice* const choice, Find(name));
  if (const std::string refused = WhyRegionRefused(*choice, region); !refused.empty()) {
    return Fail(COTUNE_UNSUPPORTED, refused);
  }
  COTUNE_RETURN_IF_ERROR(PrepareByScript(*choice, deadline_ns));
  if (choice->region_compile_fails) {
    return Fail(COTUNE_INTERNAL, "scripted: the region does not compile");
  }
  return std::make_unique<FakeRegion>(*this, region, *choice);
}

Result<void> FakePlan::Launch(const cotune_launch_t& launch) {
  if (auto failure = group_.Health()) return tl::make_unexpected(*failure);
  if (operation_) return Fail(COTUNE_INVALID_ARGUMENT, "an operation is running already");
  const int32_t rank = group_.state().rank;
  if (++calls_ >= choice_.launch_fails_at && choice_.launch_fails_on == rank) {
    return group_.Break({COTUNE_INTERNAL, 0, -1, "scripted: launch fails"});
  }
  const Misbehaviour misbehaviour{static_cast<int64_t>(CostUs(choice_, problem_.bytes) * 1000),
                                  choice_.hangs_on == rank, choice_.names_late,
                                  choice_.wrong_on == rank, choice_.overruns_on == rank};
  operation_.emplace(group_.state(), problem_, launch, misbehaviour);
  return {};
}

Result<bool> FakePlan::Progress(int64_t until_ns) {
  if (!operation_) return Fail(COTUNE_INVALID_ARGUMENT, "nothing was launched");
  Result<bool> done = operation_->Advance(until_ns);
  if (!done || *done) operation_.reset();
  if (!done) return group_.Break(done.error());
  return done;
}

Result<void> FakeRegion::Launch(const cotune_program_launch_t& launch) {
  if (auto failure = group_.Health()) return tl::make_unexpected(*failure);
  if (run_) return Fail(COTUNE_INVALID_ARGUMENT, "an operation is running already");
  if (++calls_ >= choice_.launch_fails_at && choice_.launch_fails_on == group_.state().rank) {
    return group_.Break({COTUNE_INTERNAL, 0, -1, "scripted: launch fails"});
  }
  run_.emplace(program_, launch.inputs);
  outputs_.assign(launch.outputs, launch.outputs + program_.outputs.size());
  deadline_ns_ = launch.deadline_ns;
  Result<bool> begun = Advance();
  if (!begun) return group_.Break(begun.error());
  return {};
}

Result<bool> FakeRegion::Advance() {
  // The scripted time is that of the first collective.
  const bool is_first = !operation_;
  COTUNE_TRY(const sdk::ProgramNode* const collective, run_->Advance());
  if (collective == nullptr) {
    run_->WriteOutputs(outputs_.data());
    Spoil();
    return true;
  }
  const cotune_problem_t problem = ToAbi(*collective->collective);
  cotune_launch_t launch{};
  launch.struct_size = sizeof(launch);
  launch.send = run_->operand();
  launch.recv = run_->value();
  launch.deadline_ns = deadline_ns_;
  const int32_t rank = group_.state().rank;
  const double cost_us =
      choice_.fuse_cost_us >= 0 ? choice_.fuse_cost_us : CostUs(choice_, problem.bytes);
  const Misbehaviour misbehaviour{
      .least_ns = is_first ? static_cast<int64_t>(cost_us * 1000) : 0,
      .hangs = choice_.region_hangs_on == rank || choice_.hangs_on == rank,
      .names_late = choice_.names_late,
      .is_wrong = choice_.wrong_on == rank};
  operation_.emplace(group_.state(), problem, launch, misbehaviour);
  return false;
}

Result<bool> FakeRegion::Progress(int64_t until_ns) {
  if (!run_) return Fail(COTUNE_INVALID_ARGUMENT, "nothing was launched");
  Result<bool> done = false;
  while (true) {
    done = operation_->Advance(until_ns);
    if (done && *done) done = Advance();
    // The next collective takes its turn, unless there is none.
    if (!done || *done || group_.state().now_ns() >= until_ns) break;
  }
  if (done && !*done) return false;
  operation_.reset();
  run_.reset();
  if (!done) return group_.Break(done.error());
  return true;
}

// As the script has it on this rank.
void FakeRegion::Spoil() const {
  const sdk::Value& value = program_.values[static_cast<size_t>(program_.outputs.back())];
  auto* const to = static_cast<std::byte*>(outputs_.back());
  const uint64_t bytes = value.bytes();
  const int32_t rank = group_.state().rank;
  // The highest byte changes, so that no tolerance hides it.
  if (choice_.wrong_epilogue_on == rank && bytes > 0) to[bytes - 1] ^= std::byte{0x41};
  if (choice_.overruns_on == rank) to[bytes] ^= std::byte{0xFF};
  if (choice_.bits_differ_on != rank) return;
  // The first element that is not zero: a unit in the last place of zero may be beyond its bound.
  const uint64_t element = sdk::ElementBytes(value.dtype);
  for (uint64_t at = 0; at < bytes; at += element) {
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (std::all_of(to + at, to + at + element, is_zero)) continue;
    to[at] ^= std::byte{1};
    return;
  }
}

Result<std::unique_ptr<FakePart>> FakeBackend::PreparePart(const sdk::Program& part,
                                                           int64_t /*deadline_ns*/) {
  if (!script.parts->refuse.empty()) return Fail(COTUNE_UNSUPPORTED, script.parts->refuse);
  if (IsAt(script.parts->prepare_fails_on)) {
    return Fail(COTUNE_INTERNAL, "scripted: part_prepare fails");
  }
  if (IsAt(script.parts->prepare_refused_on)) {
    return Fail(COTUNE_UNSUPPORTED, "scripted: part_prepare refuses");
  }
  return std::make_unique<FakePart>(*this, part);
}

// Waits until a time, or fails at the deadline.
Result<void> WaitUntil(const cotune_host_t& host, int64_t end_ns, int64_t deadline_ns) {
  const auto left_ns = [&] { return std::min(end_ns, deadline_ns) - host.now_ns(host.context); };
  for (int64_t left = left_ns(); left > 0; left = left_ns()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(left));
  }
  if (end_ns <= deadline_ns) return {};
  return Fail(COTUNE_DEADLINE_EXCEEDED, "scripted: the part takes longer than its deadline");
}

Result<void> FakePart::Launch(const cotune_program_launch_t& launch) {
  const ScriptedParts& script = *backend_.script.parts;
  if (++calls_ >= script.launch_fails_at && backend_.IsAt(script.launch_fails_on)) {
    return Fail(COTUNE_INTERNAL, "scripted: the launch of a part fails");
  }
  const int64_t started_ns = backend_.host.now_ns(backend_.host.context);
  if (auto done = RunPart(program_, launch.inputs, launch.outputs); !done) return done;
  if (backend_.IsAt(script.wrong_on)) {
    const uint64_t bytes = program_.values[static_cast<size_t>(program_.outputs.back())].bytes();
    auto* to = static_cast<std::byte*>(launch.outputs[program_.outputs.size() - 1]);
    // In the highest byte, so that no tolerance hides it.
    if (bytes > 0) to[bytes - 1] ^= std::byte{0x41};
  }
  const int64_t end_ns = started_ns + static_cast<int64_t>(script.cost_us * 1000);
  return WaitUntil(backend_.host, end_ns, launch.deadline_ns);
}

// Calls itself until its stack has run over.
__attribute__((noinline)) int64_t OverflowStack(const volatile int64_t* outer) {
  if (*outer < 0) return 0;  // never, which the compiler does not know
  volatile int64_t inner[512];
  inner[0] = *outer + 1;
  return OverflowStack(inner) + inner[0];
}

// Breaks the contract of the ABI where the script says so. True: progress is never done.
bool Misbehave(FakeBackend& backend, std::string_view function, std::string_view choice = "") {
  bool is_never_done = false;
  for (size_t i = 0; i < backend.script.breaches.size(); ++i) {
    const Breach& breach = backend.script.breaches[i];
    if (breach.function != function || (breach.on >= 0 && breach.on != backend.rank)) continue;
    if (!breach.choice.empty() && breach.choice != choice) continue;
    const int64_t count = ++backend.calls[i];
    if (count < breach.at) continue;
    const bool waits = breach.how == How::kNeverReturns || breach.how == How::kNeverDone;
    if (waits && count == breach.at) {
      const std::string text = fmt::format("scripted: {} begins to wait for ever", function);
      backend.host.log(backend.host.context, kWarning, text.c_str());
    }
    switch (breach.how) {
      case How::kNeverReturns:
        while (true) std::this_thread::sleep_for(std::chrono::hours(1));
      case How::kNeverDone:
        is_never_done = true;
        break;
      case How::kCrashes:
        std::raise(SIGSEGV);
        break;
      case How::kCrashesAside:
        std::thread([] { std::raise(SIGSEGV); }).join();
        break;
      case How::kOverflows:
        OverflowStack(&count);
        break;
      case How::kExitsWith7:
        _exit(7);
      case How::kExits:
        _exit(0);
      case How::kThrows:
        throw std::runtime_error(fmt::format("scripted: {} throws", function));
      case How::kThrowsInt:
        throw 42;
    }
  }
  return is_never_done;
}

// The table of the shell, each function behind what the script makes of it: a breach of the
// contract has to get past the shell, which ends exceptions and keeps handles in order.
using Shell = sdk::BackendShell<FakeBackend>;

// A handle that is freed also where a breach throws.
template <class Handle>
using Owned = std::unique_ptr<Handle, void (*)(Handle*)>;

FakeBackend& Of(const cotune_backend_t* backend) {
  return Shell::Of(const_cast<cotune_backend_t*>(backend));  // only counters of the script change
}
FakeBackend& BackendOf(cotune_group_t* group) { return Shell::Of(group).backend(); }
FakeBackend& BackendOf(cotune_plan_t* plan) { return Shell::Of(plan).group().backend(); }
FakeBackend& BackendOf(cotune_program_plan_t* plan) {
  if (const FakeRegion* region = Shell::RegionOf(plan)) return region->group().backend();
  return Shell::PartOf(plan)->backend();
}
std::string_view ChoiceOf(cotune_plan_t* plan) { return Shell::Of(plan).choice().name; }

// Breaks the contract in a function of a plan of a program, which is `part` or `region`.
bool Misbehave(cotune_program_plan_t* plan, std::string_view part, std::string_view region) {
  const FakeRegion* const of_region = Shell::RegionOf(plan);
  if (of_region == nullptr) return Misbehave(BackendOf(plan), part);
  return Misbehave(BackendOf(plan), region, of_region->choice().name);
}

cotune_status_t Create(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                       cotune_error_t* error) {
  cotune_backend_t* made = nullptr;
  const cotune_status_t status = Shell::Table()->create(host, device, &made, error);
  if (status != COTUNE_OK) return status;
  Owned<cotune_backend_t> owned(made, Shell::Table()->destroy);
  Misbehave(Of(made), "create");
  *backend = owned.release();
  return status;
}

void Destroy(cotune_backend_t* backend) {
  const Owned<cotune_backend_t> owned(backend, Shell::Table()->destroy);
  if (backend != nullptr) Misbehave(Of(backend), "destroy");
}

const cotune_program_v1_t& ProgramTable() {
  return *static_cast<const cotune_program_v1_t*>(
      Shell::Table()->get_extension(nullptr, COTUNE_PROGRAM_EXTENSION));
}

cotune_status_t RegionListChoices(const cotune_backend_t* backend, const cotune_program_t* program,
                                  cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                                  uint32_t* count, cotune_error_t* error) {
  Misbehave(Of(backend), "region_list_choices");
  return ProgramTable().list_choices(backend, program, first, stride, capacity, count, error);
}

cotune_status_t RegionPrepare(cotune_group_t* group, const cotune_program_t* program,
                              const char* choice_name, int64_t deadline_ns,
                              cotune_program_plan_t** plan, cotune_error_t* error) {
  Misbehave(BackendOf(group), "region_prepare", choice_name);
  return ProgramTable().prepare(group, program, choice_name, deadline_ns, plan, error);
}

cotune_status_t PartPrepare(cotune_backend_t* backend, const cotune_program_t* program,
                            int64_t deadline_ns, cotune_program_plan_t** plan,
                            cotune_error_t* error) {
  Misbehave(Of(backend), "part_prepare");
  return ProgramTable().part_prepare(backend, program, deadline_ns, plan, error);
}

cotune_status_t ProgramLaunch(cotune_program_plan_t* plan, const cotune_program_launch_t* launch,
                              cotune_error_t* error) {
  Misbehave(plan, "part_launch", "region_launch");
  return ProgramTable().launch(plan, launch, error);
}

cotune_status_t ProgramProgress(cotune_program_plan_t* plan, int64_t until_ns,
                                cotune_error_t* error) {
  const bool is_never_done = Misbehave(plan, "part_progress", "region_progress");
  return is_never_done ? COTUNE_IN_PROGRESS : ProgramTable().progress(plan, until_ns, error);
}

void ProgramPlanDestroy(cotune_program_plan_t* plan) {
  const Owned<cotune_program_plan_t> owned(plan, ProgramTable().plan_destroy);
  if (plan != nullptr) Misbehave(plan, "part_plan_destroy", "region_plan_destroy");
}

cotune_program_v1_t ProgramTableWithBreaches(bool has_parts, bool has_regions) {
  cotune_program_v1_t table = ProgramTable();
  table.list_choices = has_regions ? RegionListChoices : nullptr;
  table.prepare = has_regions ? RegionPrepare : nullptr;
  table.part_prepare = has_parts ? PartPrepare : nullptr;
  table.launch = ProgramLaunch;
  table.progress = ProgramProgress;
  table.plan_destroy = ProgramPlanDestroy;
  return table;
}

// The table by the abilities of the script; nullptr if it has none.
const cotune_program_v1_t* ProgramTableOf(const Script& script) {
  static const cotune_program_v1_t parts = ProgramTableWithBreaches(true, false);
  static const cotune_program_v1_t regions = ProgramTableWithBreaches(false, true);
  static const cotune_program_v1_t both = ProgramTableWithBreaches(true, true);
  if (script.parts) return script.has_regions() ? &both : &parts;
  return script.has_regions() ? &regions : nullptr;
}

const void* GetExtension(const cotune_backend_t* backend, const char* id) {
  Misbehave(Of(backend), "get_extension");
  if (std::string_view(id) != COTUNE_PROGRAM_EXTENSION) {
    return Shell::Table()->get_extension(backend, id);
  }
  return ProgramTableOf(Of(backend).script);
}

cotune_status_t ListChoices(const cotune_backend_t* backend, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                            uint32_t* count, cotune_error_t* error) {
  Misbehave(Of(backend), "list_choices");
  return Shell::Table()->list_choices(backend, problem, first, stride, capacity, count, error);
}

cotune_status_t GroupCreate(cotune_backend_t* backend, const cotune_group_params_t* params,
                            cotune_group_t** group, cotune_error_t* error) {
  Of(backend).rank = params->rank;
  Misbehave(Of(backend), "group_create");
  return Shell::Table()->group_create(backend, params, group, error);
}

cotune_status_t GroupHealth(cotune_group_t* group, cotune_error_t* error) {
  Misbehave(BackendOf(group), "group_health");
  return Shell::Table()->group_health(group, error);
}

void GroupAbort(cotune_group_t* group) {
  Misbehave(BackendOf(group), "group_abort");
  Shell::Table()->group_abort(group);
}

void GroupDestroy(cotune_group_t* group) {
  const Owned<cotune_group_t> owned(group, Shell::Table()->group_destroy);
  if (group != nullptr) Misbehave(BackendOf(group), "group_destroy");
}

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                        cotune_error_t* error) {
  Misbehave(BackendOf(group), "prepare", choice_name);
  return Shell::Table()->prepare(group, problem, choice_name, deadline_ns, plan, error);
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  Misbehave(BackendOf(plan), "launch", ChoiceOf(plan));
  return Shell::Table()->launch(plan, launch, error);
}

cotune_status_t Progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  const bool is_never_done = Misbehave(BackendOf(plan), "progress", ChoiceOf(plan));
  return is_never_done ? COTUNE_IN_PROGRESS : Shell::Table()->progress(plan, until_ns, error);
}

void PlanDestroy(cotune_plan_t* plan) {
  const Owned<cotune_plan_t> owned(plan, Shell::Table()->plan_destroy);
  if (plan != nullptr) Misbehave(BackendOf(plan), "plan_destroy", ChoiceOf(plan));
}

cotune_backend_api_t TableWithBreaches() {
  cotune_backend_api_t table = *Shell::Table();
  table.create = Create;
  table.destroy = Destroy;
  table.get_extension = GetExtension;
  table.list_choices = ListChoices;
  table.group_create = GroupCreate;
  table.group_health = GroupHealth;
  table.group_abort = GroupAbort;
  table.group_destroy = GroupDestroy;
  table.prepare = Prepare;
  table.launch = Launch;
  table.progress = Progress;
  table.plan_destroy = PlanDestroy;
  return table;
}

}  // namespace

const cotune_backend_api_t* BackendApi() {
  static const cotune_backend_api_t table = TableWithBreaches();
  return &table;
}

}  // namespace cotune::fake
