#include "core/scheduler/scheduler.h"

#include <utility>

#include "core/scheduler/tune_pass.h"
#include "fmt/format.h"

namespace cotune {

Scheduler::Scheduler(const TuneParts& parts, TuningSettings settings, AgreedFields agreed,
                     MeasuredWinners base)
    : state_{parts, std::move(settings), std::move(agreed)} {
  state_.winners = std::move(base);
  state_.outcome.backend_refusals = parts.groups.refusals();
}

Status Scheduler::AddNode(Program program, std::vector<uint64_t> size_hints_bytes,
                          uint64_t topology_digest) {
  const ProblemClass& cls = program.anchor();
  if (cls.world_size != state_.parts.exchange.world_size()) {
    return Fail(ErrorCode::kUsage,
                fmt::format("a program for {} ranks cannot be tuned by a group of {}",
                            cls.world_size, state_.parts.exchange.world_size()),
                ToText(cls));
  }
  if (size_hints_bytes.empty())
    size_hints_bytes = state_.settings.collective_multi_kernel_hints_bytes;
  if (size_hints_bytes.empty()) {
    return Fail(ErrorCode::kUsage, "there is no size to tune", ToText(cls), "",
                "give sizes, or set collective_multi_kernel_hints");
  }
  state_.nodes.push_back(std::make_unique<MultiTemplate>(
      std::move(program), std::move(size_hints_bytes), topology_digest));
  if (state_.settings.enable_collective_multitemplate) return {};
  return ResolveNew();
}

Status Scheduler::ResolveNew() {
  if (resolved_nodes_ == state_.nodes.size()) return {};
  const size_t first = resolved_nodes_;
  resolved_nodes_ = state_.nodes.size();
  Status resolved = TunePass(state_, first).Run();
  if (!resolved && state_.parts.watchdog != nullptr && state_.parts.watchdog->stuck() != nullptr) {
    // The thread whose call is stuck still uses their programs.
    state_.parts.watchdog->Keep(
        std::make_shared<std::vector<std::unique_ptr<MultiTemplate>>>(std::move(state_.nodes)));
  }
  return resolved;
}

Result<TuneOutcome> Scheduler::Resolve() {
  COTUNE_RETURN_IF_ERROR(ResolveNew());
  return state_.outcome;
}

}  // namespace cotune
