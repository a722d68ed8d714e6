#include "tests/gpu/program_choices.h"

#include <utility>

#include "core/choice/choice_lists.h"
#include "core/choice/precompile.h"

namespace cotune::gputest {
namespace {

// To compile, which is no call.
constexpr int64_t kPatienceNs = 300'000'000'000;

}  // namespace

Result<Program> BoundTo(Job& job, const ProgramText& text) {
  Result<ProgramGraph> graph = ProgramGraph::Parse(text.text);
  if (!graph) return Fail(graph.error().code, graph.error().ToText(), text.name);
  return Program::Bind(std::move(*graph),
                       {job.device().kind(), job.world_size(), job.places().ranks_per_host()});
}

Result<std::vector<std::unique_ptr<ChoiceCaller>>> ChoicesOf(Rank& rank, const std::string& name,
                                                             const Program& program,
                                                             uint64_t rows) {
  Job& job = rank.job();
  const Problem problem = program.ProblemAtRows(rows, job.topology_digest());
  const ChoiceList list = ListChoicesOf(job.groups(), program, problem);
  std::vector<std::unique_ptr<ChoiceCaller>> callers;
  std::vector<ChoiceCaller*> local;
  for (const Choice& choice : list.choices) {
    COTUNE_TRY(auto caller, MakeCaller(job.groups(), program, problem, choice));
    callers.push_back(std::move(caller));
    if (!choice.prepare_is_collective) local.push_back(callers.back().get());
  }
  if (callers.empty()) {
    std::string reasons;
    for (const Refusal& refusal : list.refusals) reasons += refusal.reason + "; ";
    return Fail(ErrorCode::kUnsupported, "no choice runs it", name, reasons);
  }
  const int64_t deadline_ns = job.clock().now_ns() + kPatienceNs;
  PrecompileAll(local, 0, deadline_ns);
  for (const auto& caller : callers) {
    if (Status made = caller->Precompile(deadline_ns); !made) {
      return Fail(made.error().code, made.error().ToText(), name, caller->id().text());
    }
  }
  COTUNE_RETURN_IF_ERROR(rank.Meet(job, "ready"));
  return callers;
}

}  // namespace cotune::gputest
