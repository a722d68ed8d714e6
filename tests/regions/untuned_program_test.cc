// Programs for which nobody has tuned the kernels of regions on GPUs: each has a fused choice, or
// is refused for the reason that is true of it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/problem/program.h"
#include "core/problem/program_graph.h"
#include "core/recipe/make_recipe.h"
#include "fmt/format.h"
#include "fusion/fusion_recipes.h"
#include "gtest/gtest.h"
#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/part_graph.h"

namespace cotune::cuda {
namespace {

constexpr uint64_t kRows = 16;

// The lines of a program after its inputs %x, %r (a residual), %g and %b (of one row), and %w (one
// number for each row).
struct Shape {
  std::string_view name;
  std::string_view inputs;  // the letters of those that it has
  std::string_view lines;
  bool takes_doubles = true;  // quantize does not
};

constexpr Shape kShapes[] = {
    {"the residual is the first operand", "xrg",
     "%s = all_reduce sum %x\n%t = add %r, %s\n%y = rms_norm %t, %g, eps=1e-6\n"
     "return %y, %t into %r\n"},
    {"two norms", "xgb",
     "%s = all_reduce sum %x\n%t = rms_norm %s, %g, eps=1e-6\n"
     "%y = layer_norm %t, %g, %b, eps=1e-5\nreturn %y, %t\n"},
    {"softmax over the residual", "xr",
     "%s = all_reduce sum %x\n%t = add %s, %r\n%y = softmax %t\nreturn %y\n"},
    {"scales before and after", "xgw",
     "%v = mul %x, 0.5\n%s = all_reduce sum %v\n%t = mul %s, %w\n"
     "%y = rms_norm %t, %g, eps=1e-6\nreturn %y\n"},
    {"three outputs", "xrg",
     "%s = all_reduce sum %x\n%t = add %s, %r\n%y = rms_norm %t, %g, eps=1e-6\n"
     "%c = quantize_scale %y, to=i8\n%q = quantize %y, %c, to=i8\n"
     "return %q, %c, %t into %r\n",
     false},
    {"over the operand", "xg",
     "%s = all_reduce sum %x\n%y = rms_norm %s, %g, eps=1e-6\nreturn %y into %x\n"},
    {"a bias on both sides", "xbg",
     "%v = add %x, %b\n%s = all_reduce sum %v\n%y = add %s, %g\n%z = relu %y\n"
     "return %z into %x\n"},
    {"the norm before the sum", "xg",
     "%v = rms_norm %x, %g, eps=1e-6\n%s = all_reduce sum %v\n%y = relu %s\nreturn %y\n"},
};

struct Untuned {
  const Shape& shape;
  int columns;
  std::string_view dtype;
  int world_size;

  std::string Text() const {
    std::string text;
    for (const char input : shape.inputs) {
      const bool is_number = input == 'w';
      const bool is_of_one_row = input == 'g' || input == 'b';
      text += fmt::format("%{} = input {} [{}, {}]{}\n", input, dtype, is_of_one_row ? "1" : "R",
                          is_number ? 1 : columns, input == 'x' ? "" : " replicated");
    }
    return text + std::string(shape.lines);
  }
};

bool ReducesRow(const ProgramNode& node) {
  const auto* compute = std::get_if<ComputeNode>(&node);
  return compute != nullptr && (compute->op == Op::kRowSum || compute->op == Op::kRowMax);
}

// The operations before a region's collective stand before it in its graph.
bool ReducesBefore(const ProgramGraph& region) {
  const ProgramGraph lowered = region.Lower();
  const auto collective = lowered.nodes().begin() + lowered.collectives().front();
  return std::any_of(lowered.nodes().begin(), collective, ReducesRow);
}
bool ReducesAfter(const ProgramGraph& region) {
  const ProgramGraph lowered = region.Lower();
  const auto collective = lowered.nodes().begin() + lowered.collectives().front();
  return std::any_of(collective, lowered.nodes().end(), ReducesRow);
}

// The words of operands that a thread holds if a row has as many threads as it can have, a cluster
// of 8 blocks of 256. Threads take whole leaves of 8 columns.
uint64_t HeldWords(const ProgramGraph& region, int columns) {
  constexpr uint64_t kThreadColumns = 8 * 256 * 8;
  const ProgramGraph lowered = region.Lower();
  const size_t collective = lowered.collectives().front();
  std::set<ValueIndex> held{lowered.value_of_node(collective)};
  for (size_t n = collective + 1; n < lowered.nodes().size(); ++n) {
    for (const ValueIndex value : ValuesReadBy(lowered.nodes()[n])) {
      if (lowered.is_input(value) && lowered.type(value).columns > 1) held.insert(value);
    }
  }
  const uint64_t leaves = (static_cast<uint64_t>(columns) + kThreadColumns - 1) / kThreadColumns;
  uint64_t words = 0;
  for (const ValueIndex value : held) {
    words += leaves * 8 * SizeBytes(lowered.type(value).dtype) / 4;
  }
  return words;
}

// The reason for which no kernel can run the region; "" if one has to.
std::string ReasonOf(const ProgramGraph& region, const Untuned& untuned) {
  constexpr uint64_t kHeldWordsMax = 48;
  if (ReducesBefore(region)) {
    return "an operation before the collective reduces rows, which needs all leaves of a row at "
           "once";
  }
  const bool runs_by_rows = ReducesAfter(region) || untuned.columns % 8 != 0;
  if (!runs_by_rows || HeldWords(region, untuned.columns) <= kHeldWordsMax) return "";
  return fmt::format("a thread would need more registers than there are, for rows of {} columns",
                     untuned.columns);
}

// The reason that the backend gives; "" if it lists a choice.
std::string RefusalOf(const ProgramGraph& region, const Untuned& untuned) {
  const auto leaves = LeafRegionOf(RegionOf(region.Lower(), kRows, untuned.world_size));
  if (!leaves) return leaves.error().message;
  const auto choices = ListFused(*leaves, {});
  if (!choices) return choices.error().message;
  for (const Choice& choice : *choices) {
    if (choice.reason.empty()) return "";
  }
  return choices->front().reason;
}

struct Counts {
  size_t taken = 0;
  size_t refused = 0;
  size_t without_region = 0;
};

void CheckRegions(const Untuned& untuned, Counts& counts) {
  const ProgramGraph graph = ProgramGraph::Parse(untuned.Text()).value();
  const Program program =
      Program::Bind(graph, {MemoryKind::kCuda, untuned.world_size, untuned.world_size}).value();
  const FormList list = FusionRecipes().Forms(program, kRows, {});
  const std::vector<Region>& regions = list.forms.front().positions.front().regions;
  size_t operations = 0;  // in the largest region
  for (const Region& each : regions) {
    const Recipe recipe = MakeRecipe(graph, {&each, 1}).value();
    const ProgramGraph& region = recipe.steps[recipe.backend_steps().front()].program;
    const std::string reason = RefusalOf(region, untuned);
    EXPECT_EQ(reason, ReasonOf(region, untuned)) << untuned.shape.name << ":\n" << region.ToText();
    counts.taken += reason.empty() ? 1 : 0;
    counts.refused += reason.empty() ? 0 : 1;
    operations = std::max(operations, each.nodes.size());
  }
  counts.without_region += regions.empty() ? 1 : 0;
  EXPECT_EQ(operations, graph.nodes().size()) << "no region has all of " << untuned.Text();
}

TEST(UntunedProgramTest, EachRegionIsTakenOrRefusedForATrueReason) {
  Counts counts;
  for (const Shape& shape : kShapes) {
    for (const int columns :
         {1024, 1027, 2880, 4096, 5120, 7168, 8190, 8192, 12288, 16384, 24576, 32768, 65536}) {
      for (const std::string_view dtype : {"bf16", "f16", "f32", "f64"}) {
        if (dtype == "f64" && !shape.takes_doubles) continue;
        for (int world_size = 2; world_size <= 8; ++world_size) {
          CheckRegions({shape, columns, dtype, world_size}, counts);
        }
      }
    }
  }
  fmt::print("{} regions are taken, {} refused\n", counts.taken, counts.refused);
  EXPECT_EQ(counts.without_region, 0u);
  EXPECT_GT(counts.taken, 6 * counts.refused);
  EXPECT_GT(counts.refused, 0u);
}

// The reasons of fusion/ for programs of which no region has all operations.
TEST(UntunedProgramTest, OtherProgramsAreCutForATrueReason) {
  const auto reasons = [](const std::string& text) {
    const auto graph = ProgramGraph::Parse(text);
    EXPECT_TRUE(graph.has_value()) << graph.error().ToText();
    const auto program = Program::Bind(graph.value(), {MemoryKind::kCuda, 4, 4});
    EXPECT_TRUE(program.has_value()) << program.error().ToText();
    std::set<std::string> found;
    for (const Refusal& each : FusionRecipes().Forms(program.value(), kRows, {}).refusals) {
      if (each.choice.find("via=") == std::string::npos) found.insert(each.reason);
    }
    return found;
  };
  EXPECT_EQ(reasons("%x = input bf16 [R, 1024]\n%v = mul %x, 2\n%s = all_reduce sum %v\n"
                    "%y = add %s, %v\nreturn %y\n")
                .count("value %1 before the collective has further readers"),
            1u);
  EXPECT_EQ(reasons("%x = input bf16 [R, 1024]\n%b = input bf16 [1, 1024] nofuse\n"
                    "%s = all_reduce sum %x\n%y = add %s, %b\nreturn %y\n")
                .count("input %1 has the flag nofuse"),
            1u);
  EXPECT_EQ(reasons("%x = input bf16 [R, 1024]\n%s = all_to_all %x\n%y = relu %s\n"
                    "return %y into %x\n")
                .count("output %2 overwrites an input that a later step, or a peer, still reads"),
            1u);
  EXPECT_EQ(reasons("%x = input bf16 [R, 1024]\n%s = all_reduce sum %x\n%y = relu %s\n"
                    "return %y into %x\n")
                .size(),
            0u);
}

}  // namespace
}  // namespace cotune::cuda
