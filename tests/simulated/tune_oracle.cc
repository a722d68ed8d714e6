#include "tests/simulated/tune_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/testing/twin_recipes.h"

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
      return schedule.usual.nodes.size() > 1 ? "in node 2:" : "enable_collective_multitemplate";
    case Difference::kField:
      return "code";
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

std::vector<Problem> ProblemsOf(const Recipe& recipe, const Program& program,
                                const Problem& anchor) {
  const auto calls = BackendCalls(recipe, program, program.RowsAt(anchor), 0).value();
  std::vector<Problem> problems;
  for (const BackendCall& call : calls) problems.push_back(call.problem);
  return problems;
}

// The collectives of each form of a program, in the order of a choice's steps.
std::vector<std::vector<Problem>> CollectivesOfForms(const Program& program,
                                                     const Problem& anchor) {
  if (program.is_single_collective()) return {{anchor}};
  std::vector<std::vector<Problem>> forms;
  const FormList list = TwinRecipes().Forms(program, program.RowsAt(anchor), {});
  for (const Form& form : list.forms) {
    forms.push_back(ProblemsOf(UnfusedRecipe(form.graph), program, anchor));
  }
  return forms;
}

// The collectives that a choice runs; empty if the program has no such form.
std::vector<Problem> CollectivesOf(const Program& program, const Problem& anchor,
                                   const ChoiceId& id) {
  if (program.is_single_collective()) return {anchor};
  const Result<Recipe> recipe = TwinRecipes().RecipeOf(program.graph(), id);
  return recipe ? ProblemsOf(*recipe, program, anchor) : std::vector<Problem>();
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

int64_t CostNs(const SimulatedChoice& choice, const Problem& problem) {
  return choice.base_ns + choice.ns_per_byte * static_cast<int64_t>(problem.bytes());
}

// Of the choices that are right everywhere.
int64_t LowestCostNs(const TuneOfRank& tune, const Problem& problem) {
  int64_t lowest_ns = INT64_MAX;
  for (const auto& backend : tune.backends) {
    for (const SimulatedChoice& choice : backend) {
      if (choice.IsDefectiveFor(problem.cls.collective)) continue;
      lowest_ns = std::min(lowest_ns, CostNs(choice, problem));
    }
  }
  return lowest_ns;
}

// Why the choice must not be the winner at this size; "": it may. is_exact: what was measured is
// what the scripts say.
std::string WhyNoWinner(const TuneOfRank& tune, const Program& program, uint64_t bytes,
                        const ChoiceId& winner, bool is_exact) {
  const Problem problem = program.ProblemAt(bytes, 0);
  const std::vector<Problem> collectives = CollectivesOf(program, problem, winner);
  const std::vector<ChoiceId> steps = winner.WithoutHostKeys().StepsFor(collectives.size());
  if (steps.empty()) return "it has another number of steps";
  int64_t lowest_ns = INT64_MAX;
  const auto forms = CollectivesOfForms(program, problem);
  for (const std::vector<Problem>& form : forms) {
    int64_t form_ns = 0;
    for (const Problem& each : form) form_ns += LowestCostNs(tune, each);
    lowest_ns = std::min(lowest_ns, form_ns);
  }
  int64_t cost_ns = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const SimulatedChoice* choice = FindChoice(tune, steps[i]);
    if (choice == nullptr) return "no backend lists it";
    if (choice->IsDefectiveFor(collectives[i].cls.collective)) {
      return std::string(Name(choice->defect));
    }
    cost_ns += CostNs(*choice, collectives[i]);
  }
  // Inside the noise the default wins, and below the threshold of fusion the unfused form.
  const double noise = 1 + tune.settings.noise_percent / 100;
  const double fused_gain =
      forms.size() < 2 ? 1 : std::max(noise, tune.settings.fusion.speedup_threshold);
  const auto limit_ns = static_cast<double>(lowest_ns) * noise * fused_gain;
  const bool is_slow = static_cast<double>(cost_ns) > limit_ns + 1;
  return is_exact && is_slow ? fmt::format("it takes {} ns, not {}", cost_ns, lowest_ns) : "";
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

  // All that answer are told of it, and nobody has a new table.
  std::string CheckDifference() const {
    return ForEach([&](int, const Outcome& outcome) -> std::string {
      if (outcome && !outcome->committed) return "the difference is not told";
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
