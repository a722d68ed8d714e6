#include <gtest/gtest.h>

#include <string>
#include <vector>

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

// A text without the flag is the one that it was before there was one.
TEST(ProgramTextTest, AnInputMayBeKeptOutOfRegions) {
  constexpr char kTail[] = "%2 = all_reduce sum %0\n%3 = add %2, %1\nreturn %3\n";
  const auto parse = [&](const std::string& flags) {
    return ProgramGraph::Parse("%0 = input bf16 [R, 8]\n%1 = input bf16 [R, 8]" + flags + "\n" +
                               kTail);
  };
  const ProgramGraph plain = parse("").value();
  const ProgramGraph kept = parse(" nofuse").value();
  EXPECT_TRUE(kept.inputs()[1].is_never_fused);
  EXPECT_FALSE(kept.inputs()[0].is_never_fused);
  EXPECT_EQ(kept.ToText(),
            std::string("%0 = input bf16 [R, 8]\n%1 = input bf16 [R, 8] nofuse\n") + kTail);
  EXPECT_EQ(plain.ToText(),
            std::string("%0 = input bf16 [R, 8]\n%1 = input bf16 [R, 8]\n") + kTail);
  EXPECT_NE(kept, plain);
  EXPECT_NE(kept.digest(), plain.digest());
  EXPECT_EQ(ProgramGraph::Parse(kept.ToText()).value(), kept);
  EXPECT_TRUE(kept.Lower().inputs()[1].is_never_fused) << "recipes are cut from this graph";

  const ProgramGraph both = parse(" replicated nofuse").value();
  EXPECT_EQ(parse("nofuse replicated").value(), both);
  EXPECT_TRUE(both.inputs()[1].is_replicated && both.inputs()[1].is_never_fused);
  EXPECT_NE(both.ToText().find("%1 = input bf16 [R, 8] replicated nofuse\n"), std::string::npos);
  for (const char* flags : {" nofuse nofuse", " replicated nofuse replicated", " fuse"}) {
    EXPECT_FALSE(parse(flags)) << flags;
  }
}

// A backend that runs a part or a region has the same program with the flag and without it.
TEST(ProgramTextTest, ARegionHasNoInputThatIsKeptOutOfRegions) {
  const auto part_of = [](const char* flag) {
    const ProgramGraph graph =
        ProgramGraph::Parse(std::string("%0 = input bf16 [R, 8]\n%1 = input bf16 [R, 8]") + flag +
                            "\n%2 = all_reduce sum %0\n%3 = add %2, %1\nreturn %3\n")
            .value();
    return graph.Region({1}, {{3, -1}});
  };
  EXPECT_EQ(part_of(" nofuse"), part_of(""));
  EXPECT_EQ(part_of(" nofuse").digest(), part_of("").digest());
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

TEST(ProgramTextTest, GraphsAreEqualWhereTheirTextsAre) {
  const auto with = [](const std::string& number) {
    return ProgramGraph::Parse("%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = add %s, " +
                               number + "\n%z = clamp %y, low=" + (number == "nan" ? "1" : number) +
                               ", high=inf\nreturn %z\n")
        .value();
  };
  const std::vector<std::string> numbers = {"nan", "0", "-0", "1", "-inf"};
  for (const std::string& number : numbers) {
    const ProgramGraph graph = with(number);
    EXPECT_EQ(ProgramGraph::Parse(graph.ToText()).value(), graph) << number;
    for (const std::string& other : numbers) {
      EXPECT_EQ(graph == with(other), graph.ToText() == with(other).ToText()) << number << other;
    }
  }
}

}  // namespace
}  // namespace cotune
