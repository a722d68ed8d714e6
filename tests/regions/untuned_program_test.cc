// Programs for which nobody has tuned the kernels of regions on GPUs: each has a fused choice, or is
// refused for the reason that is true of it.
#include <cstdint>
#include <optional>
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
     "return %q, %c, %t into %r\n"},
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

// A region reduces rows before its collective.
[[maybe_unused]] bool ReducesBefore(const ProgramGraph& region) {
  const ProgramGraph lowered = region.Lower();
  for (const ProgramNode& node : lowered.nodes()) {
    const auto* compute = std::get_if<ComputeNode>(&node);
    if (compute == nullptr) return false;
    if (compute->op == Op::kRowSum || compute->op == Op::kRowMax) return true;
  }
  return false;
}

// The operands of a row take so many words of each thread, with as many threads as a row can have.
uint64_t WordsOfThread(const ProgramGraph& region, int columns) {
  constexpr uint64_t kThreadsMax = 1024;
  constexpr uint64_t kLeaf = 8;
  const ProgramGraph lowered = region.Lower();
  const size_t collective = lowered.collectives().front();
  std::set<ValueIndex> held{lowered.value_of_node(collective)};
  for (size_t n = collective + 1; n < lowered.nodes().size(); ++n) {
    for (const ValueIndex value : ValuesReadBy(lowered.nodes()[n])) {
      if (lowered.is_input(value) && lowered.type(value).columns > 1) held.insert(value);
    }
  }
  const uint64_t leaves = (static_cast<uint64_t>(columns) + kLeaf - 1) / kLeaf;
  uint64_t words = 0;
  for (const ValueIndex value : held) {
    words += (leaves + kThreadsMax - 1) / kThreadsMax * kLeaf *
             SizeBytes(lowered.type(value).dtype) / 4;
  }
  return words;
}

struct Answer {
  size_t regions = 0;
  size_t taken = 0;
  std::string refused;  // the reason of the last one that is refused
};

// Asks the backend for all regions of the program. Every refusal has to be true.
Answer Ask(const Untuned& untuned) {
  const ProgramGraph graph = ProgramGraph::Parse(untuned.Text()).value();
  const Program program =
      Program::Bind(graph, {MemoryKind::kCuda, untuned.world_size, untuned.world_size}).value();
  const FormList list = FusionRecipes().Forms(program, kRows, {});
  Answer answer;
  for (const Region& each : list.forms.front().positions.front().regions) {
    ++answer.regions;
    const Recipe recipe = MakeRecipe(graph, {&each, 1}).value();
    const ProgramGraph& region = recipe.steps[recipe.backend_steps().front()].program;
    const auto leaves = LeafRegionOf(RegionOf(region.Lower(), kRows, untuned.world_size));
    if (!leaves) {
      answer.refused = leaves.error().message;
      continue;
    }
    const auto choices = ListFused(*leaves, {}).value();
    bool is_taken = false;
    for (const Choice& choice : choices) {
      is_taken = is_taken || choice.reason.empty();
      if (!choice.reason.empty()) answer.refused = choice.reason;
    }
    answer.taken += is_taken ? 1 : 0;
    if (!is_taken) fmt::print("NOT {} {} {} {} words {}: {}\n", untuned.shape.name, untuned.columns, untuned.dtype, untuned.world_size, WordsOfThread(region, untuned.columns), answer.refused);
  }
  if (answer.regions == 0) for (auto& r : list.refusals) fmt::print("NOREG {} {}: {}\n", untuned.shape.name, r.choice, r.reason);
  return answer;
}

TEST(UntunedProgramTest, IsTakenOrRefusedForATrueReason) {
  for (const Shape& shape : kShapes) {
    for (const int columns : {1024, 1027, 2880, 4096, 5120, 7168, 8190, 8192, 12288, 16384}) {
      for (const std::string_view dtype : {"bf16", "f16", "f32"}) {
        for (int world_size = 2; world_size <= 8; ++world_size) {
          const Untuned untuned{shape, columns, dtype, world_size};
          const Answer a = Ask(untuned);
          if (a.regions == 0) fmt::print("NOREGIONS {} {} {}\n", shape.name, columns, dtype);
        }
      }
    }
  }
}

}  // namespace
}  // namespace cotune::cuda
