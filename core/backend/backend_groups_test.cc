// Which backends the ranks share, and what each of them learns of those that they do not.
#include "core/backend/backend_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>

#include "core/testing/scripted_ranks.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
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

// Its groups take device memory.
class BackendWithMemory final : public Backend {
 public:
  BackendWithMemory(HubForTest& hub, int rank, uint64_t group_bytes, uint64_t& free_bytes)
      : real_(hub, rank, {}, "large"), group_bytes_(group_bytes), free_bytes_(free_bytes) {}
  const std::string& name() const override { return real_.name(); }
  const std::string& version() const override { return real_.version(); }
  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    return real_.ListChoices(program, problem);
  }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override {
    free_bytes_ -= group_bytes_;
    return real_.CreateGroup(parameters);
  }

 private:
  BackendForTest real_;
  const uint64_t group_bytes_;
  uint64_t& free_bytes_;
};

struct View {
  std::vector<std::string> members;
  std::vector<std::string> connections;  // of each member
  std::vector<Refusal> refusals;
};

// Creates the groups of "scripted", and of `other` when it makes one, on each of three ranks.
std::vector<View> CreateOnThreeRanks(
    const std::function<void(int rank, BackendGroups::Options&)>& change,
    const std::function<std::unique_ptr<Backend>(HubForTest&, int rank)>& make_other,
    const std::vector<int>& job_ranks = {0, 1, 2}) {
  constexpr int kRanks = 3;
  HubForTest hub(kRanks);
  hub.job_ranks = job_ranks;
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
      options.job_ranks.assign(job_ranks.begin(), job_ranks.end());
      if (change) change(rank, options);
      const auto groups = BackendGroups::Create(backends, *exchange, MonotonicClock(), options);
      ASSERT_TRUE(groups.has_value()) << groups.error().ToText();
      for (const BackendMember& member : (*groups)->members()) {
        views[rank].members.push_back(member.backend->name());
        views[rank].connections.push_back(member.connections);
      }
      views[rank].refusals = (*groups)->refusals();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return views;
}

// A backend whose groups say when they are aborted, and return when they may.
class BackendWithAbort final : public Backend {
 public:
  BackendWithAbort(HubForTest& hub, std::string name, std::promise<void>& aborted,
                   std::shared_future<void> may_return)
      : real_(hub, 0, {}, std::move(name)), aborted_(aborted), may_return_(std::move(may_return)) {}
  const std::string& name() const override { return real_.name(); }
  const std::string& version() const override { return real_.version(); }
  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    return real_.ListChoices(program, problem);
  }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters&) override {
    return std::make_unique<Group>(aborted_, may_return_);
  }

 private:
  class Group final : public BackendGroup {
   public:
    Group(std::promise<void>& aborted, std::shared_future<void> may_return)
        : aborted_(aborted), may_return_(std::move(may_return)) {}
    Result<std::unique_ptr<Plan>> Prepare(const Program&, const Problem&, const Choice&,
                                          int64_t) override {
      return Fail(ErrorCode::kUnsupported, "it only aborts");
    }
    Status RegisterMemory(void*, uint64_t, int64_t) override { return {}; }
    void UnregisterMemory(void*) override {}
    Status Health() override { return {}; }
    void Abort() override {
      aborted_.set_value();
      may_return_.wait();
    }

   private:
    std::promise<void>& aborted_;
    const std::shared_future<void> may_return_;
  };

  BackendForTest real_;
  std::promise<void>& aborted_;
  const std::shared_future<void> may_return_;
};

class StoppedClock final : public Clock {
 public:
  explicit StoppedClock(int64_t now_ns) : now_ns_(now_ns) {}
  int64_t now_ns() const override { return now_ns_; }

 private:
  const int64_t now_ns_;
};

// Notes until when its groups are to be made.
class BackendThatNotesDeadlines final : public Backend {
 public:
  BackendThatNotesDeadlines(HubForTest& hub, int rank) : real_(hub, rank, {}) {}
  const std::string& name() const override { return real_.name(); }
  const std::string& version() const override { return real_.version(); }
  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    return real_.ListChoices(program, problem);
  }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override {
    deadline_ns = parameters.deadline_ns;
    return real_.CreateGroup(parameters);
  }
  int64_t deadline_ns = 0;

 private:
  BackendForTest real_;
};

// The clocks of two processes may be days apart: the one deadline of all is a time that is left.
TEST(BackendGroupsTest, RanksHaveTheLongestTimeOfAnyOnClocksOfTheirOwn) {
  HubForTest hub(2);
  std::vector<int64_t> deadlines_ns(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      const StoppedClock clock(rank == 0 ? 1'000 : 5'000'000);
      BackendThatNotesDeadlines backend(hub, rank);
      BackendGroups::Options options;
      options.name = "job";
      options.job_ranks = {0, 1};
      options.deadline_ns = clock.now_ns() + (rank == 0 ? 70 : 50);
      const auto groups = BackendGroups::Create({&backend}, *exchange, clock, options);
      ASSERT_TRUE(groups) << groups.error().ToText();
      deadlines_ns[static_cast<size_t>(rank)] = backend.deadline_ns;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(deadlines_ns, ElementsAre(1'070, 5'000'070));
}

// The backend of parts on each of two ranks, "" for none, and what was refused on the first. The
// user of each rank has left the named backends out of the race.
struct PartsView {
  std::vector<std::string> backends{2};
  std::vector<Refusal> refusals;
};
PartsView PartsOnTwoRanks(bool in_use_has_parts, const std::vector<std::string>& left_out_on_first,
                          const std::vector<std::string>& left_out_on_second) {
  HubForTest hub(2);
  PartsView view;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      BackendForTest in_use(hub, rank, {}, "in_use");
      in_use.says_it_has_parts = in_use_has_parts;
      BackendGroups::Options options;
      options.name = "job";
      options.job_ranks = {0, 1};
      std::vector<std::unique_ptr<BackendForTest>> left_out;
      for (const std::string& name : rank == 0 ? left_out_on_first : left_out_on_second) {
        left_out.push_back(
            std::make_unique<BackendForTest>(hub, rank, std::vector<ScriptedChoice>(), name));
        left_out.back()->says_it_has_parts = true;
        options.part_backends.push_back(left_out.back().get());
      }
      const auto groups = BackendGroups::Create({&in_use}, *exchange, MonotonicClock(), options);
      ASSERT_TRUE(groups) << groups.error().ToText();
      EXPECT_EQ((*groups)->members().size(), 1u);
      for (const auto& backend : left_out) EXPECT_EQ(backend->groups_created, 0);
      const Backend* const parts = (*groups)->part_backend();
      view.backends[static_cast<size_t>(rank)] = parts == nullptr ? "" : parts->name();
      if (rank == 0) view.refusals = (*groups)->refusals();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return view;
}

TEST(BackendGroupsTest, PartsRunByABackendInUseOrByOneThatWasLeftOut) {
  EXPECT_THAT(PartsOnTwoRanks(true, {"a"}, {"a"}).backends, ElementsAre("in_use", "in_use"));
  EXPECT_THAT(PartsOnTwoRanks(false, {"a"}, {"a"}).backends, ElementsAre("a", "a"));
  EXPECT_THAT(PartsOnTwoRanks(false, {}, {}).backends, ElementsAre("", ""));
}

TEST(BackendGroupsTest, PartsThatOneRankLacksRunNowhere) {
  for (const auto& [first, second] :
       std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{{{"a"}, {}},
                                                                                  {{}, {"a"}}}) {
    const PartsView view = PartsOnTwoRanks(false, first, second);
    EXPECT_THAT(view.backends, ElementsAre("", ""));
    ASSERT_EQ(view.refusals.size(), 1u);
    EXPECT_EQ(view.refusals[0].choice, "a, for parts of programs");
    EXPECT_THAT(view.refusals[0].reason, HasSubstr("does not"));
  }
  EXPECT_THAT(PartsOnTwoRanks(false, {"a", "b"}, {"b"}).backends, ElementsAre("b", "b"));
}

TEST(BackendGroupsTest, WhatAGroupTakesOfTheDeviceIsMeasuredWhereItCanBe) {
  HubForTest hub(1);
  const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, 0);
  uint64_t free_bytes = 1000;
  BackendForTest small(hub, 0, {}, "small");
  BackendWithMemory large(hub, 0, 230, free_bytes);
  BackendGroups::Options options;
  options.name = "job";
  options.job_ranks = {0};
  options.free_device_bytes = [&] { return std::optional<uint64_t>(free_bytes); };
  const auto groups = BackendGroups::Create({&small, &large}, *exchange, MonotonicClock(), options);
  ASSERT_TRUE(groups) << groups.error().ToText();
  EXPECT_EQ((*groups)->Find("small")->group_bytes, 0u);
  EXPECT_EQ((*groups)->Find("large")->group_bytes, 230u);
  EXPECT_EQ((*groups)->GroupBytes(), 230u);

  // Something else has given more back than the group has taken.
  options.name = "noisy";
  int asked = 0;
  options.free_device_bytes = [&]() -> std::optional<uint64_t> { return 1000 + 100 * asked++; };
  const auto noisy = BackendGroups::Create({&large}, *exchange, MonotonicClock(), options);
  ASSERT_TRUE(noisy) << noisy.error().ToText();
  EXPECT_EQ((*noisy)->Find("large")->group_bytes, std::nullopt);
  EXPECT_EQ((*noisy)->GroupBytes(), 0u);
}

// A backend whose groups say how rank `rank` sends to the others.
class BackendWithConnections final : public Backend {
 public:
  BackendWithConnections(HubForTest& hub, int rank, std::vector<std::string> texts)
      : real_(hub, rank, {}, "connected"), texts_(std::move(texts)) {}
  const std::string& name() const override { return real_.name(); }
  const std::string& version() const override { return real_.version(); }
  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    return real_.ListChoices(program, problem);
  }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters&) override {
    return std::make_unique<Group>(texts_);
  }

 private:
  class Group final : public BackendGroup {
   public:
    explicit Group(std::vector<std::string> texts) : texts_(std::move(texts)) {}
    Result<std::unique_ptr<Plan>> Prepare(const Program&, const Problem&, const Choice&,
                                          int64_t) override {
      return Fail(ErrorCode::kUnsupported, "it is only connected");
    }
    Status RegisterMemory(void*, uint64_t, int64_t) override { return {}; }
    void UnregisterMemory(void*) override {}
    Status Health() override { return {}; }
    std::vector<std::string> Connections() override { return texts_; }
    void Abort() override {}

   private:
    const std::vector<std::string> texts_;
  };

  BackendForTest real_;
  const std::vector<std::string> texts_;
};

// A backend that works by a library which each rank finds for itself.
class BackendWithLibrary final : public Backend {
 public:
  BackendWithLibrary(HubForTest& hub, int rank, std::string library)
      : real_(hub, rank, {}, "linked"), library_(std::move(library)) {}
  const std::string& name() const override { return real_.name(); }
  const std::string& version() const override { return real_.version(); }
  std::string libraries() const override { return library_; }
  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    return real_.ListChoices(program, problem);
  }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override {
    return real_.CreateGroup(parameters);
  }

 private:
  BackendForTest real_;
  const std::string library_;
};

TEST(BackendGroupsTest, ABackendWithOtherLibrariesOnOneRankIsLeftOutOnAll) {
  for (const std::string last : {"libwire 2.1", "libwire 2.2"}) {
    const bool is_same = last == "libwire 2.1";
    const std::vector<View> views = CreateOnThreeRanks(nullptr, [&](HubForTest& hub, int rank) {
      return std::make_unique<BackendWithLibrary>(hub, rank, rank == 2 ? last : "libwire 2.1");
    });
    for (const View& view : views) {
      EXPECT_EQ(view.members.size(), is_same ? 2u : 1u);
      if (is_same) continue;
      ASSERT_EQ(view.refusals.size(), 1u);
      EXPECT_EQ(view.refusals[0].reason,
                "rank 0 has 'linked 1 with libwire 2.1', rank 2 has 'linked 1 with libwire 2.2'");
    }
  }
}

TEST(BackendGroupsTest, AllRanksKnowHowEachReachesTheOthers) {
  const std::vector<std::vector<std::string>> texts = {
      {"", "shm", "tcp"}, {"shm", "", "tcp"}, {"tcp", "tcp", ""}};
  const std::vector<View> views = CreateOnThreeRanks(nullptr, [&](HubForTest& hub, int rank) {
    return std::make_unique<BackendWithConnections>(hub, rank, texts[static_cast<size_t>(rank)]);
  });
  for (const View& view : views) {
    EXPECT_THAT(view.connections,
                ElementsAre("", "shm (2 of 6 pairs, as 0 to 1), tcp (4 of 6 pairs, as 0 to 2)"));
  }
}

TEST(BackendGroupsTest, AnAbortThatTakesItsTimeHoldsUpNoOther) {
  HubForTest hub(1);
  const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, 0);
  std::promise<void> released;
  const std::shared_future<void> may_return = released.get_future().share();
  std::promise<void> first_aborted;
  std::promise<void> second_aborted;
  BackendWithAbort first(hub, "first", first_aborted, may_return);
  BackendWithAbort second(hub, "second", second_aborted, may_return);
  BackendGroups::Options options;
  options.name = "job";
  options.job_ranks = {0};
  auto groups = BackendGroups::Create({&first, &second}, *exchange, MonotonicClock(), options);
  ASSERT_TRUE(groups) << groups.error().ToText();
  std::thread aborter([&] { (*groups)->AbortAll(); });
  // Neither returns before both were called.
  first_aborted.get_future().wait();
  second_aborted.get_future().wait();
  released.set_value();
  aborter.join();
}

TEST(BackendGroupsTest, RanksWithOtherBuildsAreNamedOnAllRanks) {
  const auto set = [](int rank, BackendGroups::Options& options) {
    options.builds["scripted"] = rank == 1 ? "abc" : "def";
  };
  for (const View& view : CreateOnThreeRanks(set, {})) {
    EXPECT_TRUE(view.members.empty());
    ASSERT_EQ(view.refusals.size(), 1u);
    EXPECT_EQ(view.refusals[0].reason,
              "rank 0 has 'scripted 1 build def', rank 1 has 'scripted 1 build abc'");
  }
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

// Also where rank 0 is the one that lacks it: the rank that has it in vain is told why.
TEST(BackendGroupsTest, ABackendThatRankZeroLacksIsNamedOnAll) {
  const auto other = [](HubForTest& hub, int rank) -> std::unique_ptr<Backend> {
    if (rank != 1) return nullptr;
    return std::make_unique<BackendForTest>(hub, rank, std::vector<ScriptedChoice>{}, "rare");
  };
  for (const View& view : CreateOnThreeRanks({}, other)) {
    EXPECT_THAT(view.members, testing::ElementsAre("scripted"));
    ASSERT_EQ(view.refusals.size(), 1u);
    EXPECT_EQ(view.refusals[0].choice, "rare");
    EXPECT_EQ(view.refusals[0].reason, "rank 1 has 'rare 1', rank 0 does not, rank 2 does not");
  }
}

// A subgroup's reasons name its ranks as the user knows them.
TEST(BackendGroupsTest, TheRanksOfASubgroupAreNamedAsInTheJob) {
  const auto set = [](int rank, BackendGroups::Options& options) {
    options.settings["scripted"] = rank == 2 ? "slot_bytes=2M" : "slot_bytes=1M";
  };
  for (const View& view : CreateOnThreeRanks(set, {}, {5, 7, 2})) {
    ASSERT_EQ(view.refusals.size(), 1u);
    EXPECT_EQ(view.refusals[0].reason,
              "rank 5 has 'scripted 1 slot_bytes=1M', rank 2 has 'scripted 1 slot_bytes=2M'");
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

// The views of three ranks when each registers 64 bytes with two backends, of which "other" refuses
// on the rank `refused_on`, -1: on none.
struct MemoryView {
  Status registered;
  bool is_registered = false;
  bool end_is_registered = false;
  bool is_registered_with_scripted = false;
  bool is_registered_with_other = false;
  uint64_t scripted_bytes = 0;
  uint64_t other_bytes = 0;
  uint64_t bytes_after_recreate = 0;
  uint64_t bytes_at_the_end = 0;
};
std::vector<MemoryView> RegisterOnThreeRanks(
    const std::function<void(int rank, BackendForTest& scripted, BackendForTest& other)>& change,
    const std::function<uint64_t(int rank)>& bytes_of, const std::function<Status(int)>& own_of) {
  constexpr int kRanks = 3;
  HubForTest hub(kRanks);
  std::vector<MemoryView> views(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      MemoryView& view = views[rank];
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      BackendForTest scripted(hub, rank, {});
      BackendForTest other(hub, rank, {}, "other");
      change(rank, scripted, other);
      BackendGroups::Options options;
      options.name = "job";
      options.job_ranks = {0, 1, 2};
      auto groups =
          BackendGroups::Create({&scripted, &other}, *exchange, MonotonicClock(), options);
      ASSERT_TRUE(groups.has_value()) << groups.error().ToText();
      char memory[128];
      view.registered = (*groups)->RegisterMemory(own_of(rank), memory, bytes_of(rank), 0);
      view.is_registered = (*groups)->IsRegistered(memory + 8, 56);
      view.end_is_registered = (*groups)->IsRegistered(memory + 8, 57);
      view.is_registered_with_scripted = (*groups)->IsRegistered(memory, 64, "scripted");
      view.is_registered_with_other = (*groups)->IsRegistered(memory, 64, "other");
      view.scripted_bytes = scripted.registered_bytes;
      view.other_bytes = other.registered_bytes;
      if (!view.registered) return;
      ASSERT_TRUE((*groups)->Recreate(*(*groups)->Find("scripted"), 0));
      view.bytes_after_recreate = scripted.registered_bytes;
      (*groups)->UnregisterMemory(memory + 1);
      (*groups)->UnregisterMemory(memory);
      view.bytes_at_the_end = scripted.registered_bytes + other.registered_bytes;
      EXPECT_FALSE((*groups)->IsRegistered(memory, 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return views;
}

constexpr auto kNoChange = [](int, BackendForTest&, BackendForTest&) {};
constexpr auto k64Bytes = [](int) { return uint64_t{64}; };
constexpr auto kWell = [](int) { return Status{}; };

TEST(BackendGroupsTest, MemoryIsRegisteredWithEveryBackendAndAgainWithANewGroup) {
  for (const MemoryView& view : RegisterOnThreeRanks(kNoChange, k64Bytes, kWell)) {
    ASSERT_TRUE(view.registered) << view.registered.error().ToText();
    EXPECT_TRUE(view.is_registered);
    EXPECT_FALSE(view.end_is_registered);
    EXPECT_EQ(view.scripted_bytes, 64u);
    EXPECT_EQ(view.other_bytes, 64u);
    EXPECT_EQ(view.bytes_after_recreate, 64u);
    EXPECT_EQ(view.bytes_at_the_end, 0u);
  }
}

TEST(BackendGroupsTest, ABackendThatRefusesMemoryOnOneRankHasItOnNone) {
  const auto refuse = [](int, BackendForTest&, BackendForTest& other) {
    other.register_fails_on_rank = 1;
  };
  for (const MemoryView& view : RegisterOnThreeRanks(refuse, k64Bytes, kWell)) {
    ASSERT_TRUE(view.registered) << view.registered.error().ToText();
    EXPECT_TRUE(view.is_registered);
    EXPECT_TRUE(view.is_registered_with_scripted);
    EXPECT_FALSE(view.is_registered_with_other);
    EXPECT_EQ(view.scripted_bytes, 64u);
    EXPECT_EQ(view.other_bytes, 0u);
    EXPECT_EQ(view.bytes_at_the_end, 0u);
  }
}

TEST(BackendGroupsTest, AFailureThatIsNoRefusalEndsItAndNothingStaysRegistered) {
  const auto fail = [](int, BackendForTest&, BackendForTest& other) {
    other.register_fails_on_rank = 2;
    other.register_error = ErrorCode::kDeadline;
  };
  for (const MemoryView& view : RegisterOnThreeRanks(fail, k64Bytes, kWell)) {
    ASSERT_FALSE(view.registered);
    EXPECT_EQ(view.registered.error().code, ErrorCode::kDeadline);
    EXPECT_FALSE(view.is_registered);
    EXPECT_EQ(view.scripted_bytes + view.other_bytes, 0u);
  }
}

TEST(BackendGroupsTest, MemoryBeyondTheLastAddressIsRefused) {
  const auto endless = [](int) { return UINT64_MAX; };
  for (const MemoryView& view : RegisterOnThreeRanks(kNoChange, endless, kWell)) {
    ASSERT_FALSE(view.registered);
    EXPECT_EQ(view.registered.error().code, ErrorCode::kUsage);
  }
}

TEST(BackendGroupsTest, MemoryThatNobodyTakesIsAnErrorWithEveryReason) {
  const auto refuse = [](int, BackendForTest& scripted, BackendForTest& other) {
    scripted.register_fails_on_rank = 0;
    other.register_fails_on_rank = 2;
  };
  for (const MemoryView& view : RegisterOnThreeRanks(refuse, k64Bytes, kWell)) {
    ASSERT_FALSE(view.registered);
    EXPECT_EQ(view.registered.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(
        view.registered.error().ToText(),
        AllOf(HasSubstr("scripted: "), HasSubstr("other: "), HasSubstr("scripted refusal")));
    EXPECT_FALSE(view.is_registered);
    EXPECT_EQ(view.scripted_bytes + view.other_bytes, 0u);
  }
}

TEST(BackendGroupsTest, RanksThatRegisterOtherSizesOrHaveNoMemoryAreTold) {
  const auto differs = [](int rank) { return uint64_t{rank == 2 ? 32u : 64u}; };
  for (const MemoryView& view : RegisterOnThreeRanks(kNoChange, differs, kWell)) {
    ASSERT_FALSE(view.registered);
    EXPECT_EQ(view.registered.error().code, ErrorCode::kUsage);
    EXPECT_THAT(view.registered.error().what,
                HasSubstr("rank 0 registers 64 bytes, rank 2 registers 32"));
    EXPECT_FALSE(view.is_registered);
  }
  const auto own = [](int rank) -> Status {
    if (rank == 1) return Fail(ErrorCode::kEnvironment, "no memory is left");
    return {};
  };
  for (const MemoryView& view : RegisterOnThreeRanks(kNoChange, k64Bytes, own)) {
    ASSERT_FALSE(view.registered);
    EXPECT_EQ(view.registered.error().code, ErrorCode::kEnvironment);
    EXPECT_THAT(view.registered.error().ToText(), HasSubstr("no memory is left"));
  }
}

}  // namespace
}  // namespace cotune
