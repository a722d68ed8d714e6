// Calls of collectives whose choice the user forces.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/event_sink.h"
#include "core/choice/choice_lists.h"
#include "core/choice/forced_collectives.h"
#include "core/recipe/recipe_id.h"
#include "fmt/format.h"
#include "integration/dispatcher.h"

namespace cotune {
namespace {

constexpr size_t kForcedMax = 4096;

}  // namespace

Result<const Dispatcher::ForcedCall*> Dispatcher::Forced(const PlanKey& key, const Program* program,
                                                         void* stream) {
  const auto known = forced_.find(key);
  if (known != forced_.end()) return &known->second;
  COTUNE_TRY(ForcedCall made, MakeForced(key, program, stream));
  if (forced_.size() == kForcedMax) forced_.clear();
  return &forced_.emplace(key, std::move(made)).first->second;
}

Result<Dispatcher::ForcedCall> Dispatcher::MakeForced(const PlanKey& key, const Program* program,
                                                      void* stream) {
  const std::vector<Problem> collectives =
      program == nullptr ? std::vector<Problem>{key.problem} : StepsOf(*program, key.problem);
  ForcedCall call;
  std::vector<std::optional<ChoiceId>> forced;
  bool has_forced = false;
  for (const Problem& each : collectives) {
    std::string refused;
    COTUNE_TRY(std::optional<ChoiceId> id, ForcedStep(each, stream, refused));
    if (!refused.empty()) {
      // Registered buffers are asked for again, as plain ones.
      if (key.problem.cls.buffer_class == BufferClass::kPlain) WarnOfRefusal(each, refused);
      if (call.refused.empty()) call.refused = std::move(refused);
    }
    has_forced = has_forced || id;
    forced.push_back(std::move(id));
  }
  if (!has_forced) return call;
  std::vector<ChoiceId> steps;
  for (size_t i = 0; i < collectives.size(); ++i) {
    if (forced[i]) {
      steps.push_back(*std::move(forced[i]));
    } else {
      COTUNE_TRY(ChoiceId id, UnforcedStep(key, *program, i, collectives[i], stream));
      steps.push_back(std::move(id));
    }
  }
  call.key = ComposedKey(key.problem, ChoiceId::Join(steps));
  return call;
}

Result<std::optional<ChoiceId>> Dispatcher::ForcedStep(const Problem& step, void* stream,
                                                       std::string& refused) const {
  const ChoiceId* const id = job_.settings().force.Find(step.cls.collective);
  if (id == nullptr) return std::nullopt;
  const Problem out_of_place = AsAgreed(step);
  const bool is_agreed = agreed_.Find(out_of_place.cls, out_of_place.count).has_value();
  const Problem& decides = is_agreed ? out_of_place : step;
  COTUNE_TRY(const Program single, Program::SingleCollective(decides.cls));
  const ChoiceList list = ListChoicesOf(job_.groups(), single, decides);
  if (auto why = WhyNotListed(list, *id)) {
    refused = fmt::format("{}: {}", id->text(), *why);
    return std::nullopt;
  }
  if (!is_agreed) return *id;
  // In place, it fails if this choice cannot be.
  return AgreedChoiceOf(step, {{.id = *id, .only_if_listed = true}}, stream);
}

Result<ChoiceId> Dispatcher::UnforcedStep(const PlanKey& key, const Program& program, size_t place,
                                          const Problem& step, void* stream) const {
  const std::vector<Problem> collectives = StepsOf(program, key.problem);
  const bool is_agreed =
      std::all_of(collectives.begin(), collectives.end(), [&](const Problem& each) {
        const Problem problem = AsAgreed(each);
        return agreed_.Find(problem.cls, problem.count).has_value();
      });
  if (is_agreed) {
    const Problem problem = AsAgreed(step);
    return AgreedChoiceOf(step, *agreed_.Find(problem.cls, problem.count), stream);
  }
  COTUNE_TRY(const Program single, Program::SingleCollective(step.cls));
  for (const TableChoice& each : ChoicesInOrder(*key.table, program, key.problem)) {
    // The steps of another form are not the collectives of the program.
    const Result<std::string> via = ViaOf(each.id);
    if (!via || !via->empty()) continue;
    const std::vector<ChoiceId> steps = each.id.StepsFor(collectives.size());
    if (steps.empty()) continue;
    ChoiceId bare = steps[place].WithoutHostKeys();
    if (FindChoice(job_.groups(), single, step, bare)) return bare;
  }
  return DefaultOf(step);
}

Result<const Dispatcher::ForcedCall*> Dispatcher::ForcedOnRegistered(const Call& call,
                                                                     const PlanKey& symmetric) {
  const Problem agreed = AsAgreed(symmetric.problem);
  // Another rank may have the collective in a program, where its buffers are plain ones.
  if (agreed_.Find(agreed.cls, agreed.count)) return nullptr;
  COTUNE_TRY(const ForcedCall* const forced, Forced(symmetric, nullptr, call.stream));
  if (!forced->key) return nullptr;
  return IsSymmetric(call, symmetric.problem, ChosenBy(*forced->key).backend()) ? forced : nullptr;
}

void Dispatcher::WarnOfRefusal(const Problem& step, const std::string& refused) {
  // Calls without elements are no concern of the user.
  if (rank_ != 0 || job_.lines() == nullptr || step.count == 0) return;
  if (!warned_of_refusal_.insert(step.cls.collective).second) return;
  EmitLine(
      *job_.lines(), Severity::kWarning,
      fmt::format("{} of {} bytes does not run its forced choice, {}; such calls run what they "
                  "would run without the setting force_choice ({}; this is not repeated for {})",
                  InWords(DispatchKey::Of(step.cls)), step.bytes(), refused, job_.force_origin(),
                  Name(step.cls.collective)));
}

}  // namespace cotune
