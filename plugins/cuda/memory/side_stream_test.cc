#include "plugins/cuda/memory/side_stream.h"

#include <gtest/gtest.h>

namespace cotune::cuda {
namespace {

using State = StreamCapture::State;

TEST(SideStreamTest, AStreamThatIsPartOfNothingGoesBesideAnyOther) {
  for (const State state : {State::kNone, State::kActive, State::kInvalidated}) {
    EXPECT_TRUE(CanFork({}, {state, 7}));
  }
}

TEST(SideStreamTest, ItStaysInItsCaptureUntilThatEnds) {
  EXPECT_TRUE(CanFork({State::kActive, 7}, {State::kActive, 7})) << "another call of one graph";
  EXPECT_FALSE(CanFork({State::kActive, 7}, {State::kActive, 8})) << "two captures at once";
  EXPECT_FALSE(CanFork({State::kActive, 7}, {})) << "a plain call while a graph is captured";
  EXPECT_FALSE(CanFork({State::kActive, 0}, {State::kNone, 0}));
  EXPECT_FALSE(CanFork({State::kActive, 7}, {State::kInvalidated, 0}));
}

TEST(SideStreamTest, ACaptureThatWasInvalidatedStillHasIt) {
  EXPECT_FALSE(CanFork({State::kInvalidated, 0}, {}));
  EXPECT_FALSE(CanFork({State::kInvalidated, 0}, {State::kInvalidated, 0}));
  EXPECT_FALSE(CanFork({State::kInvalidated, 0}, {State::kActive, 0}));
}

}  // namespace
}  // namespace cotune::cuda
