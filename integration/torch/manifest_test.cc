#include "integration/torch/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cotune::torch_operators {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ManifestTest, HoldsProgramsAndTheirRows) {
  const auto nodes = ParseManifest("rows 1,64: program a; %0 = input f32 [R, 8] | rows 8 :b ");
  ASSERT_TRUE(nodes) << nodes.error();
  EXPECT_THAT(*nodes, ElementsAre(ManifestNode{"program a; %0 = input f32 [R, 8]", {1, 64}},
                                  ManifestNode{"b", {8}}));
}

TEST(ManifestTest, MarksProgramsOfAnyRows) {
  const auto nodes = ParseManifest("any rows 4,16: a | rows 4: a");
  ASSERT_TRUE(nodes) << nodes.error();
  EXPECT_THAT(*nodes, ElementsAre(ManifestNode{"a", {4, 16}, true}, ManifestNode{"a", {4}}));
}

TEST(ManifestTest, RowsMayBeChosen) {
  const auto nodes = ParseManifest("chosen rows 4,16: a | any rows 4,16: a");
  ASSERT_TRUE(nodes) << nodes.error();
  EXPECT_THAT(*nodes,
              ElementsAre(ManifestNode{"a", {4, 16}, true}, ManifestNode{"a", {4, 16}, true}));
  EXPECT_FALSE(ParseManifest("any chosen rows 4: a"));
  EXPECT_FALSE(ParseManifest("chosen 4: a"));
}

TEST(ManifestTest, MayNameItsGraph) {
  const auto nodes = ParseManifest("graph 0a1b | rows 4: a");
  ASSERT_TRUE(nodes) << nodes.error();
  EXPECT_THAT(*nodes, ElementsAre(ManifestNode{"a", {4}}));
  EXPECT_FALSE(ParseManifest("graph 0a1b"));
  EXPECT_FALSE(ParseManifest("rows 4: a | graph 0a1b"));
}

TEST(ManifestTest, SaysWhatIsWrong) {
  const auto error_of = [](std::string_view text) {
    const auto nodes = ParseManifest(text);
    return nodes ? "none" : nodes.error();
  };
  for (const std::string_view text : {"", "|", "rows", "rows 1", "rows 1:", "rows: a", "a",
                                      R"([{"program": "a", "rows": [1]}])"}) {
    EXPECT_THAT(error_of(text), HasSubstr("part 1 is not \"rows NUMBERS: PROGRAM\"")) << text;
  }
  EXPECT_THAT(error_of("rows 1: a | b"), HasSubstr("part 2 is not"));
  EXPECT_THAT(error_of("rows 1: a |"), HasSubstr("part 2 is not"));
  EXPECT_THAT(error_of("rows : a"), HasSubstr("part 1 has the rows \"\""));
  EXPECT_THAT(error_of("rows 1,: a"), HasSubstr("part 1 has the rows \"\""));
  EXPECT_THAT(error_of("rows 0: a"), HasSubstr("part 1 has the rows \"0\""));
  EXPECT_THAT(error_of("rows 1: a | rows -1: b"), HasSubstr("part 2 has the rows \"-1\""));
  EXPECT_THAT(error_of("rows 1.5: a"), HasSubstr("rows \"1.5\""));
  EXPECT_THAT(error_of("rows 1,,2: a"), HasSubstr("rows \"\""));
  EXPECT_THAT(error_of("rows 18446744073709551616: a"), HasSubstr("rows \"18446744073709551616\""));
}

}  // namespace
}  // namespace cotune::torch_operators
