#include "core/choice/leading_choices.h"

#include <string>
#include <vector>

#include "core/testing/parsed.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;

std::vector<Choice> Listed(const std::vector<std::pair<std::string, double>>& ids_and_costs_us) {
  std::vector<Choice> choices;
  for (const auto& [id, cost_us] : ids_and_costs_us) {
    choices.push_back({.id = Id(id), .cost_us = cost_us});
  }
  return choices;
}

TEST(LeadingChoicesTest, AFamilyDiffersInNumbersAlone) {
  EXPECT_EQ(FamilyOf(Id("host/ring?chunk=65536")), FamilyOf(Id("host/ring?chunk=262144")));
  for (const char* const other :
       {"ucx/ring?chunk=65536", "host/tree?chunk=65536", "host/ring?slot=65536",
        "host/ring?chunk=65536&transport=ll", "host/ring", "host/ring?chunk=65536&fuse=1",
        "host/ring?chunk=65536&via=split"}) {
    EXPECT_NE(FamilyOf(Id("host/ring?chunk=65536")), FamilyOf(Id(other))) << other;
  }
  EXPECT_NE(FamilyOf(Id("host/ring?fuse=1")), FamilyOf(Id("host/ring?fuse=2")))
      << "a number of the host is another region";
  EXPECT_NE(FamilyOf(Id("host/a?transport=ll")), FamilyOf(Id("host/a?transport=flagged")));
}

TEST(LeadingChoicesTest, TheParametersOfTheDefaultLead) {
  EXPECT_THAT(LeadingChoices(Listed({{"host/ring?chunk=4", 1},
                                     {"host/ring?chunk=8", 2},
                                     {"host/two?chunk=8", -1},
                                     {"host/two?chunk=4", -1},
                                     {"host/two?chunk=4&fuse=1", 1},
                                     {"host/two?chunk=8&fuse=1", 5}}),
                             Id("host/ring?chunk=8")),
              ElementsAre(false, true, true, false, false, true));
}

TEST(LeadingChoicesTest, WithoutThemTheLowestEstimateLeads) {
  EXPECT_THAT(LeadingChoices(Listed({{"cuda/ring?blocks=4", 3},
                                     {"cuda/ring?blocks=8", 2},
                                     {"cuda/ring?blocks=16", 2},
                                     {"cuda/lamport", 9}}),
                             Id("nccl/auto")),
              ElementsAre(false, true, false, true));
}

TEST(LeadingChoicesTest, AFamilyWithoutEstimatesRacesWhole) {
  EXPECT_THAT(LeadingChoices(Listed({{"x/ring?blocks=4", 3},
                                     {"x/ring?blocks=8", -1},
                                     {"x/tree?blocks=4", 3},
                                     {"x/tree?blocks=8", 4}}),
                             Id("x/auto")),
              ElementsAre(true, true, true, false));
}

// Another backend's parameters of the same name mean something else.
TEST(LeadingChoicesTest, OnlyTheBackendOfTheDefaultSharesItsParameters) {
  EXPECT_THAT(LeadingChoices(Listed({{"ucx/ring?chunk=8", 5}, {"ucx/ring?chunk=4", 1}}),
                             Id("host/ring?chunk=8")),
              ElementsAre(false, true));
}

}  // namespace
}  // namespace cotune
