#include "tests/multi_process/testing/rank_body.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/sha256.h"
#include "core/events/event_stream.h"
#include "core/problem/expected_collective.h"
#include "core/problem/program.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/dispatcher.h"
#include "integration/job.h"
#include "integration/testing/fault_injection.h"
#include "integration/tune_run.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/host/backend.h"
#include "tests/multi_process/testing/reference_operands.h"

namespace cotune {
namespace {

// Reports what happens, and does what the script asks for between cells.
class ReportingObserver final : public StageObserver {
 public:
  ReportingObserver(const JobScript& script, int rank, TestLink& link)
      : script_(script), rank_(rank), link_(link) {}

  void OnEvent(const Event& event) override {
    const bool is_warning = event.type == EventType::kLine && event.severity >= Severity::kWarning;
    if (is_warning) link_.Report(fmt::format("warning {}", event.name));
    const std::optional<Stage> stage = StageBegunBy(event);
    if (!stage || stage == last_) return;  // checks and rounds come many times
    last_ = *stage;
    link_.Report(fmt::format("stage {}", Name(*stage)));
    if (*stage == script_.interrupt_at_stage) interrupted_ = true;
  }
  void OnCellDone(int32_t index, int32_t /*total*/, const CellResult& /*cell*/,
                  const Winner& /*winner*/) override {
    link_.Report(fmt::format("cell done {}", index));
    if (script_.pauses_after_first_cell && rank_ == 0 && index == 0) link_.AwaitWord();
    if (index + 1 == script_.interrupt_after_cells) interrupted_ = true;
  }

  const std::atomic<bool>& interrupted() const { return interrupted_; }

 private:
  const JobScript& script_;
  const int rank_;
  TestLink& link_;
  Stage last_ = Stage::kDispatch;
  std::atomic<bool> interrupted_ = false;
};

int ReportError(const Error& error, TestLink& link) {
  link.Report(fmt::format("error {} ranks={} {}", ErrorCodeName(error.code),
                          fmt::join(error.ranks, ","), error.ToText()));
  return ExitCode(error.code);
}

void ReportTune(const TuneReport& report, TestLink& link) {
  const TuneOutcome& outcome = report.outcome;
  link.Report(fmt::format("outcome committed={} measured={} known={} late={}", outcome.committed,
                          outcome.measured_cells, outcome.known_cells,
                          fmt::join(outcome.late_ranks, ",")));
  for (const DatabaseEntry& entry : report.entries) {
    link.Report(fmt::format("winner {} {}", ToText(entry.cell.problem), entry.winner.id.text()));
    link.Report(fmt::format("why {} {}", ToText(entry.cell.problem), entry.winner.why));
    for (const Verdict& verdict : entry.cell.verdicts) {
      link.Report(fmt::format("verdict {} {} {} {}", ToText(entry.cell.problem), verdict.id.text(),
                              OutcomeName(verdict.outcome), verdict.reason));
    }
    for (const Refusal& refusal : entry.cell.refusals) {
      link.Report(fmt::format("refusal {} {}: {}", ToText(entry.cell.problem), refusal.choice,
                              refusal.reason));
    }
  }
  link.Report(fmt::format("table {}", Sha256Hex(outcome.table.Serialize()).substr(0, 16)));
  if (report.saved) link.Report("saved");
}

// Element `i` of what `rank` sends: small whole numbers, so that sums are exact.
float Sent(int rank, uint64_t i) { return static_cast<float>((i * 7 + 3) % 61 + rank * 64); }

std::vector<float> SendBuffer(const Problem& problem, int rank) {
  std::vector<float> send(problem.send_elements());
  for (uint64_t i = 0; i < send.size(); ++i) send[i] = Sent(rank, i);
  return send;
}

// What `rank` receives, by the reference evaluator.
Result<std::vector<float>> Expected(const Problem& problem, int rank) {
  SentByRanks sent;
  for (int peer = 0; peer < problem.cls.world_size; ++peer) {
    const std::vector<float> send = SendBuffer(problem, peer);
    const auto bytes = std::as_bytes(std::span(send));
    sent.emplace_back(bytes.begin(), bytes.end());
  }
  COTUNE_TRY(const auto bytes, ExpectedBytes(problem, rank, sent));
  std::vector<float> received(problem.recv_elements());
  if (!received.empty()) std::memcpy(received.data(), bytes.data(), bytes.size());
  return received;
}

Status RunCall(Dispatcher& dispatcher, const Problem& problem, int rank, int64_t timeout_ns) {
  const std::vector<float> send = SendBuffer(problem, rank);
  std::vector<float> recv(problem.recv_elements(), -1);
  Call call;
  call.collective = problem.cls.collective;
  call.dtype = problem.cls.dtype;
  call.reduction = problem.cls.reduction;
  call.count = problem.count;
  call.send = send.data();
  call.recv = recv.data();
  call.timeout_ns = timeout_ns;
  if (Status run = dispatcher.Run(call); !run) return run;
  COTUNE_TRY(const std::vector<float> expected, Expected(problem, rank));
  for (uint64_t i = 0; i < recv.size(); ++i) {
    if (recv[i] == expected[i]) continue;
    return Fail(ErrorCode::kWrongResult,
                fmt::format("element {} is {}, not {}", i, recv[i], expected[i]), ToText(problem));
  }
  return {};
}

Status RunCalls(Dispatcher& dispatcher, const Job& job, const JobScript& script, TestLink& link) {
  int right = 0;
  for (Collective collective : script.collectives) {
    for (uint64_t bytes : script.sizes_bytes) {
      Problem problem;
      problem.cls = job.Class(collective, Dtype::kF32, Reduction::kSum);
      // Also a size that was not tuned: between and beyond the others.
      for (uint64_t each : {bytes, bytes + bytes / 2}) {
        problem.count = CountForBytes(problem.cls, each);
        for (int i = 0; i < script.calls; ++i) {
          Status run = RunCall(dispatcher, problem, job.rank(), script.call_timeout_ns);
          if (!run) return run;
          ++right;
        }
      }
    }
  }
  link.Report(fmt::format("calls right {}", right));
  return {};
}

Result<Program> ProgramOf(const JobScript& script, const std::string& text) {
  COTUNE_TRY(ProgramGraph graph, ProgramGraph::Parse(text));
  return Program::Bind(std::move(graph), {MemoryKind::kHost, script.world_size, script.world_size});
}

Status RunProgram(Dispatcher& dispatcher, const Program& program, uint64_t rows, int rank,
                  uint32_t salt, const JobScript& script, TestLink& link) {
  std::string choice;
  const std::string wrong =
      ReferenceOperands(program, rows, rank, salt)
          .RunBy(program, rows, [&](const LaunchArguments& arguments) -> Status {
            const ProgramCall call{.graph = &program.graph(),
                                   .rows = rows,
                                   .inputs = arguments.inputs,
                                   .outputs = arguments.outputs,
                                   .timeout_ns = script.call_timeout_ns};
            COTUNE_RETURN_IF_ERROR(dispatcher.Run(call));
            COTUNE_TRY(const CallExplanation explanation, dispatcher.Explain(call));
            choice = explanation.choice.text();
            return {};
          });
  if (!wrong.empty()) return Fail(ErrorCode::kWrongResult, wrong, program.graph().ToText());
  link.Report(fmt::format("program at {} rows by {}", rows, choice));
  return {};
}

Status RunPrograms(Dispatcher& dispatcher, const Job& job, const JobScript& script,
                   TestLink& link) {
  uint32_t salt = 0;
  for (const std::string& text : script.programs) {
    COTUNE_TRY(const Program program, ProgramOf(script, text));
    for (const uint64_t bytes : script.sizes_bytes) {
      const uint64_t tuned = program.RowsAt(program.ProblemAt(bytes, job.topology_digest()));
      // Also a size that was not tuned, beyond the other.
      for (const uint64_t rows : {tuned, tuned + tuned / 2}) {
        for (int i = 0; i < script.program_calls; ++i) {
          COTUNE_RETURN_IF_ERROR(
              RunProgram(dispatcher, program, rows, job.rank(), ++salt, script, link));
        }
      }
    }
  }
  return {};
}

Result<TuneRequest> RequestOf(const JobScript& script, const Job& job,
                              const std::atomic<bool>& interrupted) {
  TuneRequest request;
  for (Collective collective : script.collectives) {
    request.nodes.push_back(
        {*Program::SingleCollective(job.Class(collective, Dtype::kF32, Reduction::kSum)),
         script.sizes_bytes});
  }
  for (const std::string& text : script.programs) {
    COTUNE_TRY(Program program, ProgramOf(script, text));
    request.nodes.push_back({std::move(program), script.sizes_bytes});
  }
  request.database_path = script.database_path;
  request.force = script.force;
  request.is_traced = script.is_traced;
  request.cotune_version = script.cotune_version;
  request.interrupted = &interrupted;
  return request;
}

const cotune_backend_api_t* TableOf(const JobScript& script) {
  if (script.table != nullptr) return script.table;
  return script.fake_script.empty() ? host::BackendApi() : fake::BackendApi();
}

Status JoinTuneAndCall(const JobScript& script, int rank, TestLink& link) {
  ReportingObserver reporting(script, rank, link);
  std::vector<StageObserver*> listeners = {&reporting};
  std::unique_ptr<StageObserver> faulty;
  if (!script.fault.empty()) {
    COTUNE_TRY(const Fault fault, ParseFault(script.fault));
    faulty = MakeFaultListener(fault, rank);
    listeners.push_back(faulty.get());
  }
  const MonotonicClock clock;
  EventStream events(clock, listeners);
  JobOptions options;
  options.context = {
      "test", rank, script.world_size, rank, script.world_size, "job", script.folder + "/s"};
  options.settings = script.settings;
  if (!script.fake_script.empty()) options.catalogue.settings["fake.script"] = script.fake_script;
  options.catalogue.tables = {TableOf(script)};
  options.recipes = script.recipes;
  options.rendezvous_timeout_ns = script.rendezvous_timeout_ns;
  options.heartbeat_timeout_ns = script.heartbeat_timeout_ns;
  options.observer = &events;
  COTUNE_TRY(std::unique_ptr<Job> job, Job::Join(options));
  Dispatcher dispatcher(*job);
  if (script.calls_first) {
    if (Status run = RunCalls(dispatcher, *job, script, link); !run) return run;
  }
  COTUNE_TRY(const TuneRequest request, RequestOf(script, *job, reporting.interrupted()));
  COTUNE_TRY(const TuneReport report, RunTune(*job, request));
  if (report.save_failure) return tl::make_unexpected(*report.save_failure);
  ReportTune(report, link);
  dispatcher.SetTable(report.outcome.table);
  if (script.program_calls > 0) {
    COTUNE_RETURN_IF_ERROR(RunPrograms(dispatcher, *job, script, link));
  }
  return script.calls > 0 ? RunCalls(dispatcher, *job, script, link) : Status();
}

}  // namespace

JobScript DefaultScript(const PrivateFolder& folder) {
  JobScript script;
  script.folder = folder.path();
  script.settings.collective_pre_sync_timeout_ns = 10 * kSecondNs;
  script.settings.precompile_threads = 1;
  return script;
}

void SetDeadlines(JobScript& script, int64_t deadline_ns) {
  script.settings.collective_autotune_timeout_ns = deadline_ns;
  script.settings.collective_pre_sync_timeout_ns = deadline_ns / 2;
  script.settings.warm_timeout_ns = deadline_ns;
  script.rendezvous_timeout_ns = deadline_ns;
  script.call_timeout_ns = deadline_ns;
  script.heartbeat_timeout_ns = deadline_ns / 2;
}

int RunRank(const JobScript& script, int rank, TestLink& link) {
  const Status done = JoinTuneAndCall(script, rank, link);
  return done ? 0 : ReportError(done.error(), link);
}

void StartJob(RankProcesses& processes, const JobScript& script,
              const std::function<void(int rank, JobScript&)>& change) {
  for (int rank = 0; rank < script.world_size; ++rank) {
    JobScript own = script;
    if (change) change(rank, own);
    processes.Start([own, rank](TestLink& link) { return RunRank(own, rank, link); });
  }
}

}  // namespace cotune
