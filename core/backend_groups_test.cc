// Which backends the ranks share, and what each of them learns of those that they do not.
#include "core/backend_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "core/ranks_for_test.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A backend whose groups cannot be made on one rank.
class BackendWithoutGroups final : public Backend {
 public:
  BackendWithoutGroups(HubForTest& hub, int rank) : real_(hub, rank, {}, "partly") {}
  const std::string& name() const override { return real_.name(); }
  const std::string& version() const override { return real_.version(); }
  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    return real_.ListChoices(program, problem);
  }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override {
    if (parameters.rank == 1) return Fail(ErrorCode::kEnvironment, "no memory for the segment");
    return real_.CreateGroup(parameters);
  }

 private:
  BackendForTest real_;
};

struct View {
  std::vector<std::string> members;
  std::vector<Refusal> refusals;
};

// Creates the groups of "scripted", and of `other` when it makes one, on each of three ranks.
std::vector<View> CreateOnThreeRanks(
    const std::function<void(int rank, BackendGroups::Options&)>& change,
    const std::function<std::unique_ptr<Backend>(HubForTest&, int rank)>& make_other) {
  constexpr int kRanks = 3;
  HubForTest hub(kRanks);
  std::vector<View> views(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      BackendForTest scripted(hub, rank, {});
      const std::unique_ptr<Backend> other = make_other ? make_other(hub, rank) : nullptr;
      std::vector<Backend*> backends = {&scripted};
      if (other != nullptr) backends.push_back(other.get());
      BackendGroups::Options options;
      options.name = "job";
      options.job_ranks = {0, 1, 2};
      if (change) change(rank, options);
      const auto groups = BackendGroups::Create(backends, *exchange, options);
      ASSERT_TRUE(groups.has_value()) << groups.error().ToText();
      for (const BackendMember& member : (*groups)->members()) {
        views[rank].members.push_back(member.backend->name());
      }
      views[rank].refusals = (*groups)->refusals();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return views;
}

TEST(BackendGroupsTest, EqualSettingsShareAGroup) {
  const auto set = [](int, BackendGroups::Options& options) {
    options.settings["scripted"] = "slot_bytes=1M";
  };
  for (const View& view : CreateOnThreeRanks(set, {})) {
    EXPECT_THAT(view.members, testing::ElementsAre("scripted"));
    EXPECT_TRUE(view.refusals.empty());
  }
}

TEST(BackendGroupsTest, RanksWithOtherSettingsAreNamedOnAllRanks) {
  const auto set = [](int rank, BackendGroups::Options& options) {
    options.settings["scripted"] = rank == 2 ? "slot_bytes=2M" : "slot_bytes=1M";
  };
  for (const View& view : CreateOnThreeRanks(set, {})) {
    EXPECT_TRUE(view.members.empty());
    ASSERT_EQ(view.refusals.size(), 1u);
    EXPECT_EQ(view.refusals[0].choice, "scripted");
    EXPECT_EQ(view.refusals[0].reason,
              "rank 0 has 'scripted 1 slot_bytes=1M', rank 2 has 'scripted 1 slot_bytes=2M'");
  }
}

TEST(BackendGroupsTest, ABackendThatARankLacksIsLeftOutOnAll) {
  const auto other = [](HubForTest& hub, int rank) -> std::unique_ptr<Backend> {
    if (rank == 1) return nullptr;
    return std::make_unique<BackendForTest>(hub, rank, std::vector<ScriptedChoice>{}, "rare");
  };
  for (const View& view : CreateOnThreeRanks({}, other)) {
    EXPECT_THAT(view.members, testing::ElementsAre("scripted"));
    ASSERT_EQ(view.refusals.size(), 1u);
    EXPECT_EQ(view.refusals[0].reason, "rank 0 has 'rare 1', rank 1 does not");
  }
}

TEST(BackendGroupsTest, AGroupThatOneRankCannotMakeIsLeftOutOnAllWithTheReason) {
  const auto other = [](HubForTest& hub, int rank) -> std::unique_ptr<Backend> {
    return std::make_unique<BackendWithoutGroups>(hub, rank);
  };
  for (const View& view : CreateOnThreeRanks({}, other)) {
    EXPECT_THAT(view.members, testing::ElementsAre("scripted"));
    ASSERT_EQ(view.refusals.size(), 1u);
    EXPECT_EQ(view.refusals[0].choice, "partly");
    EXPECT_THAT(view.refusals[0].reason,
                AllOf(HasSubstr("rank 1"), HasSubstr("no memory for the segment")));
  }
}

}  // namespace
}  // namespace cotune
