#include "plugins/fake/scripted_backend.h"

#include <algorithm>

#include "fmt/format.h"
#include "plugins/fake/reduction.h"
#include "plugins/fake/scripted_choices.h"
#include "plugins/sdk/settings.h"

namespace cotune::fake {
namespace {

using sdk::Fail;

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

}  // namespace

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

FakeGroup::FakeGroup(FakeBackend& backend, const cotune_group_params_t& params)
    : backend_(backend) {
  state_.host = &backend.host;
  state_.name = params.name;
  state_.rank = params.rank;
  state_.job_ranks.assign(params.job_ranks, params.job_ranks + params.world_size);
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

}  // namespace cotune::fake
