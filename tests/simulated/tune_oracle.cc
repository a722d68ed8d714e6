#include "tests/simulated/tune_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/recipe/recipe_id.h"
#include "fusion/fusion_recipes.h"

namespace cotune {
namespace {

using Outcome = Result<TuneOutcome>;

bool IsError(const Outcome& outcome, ErrorCode code) {
  return !outcome && outcome.error().code == code;
}

// The words by which a rank is told how another one differs.
std::string NameOfDifference(const TuneSchedule& schedule) {
  switch (schedule.difference) {
    case Difference::kProgram:
    case Difference::kSizes:
    case Difference::kExtraNode:
      return fmt::format("in node {}:", schedule.odd_node + 1);
    case Difference::kSetting:
      return "collective_benchmark_nruns";
    case Difference::kMode:
      return "enable_collective_multitemplate";
    case Difference::kField:
      return "code";
    case Difference::kFusion:
      return "enable_recursive_fusion";
    case Difference::kChoice:
      return " alpha/";  // the choice that not all list
    default:
      return "";
  }
}

// All that is compared before anything is measured.
bool IsCompared(Difference difference) {
  return difference != Difference::kNone && difference != Difference::kBase;
}

// The table that a rank has in force when its tune has ended; nullopt: it has stopped, because it
// does not know what the others do.
std::optional<std::string> TableInForce(const TuneOfRank& rank, const Outcome& outcome) {
  if (outcome && outcome->committed) return outcome->table.Serialize();
  if (IsError(outcome, ErrorCode::kRankLost)) return std::nullopt;
  return rank.base.BuildTable()->Serialize();
}

std::string WinnerAt(const DispatchTable& table, const Program& program, uint64_t bytes) {
  const int32_t index = table.Lookup(DispatchKey::Of(program.anchor()), bytes);
  return index == DispatchTable::kNoChoice ? ""
                                           : table.choices()[static_cast<size_t>(index)].text();
}

const SimulatedChoice* FindChoice(const TuneOfRank& tune, const ChoiceId& step) {
  for (size_t i = 0; i < tune.backends.size(); ++i) {
    if (step.backend() != kBackendNames[i]) continue;
    for (const SimulatedChoice& choice : tune.backends[i]) {
      if (choice.name == step.choice_name()) return &choice;
    }
  }
  return nullptr;
}

int64_t CostNs(const SimulatedChoice& choice, const Problem& problem, size_t operations) {
  const int64_t base_ns =
      operations == 0
          ? choice.base_ns
          : choice.fused_base_ns + choice.operation_ns * static_cast<int64_t>(operations);
  return base_ns + choice.ns_per_byte * static_cast<int64_t>(problem.bytes());
}

// A backend step of a recipe: its collective, and how many local operations run with it.
struct Step {
  Problem problem;
  size_t operations = 0;
};

// The steps that an id names, in their order; empty if the program has no such recipe.
std::vector<Step> StepsOf(const Program& program, const Problem& anchor, const ChoiceId& id) {
  if (program.is_single_collective()) return {{anchor}};
  const Result<Recipe> recipe = FusionRecipes().RecipeOf(program.graph(), id);
  if (!recipe) return {};
  const auto calls = BackendCalls(*recipe, program, program.RowsAt(anchor), 0).value();
  std::vector<Step> steps;
  for (const size_t step : recipe->backend_steps()) {
    const RecipeStep& made = recipe->steps[step];
    steps.push_back(
        {calls[steps.size()].problem, made.nodes.size() - made.backend_step()->collectives.size()});
  }
  return steps;
}

// The time of a call by the scripts of the choice's steps, or why it must not be the winner.
struct Cost {
  int64_t ns = 0;
  std::string why_not;
};
Cost CostOf(const TuneOfRank& tune, const Program& program, const Problem& anchor,
            const ChoiceId& id) {
  const std::vector<Step> steps = StepsOf(program, anchor, id);
  const std::vector<ChoiceId> choices = id.WithoutHostKeys().StepsFor(steps.size());
  if (steps.empty() || choices.empty()) return {0, "it has another number of steps"};
  Cost cost;
  for (size_t i = 0; i < steps.size(); ++i) {
    const SimulatedChoice* const choice = FindChoice(tune, choices[i]);
    const auto& [problem, operations] = steps[i];
    if (choice == nullptr) return {0, "no backend lists it"};
    if (operations > choice->operations_max) return {0, "its backend does not fuse so much"};
    if (choice->IsDefectiveFor(problem.cls.collective, operations > 0)) {
      return {0, std::string(Name(choice->defect))};
    }
    cost.ns += CostNs(*choice, problem, operations);
  }
  return cost;
}

// The choices of a form of a program, each step by the choice that is the cheapest one for it:
// every way to run its collectives alone or in regions. Equal collectives run alike.
std::vector<ChoiceId> CheapestChoices(const TuneOfRank& tune, const Program& program,
                                      const Problem& anchor, const Form& form) {
  const auto bare = BackendCalls(MakeRecipe(form.graph, form.Buckets()).value(), program,
                                 program.RowsAt(anchor), 0)
                        .value();
  struct Part {
    std::vector<ChoiceId> steps;
    std::vector<std::string> fuse_texts;
  };
  std::vector<Part> parts = {{}};
  for (size_t place = 0; place < form.positions.size(); ++place) {
    const Problem& problem = bare[place].problem;
    // The operations of each region, and none.
    std::vector<std::pair<std::string, size_t>> ways = {{"", 0}};
    for (const Region& region : form.positions[place].regions) {
      ways.emplace_back(FuseText(form.graph, region), region.nodes.size() - 1);
    }
    std::vector<Part> longer;
    for (const auto& [fuse, operations] : ways) {
      std::optional<ChoiceId> cheapest;
      int64_t lowest_ns = INT64_MAX;
      for (size_t i = 0; i < tune.backends.size(); ++i) {
        for (const SimulatedChoice& choice : tune.backends[i]) {
          if (choice.IsDefectiveFor(problem.cls.collective, operations > 0)) continue;
          if (operations > choice.operations_max) continue;
          const int64_t cost_ns = CostNs(choice, problem, operations);
          if (cost_ns >= lowest_ns) continue;
          lowest_ns = cost_ns;
          cheapest = ChoiceId::FromBackend(kBackendNames[i], choice.name).value();
        }
      }
      if (!cheapest) continue;
      if (!fuse.empty()) cheapest = cheapest->WithHostKey(kFuseKey, fuse);
      if (!form.via.empty()) cheapest = cheapest->WithHostKey(kViaKey, form.via);
      for (const Part& part : parts) {
        bool is_alike = true;
        for (size_t other = 0; other < place; ++other) {
          is_alike =
              is_alike && (!(bare[other].problem == problem) || part.fuse_texts[other] == fuse);
        }
        if (!is_alike) continue;
        longer.push_back(part);
        longer.back().steps.push_back(*cheapest);
        longer.back().fuse_texts.push_back(fuse);
      }
    }
    parts = std::move(longer);
  }
  std::vector<ChoiceId> choices;
  for (const Part& part : parts) choices.push_back(ChoiceId::Join(part.steps));
  return choices;
}

// The choice of the tune that runs a collective when nothing is known.
ChoiceId DefaultOf(const TuneOfRank& tune) {
  for (const SimulatedChoice& choice : tune.backends[0]) {
    if (choice.is_default) return ChoiceId::FromBackend(kBackendNames[0], choice.name).value();
  }
  COTUNE_CHECK(false, "each backend of a schedule has a default");
}

// The choice as the first heat has it, in which one region at a time stands among defaults; nothing
// if it has several regions.
std::optional<ChoiceId> AmongDefaults(const TuneOfRank& tune, const ChoiceId& id, size_t count) {
  std::vector<ChoiceId> steps = id.StepsFor(count);
  int regions = 0;
  for (ChoiceId& step : steps) {
    if (step.has_host_keys()) {
      ++regions;
    } else {
      step = DefaultOf(tune);
    }
  }
  return regions > 1 ? std::nullopt : std::optional(ChoiceId::Join(steps));
}

// The lowest costs of choices that are right everywhere. Regions count only as the first heat has
// them if the default fails, because a region among defaults then has no time by which the second
// heat could choose it.
struct LowestCosts {
  int64_t unfused_ns = INT64_MAX;
  int64_t fused_ns = INT64_MAX;  // all choices with regions, or of another form
};
LowestCosts LowestCostsOf(const TuneOfRank& tune, const Program& program, const Problem& anchor) {
  const FormList list =
      program.is_single_collective()
          ? FormList{{FormWithoutRegions("", program.graph())}, {}}
          : FusionRecipes().Forms(program, program.RowsAt(anchor), tune.settings.fusion);
  const bool default_fails = !CostOf(tune, program, anchor, DefaultOf(tune)).why_not.empty();
  LowestCosts lowest;
  for (const Form& form : list.forms) {
    for (const ChoiceId& cheapest : CheapestChoices(tune, program, anchor, form)) {
      std::optional<ChoiceId> id = cheapest;
      const bool has_regions = form.via.empty() && cheapest.has_host_keys();
      if (has_regions && default_fails) {
        id = AmongDefaults(tune, cheapest, form.positions.size());
      }
      if (!id) continue;
      const Cost cost = CostOf(tune, program, anchor, *id);
      if (!cost.why_not.empty()) continue;
      int64_t& of_class = id->has_host_keys() ? lowest.fused_ns : lowest.unfused_ns;
      of_class = std::min(of_class, cost.ns);
    }
  }
  return lowest;
}

// Why the choice must not be the winner at this size; "": it may. is_exact: what was measured is
// what the scripts say.
std::string WhyNoWinner(const TuneOfRank& tune, const Program& program, uint64_t bytes,
                        const ChoiceId& winner, bool is_exact) {
  const Problem problem = program.ProblemAt(bytes, 0);
  const Cost cost = CostOf(tune, program, problem, winner);
  if (!cost.why_not.empty()) return cost.why_not;
  if (!is_exact) return "";
  const LowestCosts lowest = LowestCostsOf(tune, program, problem);
  const double noise = 1 + tune.settings.noise_percent / 100;
  const double least_gain = std::max(noise, tune.settings.fusion.speedup_threshold);
  const auto takes_longer = [](int64_t ns, int64_t lowest_ns, double times) {
    return static_cast<double>(ns) > static_cast<double>(lowest_ns) * times + 1;
  };
  // Inside the noise the default wins.
  const bool is_fused = winner.has_host_keys();
  const int64_t lowest_ns = is_fused ? lowest.fused_ns : lowest.unfused_ns;
  if (takes_longer(cost.ns, lowest_ns, noise)) {
    return fmt::format("it takes {} ns, not {}", cost.ns, lowest_ns);
  }
  if (is_fused && !takes_longer(lowest.unfused_ns + 2, cost.ns, least_gain)) {
    return fmt::format("it takes {} ns, too long beside {} of the unfused choices", cost.ns,
                       lowest.unfused_ns);
  }
  if (!is_fused && lowest.fused_ns < INT64_MAX &&
      takes_longer(lowest.unfused_ns, lowest.fused_ns, least_gain)) {
    return fmt::format("it takes {} ns, and a fused choice {}", cost.ns, lowest.fused_ns);
  }
  return "";
}

class Oracle {
 public:
  Oracle(const TuneSchedule& schedule, const TuneRun& run) : schedule_(schedule), run_(run) {}

  std::string Check() const {
    if (!run_.all_ended) return "a rank waits for ever";
    if (std::string why = CheckEnds(); !why.empty()) return why;
    if (std::string why = CheckTables(); !why.empty()) return why;
    if (std::string why = CheckWinners(); !why.empty()) return why;
    if (IsCompared(schedule_.difference)) return CheckDifference();
    return schedule_.has_faults() ? "" : CheckWithoutFaults();
  }

 private:
  template <typename Checker>
  std::string ForEach(const Checker& check) const {
    for (size_t rank = 0; rank < run_.outcomes.size(); ++rank) {
      if (!run_.outcomes[rank]) continue;
      std::string why = check(static_cast<int>(rank), *run_.outcomes[rank]);
      if (!why.empty()) return fmt::format("rank {}: {}", rank, why);
    }
    return "";
  }

  // Without faults nobody is lost; an error that is about other ranks names them.
  std::string CheckEnds() const {
    return ForEach([&](int, const Outcome& outcome) -> std::string {
      if (outcome) return "";
      const Error& error = outcome.error();
      const bool is_lost = error.code == ErrorCode::kRankLost;
      if (!is_lost && error.code != ErrorCode::kDisagreement) return error.ToText();
      if (is_lost && !schedule_.has_faults()) return "lost without a fault: " + error.ToText();
      return error.ranks.empty() ? "an error names no rank: " + error.ToText() : "";
    });
  }

  std::string CheckTables() const {
    std::optional<std::string> in_force;
    const TuneOutcome* committed = nullptr;
    return ForEach([&](int rank, const Outcome& outcome) -> std::string {
      if (outcome && outcome->committed) {
        if (committed != nullptr && !(committed->winners == outcome->winners)) {
          return "two ranks have committed different winners";
        }
        committed = &*outcome;
      }
      // Such a rank had another table to begin with.
      const bool is_other = schedule_.difference == Difference::kBase && rank == schedule_.odd_rank;
      if (is_other) return outcome && outcome->committed ? "it has voted no, and commits" : "";
      const auto own = TableInForce(schedule_.Of(rank), outcome);
      if (!own) return "";
      if (in_force.value_or(*own) != *own) return "two ranks have different tables in force";
      in_force = own;
      return "";
    });
  }

  std::string CheckWinners() const {
    return ForEach([&](int rank, const Outcome& outcome) -> std::string {
      if (!outcome || !outcome->committed) return "";
      const TuneOfRank& tune = schedule_.Of(rank);
      for (const TuneNode& node : tune.nodes) {
        const auto row = outcome->winners.rows().find(DispatchKey::Of(node.program.anchor()));
        if (row == outcome->winners.rows().end()) continue;
        for (const auto& [bytes, winner] : row->second) {
          const bool is_of_base = bytes == 1 << 20;
          if (is_of_base) continue;
          const std::string why =
              WhyNoWinner(tune, node.program, bytes, winner.id, schedule_.is_exact());
          if (!why.empty()) return fmt::format("{} wins: {}", winner.id.text(), why);
        }
      }
      return "";
    });
  }

  // All that answer are told of it, and nobody has a new table. Settings and nodes are compared
  // before anything is made, and no late rank hides that they differ. Lists of choices are compared
  // after the pre-sync, and not at all if a rank misses its window.
  std::string CheckDifference() const {
    return ForEach([&](int, const Outcome& outcome) -> std::string {
      if (outcome && !outcome->committed) {
        const bool is_hidden = schedule_.difference == Difference::kChoice &&
                               schedule_.has_faults() && !outcome->late_ranks.empty();
        return is_hidden ? "" : "the difference is not told";
      }
      if (outcome) return "ranks that differ have committed";
      if (IsError(outcome, ErrorCode::kRankLost)) return "";
      const std::string text = outcome.error().ToText();
      const std::string name = NameOfDifference(schedule_);
      if (text.find(name) == std::string::npos) {
        return fmt::format("it is not told of '{}', but: {}", name, text);
      }
      // Of two ranks either may be the odd one.
      if (schedule_.job.world_size == 2) return "";
      const bool is_named = outcome.error().ranks == std::vector<int>{schedule_.odd_rank};
      return is_named ? "" : "another rank is named: " + text;
    });
  }

  std::string CheckWithoutFaults() const {
    const size_t passes =
        schedule_.usual.settings.enable_collective_multitemplate ? 1 : schedule_.usual.nodes.size();
    const bool ends_late = schedule_.is_late() && schedule_.late_pass + 1 == passes;
    const bool is_declined = schedule_.difference == Difference::kBase;
    return ForEach([&](int, const Outcome& outcome) -> std::string {
      if (outcome->committed == (ends_late || is_declined)) {
        return outcome->committed ? "it commits" : "it does not commit";
      }
      const std::vector<int> late =
          schedule_.is_late() ? std::vector<int>{schedule_.late_rank} : std::vector<int>{};
      if (outcome->late_ranks != late) return "it is told of other late ranks";
      return outcome->committed ? CheckNodes(*outcome) : "";
    });
  }

  // Every node and size that was tuned has a winner.
  std::string CheckNodes(const TuneOutcome& outcome) const {
    const TuneOfRank& tune = schedule_.usual;
    for (size_t i = 0; i < tune.nodes.size(); ++i) {
      const Program& program = tune.nodes[i].program;
      if (schedule_.is_late() && i == schedule_.late_pass) continue;
      for (const uint64_t size : tune.nodes[i].sizes_bytes) {
        const uint64_t bytes = program.ProblemAt(size, 0).bytes();
        const auto row = outcome.winners.rows().find(DispatchKey::Of(program.anchor()));
        const bool is_measured = row != outcome.winners.rows().end() && row->second.contains(bytes);
        if (!is_measured) return fmt::format("node {} has no winner at {} bytes", i + 1, bytes);
        if (WinnerAt(outcome.table, program, bytes) != row->second.at(bytes).id.text()) {
          return fmt::format("node {} runs another choice than its winner", i + 1);
        }
      }
    }
    return "";
  }

  const TuneSchedule& schedule_;
  const TuneRun& run_;
};

}  // namespace

std::string CheckTune(const TuneSchedule& schedule, const TuneRun& run) {
  return Oracle(schedule, run).Check();
}

}  // namespace cotune
