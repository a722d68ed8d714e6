#include "plugins/sdk/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace cotune::sdk {
namespace {

using ::testing::HasSubstr;

constexpr ProblemLimits kLimits{.memory_kind = COTUNE_MEMORY_HOST, .ranks_max = 8};

// %0 = input f32 [R, 4]; %1 = input f32 [1, 4]; %2 = all_reduce %0; %3 = add %2, %1; %4 = row_sum
// %3
struct Given {
  Given() {
    for (int i = 0; i < 5; ++i) {
      cotune_value_t value{};
      value.struct_size = sizeof(value);
      value.dtype = {COTUNE_DTYPE_FLOAT, 32, 1};
      value.rows_kind = i == 1 ? COTUNE_ROWS_ONE : COTUNE_ROWS_ALL;
      value.rows = i == 1 ? 1 : 6;
      value.columns = i == 4 ? 1 : 4;
      values.push_back(value);
    }
    nodes.assign(3, cotune_node_t{});
    for (cotune_node_t& node : nodes) node.struct_size = sizeof(node);
    nodes[0].kind = COTUNE_NODE_COLLECTIVE;
    nodes[0].collective = COTUNE_ALL_REDUCE;
    nodes[0].reduction = COTUNE_SUM;
    nodes[0].operand_count = 1;
    nodes[1].kind = COTUNE_NODE_ADD;
    nodes[1].operand_count = 2;
    nodes[1].operands[0] = 2;
    nodes[1].operands[1] = 1;
    nodes[2].kind = COTUNE_NODE_ROW_SUM;
    nodes[2].operand_count = 1;
    nodes[2].operands[0] = 3;
  }

  cotune_program_t Program() const {
    cotune_program_t program{};
    program.struct_size = sizeof(program);
    program.memory_kind = COTUNE_MEMORY_HOST;
    program.world_size = program.ranks_per_node = 2;
    program.values = values.data();
    program.value_stride = sizeof(cotune_value_t);
    program.input_count = 2;
    program.nodes = nodes.data();
    program.node_stride = sizeof(cotune_node_t);
    program.node_count = 3;
    program.outputs = outputs.data();
    program.output_into = into.data();
    program.output_count = 2;
    program.text = "text";
    return program;
  }

  std::vector<cotune_value_t> values;
  std::vector<cotune_node_t> nodes;
  std::vector<int32_t> outputs = {3, 4};
  std::vector<int32_t> into = {0, -1};
};

TEST(CheckProgramTest, KeepsEverythingOfAGoodOne) {
  const Given given;
  const Result<Program> program = CheckProgram(given.Program(), kLimits);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  EXPECT_EQ(program->values.size(), 5u);
  EXPECT_EQ(program->input_count, 2);
  ASSERT_EQ(program->nodes.size(), 3u);
  EXPECT_FALSE(program->is_part());
  EXPECT_EQ(program->nodes[0].collective->count, 24u);
  EXPECT_EQ(program->nodes[1].operands[1], 1);
  EXPECT_EQ(program->output_into, (std::vector<int32_t>{0, -1}));
}

struct Refusal {
  const char* part;  // of the message
  cotune_status_t status;
  std::function<void(Given&, cotune_program_t&)> change;
};

TEST(CheckProgramTest, EveryRefusalSaysWhatIsWrong) {
  const auto values = [](Given& given) -> std::vector<cotune_value_t>& { return given.values; };
  const std::vector<Refusal> refusals = {
      {"struct_size", COTUNE_INVALID_ARGUMENT,
       [](Given&, cotune_program_t& p) { p.struct_size = 8; }},
      {"program flags", COTUNE_UNSUPPORTED,
       [](Given&, cotune_program_t& p) { p.flags = 1u << 20; }},
      {"memory kind", COTUNE_UNSUPPORTED,
       [](Given&, cotune_program_t& p) { p.memory_kind = COTUNE_MEMORY_CUDA; }},
      {"array", COTUNE_INVALID_ARGUMENT, [](Given&, cotune_program_t& p) { p.nodes = nullptr; }},
      {"stride", COTUNE_INVALID_ARGUMENT,
       [](Given&, cotune_program_t& p) { p.value_stride = sizeof(cotune_value_t) + 1; }},
      {"0 nodes", COTUNE_INVALID_ARGUMENT, [](Given&, cotune_program_t& p) { p.node_count = 0; }},
      {"dtype code", COTUNE_UNSUPPORTED,
       [&](Given& g, cotune_program_t&) { values(g)[0].dtype.bits = 24; }},
      {"value flags", COTUNE_UNSUPPORTED,
       [&](Given& g, cotune_program_t&) { values(g)[0].flags = 1u << 31; }},
      {"rows_kind", COTUNE_INVALID_ARGUMENT,
       [&](Given& g, cotune_program_t&) { values(g)[0].rows_kind = 9; }},
      {"7 rows of 4 columns", COTUNE_INVALID_ARGUMENT,
       [&](Given& g, cotune_program_t&) { values(g)[2].rows = 7; }},
      {"rows of", COTUNE_INVALID_ARGUMENT,
       [&](Given& g, cotune_program_t&) { values(g)[1].rows = 2; }},
      {"node kind", COTUNE_UNSUPPORTED, [](Given& g, cotune_program_t&) { g.nodes[1].kind = 999; }},
      {"operands, and its kind", COTUNE_INVALID_ARGUMENT,
       [](Given& g, cotune_program_t&) { g.nodes[1].operand_count = 3; }},
      {"not defined before", COTUNE_INVALID_ARGUMENT,
       [](Given& g, cotune_program_t&) { g.nodes[1].operands[0] = 3; }},
      {"no operand is a value", COTUNE_INVALID_ARGUMENT,
       [](Given& g, cotune_program_t&) {
         g.nodes[1].operands[0] = g.nodes[1].operands[1] = COTUNE_OPERAND_LITERAL;
       }},
      {"other shapes", COTUNE_INVALID_ARGUMENT,
       [&](Given& g, cotune_program_t&) { values(g)[1].columns = 3; }},
      {"does not follow", COTUNE_INVALID_ARGUMENT,
       [&](Given& g, cotune_program_t&) { values(g)[4].columns = 2; }},
      {"do not fit together", COTUNE_INVALID_ARGUMENT,
       [&](Given& g, cotune_program_t&) { values(g)[2].columns = 5; }},
      {"reduction", COTUNE_UNSUPPORTED,
       [](Given& g, cotune_program_t&) { g.nodes[0].reduction = 77; }},
      {"which no node defines", COTUNE_INVALID_ARGUMENT,
       [](Given& g, cotune_program_t&) { g.outputs[0] = 1; }},
      {"cannot overwrite", COTUNE_INVALID_ARGUMENT,
       [](Given& g, cotune_program_t&) { g.into[0] = 1; }},
      {"output 1 cannot overwrite value 0", COTUNE_INVALID_ARGUMENT,
       [](Given& g, cotune_program_t&) {
         g.outputs = {3, 2};
         g.into = {0, 0};
       }},
      {"output 0 cannot overwrite value 1", COTUNE_INVALID_ARGUMENT,
       [&](Given& g, cotune_program_t&) {
         // R is 1: as many rows, but only by chance.
         for (const size_t value : {0, 2, 3, 4}) values(g)[value].rows = 1;
         g.into = {1, -1};
       }},
  };
  for (const Refusal& refusal : refusals) {
    Given given;
    cotune_program_t program = given.Program();
    refusal.change(given, program);
    const Result<Program> checked = CheckProgram(program, kLimits);
    ASSERT_FALSE(checked.has_value()) << refusal.part;
    EXPECT_EQ(checked.error().status, refusal.status) << checked.error().message;
    EXPECT_THAT(checked.error().message, HasSubstr(refusal.part));
  }
}

TEST(CheckProgramTest, AConditionAloneIsNoOperand) {
  Given given;
  given.values[3].dtype = given.values[2].dtype;
  given.values[0].dtype = {COTUNE_DTYPE_UINT, 8, 1};
  given.values[2].dtype = {COTUNE_DTYPE_UINT, 8, 1};
  given.nodes[1].kind = COTUNE_NODE_WHERE;
  given.nodes[1].operand_count = 3;
  given.nodes[1].operands[1] = given.nodes[1].operands[2] = COTUNE_OPERAND_LITERAL;
  const Result<Program> checked = CheckProgram(given.Program(), kLimits);
  ASSERT_FALSE(checked.has_value());
  EXPECT_THAT(checked.error().message, HasSubstr("no operand but the condition"));
}

// Bytes of the structs change at random; under sanitizers this finds reads beyond the arrays.
TEST(CheckProgramTest, NoBytesMakeItReadWhatIsNotThere) {
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    Given given;
    cotune_program_t program = given.Program();
    const auto change = [&](void* at, size_t bytes) {
      static_cast<unsigned char*>(at)[random() % bytes] = static_cast<unsigned char>(random());
    };
    const uint64_t where = random() % 4;
    if (where == 0) change(given.values.data(), given.values.size() * sizeof(cotune_value_t));
    if (where == 1) change(given.nodes.data(), given.nodes.size() * sizeof(cotune_node_t));
    if (where == 2) change(given.outputs.data(), given.outputs.size() * sizeof(int32_t));
    // Fields that are no address and no length of an array.
    if (where == 3) change(&program.flags, offsetof(cotune_program_t, values) - sizeof(uint32_t));
    accepted += CheckProgram(program, kLimits).has_value() ? 1 : 0;
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 90'000);
}

TEST(CheckOperandsTest, OverlapIsAllowedOnlyWhereAnInputIsOverwritten) {
  const Given given;
  const Program program = CheckProgram(given.Program(), kLimits).value();
  std::vector<float> memory(200);
  const void* inputs[] = {memory.data(), memory.data() + 100};
  void* outputs[] = {memory.data(), memory.data() + 120};
  cotune_program_launch_t launch{};
  launch.struct_size = sizeof(launch);
  launch.inputs = inputs;
  launch.outputs = outputs;
  EXPECT_TRUE(CheckOperands(program, launch).has_value());
  const auto refused = [&](const char* part) {
    const Result<void> checked = CheckOperands(program, launch);
    ASSERT_FALSE(checked.has_value()) << part;
    EXPECT_THAT(checked.error().message, HasSubstr(part));
  };
  outputs[0] = memory.data() + 1;
  refused("output 0 overlaps input 0");
  outputs[0] = memory.data();
  outputs[1] = memory.data() + 101;
  refused("output 1 overlaps input 1");
  outputs[1] = nullptr;
  refused("output 1 is null");
  outputs[1] = reinterpret_cast<char*>(memory.data() + 120) + 1;
  refused("not aligned");
  outputs[1] = memory.data() + 120;
  launch.flags = 1u << 16;
  refused("launch flags");
}

// %0 = input bf16; %1 = cast bf16 %0; %2 = cast bf16 %1; %3 = cast f32 %2; %4 = cast f32 %3
TEST(ProgramTest, CopiesOfInputsAreReadAsTheInputs) {
  Program program;
  program.values.assign(5, {ValueDtype::kBf16, COTUNE_ROWS_ALL, 2, 3});
  program.values[3].dtype = program.values[4].dtype = ValueDtype::kF32;
  program.input_count = 1;
  for (int32_t v = 0; v < 4; ++v) {
    program.nodes.push_back({.kind = COTUNE_NODE_CAST, .operand_count = 1, .operands = {v}});
  }
  program.outputs = {2, 3, 4, 0};
  const Program without = WithoutCopies(program);
  EXPECT_EQ(without.outputs, (std::vector<int32_t>{0, 3, 4, 0}));
  EXPECT_EQ(without.nodes[2].operands[0], 0);
  // A cast of a computed value stays.
  EXPECT_EQ(without.nodes[3].operands[0], 3);
  EXPECT_TRUE(IsCopyOfInput(without, 1) && IsCopyOfInput(without, 2));
  EXPECT_FALSE(IsCopyOfInput(without, 0) || IsCopyOfInput(without, 3) || IsCopyOfInput(without, 4));
}

TEST(LaunchedOperandsTest, EachNewSetOfAddressesIsChecked) {
  const Given given;
  const Program program = CheckProgram(given.Program(), kLimits).value();
  std::vector<float> memory(200);
  const void* inputs[] = {memory.data(), memory.data() + 100};
  void* outputs[] = {memory.data(), memory.data() + 120};
  cotune_program_launch_t launch{};
  launch.struct_size = sizeof(launch);
  launch.inputs = inputs;
  launch.outputs = outputs;
  LaunchedOperands operands;
  EXPECT_TRUE(operands.Check(program, launch).has_value());
  EXPECT_TRUE(operands.Check(program, launch).has_value());
  void* const good = outputs[1];
  outputs[1] = memory.data() + 101;
  EXPECT_FALSE(operands.Check(program, launch).has_value());
  EXPECT_FALSE(operands.Check(program, launch).has_value()) << "a refused set is no known one";
  outputs[1] = good;
  inputs[0] = memory.data() + 1;
  EXPECT_FALSE(operands.Check(program, launch).has_value());
  inputs[0] = memory.data();
  EXPECT_TRUE(operands.Check(program, launch).has_value());
  launch.flags = 1u << 16;
  EXPECT_FALSE(operands.Check(program, launch).has_value()) << "flags are looked at in each launch";
  launch.flags = 0;
  launch.outputs = nullptr;
  EXPECT_FALSE(operands.Check(program, launch).has_value());
}

TEST(CheckProgramTest, RegisteredOperandsNeedABackendThatTakesThem) {
  const Given given;
  cotune_program_t program = given.Program();
  program.flags = COTUNE_PROGRAM_SYMMETRIC;
  const Result<Program> refused = CheckProgram(program, kLimits);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
  ProblemLimits limits = kLimits;
  limits.takes_symmetric = true;
  const Result<Program> taken = CheckProgram(program, limits);
  ASSERT_TRUE(taken.has_value()) << taken.error().message;
  EXPECT_TRUE(taken->is_symmetric);
  EXPECT_FALSE(taken->rounds_values);
}

// %0 = input bf16; %1 = neg %0; %2 = all_reduce %1; %3 = neg %2; %4 = neg %3; output %4
TEST(IsRoundedForReadersTest, OperandsAndValuesOfCollectivesAreRounded) {
  Program program;
  program.input_count = 1;
  program.values.assign(5, Value{.dtype = ValueDtype::kBf16, .rows = 2, .columns = 4});
  for (int32_t i = 0; i < 4; ++i) {
    program.nodes.push_back({.kind = COTUNE_NODE_NEG, .operand_count = 1, .operands = {i}});
  }
  program.nodes[1].kind = COTUNE_NODE_COLLECTIVE;
  program.nodes[1].collective = Problem{};
  program.outputs = {4};
  const auto rounded = [&] {
    std::vector<int> values;
    for (int value = 0; value < 5; ++value) {
      if (IsRoundedForReaders(program, value)) values.push_back(value);
    }
    return values;
  };
  EXPECT_EQ(rounded(), (std::vector<int>{1, 2}));
  program.outputs = {3, 4};
  EXPECT_EQ(rounded(), (std::vector<int>{1, 2, 3}));
  program.nodes[1].collective.reset();
  EXPECT_EQ(rounded(), (std::vector<int>{3}));
}

}  // namespace
}  // namespace cotune::sdk
