#include "core/database/known_cells.h"

#include <functional>

#include "core/database/cell_codec.h"
#include "core/database/tuned_database.pb.h"
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

TEST(KnownCellsTest, ShareTheTextsThatTheyHaveInCommon) {
  std::vector<std::optional<DecidedCell>> cells;
  size_t alone_bytes = 0;
  for (uint64_t count = 1; count <= 40; ++count) {
    const DatabaseEntry entry = EntryForTest(count);
    cells.push_back(DecidedCell{entry.cell, entry.winner});
    alone_bytes += EncodeCell({{}, entry.cell, entry.winner, "", 0}).size();
  }
  const std::string bytes = EncodeKnownCells(cells);
  EXPECT_LT(bytes.size(), alone_bytes * 3 / 4);
  EXPECT_EQ(EncodeKnownCells(cells, 4), bytes) << "the bytes do not depend on the threads";
  const auto read = DecodeKnownCells(bytes, 4);
  ASSERT_TRUE(read.has_value()) << read.error().ToText();
  ASSERT_EQ(read->size(), cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    EXPECT_EQ((*read)[i]->cell, cells[i]->cell);
    EXPECT_EQ((*read)[i]->winner.value(), cells[i]->winner.value());
  }
}

TEST(KnownCellsTest, ThatPointBehindTheTableAreAnError) {
  const DatabaseEntry entry = EntryForTest(256);
  proto::KnownCellList good;
  ASSERT_TRUE(good.ParseFromString(EncodeKnownCells({DecidedCell{entry.cell, entry.winner}})));
  const std::function<void(proto::KnownCellRecord&)> spoilers[] = {
      [](auto& cell) { cell.set_winner(1000); },
      [](auto& cell) { cell.set_problem_class(0); },
      [](auto& cell) { cell.set_problem_class(cell.winner()); },
      [](auto& cell) { cell.mutable_detail()->set_why(1000); },
      [](auto& cell) { cell.mutable_detail()->mutable_verdicts(0)->set_choice(0); },
      [](auto& cell) { cell.clear_detail(); }};
  for (const auto& spoil : spoilers) {
    proto::KnownCellList bad = good;
    spoil(*bad.mutable_cells(0));
    const auto read = DecodeKnownCells(bad.SerializeAsString());
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code, ErrorCode::kDatabase);
    EXPECT_FALSE(read.error().next_step.empty());
  }
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
