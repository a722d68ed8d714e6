#include <gtest/gtest.h>

#include <string>

#include "core/problem/program_graph.h"

namespace cotune {
namespace {

constexpr char kNorm[] =
    "program add_residual_norm  # its name\n"
    "%x        = input bf16 [R, 8]\r\n"
    "%residual = input bf16 [R, 8] replicated\n"
    "\n"
    "%gamma    = input bf16 [1, 8] replicated\n"
    "%sum      = all_reduce sum %x\n"
    "\t%stream = add %sum, %residual\n"
    "%y        = rms_norm %stream, %gamma, eps=1e-6\n"
    "return %y, %stream into %residual\n";

TEST(ProgramTextTest, CanonicalTextHasNumbersForNames) {
  const ProgramGraph graph = ProgramGraph::Parse(kNorm).value();
  EXPECT_EQ(graph.name(), "add_residual_norm");
  EXPECT_EQ(graph.ToText(),
            "%0 = input bf16 [R, 8]\n"
            "%1 = input bf16 [R, 8] replicated\n"
            "%2 = input bf16 [1, 8] replicated\n"
            "%3 = all_reduce sum %0\n"
            "%4 = add %3, %1\n"
            "%5 = rms_norm %4, %2, eps=1e-06\n"
            "return %5, %4 into %1\n");
  const ProgramGraph again = ProgramGraph::Parse(graph.ToText()).value();
  EXPECT_EQ(again, graph);
  EXPECT_EQ(again.digest(), graph.digest());
  EXPECT_EQ(graph.outputs()[1].into, 1);
  EXPECT_TRUE(graph.is_replicated(5));
  EXPECT_FALSE(graph.is_replicated(0));
}

TEST(ProgramTextTest, SemicolonsPartLines) {
  const ProgramGraph graph = ProgramGraph::Parse(kNorm).value();
  const Result<ProgramGraph> one_line = ProgramGraph::Parse(
      "program add_residual_norm; %x = input bf16 [R, 8];%r = input bf16 [R, 8] replicated;; "
      "%g = input bf16 [1, 8] replicated; %s = all_reduce sum %x; %t = add %s, %r; "
      "%y = rms_norm %t, %g, eps=1e-6; return %y, %t into %r;  # %z = neg %y; neither is read");
  ASSERT_TRUE(one_line.has_value()) << one_line.error().ToText();
  EXPECT_EQ(*one_line, graph);
  EXPECT_EQ(one_line->name(), graph.name());
  const auto wrong = ProgramGraph::Parse("%x = input f32 [R, 8]; %y = frob %x; return %y\n");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().ToText().find("line 1, column 29"), std::string::npos)
      << wrong.error().ToText();
}

TEST(ProgramTextTest, EveryOperationIsReadBack) {
  const std::string text =
      "%0 = input f32 [R, 4]\n"
      "%1 = input f32 [1, 4]\n"
      "%2 = broadcast %0, root=2\n"
      "%3 = clamp %2, low=-inf, high=6.5\n"
      "%4 = less %3, 0.1\n"
      "%5 = where %4, %3, 1e+300\n"
      "%6 = layer_norm %5, %1, %1, eps=1e-05\n"
      "%7 = quantize_scale %6, to=f8_e4m3\n"
      "%8 = quantize %6, %7, to=f8_e4m3\n"
      "%9 = all_to_all %8\n"
      "%10 = cast %9, to=f16\n"
      "return %10, %7\n";
  const Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  ASSERT_TRUE(graph.has_value()) << graph.error().ToText();
  EXPECT_EQ(graph->ToText(), text);
  EXPECT_TRUE(graph->needs_whole_shares());
  EXPECT_EQ(ProgramGraph::Parse(graph->Lower().ToText()).value(), graph->Lower());
}

struct Wrong {
  const char* line;  // behind the two inputs
  const char* error;
};

// Line 1 is %x = input f32 [R, 4], line 2 %g = input bf16 [1, 4].
TEST(ProgramTextTest, EveryErrorNamesPlaceCauseAndNextStep) {
  const Wrong wrongs[] = {
      {"%y = all_reduse sum %x\n", "(line 3, column 6): unknown operation 'all_reduse'; known: "},
      {"%y = all_reduce %x\n",
       "(line 3, column 17): all_reduce needs a reduction, and '%x' is none"},
      {"%y = all_reduce sum %z\n",
       "(line 3, column 21): %z is not defined in front of this line; known: "},
      {"%y = all_reduce sum x\n",
       "(line 3, column 21): a value is expected, and not 'x'; values begin with %"},
      {"%y all_reduce sum %x\n",
       "(line 3, column 4): '=' is expected behind the name of a value, and not 'all_reduce'"},
      {"%x = all_reduce sum %x\n", "(line 3, column 1): %x is defined already; give it another"},
      {"%y = all_reduce sum %x %x\n", "(line 3, column 24): '%x' is more than the line takes"},
      {"%y = broadcast %x\n", "(line 3, column 18): ',' is expected in front of root="},
      {"%y = broadcast %x, root=one\n", "(line 3, column 25): 'one' is no rank; write root=0"},
      {"%y = clamp %x, low=1\nreturn %y\n", "(line 3, column 6): low 1 is not below high 0"},
      {"%y = clamp %x\n", "(line 3, column 14): clamp needs low="},
      {"%y = rms_norm %x, %g, epsilon=1\n",
       "(line 3, column 23): rms_norm has no 'epsilon'; known: eps"},
      {"%y = cast %x\n", "(line 3, column 13): cast needs a dtype; write , to=f8_e4m3"},
      {"%y = cast %x, to=f99\n", "(line 3, column 18): unknown dtype 'f99'"},
      {"%z = input f32 [Q, 4]\n", "(line 3, column 17): 'Q' is no number of rows; write R, R/n"},
      {"%z = input f32 [R, many]\n", "(line 3, column 20): 'many' is no number of columns"},
      {"%z = input f32 [R, 0]\nreturn %z\n", "(line 3, column 1): it has 0 columns"},
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
      {"%c = cast %g, to=f32\n%y = add %x, %c\nreturn %y\n",
       "(line 5, column 1): there is no coll"},
      {"%y = all_reduce sum %x\nreturn %y\n", "(line 2, column 1): nothing uses it; return it, or"},
      {"%y = all_reduce sum %x\nreturn %y, %y\n", "(line 4, column 12): it is returned twice"},
      {"%y = all_reduce sum %x\nreturn %y into %g\n",
       "(line 4, column 8): it is f32 [R, 4], and the input that it overwrites is bf16 [1, 4]"},
      {"%y = all_reduce sum %x\n%z = add %y, %x\nreturn %z, %y into %x\n",
       "(line 4, column 6): it reads an input that was overwritten before; read the new value"},
      {"%y = all_reduce sum %x\nreturn %y\nmore\n",
       "(line 5, column 1): there is text behind the return; return is the last line"},
      {"%y = all_reduce sum %x\n", "(line 4, column 1): there is no return; end the program with"},
  };
  for (const Wrong& wrong : wrongs) {
    const std::string text =
        std::string("%x = input f32 [R, 4]\n%g = input bf16 [1, 4]\n") + wrong.line;
    const Result<ProgramGraph> graph = ProgramGraph::Parse(text);
    ASSERT_FALSE(graph.has_value()) << text;
    EXPECT_EQ(graph.error().code, ErrorCode::kUsage);
    EXPECT_NE(graph.error().ToText().find(wrong.error), std::string::npos)
        << graph.error().ToText() << "\nexpected " << wrong.error;
  }
}

TEST(ProgramTextTest, LimitsAreNamed) {
  EXPECT_NE(ProgramGraph::Parse(std::string(70'000, ' ')).error().cause.find("70000 bytes"),
            std::string::npos);
  std::string text = "%x = input f32 [R, 1]\n%y0 = all_reduce sum %x\n";
  for (int i = 0; i < 64; ++i) {
    text += "%y" + std::to_string(i + 1) + " = neg %y" + std::to_string(i) + "\n";
  }
  EXPECT_EQ(ProgramGraph::Parse(text + "return %y64\n").error().cause, "there are 65 nodes");
  std::string chain = "%x = input f32 [R, 1]\n%y0 = all_reduce sum %x\n";
  for (int i = 0; i < 4; ++i) {
    chain += "%y" + std::to_string(i + 1) + " = all_reduce sum %y" + std::to_string(i) + "\n";
  }
  EXPECT_EQ(ProgramGraph::Parse(chain + "return %y4\n").error().cause,
            "5 collectives depend on each other");
}

}  // namespace
}  // namespace cotune
