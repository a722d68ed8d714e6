// Collectives whose choice all ranks have agreed on, in whatever program they stand.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/choice/choice_lists.h"
#include "core/choice/forced_collectives.h"
#include "core/recipe/recipe_id.h"
#include "fmt/format.h"
#include "integration/dispatcher.h"
#include "integration/dispatcher_plan.h"

namespace cotune {
namespace {

// Keys of calls that are kept with the key that the agreement makes of them.
constexpr size_t kFollowedMax = 4096;

}  // namespace

std::vector<Problem> Dispatcher::StepsOf(const Program& program, const Problem& anchor) {
  return cotune::CollectivesOf(program, anchor);
}

Problem Dispatcher::AsAgreed(Problem problem) {
  problem.cls.in_place = false;
  problem.cls.buffer_class = BufferClass::kPlain;
  problem.cls.program_digest = 0;
  return problem;
}

std::vector<Problem> Dispatcher::CollectivesOf(const Program& program, const Problem& anchor) {
  std::vector<Problem> problems = StepsOf(program, anchor);
  std::transform(problems.begin(), problems.end(), problems.begin(), AsAgreed);
  return problems;
}

std::vector<AgreedChoices::Candidate> Dispatcher::StepsToAgree(const Program& program,
                                                               const Problem& anchor,
                                                               const ChoiceId& id) const {
  std::vector<AgreedChoices::Candidate> candidates;
  if (!id.has_host_keys()) {
    for (ChoiceId& step : ChoicesOfCollectives(program.graph(), id)) {
      candidates.push_back({.id = std::move(step)});
    }
    return candidates;
  }
  const std::optional<Choice> fused = FindChoice(job_.groups(), program, anchor, id);
  if (!fused) return candidates;
  const std::vector<Problem> collectives = StepsOf(program, anchor);
  for (ChoiceId& step : AgreeableSteps(program, *fused)) {
    candidates.push_back({.id = std::move(step),
                          .fused_count = collectives[candidates.size()].count,
                          .is_capturable = fused->is_capturable,
                          .is_reproducible = fused->is_reproducible});
  }
  return candidates;
}

std::vector<AgreedChoices::Candidates> Dispatcher::CandidatesOf(const DispatchTable& table,
                                                                const Program& program,
                                                                const Problem& anchor) const {
  std::vector<AgreedChoices::Candidates> candidates(StepsOf(program, anchor).size());
  std::map<ChoiceId, std::vector<AgreedChoices::Candidate>> steps_of;
  for (const TableChoice& each : ChoicesInOrder(table, program, anchor)) {
    const auto [known, is_first] = steps_of.try_emplace(each.id);
    if (is_first) known->second = StepsToAgree(program, anchor, each.id);
    const std::vector<Problem> there =
        each.measured ? StepsOf(program, *each.measured) : std::vector<Problem>();
    for (size_t i = 0; i < known->second.size(); ++i) {
      AgreedChoices::Candidate added = known->second[i];
      added.only_if_listed = each.only_if_listed;
      added.measured_count = there.empty() ? 0 : there[i].count;
      const bool is_new =
          std::none_of(candidates[i].begin(), candidates[i].end(), [&](const auto& other) {
            return other.id == added.id && other.only_if_listed == added.only_if_listed;
          });
      if (is_new) candidates[i].push_back(std::move(added));
    }
  }
  return candidates;
}

Status Dispatcher::Agree(const ProgramGraph& graph, std::span<const uint64_t> rows) {
  COTUNE_RETURN_IF_ERROR(MayRun());
  COTUNE_TRY(const Program* bound, Bound(graph));
  latest_ = {};
  latest_program_ = {};
  ForgetDerivedKeys();
  if (rows.empty() && graph.has_rows()) return AgreeOnAllRows(*bound);
  constexpr uint64_t kOneRow[] = {1};
  for (const uint64_t each : rows.empty() ? std::span<const uint64_t>(kOneRow) : rows) {
    COTUNE_TRY(const Problem anchor, ProblemOf(*bound, each));
    const std::vector<Problem> problems = CollectivesOf(*bound, anchor);
    std::vector<AgreedChoices::Candidates> choices = CandidatesOf(table(), *bound, anchor);
    for (size_t i = 0; i < problems.size() && i < choices.size(); ++i) {
      agreed_.Add(problems[i].cls, problems[i].count, std::move(choices[i]));
    }
  }
  return {};
}

Status Dispatcher::AgreeOnAllRows(const Program& bound) {
  // The functions below outlive the program that the dispatcher keeps, and the table.
  const auto program = std::make_shared<const Program>(bound);
  const auto table = std::make_shared<const DispatchTable>(this->table());
  // The fewest rows that all ranks can share.
  const auto unit = static_cast<uint64_t>(world_size_);
  COTUNE_TRY(const Problem smallest, ProblemOf(*program, unit));
  COTUNE_TRY(const Problem next, ProblemOf(*program, 2 * unit));
  const std::vector<Problem> at_unit = CollectivesOf(*program, smallest);
  const std::vector<Problem> at_next = CollectivesOf(*program, next);
  std::set<ProblemClass> decided;  // by an earlier place of this program
  for (size_t place = 0; place < at_unit.size(); ++place) {
    const uint64_t unit_count = at_unit[place].count;
    if (at_next[place].count == unit_count) {
      // The collective of a value that has one row, whatever R is.
      agreed_.Add(at_unit[place].cls, unit_count, CandidatesOf(*table, *program, smallest)[place]);
      continue;
    }
    const auto candidates_of = [this, program, table, place, unit, unit_count](uint64_t count) {
      // Counts of programs with other columns lie between two numbers of rows.
      const uint64_t rows =
          std::max<uint64_t>(1, count / unit_count * unit + count % unit_count * unit / unit_count);
      return CandidatesOf(*table, *program,
                          program->ProblemAtRows(rows, job_.topology_digest()))[place];
    };
    if (decided.insert(at_unit[place].cls).second) {
      agreed_.AddAllCounts(at_unit[place].cls, program->graph().digest(), candidates_of);
    }
  }
  return {};
}

Result<bool> Dispatcher::IsAgreed(const ProgramGraph& graph, uint64_t rows) {
  const std::pair key(graph.digest(), rows);
  if (agreed_programs_.contains(key)) return true;
  COTUNE_TRY(const Program* program, Bound(graph));
  COTUNE_TRY(const Problem anchor, ProblemOf(*program, rows));
  for (const Problem& each : CollectivesOf(*program, anchor)) {
    if (!agreed_.Find(each.cls, each.count)) return false;
  }
  if (agreed_programs_.size() == kFollowedMax) agreed_programs_.clear();
  agreed_programs_.insert(key);
  return true;
}

Result<bool> Dispatcher::Takes(const Program& single, const Problem& step,
                               const NearbyChoice& nearby, void* stream) const {
  if (nearby.is_listed_here) return true;
  const std::pair asked(step, nearby.choice.id);
  if (const auto known = taken_.find(asked); known != taken_.end()) return known->second;
  // All ranks would have to try it together.
  if (nearby.choice.prepare_is_collective) return false;
  if (step.cls.memory == MemoryKind::kCuda) {
    COTUNE_TRY(const bool is_captured, job_.device().IsCapturing(stream));
    if (is_captured) {
      return Fail(ErrorCode::kUnsupported, "the call is not ready to be captured in a CUDA graph",
                  ToText(step), "it was not made before the capture", "make it once before");
    }
  }
  const int64_t deadline_ns = PrepareDeadlineNs();
  COTUNE_TRY(const auto caller, MakeCaller(job_.groups(), single, step, nearby.choice));
  const Status ready = caller->Precompile(deadline_ns);
  if (!ready && EndsTheGroup(ready.error().code)) return Propagate(ready);
  if (taken_.size() == kFollowedMax) taken_.clear();
  taken_.emplace(asked, ready.has_value());
  return ready.has_value();
}

std::optional<NearbyChoice> Dispatcher::FindAgreed(const Problem& step, const ChoiceId& id) const {
  const Result<Program> single = Program::SingleCollective(step.cls);
  if (!single) return std::nullopt;
  std::optional<Problem> measured;
  std::optional<Choice> of_fused;
  const Problem problem = AsAgreed(step);
  const auto agreed = agreed_.Find(problem.cls, problem.count);
  for (const AgreedChoices::Candidate& each : agreed.value_or(AgreedChoices::Candidates())) {
    if (each.id != id) continue;
    if (each.fused_count == step.count && step.count > 0) {
      of_fused = {
          .id = id, .is_capturable = each.is_capturable, .is_reproducible = each.is_reproducible};
    }
    if (each.measured_count == 0) continue;
    measured = step;
    measured->count = each.measured_count;
  }
  auto nearby = FindNearby(job_.groups(), *single, step, measured, id);
  // A backend may refuse in place what it runs out of place.
  if (!nearby && of_fused) nearby = NearbyChoice{*std::move(of_fused), !step.cls.in_place};
  return nearby;
}

std::optional<NearbyChoice> Dispatcher::FindAgreedSteps(const Program& program,
                                                        const Problem& problem,
                                                        const ChoiceId& id) const {
  std::optional<Choice> listed = FindChoice(job_.groups(), program, problem, id);
  if (listed) return NearbyChoice{*std::move(listed), true};
  const std::vector<Problem> collectives = StepsOf(program, problem);
  const std::vector<ChoiceId> steps = ChoicesOfCollectives(program.graph(), id);
  if (steps.empty()) return std::nullopt;
  NearbyChoice combined{{.id = id, .is_capturable = true, .is_reproducible = true}, false};
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::optional<NearbyChoice> step = FindAgreed(collectives[i], steps[i]);
    if (!step) return std::nullopt;
    combined.choice.is_capturable &= step->choice.is_capturable;
    combined.choice.is_reproducible &= step->choice.is_reproducible;
    combined.choice.prepare_is_collective |= step->choice.prepare_is_collective;
  }
  return combined;
}

Result<ChoiceId> Dispatcher::AgreedChoiceOf(const Problem& step,
                                            const AgreedChoices::Candidates& agreed,
                                            void* stream) const {
  const auto out_of_place = [&](const Problem& problem) -> Result<ChoiceId> {
    COTUNE_TRY(const Program single, Program::SingleCollective(problem.cls));
    // It may be that the winner of a neighbouring size or of a relative cannot run the collective.
    // That follows from the problem alone, and the next best choices from the table, so that all
    // ranks go on alike.
    for (const AgreedChoices::Candidate& candidate : agreed) {
      const std::optional<NearbyChoice> nearby = FindAgreed(problem, candidate.id);
      if (!nearby || (candidate.only_if_listed && !nearby->is_listed_here)) continue;
      COTUNE_TRY(const bool is_taken, Takes(single, problem, *nearby, stream));
      if (is_taken) return candidate.id;
    }
    COTUNE_TRY(const Choice fallback, job_.DefaultChoice(single, problem));
    return fallback.id;
  };
  Result<ChoiceId> id = out_of_place(AsAgreed(step));
  if (!id || !step.cls.in_place) return id;
  COTUNE_TRY(const Program in_place, Program::SingleCollective(step.cls));
  if (const std::optional<NearbyChoice> nearby = FindAgreed(step, *id)) {
    COTUNE_TRY(const bool is_taken, Takes(in_place, step, *nearby, stream));
    if (is_taken) return id;
  }
  return Fail(ErrorCode::kUnsupported, fmt::format("{} cannot run this call in place", id->text()),
              ToText(step),
              "the ranks have agreed on this choice, and another rank may call the collective out "
              "of place",
              "give the call a receive buffer of its own");
}

Result<ChoiceId> Dispatcher::DefaultOf(const Problem& step) const {
  const Problem problem = AsAgreed(step);
  if (agreed_.Find(problem.cls, problem.count)) return AgreedChoiceOf(step, {}, nullptr);
  COTUNE_TRY(const Program single, Program::SingleCollective(step.cls));
  COTUNE_TRY(const Choice fallback, job_.DefaultChoice(single, step));
  return fallback.id;
}

Result<std::optional<Dispatcher::PlanKey>> Dispatcher::Followed(const PlanKey& key,
                                                                const Program* program,
                                                                void* stream) {
  if (agreed_.empty()) return std::nullopt;
  const auto known = followed_.find(key);
  if (known != followed_.end()) return known->second;
  const std::vector<Problem> collectives =
      program == nullptr ? std::vector<Problem>{key.problem} : StepsOf(*program, key.problem);
  std::vector<AgreedChoices::Candidates> agreed;
  for (const Problem& each : collectives) {
    const Problem problem = AsAgreed(each);
    std::optional<AgreedChoices::Candidates> found = agreed_.Find(problem.cls, problem.count);
    if (!found) return std::nullopt;
    agreed.push_back(*std::move(found));
  }
  std::vector<ChoiceId> steps;
  for (size_t i = 0; i < collectives.size(); ++i) {
    COTUNE_TRY(ChoiceId step, AgreedChoiceOf(collectives[i], agreed[i], stream));
    steps.push_back(std::move(step));
  }
  ChoiceId id = ChoiceId::Join(steps);
  if (program != nullptr) id = FusedOf(key, *program, std::move(id));
  std::optional<Program> single;
  if (program == nullptr) {
    COTUNE_TRY(Program made, Program::SingleCollective(key.problem.cls));
    single = std::move(made);
    program = &*single;
  }
  const PlanKey followed =
      RunsAnyway(key, *program, id) ? key : ComposedKey(key.problem, std::move(id));
  if (followed_.size() == kFollowedMax) followed_.clear();
  followed_.emplace(key, followed);
  return followed;
}

Dispatcher::PlanKey Dispatcher::ComposedKey(const Problem& problem, ChoiceId id) {
  const auto found = std::find(composed_.begin(), composed_.end(), id);
  const auto index = static_cast<int32_t>(found - composed_.begin());
  if (found == composed_.end()) composed_.push_back(std::move(id));
  return {problem, index, nullptr};
}

ChoiceId Dispatcher::FusedOf(const PlanKey& key, const Program& program, ChoiceId agreed) const {
  if (program.is_single_collective()) return agreed;
  const std::optional<NearbyChoice> bare = FindAgreedSteps(program, key.problem, agreed);
  if (!bare) return agreed;
  const auto is_agreed_with_operations = [&](const ChoiceId& id) {
    if (!id.has_host_keys() || id.WithoutHostKeys() != agreed) return false;
    const std::optional<Choice> fused = FindChoice(job_.groups(), program, key.problem, id);
    // In a capture all ranks run the agreed choice, or all of them another one.
    return fused && !AgreeableSteps(program, *fused).empty() &&
           bare->choice.is_capturable == fused->is_capturable;
  };
  for (const TableChoice& each : ChoicesInOrder(*key.table, program, key.problem)) {
    if (each.id == agreed || is_agreed_with_operations(each.id)) return each.id;
  }
  return agreed;
}

bool Dispatcher::RunsAnyway(const PlanKey& key, const Program& program, const ChoiceId& id) const {
  // A choice that is not listed for the call may give way to the winner of the next size.
  if (key.choice_index != DispatchTable::kNoChoice) {
    return ChosenBy(key) == id && FindChoice(job_.groups(), program, key.problem, id).has_value();
  }
  const Result<Choice> fallback = job_.DefaultChoice(program, key.problem);
  return fallback && fallback->id == id;
}

const ChoiceId& Dispatcher::ChosenBy(const PlanKey& key) const {
  const auto index = static_cast<size_t>(key.choice_index);
  return key.table == nullptr ? composed_[index] : key.table->choices()[index];
}

}  // namespace cotune
