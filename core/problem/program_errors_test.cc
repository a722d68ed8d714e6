// Every message about a program that is none, from the text or from the graph: its place, its cause
// and the next step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/program_graph.h"

namespace cotune {
namespace {

struct Wrong {
  const char* line;  // behind the two inputs
  const char* error;
};

// Line 1 is %x = input f32 [R, 4], line 2 %g = input bf16 [1, 4].
constexpr Wrong kWrongTexts[] = {
    {"%y = all_reduse sum %x\n", "(line 3, column 6): unknown operation 'all_reduse'; known: "},
    {"%y = all_reduce %x\n", "(line 3, column 17): all_reduce needs a reduction, and '%x' is none"},
    {"%y = all_reduce sum %z\n",
     "(line 3, column 21): %z is not defined in front of this line; known: "},
    {"%y = all_reduce sum x\n",
     "(line 3, column 21): a value is expected, and not 'x'; values begin with %"},
    {"%y all_reduce sum %x\n",
     "(line 3, column 4): '=' is expected behind the name of a value, and not 'all_reduce'; write: "
     "%value = operation operands"},
    {"%x = all_reduce sum %x\n", "(line 3, column 1): %x is defined already; give it another"},
    {"%y = all_reduce sum %x %x\n", "(line 3, column 24): '%x' is more than the line takes"},
    {"%y = broadcast %x\n", "(line 3, column 18): ',' is expected in front of root="},
    {"%y = broadcast %x, root=one\n", "(line 3, column 25): 'one' is no rank; write root=0"},
    {"%y = clamp %x, low=1\nreturn %y\n", "(line 3, column 6): low 1 is not below high 0"},
    {"%y = clamp %x\n", "(line 3, column 14): clamp needs low="},
    {"%y = rms_norm %x, %g, epsilon=1\n",
     "(line 3, column 23): rms_norm has no 'epsilon'; known: eps"},
    {"%y = cast %x\n",
     "(line 3, column 13): cast needs a dtype; name it behind a comma, such as to=f8_e4m3"},
    {"%y = cast %x, to=f99\n", "(line 3, column 18): unknown dtype 'f99'"},
    {"%z = input f32 [Q, 4]\n", "(line 3, column 17): 'Q' is no number of rows; write R, R/n"},
    {"%z = input f32 [R, many]\n", "(line 3, column 20): 'many' is no number of columns"},
    {"%z = input f32 [R, 0]\nreturn %z\n", "(line 3, column 1): it has 0 columns"},
    {"y = neg %x\n",
     "(line 3, column 1): the name of a value begins with %, and not 'y'; did you mean %y?"},
    {"nothing\n", "(line 3, column 1): a line begins with program, %value or return"},
    {"return %x\n", "(line 3, column 8): it is an input, which the caller has already"},
    {"%y = add %x, %g\nreturn %y\n",
     "(line 3, column 6): operand 2: operands are f32 and bf16; cast one of them"},
    {"%y = add %x\nreturn %y\n", "(line 3, column 6): add takes 2 operands, and 1 are given"},
    {"%i = cast %x, to=i32\n%y = mul %i, 0.5\nreturn %y\n",
     "(line 4, column 6): operand 2: i32 has no 0.5; write an integer in its range, or cast"},
    {"%i = cast %x, to=u8\n%y = add %i, -1\nreturn %y\n",
     "(line 4, column 6): operand 2: u8 has no -1; write"},
    {"%i = cast %x, to=u8\n%y = clamp %i, low=0, high=256\nreturn %y\n",
     "(line 4, column 6): operand 1: u8 has no 256; write"},
    {"%y = exp 1\nreturn %y\n", "(line 3, column 6): none of its operands is a value"},
    {"%y = all_gather %x\nreturn %y\n",
     "(line 3, column 6): operand 1: all_gather takes a value with R/n rows, and this one is "
     "f32 [R, 4]"},
    {"%y = rms_norm %x, %x\nreturn %y\n",
     "(line 3, column 6): operand 2: rms_norm of f32 [R, 4] takes f32 [1, 4] here, and this is "
     "f32 [R, 4]"},
    {"%y = where %x, %x, %x\nreturn %y\n",
     "(line 3, column 6): operand 1: the condition of where is u8, and this one is f32 [R, 4]"},
    {"%c = cast %g, to=f32\n%y = add %x, %c\nreturn %y\n", "(line 5, column 1): there is no coll"},
    {"%y = all_reduce sum %x\nreturn %y\n", "(line 2, column 1): nothing uses it; return it, or"},
    {"%y = all_reduce sum %x\nreturn %y, %y\n", "(line 4, column 12): it is returned twice"},
    {"%y = all_reduce sum %x\nreturn %y into %g\n",
     "(line 4, column 8): it is f32 [R, 4], and the input that it overwrites is bf16 [1, 4]"},
    {"%y = all_reduce sum %x\n%z = add %y, %x\nreturn %z, %y into %x\n",
     "(line 4, column 6): it reads an input that was overwritten before; read the new value"},
    {"%y = all_reduce sum %x\nreturn %y\nmore\n",
     "(line 5, column 1): there is text behind the return; return is the last line"},
    {"%y = all_reduce sum %x\n", "(line 4, column 1): there is no return; end the program with"},
    // The parser gives these.
    {"%y\n",
     "(line 3, column 3): '=' is expected behind the name of a value, and not the end of the "
     "line; "},
    {"%y =\n", "(line 3, column 5): the operation is missing; write: %value = operation operands"},
    {"program p\n",
     "(line 3, column 1): the program has begun already; the name is the first line"},
    {"% = neg %x\n",
     "(line 3, column 1): the name of the value is missing; write letters or digits behind the %"},
    {"%y = all_reduce sum %x\n%z = input f32 [R, 4]\n",
     "(line 4, column 1): inputs stand in front of all other values; move it up"},
    {"%z = input f32 R, 4\n",
     "(line 3, column 16): '[' is expected in front of the shape, and not 'R'; write: %value = "
     "input "},
    {"%z = input f32 [R 4]\n",
     "(line 3, column 19): ',' is expected between rows and columns, and not '4'; write: %value"},
    {"%z = input f32 [R, 4\n",
     "(line 3, column 21): ']' is expected behind the shape, and not the end of the line; write:"},
    {"%z = input f32 [R, 4294967296]\n",
     "(line 3, column 20): '4294967296' is no number of columns; write 1 to 65536"},
    {"%y = broadcast %x, rank=0\n",
     "(line 3, column 20): 'root' is expected behind the operand of a broadcast, and not 'rank'; "
     "write: broadcast %value, root=0"},
    {"%y = broadcast %x, root 0\n",
     "(line 3, column 25): '=' is expected behind root, and not '0'; write: broadcast"},
    {"%y = broadcast %x, root=65536\n", "(line 3, column 25): '65536' is no rank; write root=0"},
    {"%y = rms_norm %x, %g, eps=tiny\n",
     "(line 3, column 27): 'tiny' is no number; write a number behind eps=, such as 1e-6"},
    {"%y = add %x,\n",
     "(line 3, column 13): a value is expected, and not the end of the line; values"},
    // The verifier gives these.
    {"%z = input f32 [R, 65537]\n%y = all_reduce sum %z\nreturn %y\n",
     "(line 3, column 1): it has 65537 columns; a value has 1 to 65536 columns"},
    {"%z = input f32 [R/n, 4] replicated\n%y = all_gather %z\nreturn %y\n",
     "(line 3, column 1): a share of the rows is another one on every rank, and cannot be "
     "replicated; "
     "leave replicated out"},
    {"%q = cast %x, to=i8\n%y = all_reduce sum %q\nreturn %y\n",
     "(line 4, column 6): operand 1: i8 values are moved by collectives, and not reduced; cast the "
     "value in front of the collective"},
    {"%y = reduce_scatter sum %g\nreturn %y\n",
     "(line 3, column 6): operand 1: reduce_scatter takes a value with R rows, and this one is "
     "bf16 [1, 4]; gather the rows by all_gather, or declare the input [R, ...]"},
    {"%s = reduce_scatter sum %x\n%y = all_reduce sum %s\nreturn %y\n",
     "(line 4, column 6): operand 1: all_reduce takes a value with R or 1 rows, and this one is "
     "f32 "
     "[R/n, 4]; gather"},
    {"%y = add %x, %x, %x\nreturn %y\n",
     "(line 3, column 6): add takes 2 operands, and 3 are given; operands are values or numbers"},
    {"%y = cast 1, to=f16\nreturn %y\n",
     "(line 3, column 6): none of its operands is a value; give it one value at least"},
    {"%y = rms_norm %x, %g, eps=-1\nreturn %y\n",
     "(line 3, column 6): eps -1 is negative, or no finite number; give a small positive number"},
    {"%y = rms_norm %x, %g, eps=inf\nreturn %y\n", "eps inf is negative, or no finite number"},
    {"%i = cast %x, to=i32\n%y = exp %i\nreturn %y\n",
     "(line 4, column 6): operand 1: exp does not compute with i32; cast it to a float first"},
    {"%i = cast %x, to=i8\n%y = add %i, 1\nreturn %y\n",
     "(line 4, column 6): operand 1: add does not compute with i8; cast it to a float first"},
    {"%s = reduce_scatter sum %x\n%y = add %x, %s\nreturn %y\n",
     "(line 4, column 6): operand 2: operands have R and R/n rows; bring both to the same rows by "
     "all_gather or reduce_scatter"},
    {"%z = input f32 [R, 3]\n%y = add %x, %z\nreturn %y\n",
     "(line 4, column 6): operand 2: operands have 4 and 3 columns; columns are equal, or 1"},
    {"%c = less %x, 0\n%y = where %c, 1, 2\nreturn %y\n",
     "(line 4, column 6): its operands, apart from the condition, are numbers only; make one of "
     "the"},
    {"%y = rms_norm 1, %g\nreturn %y\n",
     "(line 3, column 6): operand 1: rms_norm takes no numbers; give it a value"},
    {"%i = cast %x, to=i32\n%y = softmax %i\nreturn %y\n",
     "(line 4, column 6): operand 1: softmax does not compute with i32; cast it to a float first"},
    {"%y = quantize_scale %x, to=f16\nreturn %y\n",
     "(line 3, column 6): quantize_scale cannot make f16; write to=i8, to=f8_e4m3 or to=f8_e5m2"},
    {"%w = cast %x, to=f64\n%y = quantize %w, 2, to=i8\nreturn %y\n",
     "(line 4, column 6): operand 1: f64 is not quantized; cast it to f32 first"},
    {"%y = quantize %x, %x, to=i8\nreturn %y\n",
     "(line 3, column 6): operand 2: the scale is one f32 a row, or one in all, and this is f32 "
     "[R, "
     "4]; make it by quantize_scale"},
    {"%y = all_reduce sum %x\n%z = neg %y\nreturn %y into %x, %z into %x\n",
     "(line 5, column 20): two outputs overwrite one input; leave into out of one of them"},
    {"%y = all_reduce sum %x\n%z = neg %y\nreturn %z into %y\n",
     "(line 5, column 8): only an input can be overwritten; name an input behind into"},
};

Error ErrorOfText(const std::string& text) {
  const Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  if (graph) {
    ADD_FAILURE() << text;
    return {};
  }
  EXPECT_EQ(graph.error().code, ErrorCode::kUsage);
  return graph.error();
}

Error ErrorOf(const Wrong& wrong) {
  return ErrorOfText(std::string("%x = input f32 [R, 4]\n%g = input bf16 [1, 4]\n") + wrong.line);
}

// A graph that no text can have.
struct WrongGraph {
  std::vector<ProgramNode> nodes;  // behind %0, an input f32 [R, 4]
  std::vector<ProgramOutput> outputs;
  const char* error;
};

std::vector<WrongGraph> WrongGraphs() {
  const CollectiveNode sum{.collective = Collective::kAllReduce, .reduction = Reduction::kSum};
  const auto changed = [&](auto change) {
    CollectiveNode node = sum;
    change(node);
    return ProgramNode(node);
  };
  const auto add = [](ValueIndex value) {
    return ProgramNode(ComputeNode{.op = Op::kAdd, .operands = {{.value = 0}, {.value = value}}});
  };
  return {
      {{changed([](auto& node) { node.operand = 1; })},
       {{1}},
       "(%1, operand 1): its operand is not defined before it; operands are inputs or earlier"},
      {{sum, add(2)}, {{2}}, "(%2, operand 2): its operand is not defined before it; operands are"},
      {{changed([](auto& node) { node.reduction = Reduction::kNone; })},
       {{1}},
       "(%1): all_reduce needs a reduction; give it sum, product, min, max or average"},
      {{changed([](auto& node) { node.collective = Collective::kBroadcast; })},
       {{1}},
       "(%1): broadcast takes no reduction; leave it out"},
      {{changed([](auto& node) { node.root = 1; })},
       {{1}},
       "(%1): all_reduce cannot have root 1; give a rank to a broadcast, and 0 to other"},
      {{ProgramNode(CollectiveNode{.collective = Collective::kBroadcast, .root = -1})},
       {{1}},
       "(%1): broadcast cannot have root -1; give a rank"},
      {{sum}, {}, "nothing is returned; name a value as its output"},
      {{sum}, {{1}, {2}}, "(output 2): it is not defined; name a value of the program"},
      {{sum}, {{-1}}, "(output 1): it is not defined; name a value of the program"},
  };
}

Error ErrorOf(const WrongGraph& wrong) {
  ProgramParts parts;
  parts.inputs.push_back({"x", {Dtype::kF32, Rows::kAll, 4}, false});
  parts.nodes = wrong.nodes;
  parts.outputs = wrong.outputs;
  const Result<ProgramGraph> graph = ProgramGraph::Make(parts);
  if (graph) {
    ADD_FAILURE() << graph->ToText();
    return {};
  }
  EXPECT_EQ(graph.error().code, ErrorCode::kUsage);
  return graph.error();
}

// Texts that exceed one limit each, or lack a line at their beginning, and their whole errors.
std::vector<std::pair<std::string, std::string>> LongTexts() {
  const auto repeated = [](int count, const auto& line) {
    std::string text;
    for (int i = 0; i < count; ++i) text += line(std::to_string(i), std::to_string(i + 1));
    return text;
  };
  const std::string one = "%x = input f32 [R, 1]\n%y0 = all_reduce sum %x\n";
  const auto negated = [](const std::string& i, const std::string& next) {
    return "%y" + next + " = neg %y" + i + "\n";
  };
  const auto reduced = [](const std::string& i, const std::string& next) {
    return "%y" + next + " = all_reduce sum %y" + i + "\n";
  };
  const auto of_x = [](const std::string& i, const std::string&) {
    return "%z" + i + " = all_reduce max %x\n";
  };
  const auto input = [](const std::string& i, const std::string&) {
    return "%z" + i + " = input f32 [R, 1]\n";
  };
  const auto returned = [](const std::string& i, const std::string&) {
    return (i == "0" ? "return %z" : ", %z") + i;
  };
  const auto added = [](const std::string& i, const std::string& next) {
    return "%y" + next + " = add %y" + i + ", %z" + i + "\n";
  };
  const auto each = [](const std::string& i, const std::string&) {
    return "%z" + i + " = mul %y0, " + i + "\n";
  };
  return {
      {std::string(70'000, ' '),
       "this is not a program (line 1, column 1): the text has 70000 bytes; a program has at most "
       "65536; split it"},
      {"program\n",
       "this is not a program (line 1, column 8): the name is missing; write: program "
       "my_name"},
      {one + repeated(64, negated) + "return %y64\n",
       "this is not a program (line 67, column 1): there are 65 nodes; a program has at most 64; "
       "split it"},
      {one + repeated(4, reduced) + "return %y4\n",
       "this is not a program (line 6, column 7): 5 collectives depend on each other; a program "
       "has "
       "at most 4 in a row"},
      {one + repeated(16, of_x) + repeated(16, returned) + ", %y0\n",
       "this is not a program (line 19, column 1): there are 17 collectives; a program has at most "
       "16; split it"},
      {repeated(16, input) + one + repeated(16, added) + "return %y16\n",
       "this is not a program (line 35, column 1): there are 17 inputs; a program has at most 16; "
       "split it"},
      {one + repeated(17, each) + repeated(17, returned) + "\n",
       "this is not a program (line 20, column 1): there are 17 outputs; a program has at most 16; "
       "split it"},
  };
}

TEST(ProgramErrorsTest, EveryErrorNamesPlaceCauseAndNextStep) {
  for (const Wrong& wrong : kWrongTexts) {
    const std::string text = ErrorOf(wrong).ToText();
    EXPECT_NE(text.find(wrong.error), std::string::npos) << text << "\nexpected " << wrong.error;
  }
  for (const WrongGraph& wrong : WrongGraphs()) {
    const std::string text = ErrorOf(wrong).ToText();
    EXPECT_NE(text.find(wrong.error), std::string::npos) << text << "\nexpected " << wrong.error;
  }
  for (const auto& [text, error] : LongTexts()) {
    EXPECT_EQ(ErrorOfText(text).ToText(), error);
  }
}

// The causes in the sources, as patterns, and how many places make an error: as many, if the test
// understands them all.
struct SourceCauses {
  std::vector<std::string> patterns;
  size_t places = 0;
};

void ReadCauses(const char* path, SourceCauses& causes) {
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto each = [&](const char* pattern, const auto& use) {
    const std::regex regex(pattern);
    for (std::sregex_iterator i(source.begin(), source.end(), regex), end; i != end; ++i) use(*i);
  };
  // The first argument that is a text: `return At("..."`, `return No(token, fmt::format("..."`.
  each(
      R"re(return (?:At|No|OutputAt|Fault)\((?:[^"(;]|\(\))*(?:fmt::format\(\s*)?"((?:[^"\\]|\\.)*)")re",
      [&](const std::smatch& match) { causes.patterns.push_back(match[1]); });
  each(R"re(Expect\("(.+)", "(.+)", )re", [&](const std::smatch& match) {
    causes.patterns.push_back("'" + std::string(match[1]) + "' is expected " +
                              std::string(match[2]) + ", and not {}");
  });
  each(R"re(too_many\("(.+)", )re", [&](const std::smatch& match) {
    causes.patterns.push_back("there are {} " + std::string(match[1]));
  });
  each(R"re(return (?:At|No|OutputAt|Fault|too_many)\((?!std::move)|Expect\(")re",
       [&](const std::smatch&) { ++causes.places; });
}

// "{}" stands for any text.
bool Fits(const std::string& cause, const std::string& pattern) {
  std::string escaped = std::regex_replace(pattern, std::regex(R"([.*+?()\[\]|^$%])"), R"(\$&)");
  escaped = std::regex_replace(escaped, std::regex(R"(\{\})"), ".*");
  return std::regex_match(cause, std::regex("(operand [0-9]+: )?" + escaped));
}

// A message that is new in the sources fails here until it has a row above.
TEST(ProgramErrorsTest, NoMessageIsWithoutARow) {
  std::vector<Error> errors;
  for (const Wrong& wrong : kWrongTexts) errors.push_back(ErrorOf(wrong));
  for (const WrongGraph& wrong : WrongGraphs()) errors.push_back(ErrorOf(wrong));
  for (const auto& [text, error] : LongTexts()) errors.push_back(ErrorOfText(text));
  for (const Error& error : errors) EXPECT_NE(error.next_step, "") << error.ToText();
  SourceCauses causes;
  ReadCauses("core/problem/program_text.cc", causes);
  ReadCauses("core/problem/program_verifier.cc", causes);
  EXPECT_GT(causes.patterns.size(), 60u);
  for (const std::string& pattern : causes.patterns) {
    const bool is_seen = std::any_of(errors.begin(), errors.end(), [&](const Error& error) {
      return Fits(error.cause, pattern);
    });
    EXPECT_TRUE(is_seen) << "no row has: " << pattern;
  }
  // The text about an unknown dtype is that of ParseValueDtype.
  constexpr size_t kWithoutText = 1;
  EXPECT_EQ(causes.places, causes.patterns.size() + kWithoutText)
      << "the test does not see the text of a message";
}

}  // namespace
}  // namespace cotune
