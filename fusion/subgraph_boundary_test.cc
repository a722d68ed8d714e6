#include "fusion/subgraph_boundary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/testing/parsed.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Inputs are values 0 to 2; the nodes are sum, stream, norm and their neighbours.
ProgramGraph Norm() {
  return Graph(
      "%x = input f32 [R, 8]\n%r = input f32 [R, 8]\n%g = input f32 [1, 8]\n"
      "%a = relu %x\n"            // node 0, value 3
      "%s = all_reduce sum %a\n"  // node 1, value 4
      "%t = add %s, %r\n"         // node 2, value 5
      "%u = rms_norm %t, %g\n"    // node 3, value 6
      "%v = mul %t, %t\n"         // node 4, value 7
      "%w = add %v, %u\n"         // node 5, value 8
      "return %w, %t into %r\n");
}

TEST(SubgraphBoundaryTest, ValuesEnterAndLeave) {
  const SubgraphBoundary boundary = SubgraphBoundary::Of(Norm(), {2, 1});
  EXPECT_THAT(boundary.first_nodes, ElementsAre(1));
  EXPECT_THAT(boundary.last_nodes, ElementsAre(2));
  EXPECT_THAT(boundary.inputs, ElementsAre(1, 3));
  EXPECT_THAT(boundary.outputs, ElementsAre(5));
  EXPECT_THAT(boundary.outside_readers, ElementsAre(2));  // one of them reads it twice
}

TEST(SubgraphBoundaryTest, AnOutputOfTheProgramLeavesWithoutReaders) {
  const SubgraphBoundary boundary = SubgraphBoundary::Of(Norm(), {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(boundary.first_nodes, ElementsAre(0));
  EXPECT_THAT(boundary.last_nodes, ElementsAre(5));
  EXPECT_THAT(boundary.inputs, ElementsAre(0, 1, 2));
  EXPECT_THAT(boundary.outputs, ElementsAre(5, 8));
  EXPECT_THAT(boundary.outside_readers, ElementsAre(0, 0));
}

TEST(SubgraphBoundaryTest, NodesApartAreFirstAndLast) {
  const SubgraphBoundary boundary = SubgraphBoundary::Of(Norm(), {3, 4});
  EXPECT_THAT(boundary.first_nodes, ElementsAre(3, 4));
  EXPECT_THAT(boundary.last_nodes, ElementsAre(3, 4));
  EXPECT_THAT(boundary.inputs, ElementsAre(2, 5));
  EXPECT_THAT(boundary.outputs, ElementsAre(6, 7));
  EXPECT_THAT(boundary.outside_readers, ElementsAre(1, 1));
}

TEST(SubgraphBoundaryTest, NoNodesHaveNoBorder) {
  const SubgraphBoundary boundary = SubgraphBoundary::Of(Norm(), {});
  EXPECT_THAT(boundary.inputs, IsEmpty());
  EXPECT_THAT(boundary.outputs, IsEmpty());
}

}  // namespace
}  // namespace cotune
