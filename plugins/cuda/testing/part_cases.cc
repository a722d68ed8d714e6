#include "plugins/cuda/testing/part_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/parts/part_text.h"
#include "plugins/cuda/testing/inlined_text.h"
#include "plugins/cuda/testing/part_graph.h"
#include "plugins/sdk/testing/part_builder.h"
#include "plugins/sdk/testing/random_part.h"

namespace cotune::cuda {
namespace {

using sdk::PartBuilder;
using sdk::PartOperand;
using sdk::ValueDtype;

constexpr uint64_t kRows = 4;
constexpr uint64_t kRandomVariants = 200;

bool HasFunctions(const sdk::Program& part) {
  return std::any_of(part.nodes.begin(), part.nodes.end(),
                     [](const sdk::ProgramNode& node) { return sdk::IsFunction(node.kind); });
}

// Every operation that a dtype has, each with its own output. The second operand is a row for all
// rows, the third one number a row.
sdk::Program AllOperations(ValueDtype dtype, uint64_t columns) {
  // Numbers that the dtype has.
  const double low = sdk::IsFloat(dtype) ? -3 : 1;
  const double high = sdk::IsFloat(dtype) ? 7.5 : 7;
  PartBuilder part(kRows);
  const int x = part.Input(dtype, columns);
  const int y = part.Input(dtype, columns, COTUNE_ROWS_ONE);
  const int z = part.Input(dtype, 1);
  const int condition = part.Input(ValueDtype::kU8, columns);
  for (uint32_t kind = COTUNE_NODE_ADD; kind <= sdk::kLastElementwise; ++kind) {
    if (kind == COTUNE_NODE_CAST || (!sdk::IsFloat(dtype) && !sdk::TakesIntegers(kind))) continue;
    std::vector<PartOperand> operands;
    if (kind == COTUNE_NODE_WHERE) operands.emplace_back(condition);
    operands.emplace_back(x);
    if (sdk::KindOperands(kind) > 1) operands.emplace_back(kind % 2 == 0 ? y : z);
    part.Output(part.Node(kind, operands, low, high));
  }
  part.program.rounds_values = columns % 2 == 0;
  return part.program;
}

sdk::Program AllCasts(ValueDtype from, uint64_t columns) {
  PartBuilder part(kRows);
  const int x = part.Input(from, columns);
  for (const ValueDtype to : sdk::kPartDtypes) part.Output(part.Cast(x, to));
  part.program.rounds_values = true;
  return part.program;
}

// Sums of 16-bit floats in pairs and ReLUs of them, read by each other, by operations on elements
// and as outputs; and ReLUs of an input.
sdk::Program HalfSums(ValueDtype dtype, bool rounds) {
  PartBuilder part(kRows);
  const int x = part.Input(dtype, 40);
  const int y = part.Input(dtype, 40);
  const int sum = part.Node(COTUNE_NODE_ADD, {x, y});
  const int larger = part.Node(COTUNE_NODE_RELU, {sum});
  part.Output(part.Node(COTUNE_NODE_RELU, {larger}));
  part.Output(part.Node(COTUNE_NODE_ADD, {larger, x}), y);
  const int of_input = part.Node(COTUNE_NODE_RELU, {x});
  part.Output(of_input);
  part.Output(part.Node(COTUNE_NODE_ADD, {of_input, part.Node(COTUNE_NODE_MUL, {sum, y})}));
  part.Output(part.Node(COTUNE_NODE_RELU, {part.Node(COTUNE_NODE_ADD, {y, x})}), x);
  part.program.rounds_values = rounds;
  return part.program;
}

sdk::Program LayerNorm(uint64_t columns) {
  PartBuilder part(kRows);
  const int x = part.Input(ValueDtype::kF32, columns);
  const int gamma = part.Input(ValueDtype::kF32, columns, COTUNE_ROWS_ONE);
  const int beta = part.Input(ValueDtype::kF32, columns, COTUNE_ROWS_ONE);
  const PartOperand inverse = PartOperand::Literal(1.0 / static_cast<double>(columns));
  const int mean = part.Node(COTUNE_NODE_MUL, {part.Node(COTUNE_NODE_ROW_SUM, {x}), inverse});
  const int centered = part.Node(COTUNE_NODE_SUB, {x, mean});
  const int square = part.Node(COTUNE_NODE_MUL, {centered, centered});
  const int variance =
      part.Node(COTUNE_NODE_MUL, {part.Node(COTUNE_NODE_ROW_SUM, {square}), inverse});
  const int safe = part.Node(COTUNE_NODE_ADD, {variance, PartOperand::Literal(1e-5)});
  const int factor = part.Node(COTUNE_NODE_RSQRT, {safe});
  const int scaled = part.Node(COTUNE_NODE_MUL, {centered, factor});
  const int gained = part.Node(COTUNE_NODE_MUL, {scaled, gamma});
  part.Output(part.Node(COTUNE_NODE_ADD, {gained, beta}), x);
  part.Output(mean);
  part.Output(factor);
  return part.program;
}

sdk::Program Softmax(ValueDtype dtype, uint64_t columns) {
  PartBuilder part(kRows);
  const int x = part.Input(dtype, columns);
  const int largest = part.Node(COTUNE_NODE_ROW_MAX, {x});
  const int power = part.Node(COTUNE_NODE_EXP, {part.Node(COTUNE_NODE_SUB, {x, largest})});
  part.Output(part.Node(COTUNE_NODE_DIV, {power, part.Node(COTUNE_NODE_ROW_SUM, {power})}));
  return part.program;
}

sdk::Program Quotients(ValueDtype dtype, uint64_t columns) {
  PartBuilder part(kRows);
  const int x = part.Input(dtype, columns);
  const int y = part.Input(dtype, columns);
  part.Output(part.Node(COTUNE_NODE_DIV, {x, y}));
  return part.program;
}

// Outputs that overwrite what other rows and other columns read: they need a barrier, or a launch
// of their own.
sdk::Program Overwriting(uint64_t columns, bool reduces) {
  PartBuilder part(kRows);
  const int x = part.Input(ValueDtype::kF32, columns);
  const int scale = part.Input(ValueDtype::kF32, 1);
  const int gamma = part.Input(ValueDtype::kF32, columns, COTUNE_ROWS_ONE);
  const int shift = part.Input(ValueDtype::kF32, 1, COTUNE_ROWS_ONE);
  const int scaled = part.Node(COTUNE_NODE_MUL, {x, scale});
  const int gained = part.Node(COTUNE_NODE_MUL, {scaled, gamma});
  part.Output(part.Node(COTUNE_NODE_ADD, {gained, shift}), x);
  const int next = reduces ? part.Node(COTUNE_NODE_ROW_SUM, {x}) : scale;
  part.Output(part.Node(COTUNE_NODE_ADD, {next, PartOperand::Literal(1)}), scale);
  part.Output(part.Node(COTUNE_NODE_SUB, {gamma, shift}), gamma);
  part.Output(part.Node(COTUNE_NODE_NEG, {shift}), shift);
  return part.program;
}

// Both kinds of row reductions of two numbers of columns, and of a row for all rows.
sdk::Program SeveralColumns() {
  PartBuilder part(kRows, kRows - 1);
  const int x = part.Input(ValueDtype::kF32, 100);
  const int y = part.Input(ValueDtype::kF32, 264);
  const int z = part.Input(ValueDtype::kBf16, 264, COTUNE_ROWS_ONE);
  const int shared = part.Input(ValueDtype::kF16, 16, COTUNE_ROWS_SHARE);
  const int sum = part.Node(COTUNE_NODE_ROW_SUM, {x});
  const int largest = part.Node(COTUNE_NODE_ROW_MAX, {part.Node(COTUNE_NODE_ADD, {y, sum})});
  const int of_one = part.Node(COTUNE_NODE_ROW_SUM, {part.Cast(z, ValueDtype::kF32)});
  part.Output(part.Node(COTUNE_NODE_MUL, {part.Node(COTUNE_NODE_SUB, {x, largest}), of_one}));
  part.Output(part.Node(COTUNE_NODE_ADD, {y, largest}));
  part.Output(of_one);
  part.Output(part.Node(COTUNE_NODE_ROW_MAX, {part.Cast(shared, ValueDtype::kF32)}));
  part.Output(part.Node(COTUNE_NODE_NEG, {shared}), shared);
  return part.program;
}

sdk::Program RowReductions(ValueDtype dtype, uint64_t columns) {
  PartBuilder part(kRows);
  const int x = part.Input(dtype, columns);
  part.Output(part.Node(COTUNE_NODE_ROW_SUM, {x}));
  part.Output(part.Node(COTUNE_NODE_ROW_MAX, {x}));
  return part.program;
}

// The options of the compiler, and the text of the kernel in a namespace.
void Append(std::string& to, const JoinedPart& part, size_t number) {
  fmt::format_to(std::back_inserter(to),
                 "#define COTUNE_THREADS {}\n#define COTUNE_ROW_THREADS {}\n"
                 "#define cotune_kernel cotune_kernel_{}\nnamespace part_{} {{\n"
                 "namespace cotune::cuda {{ using namespace ::cotune::cuda; }}\n",
                 part.shape.threads, part.shape.row_threads, number, number);
  to += InlinedText(SourceWith("part.cu", part.program));
  fmt::format_to(std::back_inserter(to),
                 "}}  // namespace part_{}\n#undef COTUNE_THREADS\n#undef COTUNE_ROW_THREADS\n"
                 "#undef cotune_kernel\n",
                 number);
}

int NormOf(PartBuilder& part, int stream, int gamma, ValueDtype dtype, uint64_t columns) {
  const int wide = part.Cast(stream, ValueDtype::kF32);
  const int square = part.Node(COTUNE_NODE_MUL, {wide, wide});
  const int sum = part.Node(COTUNE_NODE_ROW_SUM, {square});
  const double columns_inverse = 1.0 / static_cast<double>(columns);
  const int mean = part.Node(COTUNE_NODE_MUL, {sum, PartOperand::Literal(columns_inverse)});
  const int shifted = part.Node(COTUNE_NODE_ADD, {mean, PartOperand::Literal(1e-6)});
  const int scale = part.Node(COTUNE_NODE_RSQRT, {shifted});
  const int scaled = part.Node(COTUNE_NODE_MUL, {wide, scale});
  const int y = part.Node(COTUNE_NODE_MUL, {scaled, part.Cast(gamma, ValueDtype::kF32)});
  return part.Cast(y, dtype);
}

// A sum that is rounded to one narrow dtype and stored in another one.
sdk::Program RoundedTwice(ValueDtype first, ValueDtype second) {
  PartBuilder part(kRows);
  const int x = part.Input(first, 40);
  const int y = part.Input(first, 40);
  const int sum = part.Node(COTUNE_NODE_ADD,
                            {part.Node(COTUNE_NODE_NEG, {x}), part.Node(COTUNE_NODE_NEG, {y})});
  part.Output(part.Cast(sum, second));
  part.program.rounds_values = true;
  return part.program;
}

// Two runs of stages with one stage between them: tensors that are multiplied by one number, and
// sums whose second operands descend.
sdk::Program RunsOfStages() {
  PartBuilder part(kRows);
  const int scale = part.Input(ValueDtype::kF32, 1, COTUNE_ROWS_ONE);
  std::vector<int> tensors;
  for (const uint64_t columns : {2100u, 2100u, 5u}) {
    tensors.push_back(part.Input(ValueDtype::kF32, columns));
  }
  const int other = part.Input(ValueDtype::kBf16, 40);
  std::vector<int> terms;
  for (int i = 0; i < 6; ++i) terms.push_back(part.Input(ValueDtype::kI32, 300));
  for (const int tensor : tensors) part.Output(part.Node(COTUNE_NODE_MUL, {tensor, scale}));
  part.Output(part.Node(COTUNE_NODE_NEG, {other}));
  for (size_t i = 0; i < 3; ++i) {
    part.Output(part.Node(COTUNE_NODE_ADD, {terms[i], terms[5 - i]}));
  }
  return part.program;
}

// Stages of every kind in two launches: norms and elements of all rows and of a share of them, sums
// of one row, and outputs that overwrite what stages of the first launch read.
sdk::Program StagesInTwoLaunches() {
  PartBuilder part(kRows, kRows - 1);
  const int x = part.Input(ValueDtype::kF32, 520);
  const int y = part.Input(ValueDtype::kBf16, 2500);
  const int z = part.Input(ValueDtype::kF32, 77, COTUNE_ROWS_SHARE);
  const int w = part.Input(ValueDtype::kF16, 264, COTUNE_ROWS_SHARE);
  const int gamma = part.Input(ValueDtype::kF32, 520, COTUNE_ROWS_ONE);
  const int beta = part.Input(ValueDtype::kF32, 77, COTUNE_ROWS_ONE);
  const int scale = part.Input(ValueDtype::kF32, 1, COTUNE_ROWS_ONE);
  const int sum = part.Node(COTUNE_NODE_ROW_SUM, {x});
  const int centered = part.Node(COTUNE_NODE_SUB, {x, sum});
  part.Output(part.Node(COTUNE_NODE_MUL, {centered, gamma}), x);
  part.Output(part.Node(COTUNE_NODE_MUL, {y, PartOperand::Literal(0.5)}));
  const int scaled = part.Node(COTUNE_NODE_MUL, {z, scale});
  part.Output(part.Node(COTUNE_NODE_ADD, {scaled, beta}));
  part.Output(part.Node(COTUNE_NODE_ROW_MAX, {part.Cast(w, ValueDtype::kF32)}));
  part.Output(part.Node(COTUNE_NODE_NEG, {gamma}), gamma);
  part.Output(part.Node(COTUNE_NODE_ROW_SUM, {beta}));
  part.Output(part.Node(COTUNE_NODE_ADD, {scale, PartOperand::Literal(1)}), scale);
  return part.program;
}

}  // namespace

sdk::Program Tensors(ValueDtype dtype, const std::vector<uint64_t>& columns, bool copies) {
  PartBuilder part(kRows);
  std::vector<int> inputs;
  for (const uint64_t each : columns) inputs.push_back(part.Input(dtype, each, COTUNE_ROWS_ONE));
  for (const int input : inputs) {
    part.Output(copies ? part.Cast(input, dtype)
                       : part.Node(COTUNE_NODE_MUL, {input, PartOperand::Literal(0.25)}));
  }
  return part.program;
}

sdk::Program Copies(bool reduces) {
  PartBuilder part(kRows);
  std::vector<int> inputs;
  for (const ValueDtype dtype : sdk::kPartDtypes) {
    inputs.push_back(part.Input(dtype, 40));
    inputs.push_back(part.Input(dtype, 1));
    inputs.push_back(part.Input(dtype, 173, COTUNE_ROWS_ONE));
    inputs.push_back(part.Input(dtype, 1, COTUNE_ROWS_ONE));
  }
  std::vector<int> copies;
  for (const int input : inputs) {
    const ValueDtype dtype = part.program.values[static_cast<size_t>(input)].dtype;
    copies.push_back(part.Cast(input, dtype));
    part.Output(copies.back());
  }
  for (size_t i = 0; reduces && i + 1 < inputs.size(); i += 4) {
    const int rows = part.Cast(copies[i], ValueDtype::kF32);
    const int number = part.Cast(copies[i + 1], ValueDtype::kF32);
    const int one = part.Cast(copies[i + 3], ValueDtype::kF32);
    const int sum = part.Node(COTUNE_NODE_ROW_SUM, {part.Node(COTUNE_NODE_MUL, {rows, number})});
    part.Output(part.Node(COTUNE_NODE_ADD, {sum, one}));
  }
  return part.program;
}

sdk::Program ResidualNorm(ValueDtype dtype, uint64_t columns, bool rounds) {
  PartBuilder part(kRows);
  const int x = part.Input(dtype, columns);
  const int residual = part.Input(dtype, columns);
  const int gamma = part.Input(dtype, columns, COTUNE_ROWS_ONE);
  const int stream = part.Node(COTUNE_NODE_ADD, {x, residual});
  part.Output(NormOf(part, stream, gamma, dtype, columns));
  part.Output(stream, residual);
  part.program.rounds_values = rounds;
  return part.program;
}

std::vector<CutPart> CutParts() {
  std::vector<CutPart> parts;
  for (const ValueDtype dtype : {ValueDtype::kBf16, ValueDtype::kF16}) {
    for (const uint64_t columns : {33u, 256u, 1024u}) {
      PartBuilder front(kRows);
      const int x = front.Input(dtype, columns);
      const int residual = front.Input(dtype, columns);
      front.Output(front.Node(COTUNE_NODE_ADD, {x, residual}));
      PartBuilder behind(kRows);
      const int stream = behind.Input(dtype, columns);
      const int gamma = behind.Input(dtype, columns, COTUNE_ROWS_ONE);
      behind.Output(NormOf(behind, stream, gamma, dtype, columns));
      parts.push_back({fmt::format("cut_norm_{}_{}", columns, static_cast<int>(dtype)),
                       ResidualNorm(dtype, columns, false), front.program, behind.program});
    }
  }
  return parts;
}

std::vector<PartCase> HandMadeParts() {
  std::vector<PartCase> parts;
  const auto add = [&](std::string name, sdk::Program program) {
    const bool has_functions = HasFunctions(program);
    parts.push_back({std::move(name), std::move(program), has_functions});
  };
  add("residual_norm_8192", ResidualNorm(ValueDtype::kBf16, 8192, false));
  add("residual_norm_1000", ResidualNorm(ValueDtype::kBf16, 1000, true));
  add("residual_norm_333", ResidualNorm(ValueDtype::kF16, 333, false));
  // More than a thread can hold between the passes.
  add("residual_norm_65536", ResidualNorm(ValueDtype::kBf16, 65536, false));
  add("layer_norm_16392", LayerNorm(16392));
  add("layer_norm_520", LayerNorm(520));
  add("layer_norm_77", LayerNorm(77));
  add("softmax_2048", Softmax(ValueDtype::kF32, 2048));
  add("softmax_f64_130", Softmax(ValueDtype::kF64, 130));
  add("overwriting_640", Overwriting(640, true));
  add("overwriting_37", Overwriting(37, true));
  add("overwriting_elements_64", Overwriting(64, false));
  add("overwriting_elements_5", Overwriting(5, false));
  add("several_columns", SeveralColumns());
  add("tensors_equal", Tensors(ValueDtype::kF32, std::vector<uint64_t>(6, 4096), false));
  add("tensors_unequal", Tensors(ValueDtype::kBf16, {40000, 5, 4096, 2048, 12289}, false));
  add("tensors_copied", Tensors(ValueDtype::kF32, std::vector<uint64_t>(5, 2048), true));
  add("runs_of_stages", RunsOfStages());
  add("stages_in_two_launches", StagesInTwoLaunches());
  add("copies", Copies(false));
  add("copies_and_sums", Copies(true));
  for (const ValueDtype dtype : {ValueDtype::kF32, ValueDtype::kF64, ValueDtype::kBf16,
                                 ValueDtype::kI32, ValueDtype::kI64, ValueDtype::kU8}) {
    add(fmt::format("all_operations_{}", static_cast<int>(dtype)), AllOperations(dtype, 24));
  }
  for (const ValueDtype dtype : {ValueDtype::kF16, ValueDtype::kBf16}) {
    for (const bool rounds : {false, true}) {
      add(fmt::format("half_sums_{}_{}", static_cast<int>(dtype), rounds), HalfSums(dtype, rounds));
    }
  }
  add("rounded_twice_f16", RoundedTwice(ValueDtype::kBf16, ValueDtype::kF16));
  add("rounded_twice_bf16", RoundedTwice(ValueDtype::kF16, ValueDtype::kBf16));
  add("quotients_f32", Quotients(ValueDtype::kF32, 32));
  add("quotients_f64", Quotients(ValueDtype::kF64, 32));
  add("all_operations_odd", AllOperations(ValueDtype::kF16, 13));
  for (const ValueDtype dtype : sdk::kPartDtypes) {
    add(fmt::format("all_casts_{}", static_cast<int>(dtype)), AllCasts(dtype, 173));
  }
  return parts;
}

std::vector<PartCase> WideParts() {
  std::vector<PartCase> parts;
  for (const uint64_t columns : {2880u, 5120u, 12288u, 24576u, 32768u}) {
    parts.push_back({fmt::format("residual_norm_{}", columns),
                     ResidualNorm(ValueDtype::kBf16, columns, false)});
  }
  for (const uint64_t columns : {8192u, 65536u}) {
    parts.push_back({fmt::format("layer_norm_{}", columns), LayerNorm(columns)});
    parts.push_back({fmt::format("softmax_{}", columns), Softmax(ValueDtype::kF32, columns), true});
  }
  return parts;
}

std::vector<std::string> ExamplePaths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("examples/programs")) {
    if (entry.path().extension() == ".cotune") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<PartCase> ExampleParts(const std::vector<std::string>& paths) {
  std::vector<PartCase> parts;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    for (const ProgramGraph& graph : PartsOfText(text.str())) {
      sdk::Program program = PartOf(graph, kRows, kRows / 2);
      const bool has_functions = HasFunctions(program);
      parts.push_back({path, std::move(program), has_functions});
    }
  }
  return parts;
}

PartCase RandomPartCase(uint64_t seed) {
  const sdk::RandomPartOptions options = {.has_functions = seed % 3 == 1,
                                          .is_checked = seed % 3 != 0,
                                          .has_shares = true,
                                          .has_other_columns = true};
  sdk::Program program = sdk::RandomPart(seed, options).Make();
  const bool has_functions = HasFunctions(program);
  return {fmt::format("random_{}", seed), std::move(program), has_functions};
}

sdk::Program WithRows(sdk::Program part, uint64_t rows, uint64_t share_rows) {
  for (sdk::Value& value : part.values) {
    if (value.rows_kind == COTUNE_ROWS_ALL) value.rows = rows;
    if (value.rows_kind == COTUNE_ROWS_SHARE) value.rows = share_rows;
  }
  return part;
}

std::vector<PartVariant> PartVariants(const std::vector<std::string>& example_paths) {
  std::vector<PartVariant> variants;
  const auto add = [&](PartCase part) {
    const PartShape shape = ShapeOf(part.program, *StagesOf(part.program));
    variants.push_back({std::move(part), shape});
  };
  for (PartCase& part : HandMadeParts()) add(std::move(part));
  for (PartCase& part : ExampleParts(example_paths)) add(std::move(part));
  for (uint64_t seed = 0; seed < kRandomVariants; ++seed) add(RandomPartCase(seed));
  // The tree of row reductions, and a norm, with every number of threads.
  for (int threads = 1; threads <= 1024; threads *= 2) {
    const PartShape shape{threads, std::max(threads, 64)};
    const auto with_shape = [&](std::string name, sdk::Program program) {
      const bool has_functions = HasFunctions(program);
      variants.push_back({{std::move(name), std::move(program), has_functions}, shape});
    };
    // As many leaves in a thread as it may have.
    const uint64_t columns = threads < 32 ? 201 : 3001;
    with_shape(fmt::format("row_reductions_{}", columns), RowReductions(ValueDtype::kF32, columns));
    if (threads >= 64) {
      with_shape("residual_norm_4096", ResidualNorm(ValueDtype::kBf16, 4096, true));
    }
    // A thread has several leaves, one, or, in most warps of a row, none.
    if (threads == 8 || threads == 32 || threads == 256 || threads == 1024) {
      with_shape("layer_norm_520", LayerNorm(520));
      with_shape("softmax_520", Softmax(ValueDtype::kF32, 520));
      with_shape("residual_norm_520", ResidualNorm(ValueDtype::kF32, 520, false));
    }
  }
  for (CutPart& cut : CutParts()) {
    add({cut.name + "_whole", std::move(cut.whole)});
    add({cut.name + "_front", std::move(cut.front)});
    add({cut.name + "_behind", std::move(cut.behind)});
  }
  variants.push_back({{"row_reductions_f64", RowReductions(ValueDtype::kF64, 520)}, {64, 128}});
  return variants;
}

std::string JoinedText(const std::vector<JoinedPart>& parts, size_t first_number) {
  std::string text;
  for (size_t p = 0; p < parts.size(); ++p) Append(text, parts[p], first_number + p);
  return text;
}

}  // namespace cotune::cuda
