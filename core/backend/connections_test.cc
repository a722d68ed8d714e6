#include "core/backend/connections.h"

#include <gtest/gtest.h>

namespace cotune {
namespace {

TEST(ConnectionsTest, OneWayIsSaidOnce) {
  EXPECT_EQ(ConnectionsText({{"", "tcp/eth0", "tcp/eth0"},
                             {"tcp/eth0", "", "tcp/eth0"},
                             {"tcp/eth0", "tcp/eth0", ""}}),
            "tcp/eth0 between all ranks");
}

TEST(ConnectionsTest, SeveralWaysAreCountedAndEachHasAnExample) {
  EXPECT_EQ(ConnectionsText({{"", "shm", "tcp"}, {"shm", "", "tcp"}, {"tcp", "tcp", ""}}),
            "shm (2 of 6 pairs, as 0 to 1), tcp (4 of 6 pairs, as 0 to 2)");
}

TEST(ConnectionsTest, RanksThatKnowNothingAreNotLeftOut) {
  EXPECT_EQ(ConnectionsText({{"", "tcp"}, {}}),
            "tcp (1 of 2 pairs, as 0 to 1), not known (1 of 2 pairs, as 1 to 0)");
}

TEST(ConnectionsTest, NothingIsKnown) {
  EXPECT_EQ(ConnectionsText({}), "");
  EXPECT_EQ(ConnectionsText({{"self"}}), "");
  EXPECT_EQ(ConnectionsText({{}, {}}), "");
}

}  // namespace
}  // namespace cotune
