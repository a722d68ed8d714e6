#include "core/choice/choice_lists.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/choice/numerics.h"
#include "core/recipe/recipe_id.h"
#include "core/recipe/recipe_source.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Choices of a region that race, at most: a program may have many regions.
constexpr size_t kRegionChoicesMax = 8;

// The choices of all backends for a single collective or a region, of any numerics.
ChoiceList ListOfAll(const std::vector<const Backend*>& backends, const Program& program,
                     const Problem& problem) {
  ChoiceList merged;
  bool has_default = false;
  for (const Backend* backend : backends) {
    ChoiceList list = backend->ListChoices(program, problem);
    for (Choice& choice : list.choices) {
      // One default for all: that of the first backend, in priority order, that has one.
      choice.is_default = choice.is_default && !has_default;
      has_default = has_default || choice.is_default;
      merged.choices.push_back(std::move(choice));
    }
    merged.refusals.insert(merged.refusals.end(), list.refusals.begin(), list.refusals.end());
  }
  return merged;
}

// The choices of a single collective by the rules.
ChoiceList ListStep(const std::vector<const Backend*>& backends, const ListingRules& rules,
                    const Program& program, const Problem& problem) {
  ChoiceList list = ListOfAll(backends, program, problem);
  if (rules.numerics == NumericsRule::kSame) KeepOneNumerics(list);
  return list;
}

// Returns true if a rank may run a choice of a region beside ranks with other operations. These
// make the choice ready by themselves, and run it also if this rank captures it.
bool FitsOtherPrograms(const Program& program, const Choice& choice) {
  const bool is_captured = program.group().memory == MemoryKind::kCuda;
  return choice.fits_any_region && !choice.prepare_is_collective &&
         (choice.is_capturable || !is_captured);
}

// The list of a program that no backend can run.
ListedChoices RefuseAll(std::string reason) {
  return {{{}, {{"every choice", std::move(reason)}}}, {}, {}};
}

// Puts the most promising choices first. Choices without an estimate keep their places.
void SortByEstimate(std::vector<Choice>& choices) {
  std::vector<Choice> estimated;
  for (const Choice& choice : choices) {
    if (choice.cost_us >= 0) estimated.push_back(choice);
  }
  std::stable_sort(estimated.begin(), estimated.end(),
                   [](const Choice& a, const Choice& b) { return a.cost_us < b.cost_us; });
  auto next = estimated.begin();
  for (Choice& choice : choices) {
    if (choice.cost_us >= 0) choice = std::move(*next++);
  }
}

// Collects the choices of the positions of a form: those of a collective by itself, then those of
// its regions, which have the key `fuse`. Adds refusals. Positions that are alike have one list,
// unless `wanted`, an id of the form, has other choices for them.
class FormLister {
 public:
  FormLister(const std::vector<const Backend*>& backends, const ListingRules& rules,
             const Program& program, const Problem& problem, const Form& form,
             const ChoiceId* wanted)
      : backends_(backends), rules_(rules), program_(program), problem_(problem), form_(form) {
    if (wanted != nullptr) wanted_ = wanted->StepsFor(form.positions.size());
  }

  Result<ChoiceCombinations> List(std::vector<Refusal>& refusals) const {
    COTUNE_TRY(const std::vector<BackendCall> bare, CallsOf(form_.Buckets()));
    ChoiceCombinations combinations(form_.positions.size(),
                                    form_.via.empty() ? ChoiceCombinations::Form::kUnchanged
                                                      : ChoiceCombinations::Form::kRewritten);
    for (size_t place = 0; place < bare.size(); ++place) {
      const Position& position = form_.positions[place];
      const Problem& problem = bare[place].problem;
      if (!bare[place].why_plain.empty()) {
        refusals.push_back({fmt::format("registered buffers for {} {} ({})",
                                        position.is_bucket() ? "bucket" : "collective", place + 1,
                                        Name(problem.cls.collective)),
                            bare[place].why_plain});
      }
      const std::vector<RegionCall> regions = RegionCalls(position, place, refusals);
      std::string surroundings = SurroundingsOf(regions);
      if (!wanted_.empty()) surroundings += wanted_[place].text();
      if (combinations.AddToEqual(problem, surroundings, place)) continue;
      ChoiceList alone = ListStep(backends_, rules_, bare[place].program, problem);
      refusals.insert(refusals.end(), alone.refusals.begin(), alone.refusals.end());
      if (alone.choices.empty() && !form_.via.empty()) {
        return Fail(ErrorCode::kUnsupported,
                    fmt::format("no backend runs its {}", Name(problem.cls.collective)));
      }
      const std::vector<Choice> by_itself = alone.choices;
      for (const RegionCall& region : regions) {
        AddRegion(region, by_itself, alone.choices, refusals);
      }
      combinations.Add(problem, surroundings, place, std::move(alone.choices));
    }
    return combinations;
  }

 private:
  Result<std::vector<BackendCall>> CallsOf(std::span<const Region> regions) const {
    COTUNE_TRY(const Recipe recipe, MakeRecipe(form_.graph, form_.inputs, regions));
    return BackendCalls(recipe, program_, program_.RowsAt(problem_), problem_.topology_digest,
                        rules_.numerics == NumericsRule::kSame);
  }
  struct RegionCall {
    std::string fuse;
    BackendCall call;
  };
  // Regions that the program cannot have are refusals.
  std::vector<RegionCall> RegionCalls(const Position& position, size_t place,
                                      std::vector<Refusal>& refusals) const {
    std::vector<RegionCall> calls;
    for (const Region& region : position.regions) {
      std::string fuse = FuseText(form_.graph, region);
      std::vector<Region> regions = form_.Buckets();
      // The region takes the place of its bucket.
      std::erase_if(regions,
                    [&](const Region& bucket) { return bucket.nodes == position.collectives; });
      regions.push_back(region);
      Result<std::vector<BackendCall>> with_it = CallsOf(regions);
      if (!with_it) {
        refusals.push_back({fmt::format("{}={}", kFuseKey, fuse), with_it.error().ToText()});
        continue;
      }
      calls.push_back({std::move(fuse), std::move((*with_it)[place])});
    }
    return calls;
  }
  static std::string SurroundingsOf(const std::vector<RegionCall>& regions) {
    std::string text;
    for (const auto& [fuse, call] : regions) {
      text += fmt::format("{} {:016x} {}\n", fuse, call.program.digest(), call.problem.count);
    }
    return text;
  }
  // bare: the choices of the collective by itself.
  void AddRegion(const RegionCall& region, std::span<const Choice> bare,
                 std::vector<Choice>& choices, std::vector<Refusal>& refusals) const {
    const auto& [fuse, call] = region;
    ChoiceList list = ListOfAll(backends_, call.program, call.problem);
    if (rules_.numerics == NumericsRule::kSame) KeepNumericsOf(bare, list);
    SortByEstimate(list.choices);
    size_t taken = 0;
    for (Choice& choice : list.choices) {
      choice.id = choice.id.WithHostKey(kFuseKey, fuse);
      choice.is_default = false;
      std::string reason;
      if (rules_.fusion.only_agreeable && !FitsOtherPrograms(program_, choice)) {
        reason = "all ranks would need the same operations around the collective";
      } else if (taken == kRegionChoicesMax && wanted_.empty()) {
        reason = fmt::format("beyond {} choices of one region", kRegionChoicesMax);
      }
      if (reason.empty()) {
        choices.push_back(std::move(choice));
        ++taken;
      } else {
        refusals.push_back({choice.id.text(), std::move(reason)});
      }
    }
    // A backend that refuses regions refuses each for the same reason, which is kept once.
    for (Refusal& refusal : list.refusals) {
      const bool is_known =
          std::any_of(refusals.begin(), refusals.end(), [&](const Refusal& other) {
            return other.reason == refusal.reason &&
                   other.choice.rfind(refusal.choice + " with ", 0) == 0;
          });
      if (is_known) continue;
      refusals.push_back({fmt::format("{} with {}={}", refusal.choice, kFuseKey, fuse),
                          std::move(refusal.reason)});
    }
  }

  const std::vector<const Backend*>& backends_;
  const ListingRules& rules_;
  const Program& program_;
  const Problem& problem_;
  const Form& form_;
  std::vector<ChoiceId> wanted_;
};

// Names the subject of a refusal in the form `via`. It is an id of a choice, or a text that may
// have a key of the host already: "host with fuse=1.2" becomes "host with fuse=1.2&via=split".
std::string InForm(const std::string& choice, const std::string& via) {
  const Result<ChoiceId> id = ChoiceId::Parse(choice);
  if (id) return id->WithHostKey(kViaKey, via).text();
  const bool has_key = choice.find(fmt::format("{}=", kFuseKey)) != std::string::npos;
  return fmt::format("{}{}{}={}", choice, has_key ? "&" : " with ", kViaKey, via);
}

// Adds the refusals of a form, each once. Refusals of another form than
// the program as it is have its key.
void AddOfForm(const std::string& via, std::vector<Refusal> of_form,
               std::vector<Refusal>& refusals) {
  for (Refusal& each : of_form) {
    if (!via.empty()) each.choice = InForm(each.choice, via);
    const bool is_known = std::any_of(refusals.begin(), refusals.end(), [&](const Refusal& other) {
      return other.choice == each.choice && other.reason == each.reason;
    });
    if (!is_known) refusals.push_back(std::move(each));
  }
}

// Knows which recipes exist. Choices whose ids have the same keys of the host in the same steps
// have one recipe, which is made once for all of them. Any thread.
class KnownRecipes {
 public:
  KnownRecipes(const RecipeSource& source, ProgramGraph graph)
      : source_(source), graph_(std::move(graph)) {}

  bool Exists(const ChoiceId& id) {
    std::string keys;
    for (const ChoiceId& step : id.steps()) {
      for (const std::string_view key : kHostKeys) keys += step.HostKey(key) + " ";
    }
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = exists_.try_emplace(std::move(keys), false);
    if (is_new) known->second = source_.RecipeOf(graph_, id).has_value();
    return known->second;
  }

 private:
  const RecipeSource& source_;
  const ProgramGraph graph_;
  std::mutex mutex_;
  std::map<std::string, bool, std::less<>> exists_;
};

// Why no choice runs the program; nothing if some may.
std::optional<std::string> WhyNoChoice(const ListingRules& rules, const ProgramGraph& graph) {
  COTUNE_CHECK(rules.recipes != nullptr, "a program with several steps has recipes");
  if (graph.collectives().size() == graph.nodes().size() || rules.has_parts) return std::nullopt;
  return "no backend that is loaded runs the local operations of programs on this memory";
}

std::vector<ConsideredForm> ConsideredIn(const Form& form) {
  if (!form.via.empty()) {
    const std::string key = fmt::format("{}={}", kViaKey, form.via);
    return {{key, key}};
  }
  std::vector<ConsideredForm> considered;
  for (const Position& position : form.positions) {
    for (const Region& region : position.regions) {
      std::string key = fmt::format("{}={}", kFuseKey, FuseText(form.graph, region));
      std::string name = RegionName(form.graph, position.collectives.front(), key);
      considered.push_back({std::move(key), std::move(name)});
    }
  }
  return considered;
}

// The choices of these forms of a program with several steps, or of those only that have to do with
// an id. The list that it gives has refusals only.
ListedChoices ChoicesOfForms(const std::vector<const Backend*>& backends, const ListingRules& rules,
                             const Program& program, const Problem& problem, FormList forms,
                             const ChoiceId* wanted = nullptr) {
  ListedChoices made;
  made.list.refusals = std::move(forms.refusals);
  for (const Form& form : forms.forms) {
    for (ConsideredForm& each : ConsideredIn(form)) made.considered.push_back(std::move(each));
    std::vector<Refusal> refusals;
    Result<ChoiceCombinations> combinations =
        FormLister(backends, rules, program, problem, form, wanted).List(refusals);
    if (!combinations && form.via.empty()) return RefuseAll(combinations.error().ToText());
    AddOfForm(form.via, std::move(refusals), made.list.refusals);
    if (combinations) {
      made.combinations.Add(form.via, *std::move(combinations));
    } else {
      made.list.refusals.push_back(
          {fmt::format("{}={}", kViaKey, form.via), combinations.error().what});
    }
  }
  // The numerics class that all choices have to have; nothing: any class will do.
  std::optional<std::string> same_class;
  if (rules.numerics == NumericsRule::kSame) same_class = made.combinations.default_numerics();
  auto recipes = std::make_shared<KnownRecipes>(*rules.recipes, program.graph());
  made.combinations.KeepPossible([recipes = std::move(recipes), same_class](const Choice& choice) {
    if (same_class) {
      // A class that is not known is that of the default choice alone.
      if (same_class->empty() || choice.numerics != *same_class) return false;
      // Other collectives have other counts, and a class of a backend's own promises equal bits for
      // equal problems alone.
      const bool depends_on_count =
          *same_class != kExactNumerics && *same_class != kRankOrderNumerics;
      if (depends_on_count && !choice.id.HostKey(kViaKey).empty()) return false;
    }
    return recipes->Exists(choice.id);
  });
  return made;
}

ListedChoices ListOf(const std::vector<const Backend*>& backends, const ListingRules& rules,
                     const Program& program, const Problem& problem) {
  if (program.is_single_collective()) {
    return {ListStep(backends, rules, program, problem), {}, {}};
  }
  if (auto reason = WhyNoChoice(rules, program.graph())) return RefuseAll(*std::move(reason));
  ListedChoices listed =
      ChoicesOfForms(backends, rules, program, problem,
                     rules.recipes->Forms(program, program.RowsAt(problem), rules.fusion));
  FormChoices::FirstHeat heat = listed.combinations.First();
  listed.list.choices = std::move(heat.choices);
  for (const ChoiceId& id : heat.left_out) {
    listed.list.refusals.push_back(
        {id.text(), fmt::format("beyond {} choices of the first heat", kHeatChoicesMax)});
  }
  return listed;
}

// As much of the list of a program as has to do with an id: its form, with its regions. The program
// as it is stays beside another form, because its default choice decides about numerics=same.
ListedChoices ListForId(const std::vector<const Backend*>& backends, const ListingRules& rules,
                        const Program& program, const Problem& problem, const ChoiceId& id) {
  if (auto reason = WhyNoChoice(rules, program.graph())) return RefuseAll(*std::move(reason));
  Result<Form> form = rules.recipes->FormOf(program, program.RowsAt(problem), rules.fusion, id);
  if (!form) return {{{}, {{id.text(), form.error().what}}}, {}, {}};
  FormList forms;
  if (!form->via.empty()) forms.forms.push_back(FormWithoutRegions("", program.graph()));
  forms.forms.push_back(*std::move(form));
  return ChoicesOfForms(backends, rules, program, problem, std::move(forms), &id);
}

std::vector<const Backend*> BackendsInUse(const BackendGroups& groups) {
  std::vector<const Backend*> backends;
  for (const BackendMember& member : groups.members()) {
    if (member.group != nullptr) backends.push_back(member.backend);
  }
  return backends;
}

ListingRules RulesOf(const BackendGroups& groups) {
  const ProgramSupport& support = groups.program_support();
  return {support.part_backend != nullptr, groups.numerics(), support.recipes, support.fusion};
}

}  // namespace

ChoiceList ListChoicesOf(const std::vector<const Backend*>& backends, const ListingRules& rules,
                         const Program& program, const Problem& problem) {
  return ListOf(backends, rules, program, problem).list;
}

ListedChoices ListWithCombinations(const BackendGroups& groups, const Program& program,
                                   const Problem& problem) {
  ListedChoices listed = ListOf(BackendsInUse(groups), RulesOf(groups), program, problem);
  std::vector<Refusal>& refusals = listed.list.refusals;
  refusals.insert(refusals.begin(), groups.refusals().begin(), groups.refusals().end());
  return listed;
}

ChoiceList ListChoicesOf(const BackendGroups& groups, const Program& program,
                         const Problem& problem) {
  return ListWithCombinations(groups, program, problem).list;
}

std::optional<Choice> FindChoice(const BackendGroups& groups, const Program& program,
                                 const Problem& problem, const ChoiceId& id) {
  const std::vector<const Backend*> backends = BackendsInUse(groups);
  const ListingRules rules = RulesOf(groups);
  if (!program.is_single_collective()) {
    return ListForId(backends, rules, program, problem, id).combinations.Find(id);
  }
  for (Choice& choice : ListStep(backends, rules, program, problem).choices) {
    if (choice.id == id) return std::move(choice);
  }
  return std::nullopt;
}

std::vector<ChoiceId> AgreeableSteps(const Program& program, const Choice& choice) {
  const Result<std::string> via = ViaOf(choice.id);
  if (!via || !via->empty()) return {};
  if (choice.id.has_host_keys() && !FitsOtherPrograms(program, choice)) return {};
  std::vector<ChoiceId> steps = choice.id.StepsFor(program.graph().collectives().size());
  for (ChoiceId& step : steps) step = step.WithoutHostKeys();
  return steps;
}

bool HasForm(const BackendGroups& groups, const Program& program, const Problem& problem,
             const ChoiceId& id) {
  if (program.is_single_collective()) return true;
  const ListingRules rules = RulesOf(groups);
  return rules.recipes->FormOf(program, program.RowsAt(problem), rules.fusion, id).has_value();
}

std::optional<std::string> FindRefusal(const BackendGroups& groups, const Program& program,
                                       const Problem& problem, const ChoiceId& id) {
  const std::vector<const Backend*> backends = BackendsInUse(groups);
  const ListingRules rules = RulesOf(groups);
  ChoiceList list = program.is_single_collective()
                        ? ListStep(backends, rules, program, problem)
                        : ListForId(backends, rules, program, problem, id).list;
  list.refusals.insert(list.refusals.begin(), groups.refusals().begin(), groups.refusals().end());
  for (Refusal& refusal : list.refusals) {
    if (refusal.choice == id.text()) return std::move(refusal.reason);
  }
  return std::nullopt;
}

Result<std::unique_ptr<ChoiceCaller>> MakeCaller(BackendGroups& groups, const Program& program,
                                                 const Problem& problem, const Choice& choice) {
  std::vector<ChoiceId> steps;
  std::optional<Recipe> recipe;
  if (program.is_single_collective()) {
    if (choice.id.has_steps() || choice.id.has_host_keys()) {
      return Fail(ErrorCode::kUnsupported, "it runs a program, and the call is one collective",
                  choice.id.text());
    }
    steps.push_back(choice.id);
  } else {
    const RecipeSource* const recipes = groups.program_support().recipes;
    COTUNE_CHECK(recipes != nullptr, "a program with several steps has recipes");
    COTUNE_TRY(recipe, recipes->RecipeOf(program.graph(), choice.id));
    COTUNE_TRY(steps, ChoicesOfSteps(*recipe, choice.id));
  }
  std::vector<BackendMember*> members;
  for (const ChoiceId& step : steps) {
    BackendMember* member = groups.Find(step.backend());
    if (member == nullptr || member->group == nullptr) {
      return Fail(ErrorCode::kUnsupported, "its backend is not in use here", step.text());
    }
    members.push_back(member);
  }
  return std::make_unique<ChoiceCaller>(program, problem, choice, std::move(members),
                                        groups.program_support(), std::move(recipe));
}

}  // namespace cotune
