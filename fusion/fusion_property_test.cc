// Properties of the regions of random programs, by definitions that share no code with fusion/.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "core/recipe/recipe_id.h"
#include "core/testing/random_program.h"
#include "fmt/format.h"
#include "fusion/enumerate.h"
#include "fusion/fusion_recipes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::IsEmpty;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kPrograms = 400;
#else
constexpr uint64_t kPrograms = 2000;
#endif
constexpr int kRanks = 3;
constexpr uint64_t kRows = 6;
constexpr ProgramSize kSize{kRows, kRanks};

// A random program and its forms.
struct Case {
  uint64_t seed;
  Program program;
  FormList list;
  const ProgramGraph& graph() const { return program.graph(); }
};

// Programs by their seeds, which are made once for all tests.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> made;
    for (uint64_t seed = 0; seed < kPrograms; ++seed) {
      // More collectives have more ways to wait for each other.
      const int collectives = seed % 8 == 0 ? 6 : 2;
      const ProgramGraph graph =
          ProgramGraph::Parse(RandomProgram(seed, kRanks, collectives)).value();
      const Program program = Program::Bind(graph, {MemoryKind::kHost, kRanks, kRanks}).value();
      made.push_back({seed, program, FusionRecipes().Forms(program, kRows, {})});
    }
    return made;
  }();
  return cases;
}

std::set<ValueIndex> ReadBy(const ProgramGraph& graph, size_t node) {
  if (const auto* each = std::get_if<CollectiveNode>(&graph.nodes()[node])) return {each->operand};
  std::set<ValueIndex> values;
  for (const Operand& operand : std::get<ComputeNode>(graph.nodes()[node]).operands) {
    if (!operand.is_literal()) values.insert(operand.value);
  }
  return values;
}

bool Reads(const ProgramNode& node, ValueIndex value) {
  if (const auto* each = std::get_if<CollectiveNode>(&node)) return each->operand == value;
  const std::vector<Operand>& operands = std::get<ComputeNode>(node).operands;
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Operand& operand) { return operand.value == value; });
}

std::vector<size_t> ReadersOf(const ProgramGraph& graph, ValueIndex value) {
  std::vector<size_t> readers;
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    if (Reads(graph.nodes()[node], value)) readers.push_back(node);
  }
  return readers;
}

bool IsOutput(const ProgramGraph& graph, ValueIndex value) {
  return std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const ProgramOutput& output) { return output.value == value; });
}

// Follows each path from a node to the end.
bool LeadsTo(const ProgramGraph& graph, size_t node, const std::set<size_t>& goals) {
  for (const size_t reader : ReadersOf(graph, graph.value_of_node(node))) {
    if (goals.contains(reader) || LeadsTo(graph, reader, goals)) return true;
  }
  return false;
}

// Returns true if a path from a node of the set leaves it and returns.
bool HasDetour(const ProgramGraph& graph, const std::set<size_t>& nodes) {
  for (const size_t node : nodes) {
    for (const size_t reader : ReadersOf(graph, graph.value_of_node(node))) {
      if (!nodes.contains(reader) && LeadsTo(graph, reader, nodes)) return true;
    }
  }
  return false;
}

// 16-bit floats that lie in memory when every collective runs by itself, or are rounded anyway.
class StoredValues {
 public:
  explicit StoredValues(const ProgramGraph& graph) : graph_(graph), unfused_(UnfusedRecipe(graph)) {
    for (const RecipeStep& step : unfused_.steps) {
      for (const size_t node : step.nodes) {
        const bool is_collective = !step.is_part();
        for (const ValueIndex value : ReadBy(graph, node)) {
          const bool is_own =
              !graph.is_input(value) && std::find(step.nodes.begin(), step.nodes.end(),
                                                  NodeOf(graph, value)) != step.nodes.end();
          if (!is_own) stored_.insert(value);
        }
        if (is_collective) stored_.insert(graph.value_of_node(node));
      }
    }
    for (const ProgramOutput& output : graph.outputs()) stored_.insert(output.value);
  }

  // Returns true if a step may begin or end at the value.
  bool MayCut(ValueIndex value) const {
    const Dtype dtype = graph_.type(value).dtype;
    if (dtype != Dtype::kBf16 && dtype != Dtype::kF16) return true;
    if (graph_.is_input(value) || stored_.contains(value)) return true;
    const auto& node = std::get<ComputeNode>(graph_.node_of(value));
    const auto is_stored = [&](const Operand& operand) {
      return operand.is_literal() || MayCut(operand.value);
    };
    switch (node.op) {
      case Op::kNeg:
      case Op::kAbs:
      case Op::kRelu:
      case Op::kRound:
      case Op::kMin:
      case Op::kMax:
      case Op::kClamp:
        return std::all_of(node.operands.begin(), node.operands.end(), is_stored);
      case Op::kWhere:
        return is_stored(node.operands[1]) && is_stored(node.operands[2]);
      case Op::kCast:
        return SizeBytes(graph_.type(node.operands[0].value).dtype) == 1;
      default:
        return false;
    }
  }
  bool IsStored(ValueIndex value) const { return stored_.contains(value); }
  const Recipe& unfused() const { return unfused_; }

 private:
  const ProgramGraph& graph_;
  const Recipe unfused_;
  std::set<ValueIndex> stored_;
};

// The first rule that the region breaks; "": none.
std::string BrokenRule(const ProgramGraph& graph, const StoredValues& stored, size_t collective,
                       const Region& region) {
  const std::set<size_t> inside(region.nodes.begin(), region.nodes.end());
  if (!inside.contains(collective)) return "it has the collective";
  if (HasDetour(graph, inside)) return "it is convex";
  size_t leaving = 0;
  for (const size_t node : region.nodes) {
    const ValueIndex value = graph.value_of_node(node);
    const std::vector<size_t> readers = ReadersOf(graph, value);
    const auto outside = std::count_if(readers.begin(), readers.end(),
                                       [&](size_t reader) { return !inside.contains(reader); });
    const bool leaves = outside > 0 || IsOutput(graph, value);
    leaving += leaves ? 1 : 0;
    if (leaves && !stored.MayCut(value)) return "it ends at stored values";
    for (const ValueIndex operand : ReadBy(graph, node)) {
      const bool is_own = !graph.is_input(operand) && inside.contains(NodeOf(graph, operand));
      if (!is_own && !stored.MayCut(operand)) return "it begins at stored values";
    }
    if (node == collective) continue;
    if (!std::holds_alternative<ComputeNode>(graph.nodes()[node])) return "it has one collective";
    const bool is_before = LeadsTo(graph, node, {collective});
    if (is_before == LeadsTo(graph, collective, {node})) return "it is connected";
    if (is_before && (readers.size() != 1 || leaves)) return "a value before it has one reader";
    const auto& anchor = std::get<CollectiveNode>(graph.nodes()[collective]);
    if (is_before && anchor.collective == Collective::kBroadcast) return "a broadcast has no front";
  }
  return leaving <= 8 ? "" : "it has 8 outputs";
}

// The inputs of a step are stored values, and so are its outputs; and values that the program
// stores are stored by these steps, too.
std::string ChangedRounding(const Recipe& recipe, const StoredValues& stored) {
  std::set<ValueIndex> in_memory;
  for (const RecipeStep& step : recipe.steps) {
    const std::set<size_t> own(step.nodes.begin(), step.nodes.end());
    for (const size_t node : step.nodes) {
      const ValueIndex value = recipe.graph.value_of_node(node);
      const bool is_collective = std::holds_alternative<CollectiveNode>(recipe.graph.nodes()[node]);
      const std::vector<size_t> readers = ReadersOf(recipe.graph, value);
      const bool leaves = std::any_of(readers.begin(), readers.end(), [&](size_t reader) {
        return !own.contains(reader) ||
               std::holds_alternative<CollectiveNode>(recipe.graph.nodes()[reader]);
      });
      if (leaves || is_collective || IsOutput(recipe.graph, value)) in_memory.insert(value);
    }
  }
  for (size_t node = 0; node < recipe.graph.nodes().size(); ++node) {
    const ValueIndex value = recipe.graph.value_of_node(node);
    if (in_memory.contains(value) && !stored.MayCut(value)) return fmt::format("%{} more", value);
    const Dtype dtype = recipe.graph.type(value).dtype;
    if (dtype != Dtype::kBf16 && dtype != Dtype::kF16) continue;
    if (!in_memory.contains(value) && stored.IsStored(value)) {
      const auto& compute = std::get<ComputeNode>(recipe.graph.nodes()[node]);
      const bool is_arithmetic = compute.op == Op::kAdd || compute.op == Op::kMul;
      if (is_arithmetic) return fmt::format("%{} less", value);
    }
  }
  return "";
}

// Ids of the program's regions: each by itself, and in pairs with the first one of each later
// collective.
std::vector<ChoiceId> IdsOf(const ProgramGraph& graph, const FormList& list, bool has_pairs) {
  const std::vector<Position>& positions = list.forms[0].positions;
  const ChoiceId bare = ChoiceId::Parse("fake/a").value();
  const auto named = [&](const Region* region) {
    return region == nullptr ? bare : bare.WithHostKey(kFuseKey, FuseText(graph, *region));
  };
  std::vector<ChoiceId> ids;
  std::vector<ChoiceId> steps(positions.size(), bare);
  for (size_t place = 0; place < positions.size(); ++place) {
    for (const Region& region : positions[place].regions) {
      steps[place] = named(&region);
      ids.push_back(ChoiceId::Join(steps));
      for (size_t other = place + 1; has_pairs && other < positions.size(); ++other) {
        if (positions[other].regions.empty()) continue;
        steps[other] = named(&positions[other].regions.front());
        ids.push_back(ChoiceId::Join(steps));
        steps[other] = bare;
      }
      steps[place] = bare;
    }
  }
  return ids;
}

bool HasSeveralRegions(const Recipe& recipe) {
  return std::count_if(recipe.steps.begin(), recipe.steps.end(), [](const RecipeStep& step) {
           return !step.is_part() && step.nodes.size() > 1;
         }) > 1;
}

TEST(FusionPropertyTest, EveryRegionIsLegal) {
  size_t regions = 0;
  for (const auto& [seed, program, list] : Cases()) {
    const ProgramGraph& graph = program.graph();
    ASSERT_FALSE(list.forms.empty());
    EXPECT_LT(list.refusals.size(), 40u * graph.collectives().size());
    const StoredValues stored(graph);
    for (const Position& position : list.forms[0].positions) {
      EXPECT_LE(position.regions.size(), 12u);
      for (const Region& region : position.regions) {
        ++regions;
        EXPECT_EQ(BrokenRule(graph, stored, position.collectives.front(), region), "")
            << seed << ": " << FuseText(graph, region) << "\n"
            << graph.ToText();
      }
    }
  }
  // Most programs have some.
  EXPECT_GT(regions, kPrograms * 2);
}

TEST(FusionPropertyTest, IdsAreReadBackToTheirRecipes) {
  size_t recipes = 0;
  size_t refused = 0;
  size_t larger = 0;
  for (const auto& [seed, program, list] : Cases()) {
    const ProgramGraph& graph = program.graph();
    const StoredValues stored(graph);
    const uint64_t unfused_bytes = LayOut(stored.unfused(), kRanks, kRows).bytes;
    for (const ChoiceId& id : IdsOf(graph, list, seed % 4 == 0)) {
      const Result<Recipe> recipe = FusionRecipes().RecipeOf(graph, id);
      if (!recipe) {
        // Regions that are legal one by one may overlap, or wait for each other.
        EXPECT_GT(graph.collectives().size(), 1u) << recipe.error().ToText();
        ++refused;
        continue;
      }
      ++recipes;
      EXPECT_EQ(ChangedRounding(*recipe, stored), "") << seed << ": " << id.text() << "\n"
                                                      << graph.ToText();
      const std::vector<ChoiceId> steps = id.StepsFor(graph.collectives().size());
      const std::vector<size_t> backend_steps = recipe->backend_steps();
      for (size_t i = 0; i < steps.size(); ++i) {
        EXPECT_EQ(FuseText(graph, {recipe->steps[backend_steps[i]].nodes}),
                  steps[i].HostKey(kFuseKey));
      }
      if (seed % 4 == 0) {
        EXPECT_TRUE(BackendCalls(*recipe, program, kRows, 7).has_value()) << id.text();
      }
      if (LayOut(*recipe, kRanks, kRows).bytes <= unfused_bytes) continue;
      ++larger;
      EXPECT_TRUE(HasSeveralRegions(*recipe)) << seed << ": " << id.text() << "\n"
                                              << graph.ToText();
    }
  }
  EXPECT_GT(recipes, kPrograms * 2);
  EXPECT_LT(refused, recipes / 8);
  // Two regions may end at values that could lie in one output of the part after them.
  EXPECT_LT(larger, recipes / 100);
}

// Rules that allow less give the same regions in the same order without some of them, unless there
// are too many for one collective.
TEST(FusionPropertyTest, RulesOnlyLeaveRegionsOut) {
  std::vector<FusionRules> all(5);
  all[0].types = static_cast<uint8_t>(FusionType::kEpilogue);
  all[1].types = static_cast<uint8_t>(FusionType::kPrologue);
  all[2].is_recursive = false;
  all[3].max_depth = 2;
  all[4].enabled = false;
  for (const auto& [seed, program, list] : Cases()) {
    if (seed % 2 == 0) continue;
    const Legality legality(program.graph());
    const FusionRules& rules = all[seed % all.size()];
    for (const Position& position : list.forms[0].positions) {
      std::vector<Region> expected = position.regions;
      if (expected.size() == kRegionsMax) continue;
      std::vector<Refusal> refusals;
      std::erase_if(expected, [&](const Region& region) {
        return WhyLeftOut(legality.DepthOf(region), rules).has_value();
      });
      EXPECT_EQ(EnumerateRegions(legality, position.collectives, kSize, rules, refusals), expected)
          << seed;
    }
  }
}

using Bytes = std::vector<std::byte>;

// Runs the steps of a recipe by the reference evaluator. The values of each step are rounded to
// their dtype and lie in its slots, as in a call. The result is [rank][output]. The inputs of the
// program come first, its outputs follow, and then the rows of inputs that are a rank's share.
std::vector<std::vector<Bytes>> RunSteps(const Recipe& recipe,
                                         const std::vector<std::vector<Bytes>>& inputs) {
  const ProgramGraph& graph = recipe.graph;
  const size_t program_inputs = inputs[0].size();
  const size_t operands_end = program_inputs + graph.outputs().size();
  const std::vector<ValueIndex> shares = recipe.inputs.Shares();
  const auto ranks = static_cast<int>(inputs.size());
  std::vector<std::vector<Bytes>> memory = inputs;
  for (std::vector<Bytes>& rank : memory) {
    rank.resize(operands_end + shares.size() + recipe.temporaries.size());
  }
  // A share lies in the memory of its input, as that is when the step runs.
  const auto read = [&](size_t rank, size_t slot) {
    if (slot < operands_end || slot >= operands_end + shares.size()) return memory[rank][slot];
    const Bytes& input = memory[rank][static_cast<size_t>(shares[slot - operands_end])];
    const auto bytes = static_cast<std::ptrdiff_t>(input.size()) / ranks;
    const auto begin = input.begin() + static_cast<std::ptrdiff_t>(rank) * bytes;
    return Bytes(begin, begin + bytes);
  };
  for (const RecipeStep& step : recipe.steps) {
    std::vector<std::vector<Bytes>> operands(memory.size());
    for (size_t rank = 0; rank < memory.size(); ++rank) {
      for (const SlotIndex slot : step.inputs) {
        operands[rank].push_back(read(rank, static_cast<size_t>(slot)));
      }
    }
    const auto values = EvaluateProgram(step.program, kRows, ranks, operands).value();
    for (size_t rank = 0; rank < memory.size(); ++rank) {
      for (size_t i = 0; i < step.outputs.size(); ++i) {
        memory[rank][static_cast<size_t>(step.outputs[i])] = Encode(values[rank][i]);
      }
    }
  }
  std::vector<std::vector<Bytes>> results(memory.size());
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const int32_t into = graph.outputs()[i].into;
      const size_t slot =
          into < 0
              ? program_inputs + i
              : static_cast<size_t>(recipe.inputs.inputs[static_cast<size_t>(into)].of_program);
      results[rank].push_back(memory[rank][slot]);
    }
  }
  return results;
}

// All rows of each input of each rank.
std::vector<std::vector<Bytes>> InputsOf(const ProgramGraph& graph, int ranks) {
  std::vector<std::vector<Bytes>> inputs(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t input = 0; input < graph.inputs().size(); ++input) {
      const ValueType& type = graph.inputs()[input].type;
      const uint64_t rows = type.rows == Rows::kOne   ? 1
                            : type.rows == Rows::kAll ? kRows
                                                      : kRows / static_cast<uint64_t>(ranks);
      inputs[static_cast<size_t>(rank)].push_back(
          RepeatedRows(InputPeriod(graph, input, rank, {.rows = kRows, .world_size = ranks}),
                       type.columns * SizeBytes(type.dtype), rows));
    }
  }
  return inputs;
}

// Returns how many of the ids have a recipe.
size_t CheckSteps(const ProgramGraph& graph, const std::vector<ChoiceId>& ids) {
  const std::vector<std::vector<Bytes>> inputs = InputsOf(graph, kRanks);
  const auto expected = EvaluateProgram(graph, kRows, kRanks, inputs).value();
  size_t checked = 0;
  for (const ChoiceId& id : ids) {
    const Result<Recipe> recipe = FusionRecipes().RecipeOf(graph, id);
    if (!recipe) continue;
    ++checked;
    const auto seen = RunSteps(*recipe, inputs);
    for (size_t rank = 0; rank < seen.size(); ++rank) {
      for (size_t i = 0; i < seen[rank].size(); ++i) {
        EXPECT_EQ(CountWrong(expected[rank][i], seen[rank][i]), 0u)
            << id.text() << ", rank " << rank << ", output " << i << "\n"
            << graph.ToText();
      }
    }
  }
  return checked;
}

// The evaluator keeps f32 and f64 wider within a step, and other values as they are stored.
bool IsKeptInSteps(const ProgramGraph& graph) {
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    const Dtype dtype = graph.type(graph.value_of_node(node)).dtype;
    if (dtype == Dtype::kF32 || dtype == Dtype::kF64) return true;
  }
  return false;
}

// The steps of the split program give the bits of the program's own steps, or without these the
// values of the program: returns true if it was checked.
bool CheckSplit(const ProgramGraph& graph, const ChoiceId& id, int ranks) {
  const std::vector<std::vector<Bytes>> inputs = InputsOf(graph, ranks);
  const auto seen = RunSteps(FusionRecipes().RecipeOf(graph, id).value(), inputs);
  const auto unfused = RunSteps(UnfusedRecipe(graph), inputs);
  if (!IsKeptInSteps(graph)) {
    EXPECT_TRUE(seen == unfused) << id.text() << ", " << ranks << " ranks\n" << graph.ToText();
    return true;
  }
  const auto expected = EvaluateProgram(graph, kRows, ranks, inputs).value();
  for (size_t rank = 0; rank < seen.size(); ++rank) {
    for (size_t i = 0; i < seen[rank].size(); ++i) {
      // Steps of few programs are beyond the bounds in any form.
      if (CountWrong(expected[rank][i], unfused[rank][i]) > 0) return false;
      EXPECT_EQ(CountWrong(expected[rank][i], seen[rank][i]), 0u)
          << ranks << " ranks, output " << i << "\n"
          << graph.ToText();
    }
  }
  return true;
}

TEST(FusionPropertyTest, StepsComputeTheProgram) {
  size_t fused = 0;
  for (uint64_t seed = 0; seed < kPrograms; seed += 20) {
    const auto& [of_seed, program, list] = Cases()[seed];
    fused += CheckSteps(program.graph(), IdsOf(program.graph(), list, true));
  }
  EXPECT_GT(fused, kPrograms / 20);
}

// The id of the form and, for each of its regions, the id with that region.
std::vector<ChoiceId> IdsOfForm(const Form& form) {
  const ChoiceId bare = ChoiceId::Parse("fake/a?via=" + form.via).value();
  std::vector<ChoiceId> steps(form.positions.size(), bare);
  std::vector<ChoiceId> ids = {ChoiceId::Join(steps)};
  for (size_t place = 0; place < steps.size(); ++place) {
    for (const Region& region : form.positions[place].regions) {
      steps[place] = bare.WithHostKey(kFuseKey, FuseText(form.graph, region));
      ids.push_back(ChoiceId::Join(steps));
    }
    steps[place] = bare;
  }
  return ids;
}

const Form* ListedForm(const FormList& list, std::string_view via) {
  for (const Form& form : list.forms) {
    if (form.via == via) return &form;
  }
  return nullptr;
}

// Buckets alone, and buckets with local operations in their steps.
TEST(FusionPropertyTest, StepsOfBucketsComputeTheProgram) {
  size_t packed = 0;
  size_t fused = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const ProgramGraph graph = ProgramGraph::Parse(RandomBucketProgram(seed, kRanks)).value();
    const Program program =
        Program::Bind(graph, {MemoryKind::kHost, kRanks, kRanks, BufferClass::kPlain}).value();
    const FormList list = FusionRecipes().Forms(program, kRows, {});
    const Form* const form = ListedForm(list, "bucket");
    if (form == nullptr) continue;
    const std::vector<ChoiceId> ids = IdsOfForm(*form);
    EXPECT_EQ(CheckSteps(graph, ids), ids.size()) << graph.ToText();
    ++packed;
    fused += ids.size() - 1;
  }
  EXPECT_GT(packed, 180u);
  EXPECT_GT(fused, 200u);
}

// The first rule that the form breaks; "": none.
std::string BrokenRuleOfSplit(const ProgramGraph& graph, const Form& form) {
  const auto count = [](const ProgramGraph& each, Collective kind) {
    return std::count_if(each.nodes().begin(), each.nodes().end(), [&](const ProgramNode& node) {
      const auto* const collective = std::get_if<CollectiveNode>(&node);
      return collective != nullptr && collective->collective == kind;
    });
  };
  const auto scattered =
      count(form.graph, Collective::kReduceScatter) - count(graph, Collective::kReduceScatter);
  if (scattered < 1) return "an all_reduce is split";
  if (scattered + count(form.graph, Collective::kAllReduce) !=
      count(graph, Collective::kAllReduce)) {
    return "all others stay";
  }
  bool has_local_share = false;
  for (size_t node = 0; node < form.graph.nodes().size(); ++node) {
    const ValueIndex value = form.graph.value_of_node(node);
    const bool is_share = form.graph.type(value).rows == Rows::kShare;
    const bool is_local = std::holds_alternative<ComputeNode>(form.graph.nodes()[node]);
    has_local_share = has_local_share || (is_share && is_local);
  }
  if (!has_local_share) return "an operation runs on a share";
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ValueIndex before = graph.outputs()[i].value;
    const ValueIndex after = form.graph.outputs()[i].value;
    if (graph.type(before) != form.graph.type(after)) return "outputs keep their types";
    // A value of which the program promises that all ranks have the same is the same on all ranks.
    if (graph.is_replicated(before) && !form.graph.is_replicated(after)) return "replicated";
  }
  return "";
}

TEST(FusionPropertyTest, StepsOfSplitsComputeTheProgram) {
  size_t programs = 0;
  size_t recipes = 0;
  size_t runs = 0;
  size_t checked = 0;
  size_t with_shares = 0;
  size_t overwriting = 0;
  for (const auto& [seed, program, list] : Cases()) {
    const Form* const form = ListedForm(list, "split");
    if (form == nullptr) continue;
    ++programs;
    const ProgramGraph& graph = program.graph();
    EXPECT_EQ(BrokenRuleOfSplit(graph, *form), "") << seed << "\n" << graph.ToText();
    const bool has_shares = !form->inputs.Shares().empty();
    with_shares += has_shares ? 1 : 0;
    overwriting += std::any_of(graph.outputs().begin(), graph.outputs().end(),
                               [](const ProgramOutput& each) { return each.into >= 0; })
                       ? 1
                       : 0;
    if (programs % 4 != 0 && !has_shares) continue;
    const std::vector<ChoiceId> ids = IdsOfForm(*form);
    recipes += CheckSteps(graph, ids);
    for (const int ranks : {2, kRanks}) {
      // A broadcast may have a root that two ranks lack.
      if (!Program::Bind(graph, {MemoryKind::kHost, ranks, ranks})) continue;
      ++runs;
      checked += CheckSplit(graph, ids.front(), ranks) ? 1 : 0;
    }
  }
  EXPECT_LE(runs - checked, runs / 100);
  EXPECT_GT(programs, kPrograms / 10);
  EXPECT_GT(recipes, kPrograms / 5);
  EXPECT_GT(with_shares, kPrograms / 100);
  EXPECT_GT(overwriting, kPrograms / 100);
}

}  // namespace
}  // namespace cotune
