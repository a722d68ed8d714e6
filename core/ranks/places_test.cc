#include "core/ranks/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/testing/scripted_ranks.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Places PlacesOf(const std::vector<std::string>& identities) { return Places::Of(identities); }

TEST(Places, HostsAreNumberedAsRanksNameThem) {
  const Places places = PlacesOf({"z", "a", "z", "m", "a", "z"});
  EXPECT_THAT(places.host_of_rank(), ElementsAre(0, 1, 0, 2, 1, 0));
  EXPECT_EQ(places.host_count(), 3);
  EXPECT_FALSE(places.is_one_host());
  EXPECT_EQ(places.ranks_on_host(0), 3);
  EXPECT_EQ(places.ranks_on_host(4), 2);
  EXPECT_EQ(places.ranks_on_host(3), 1);
  EXPECT_EQ(places.ranks_per_host(), 0) << "hosts differ";
}

TEST(Places, EvenHostsHaveOneNumberOfRanks) {
  EXPECT_EQ(PlacesOf({"a", "b", "b", "a"}).ranks_per_host(), 2);
  EXPECT_EQ(PlacesOf({"a", "b", "c"}).ranks_per_host(), 1);
}

TEST(Places, OneHostHasAllRanks) {
  const Places places = PlacesOf({"a", "a", "a"});
  EXPECT_EQ(places, Places::OneHost(3));
  EXPECT_TRUE(places.is_one_host());
  EXPECT_EQ(places.ranks_per_host(), 3);
}

TEST(Places, ASubgroupNumbersItsOwnHosts) {
  const Places places = PlacesOf({"a", "b", "b", "c"});
  EXPECT_THAT(places.OfRanks(std::vector<int>{3, 1, 2}).host_of_rank(), ElementsAre(0, 1, 1));
  EXPECT_EQ(places.OfRanks(std::vector<int>{2, 1}), Places::OneHost(2));
}

// What each of the ranks gets when it says this identity.
std::vector<Result<Places>> ExchangeOf(const std::vector<std::string>& identities) {
  HubForTest hub(static_cast<int>(identities.size()));
  std::vector<Result<Places>> results(identities.size(), Fail(ErrorCode::kInternal, "did not run"));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < identities.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto exchange = MakeExchangeForTest(hub, static_cast<int>(rank));
      results[rank] = ExchangePlaces(*exchange, identities[rank], INT64_MAX);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(ExchangePlaces, AllRanksComeToTheSame) {
  for (const Result<Places>& places : ExchangeOf({"x", "y", "x"})) {
    ASSERT_TRUE(places) << places.error().ToText();
    EXPECT_THAT(places->host_of_rank(), ElementsAre(0, 1, 0));
  }
}

TEST(ExchangePlaces, ARankWithoutAnIdentityIsNamedOnAll) {
  for (const Result<Places>& places : ExchangeOf({"x", "", "x"})) {
    ASSERT_FALSE(places);
    EXPECT_EQ(places.error().code, ErrorCode::kEnvironment);
    EXPECT_THAT(places.error().ranks, ElementsAre(1));
    EXPECT_THAT(places.error().ToText(), AllOf(HasSubstr("rank 1"), HasSubstr("boot_id")));
  }
}

}  // namespace
}  // namespace cotune
