#include "core/database/known_cells.h"

#include "core/testing/database_entries.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

TEST(KnownCellsTest, TravelWithTheirWinners) {
  const DatabaseEntry entry = EntryForTest(256);
  DecidedCell known{entry.cell, entry.winner};
  known.winner->why = "no rule gives this reason";
  const DecidedCell undecided{entry.cell, Fail(ErrorCode::kEnvironment, "no choice ran")};
  const auto cells = DecodeKnownCells(EncodeKnownCells({std::nullopt, known, undecided}));
  ASSERT_TRUE(cells.has_value()) << cells.error().ToText();
  ASSERT_EQ(cells->size(), 3u);
  EXPECT_FALSE((*cells)[0].has_value());
  ASSERT_TRUE((*cells)[1].has_value());
  EXPECT_EQ((*cells)[1]->cell, known.cell);
  EXPECT_EQ((*cells)[1]->winner.value(), known.winner.value());
  EXPECT_FALSE((*cells)[2].has_value()) << "without a winner it is not known";
  EXPECT_EQ(DecodeKnownCells("\xff").error().code, ErrorCode::kDatabase);
}

TEST(LeftOutTest, TravelsInLines) {
  const std::vector<LeftOutChoice> left_out = {{"class a", "host/x", "it crashed"},
                                               {"class b", "host/y?z=1", ""}};
  EXPECT_EQ(DecodeLeftOut(EncodeLeftOut(left_out)).value(), left_out);
  EXPECT_TRUE(DecodeLeftOut("")->empty());
  EXPECT_EQ(DecodeLeftOut(EncodeLeftOut({{"c", "d", "two\nlines"}}))->front().reason, "two lines");
  EXPECT_EQ(DecodeLeftOut("a\nb\n").error().code, ErrorCode::kDatabase);
  EXPECT_EQ(DecodeLeftOut("a\nb\nc\nd").error().code, ErrorCode::kDatabase);
}

}  // namespace
}  // namespace cotune
