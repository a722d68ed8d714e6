// A tune warns of the choices that it leaves out because they have ended an earlier one.
#include <algorithm>

#include "core/testing/tune_on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LeftOutTuneTest : public ::testing::Test {
 protected:
  LeftOutTuneTest() {
    tune_.known = &memory_;
    tune_.choices = [](int) {
      return std::vector<ScriptedChoice>{Scripted("bad", 10'000), Scripted("good", 50'000)};
    };
    memory_.left_out = {{ToText(AllReduce(2)), "scripted/bad", "it has ended a tune"}};
  }
  // The lines of a tune that name the choice.
  std::vector<std::string> LinesOfBad() {
    const std::vector<RankView> views = RunTune(tune_);
    for (const RankView& view : views) EXPECT_TRUE(view.outcome.has_value());
    EXPECT_THAT(views[1].observer.warnings, IsEmpty()) << "rank 0 warns for all";
    std::vector<std::string> lines = views[0].observer.warnings;
    std::erase_if(lines, [](const std::string& line) { return !line.starts_with("scripted/bad"); });
    known_cells_ = views[0].outcome->known_cells;
    return lines;
  }

  MemoryOfCells memory_;
  Tune tune_;
  int known_cells_ = 0;
};

TEST_F(LeftOutTuneTest, IsSaidAgainIfAllCellsAreKnown) {
  tune_.node_sizes = {{1024, 4096}};
  const auto line =
      HasSubstr("scripted/bad is left out for " + ToText(AllReduce(2)) + ": it has ended a tune");
  EXPECT_THAT(LinesOfBad(), ElementsAre(line));
  EXPECT_EQ(known_cells_, 0);
  EXPECT_THAT(LinesOfBad(), ElementsAre(line));
  EXPECT_EQ(known_cells_, 2);
}

TEST_F(LeftOutTuneTest, IsSaidOnceForNodesThatAreResolvedOneByOne) {
  tune_.node_sizes = {{1024}, {4096}};
  tune_.settings.enable_collective_multitemplate = false;
  EXPECT_THAT(LinesOfBad(), ElementsAre(HasSubstr("is left out")));
}

TEST_F(LeftOutTuneTest, IsNotSaidForAClassThatIsNotTuned) {
  memory_.left_out[0].problem_class = ToText(AllReduce(4));
  EXPECT_THAT(LinesOfBad(), IsEmpty());
}

}  // namespace
}  // namespace cotune
