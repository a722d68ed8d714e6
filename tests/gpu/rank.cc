#include "tests/gpu/rank.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>

#include "core/choice/precompile.h"
#include "fmt/format.h"
#include "integration/launch_context.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kFindingsPrinted = 20;
// For what is no call: compiling, joining.
constexpr int64_t kPatienceNs = 300'000'000'000;
// Enough for two calls of the largest problem of a case on symmetric buffers.
constexpr uint64_t kRegionBytes = 256 << 20;

// Warnings of the job go to standard error, which the runner keeps for each rank.
class Warnings final : public EventSink {
 public:
  void OnEvent(const Event& event) override {
    if (event.type != EventType::kLine || event.severity < Severity::kWarning) return;
    std::fprintf(stderr, "cotune: %s\n", std::string(event.name).c_str());
  }
};

Result<JobOptions> OptionsOf(const Flags& flags, EventSink& warnings) {
  COTUNE_TRY(const std::optional<LaunchContext> context,
             DetectLaunchContext(ProcessEnvironment(), getppid()));
  if (!context) {
    return Fail(ErrorCode::kUsage, "no launcher", "COTUNE_RANK", "", "start it by tests/gpu/run");
  }
  JobOptions options;
  options.context = *context;
  options.memory = flags.Text("memory", "cuda") == "host" ? MemoryKind::kHost : MemoryKind::kCuda;
  options.catalogue.plugin_search_path = SplitAt(flags.Text("plugins", ""), ':');
  options.catalogue.backends = flags.List("backends", "");
  for (const std::string& setting : SplitAt(flags.Text("set", ""), '|')) {
    const size_t equals = std::min(setting.find('='), setting.size() - 1);
    options.catalogue.settings[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  options.lines = &warnings;
  return options;
}

// Whether every backend that was named has a group: one whose group fails is only left out.
Status CheckBackends(Job& job, const std::vector<std::string>& wanted) {
  for (const std::string& name : wanted) {
    if (job.groups().Find(name) != nullptr) continue;
    std::string reasons;
    for (const Refusal& refusal : job.groups().refusals()) {
      reasons += fmt::format("{}: {}; ", refusal.choice, refusal.reason);
    }
    return Fail(ErrorCode::kEnvironment, fmt::format("backend {} takes no part", name), "",
                reasons);
  }
  return {};
}

}  // namespace

void Findings::Wrong(const std::string& text) {
  if (wrong++ < kFindingsPrinted) std::fprintf(stderr, "wrong: %s\n", text.c_str());
}

void Findings::RanProgram(const std::string& program, const ChoiceId& choice) {
  std::set<std::string>& fused = fused_by_program[program];
  for (const ChoiceId& step : choice.steps()) {
    if (step.HostKey("fuse").empty()) continue;
    fused.insert(fmt::format("{}/{}", step.backend(), step.algorithm()));
  }
}

Result<std::unique_ptr<Rank>> Rank::Join(const Flags& flags) {
  // Whoever started this rank ends it by going.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::unique_ptr<Rank> rank(new Rank());
  rank->warnings_ = std::make_unique<Warnings>();
  COTUNE_TRY(JobOptions options, OptionsOf(flags, *rank->warnings_));
  rank->timeout_ns_ = flags.Number("deadline-ms", 20'000) * 1'000'000;
  options.settings.collective_autotune_timeout_ns = rank->timeout_ns_;
  COTUNE_TRY(std::unique_ptr<Job> job, Job::Join(options));
  rank->job_ = std::move(job);
  if (options.memory == MemoryKind::kCuda) {
    gpu::DriverResult<gpu::CudaDriver> driver = gpu::CudaDriver::Open();
    if (!driver) return Fail(ErrorCode::kEnvironment, driver.error().text);
    rank->driver_ = *driver;
  }
  COTUNE_RETURN_IF_ERROR(CheckBackends(*rank->job_, options.catalogue.backends));
  if (flags.Text("buffers", "plain") == "symmetric") {
    Job& joined = *rank->job_;
    COTUNE_TRY(auto region, SymmetricRegion::Create(joined.device(), joined.groups(), kRegionBytes,
                                                    joined.clock().now_ns() + kPatienceNs));
    rank->symmetric_ = std::move(region);
  }
  return rank;
}

Problem Rank::OnBuffers(Problem problem) const {
  if (symmetric_ != nullptr) problem.cls.buffer_class = BufferClass::kSymmetric;
  return problem;
}

uint32_t Rank::TakeSalts(uint32_t count) {
  const uint32_t first = salts_taken_;
  salts_taken_ += count;
  return first;
}

DataSets Rank::SetsFor(const Problem& problem) {
  return {problem, job_->rank(), TakeSalts(DataSets::CountFor(problem))};
}

Result<std::vector<std::unique_ptr<CallBuffers>>> Rank::AllocateBuffers(
    const Problem& problem, const std::vector<Placement>& placements) {
  if (symmetric_ != nullptr) symmetric_->Reset();
  std::vector<std::unique_ptr<CallBuffers>> made;
  for (const Placement& placement : placements) {
    COTUNE_TRY(auto buffers, CallBuffers::Allocate(job_->device(), problem, job_->rank(), placement,
                                                   symmetric_.get()));
    made.push_back(std::move(buffers));
  }
  return made;
}

int64_t Rank::CallDeadline() const { return job_->clock().now_ns() + timeout_ns_; }

Problem Rank::ProblemOf(Job& job, Collective collective, Dtype dtype, Reduction reduction,
                        uint64_t count, bool in_place, int root) {
  Problem problem;
  problem.cls = job.Class(collective, dtype, reduction);
  problem.cls.in_place = in_place;
  problem.cls.root = collective == Collective::kBroadcast ? root : 0;
  problem.count = count;
  problem.topology_digest = job.topology_digest();
  return problem;
}

Result<int64_t> Rank::Meet(Job& job, std::string_view step) {
  COTUNE_TRY(const StepResult met,
             job.exchange().Step(step, "", 0, job.clock().now_ns() + kPatienceNs));
  return met.elapsed_ns;
}

Result<ReadyChoices> Rank::MakeReady(Job& job, const Problem& problem) {
  COTUNE_TRY(Program program, Program::SingleCollective(problem.cls));
  ReadyChoices ready;
  ready.program = std::make_unique<Program>(std::move(program));
  ready.problem = problem;
  std::string reasons;
  std::vector<ChoiceCaller*> local;
  for (BackendMember& member : job.groups().members()) {
    ChoiceList list = member.backend->ListChoices(*ready.program, problem);
    for (Choice& choice : list.choices) {
      ready.callers.push_back(std::make_unique<ChoiceCaller>(
          *ready.program, problem, std::move(choice), std::vector{&member}));
      ChoiceCaller* caller = ready.callers.back().get();
      if (!caller->choice().prepare_is_collective) local.push_back(caller);
    }
    for (const Refusal& refusal : list.refusals) reasons += refusal.reason + "; ";
  }
  if (ready.callers.empty()) {
    return Fail(ErrorCode::kUnsupported, "no backend offers it", ToText(problem), reasons);
  }
  const int64_t deadline_ns = job.clock().now_ns() + kPatienceNs;
  PrecompileAll(local, 0, deadline_ns);
  for (const auto& caller : ready.callers) {
    if (Status made = caller->Precompile(deadline_ns); !made) {
      return Fail(made.error().code, made.error().ToText(), TextOf(*caller));
    }
  }
  COTUNE_RETURN_IF_ERROR(Meet(job, "ready"));
  return ready;
}

Status Rank::Launch(Job& job, ChoiceCaller& caller, const CallBuffers& buffers) {
  LaunchArguments arguments;
  arguments.send = buffers.send();
  arguments.recv = buffers.recv();
  arguments.stream = job.device().stream();
  arguments.deadline_ns = CallDeadline();
  Status launched = caller.Launch(arguments, job.clock());
  if (!launched) launched.error().where += " " + TextOf(caller);
  return launched;
}

Status Rank::AwaitStream(Job& job) {
  if (!driver_) return {};
  const int64_t deadline_ns = CallDeadline() + timeout_ns_ / 4;
  auto* stream = static_cast<gpu::CuStream>(job.device().stream());
  while (true) {
    const gpu::CuResult code = (*driver_)->StreamQuery(stream);
    if (code == gpu::kCuSuccess) return {};
    if (code != gpu::kCuErrorNotReady) {
      return Fail(ErrorCode::kEnvironment, driver_->Check(code, "the stream").error().text);
    }
    if (job.clock().now_ns() > deadline_ns) {
      return Fail(ErrorCode::kDeadline, "the stream had not finished at the deadline");
    }
    std::this_thread::yield();
  }
}

Status Rank::Await(Job& job) {
  if (Status done = AwaitStream(job); !done) return done;
  for (const BackendMember& member : job.groups().members()) {
    if (Status healthy = member.group->Health(); !healthy) return healthy;
  }
  return {};
}

Status Rank::CheckAnswer(const ChoiceCaller& caller, CallBuffers& buffers, Pattern pattern,
                         const CallData& data, std::string_view where) {
  ++findings_.calls;
  const Result<std::vector<std::byte>> answer = buffers.Read();
  const auto wrong = [&](const std::string& what) {
    findings_.Wrong(fmt::format("rank {}: {}, {} data, {}: {}", job_->rank(), TextOf(caller),
                                Name(pattern), where, what));
  };
  if (!answer) {
    if (answer.error().code != ErrorCode::kWrongResult) return Propagate(answer);
    wrong(answer.error().what);
    return {};
  }
  const Agreement agreement = PromiseOf(caller.id(), caller.problem(), pattern);
  const EvaluatedValue* bounded = data.bounded ? &*data.bounded : nullptr;
  const Mismatches found = Compare(caller.problem(), agreement, data.right, *answer, bounded);
  if (found.count > 0) wrong(fmt::format("{} elements; {}", found.count, found.first));
  return {};
}

std::string TextOf(const ChoiceCaller& caller) {
  return fmt::format("{} {}", ToText(caller.problem()), caller.id().text());
}

}  // namespace cotune::gputest
