#include "integration/torch/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cotune::torch_operators {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ManifestTest, HoldsProgramsAndTheirRows) {
  const auto nodes =
      ParseManifest(R"([{"program": "a\nb", "rows": [1, 64]}, {"program": "c", "rows": []}])");
  ASSERT_TRUE(nodes) << nodes.error();
  EXPECT_THAT(*nodes, ElementsAre(ManifestNode{"a\nb", {1, 64}}, ManifestNode{"c", {}}));
  const auto none = ParseManifest("[]");
  ASSERT_TRUE(none) << none.error();
  EXPECT_THAT(*none, IsEmpty());
}

TEST(ManifestTest, SaysWhatIsWrong) {
  const auto error_of = [](std::string_view text) {
    const auto nodes = ParseManifest(text);
    return nodes ? "none" : nodes.error();
  };
  EXPECT_THAT(error_of(""), HasSubstr("it is no JSON"));
  EXPECT_THAT(error_of("[{"), HasSubstr("it is no JSON"));
  EXPECT_THAT(error_of("{}"), HasSubstr("it is no JSON array"));
  EXPECT_THAT(error_of("[3]"), HasSubstr("node 1 is not an object with a program and its rows"));
  EXPECT_THAT(error_of(R"([{"program": "a", "rows": []}, {"program": "a"}])"), HasSubstr("node 2"));
  EXPECT_THAT(error_of(R"([{"program": 1, "rows": []}])"), HasSubstr("node 1"));
  EXPECT_THAT(error_of(R"([{"program": "a", "rows": [0]}])"), HasSubstr("node 1 has the rows 0"));
  EXPECT_THAT(error_of(R"([{"program": "a", "rows": [-1]}])"), HasSubstr("rows -1"));
  EXPECT_THAT(error_of(R"([{"program": "a", "rows": [1.5]}])"), HasSubstr("rows 1.5"));
}

}  // namespace
}  // namespace cotune::torch_operators
