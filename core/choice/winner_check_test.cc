// Ranks compare choices and make winners ready before they agree on a table.
#include "core/choice/winner_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <thread>

#include "core/base/clock.h"
#include "core/recipe/recipe_source.h"
#include "core/testing/parsed.h"
#include "core/testing/scripted_ranks.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ScriptedChoice Scripted(std::string name) {
  ScriptedChoice choice;
  choice.name = std::move(name);
  choice.cost_ns = [](uint64_t) { return 1000; };
  return choice;
}

ProblemClass AllReduce(int world_size) {
  ProblemClass cls;
  cls.reduction = Reduction::kSum;
  cls.world_size = cls.ranks_per_node = world_size;
  return cls;
}

// The outcome on one rank.
struct View {
  Result<std::vector<std::string>> refused = Fail(ErrorCode::kInternal, "did not run");
  MeasuredWinners winners;
  int plans_prepared = 0;
};

// Three ranks of a job whose ranks are 4, 5 and 6 check these winners.
std::vector<View> Check(const MeasuredWinners& winners,
                        const std::function<std::vector<ScriptedChoice>(int rank)>& choices) {
  constexpr int kRanks = 3;
  HubForTest hub(kRanks);
  std::vector<View> views(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<RankExchange> exchange = MakeExchangeForTest(hub, rank);
      BackendForTest backend(hub, rank, choices(rank));
      BackendGroups::Options options;
      options.name = "part";
      options.job_ranks = {4, 5, 6};
      auto groups = BackendGroups::Create({&backend}, *exchange, MonotonicClock(), options);
      ASSERT_TRUE(groups) << groups.error().ToText();
      const UnfusedRecipes recipes;
      (*groups)->set_program_support({.recipes = &recipes});
      views[rank].winners = winners;
      views[rank].refused =
          CheckMeasuredWinners(*exchange, **groups, AllReduce(kRanks), 7, 1, MonotonicClock(),
                               INT64_MAX, nullptr, views[rank].winners);
      views[rank].plans_prepared = backend.plans_prepared;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return views;
}

MeasuredWinners TwoSizes() {
  MeasuredWinners winners;
  winners.Put(DispatchKey::Of(AllReduce(3)), 1024, Id("scripted/a"));
  winners.Put(DispatchKey::Of(AllReduce(3)), 4096, Id("scripted/b"));
  return winners;
}

TEST(WinnerCheckTest, WinnersThatAllRanksCanRunAreMadeReadyOnAll) {
  const auto views = Check(TwoSizes(), [](int) {
    return std::vector<ScriptedChoice>{Scripted("a"), Scripted("b"), Scripted("c")};
  });
  for (const View& view : views) {
    ASSERT_TRUE(view.refused) << view.refused.error().ToText();
    EXPECT_THAT(*view.refused, IsEmpty());
    EXPECT_EQ(view.winners, TwoSizes());
    EXPECT_EQ(view.plans_prepared, 2);
  }
}

TEST(WinnerCheckTest, AWinnerThatOneRankCannotMakeReadyIsDeclinedOnAllByName) {
  const auto views = Check(TwoSizes(), [](int) {
    ScriptedChoice b = Scripted("b");
    b.prepare_fails_on_rank = 1;
    b.prepare_failure = "its kernel needs another GPU";
    return std::vector<ScriptedChoice>{Scripted("a"), b};
  });
  for (const View& view : views) {
    ASSERT_FALSE(view.refused);
    EXPECT_EQ(view.refused.error().code, ErrorCode::kDisagreement);
    EXPECT_EQ(view.refused.error().ranks, std::vector<int>{5}) << "ranks are those of the job";
    EXPECT_THAT(view.refused.error().ToText(),
                AllOf(HasSubstr("rank 5 cannot run scripted/b"), HasSubstr("all_reduce/sum/f32"),
                      HasSubstr("count1024"), HasSubstr("its kernel needs another GPU")));
  }
}

TEST(WinnerCheckTest, ALongReasonEndsAfterAWholeWord) {
  const auto views = Check(TwoSizes(), [](int) {
    ScriptedChoice b = Scripted("b");
    b.prepare_fails_on_rank = 1;
    b.prepare_failure = std::string(290, 'x') + " allocation failed";
    return std::vector<ScriptedChoice>{Scripted("a"), b};
  });
  for (const View& view : views) {
    ASSERT_FALSE(view.refused);
    EXPECT_EQ(view.refused.error().cause, std::string(290, 'x') + "...");
  }
}

TEST(WinnerCheckTest, WhatAllRanksRefuseIsLeftOutOnAll) {
  const auto views = Check(TwoSizes(), [](int) {
    ScriptedChoice b = Scripted("b");
    b.refused = "not in this container";
    return std::vector<ScriptedChoice>{Scripted("a"), b};
  });
  for (const View& view : views) {
    ASSERT_TRUE(view.refused) << view.refused.error().ToText();
    EXPECT_THAT(*view.refused,
                ElementsAre(AllOf(HasSubstr("scripted/b"), HasSubstr("not in this container"))));
    EXPECT_EQ(view.winners.size(), 1u);
    EXPECT_TRUE(view.winners.rows().begin()->second.contains(1024));
  }
}

TEST(WinnerCheckTest, AnotherListIsNamedByItsChoiceEvenWhereNoWinnerIsConcerned) {
  const auto views = Check(TwoSizes(), [](int rank) {
    std::vector<ScriptedChoice> choices = {Scripted("a"), Scripted("b")};
    if (rank == 2) choices.push_back(Scripted("extra"));
    return choices;
  });
  for (const View& view : views) {
    ASSERT_FALSE(view.refused);
    EXPECT_EQ(view.refused.error().code, ErrorCode::kDisagreement);
    EXPECT_EQ(view.refused.error().ranks, std::vector<int>{6});
    EXPECT_THAT(
        view.refused.error().ToText(),
        AllOf(HasSubstr("rank 6 lists scripted/extra, ranks 4, 5 do not"), HasSubstr("count256")));
    EXPECT_EQ(view.plans_prepared, 0) << "ranks that differ make nothing ready";
  }
}

TEST(WinnerCheckTest, AnotherDefaultIsNamed) {
  const auto views = Check(TwoSizes(), [](int rank) {
    std::vector<ScriptedChoice> choices = {Scripted("a"), Scripted("b")};
    choices[rank == 1 ? 1 : 0].is_default = true;
    return choices;
  });
  for (const View& view : views) {
    ASSERT_FALSE(view.refused);
    EXPECT_THAT(view.refused.error().ToText(),
                HasSubstr("ranks 4, 6 list scripted/a as its default, rank 5 does not"));
    EXPECT_EQ(view.refused.error().ranks, std::vector<int>{5});
  }
}

// A clock of a rank that is slow: so much time passes from one reading to the next.
class SlowClock final : public Clock {
 public:
  explicit SlowClock(int64_t step_ns) : step_ns_(step_ns) {}
  int64_t now_ns() const override { return time_ns += step_ns_; }
  mutable int64_t time_ns = 0;

 private:
  const int64_t step_ns_;
};

// Notes how much time is left to each step when it begins.
class NotingExchange final : public RankExchange {
 public:
  NotingExchange(RankExchange& inner, const SlowClock& clock) : inner_(inner), clock_(clock) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int job_rank(int rank) const override { return inner_.job_rank(rank); }
  Result<StepResult> Step(std::string_view step, std::string_view record, int64_t start_delay_ns,
                          int64_t deadline_ns) override {
    left_ns[std::string(step)] = deadline_ns - clock_.time_ns;
    return inner_.Step(step, record, start_delay_ns, deadline_ns);
  }
  Result<PreSyncResult> PreSync(const AgreedFields& fields, int64_t window_ns,
                                int64_t deadline_ns) override {
    return inner_.PreSync(fields, window_ns, deadline_ns);
  }
  Result<AgreementOutcome> Agree(std::string_view proposal, const Accept& accept,
                                 int64_t deadline_ns) override {
    return inner_.Agree(proposal, accept, deadline_ns);
  }
  Result<std::string> Broadcast(std::string_view bytes, int64_t deadline_ns) override {
    return inner_.Broadcast(bytes, deadline_ns);
  }
  Result<std::unique_ptr<RankExchange>> Subgroup(std::string_view name, std::span<const int> ranks,
                                                 int64_t deadline_ns) override {
    return inner_.Subgroup(name, ranks, deadline_ns);
  }
  void GiveUp(const Error& error) override { inner_.GiveUp(error); }
  Status StorePut(std::string_view key, std::string_view value) override {
    return inner_.StorePut(key, value);
  }
  Result<std::string> StoreGet(std::string_view key, int64_t deadline_ns) override {
    return inner_.StoreGet(key, deadline_ns);
  }
  Status StoreDelete(std::string_view key) override { return inner_.StoreDelete(key); }

  std::map<std::string, int64_t> left_ns;

 private:
  RankExchange& inner_;
  const SlowClock& clock_;
};

// A program of two collectives, which needs neither parts nor temporaries.
const char* const kProgram =
    "%x = input f32 [R, 4]\n"
    "%a = all_reduce sum %x\n"
    "%b = all_reduce max %x\n"
    "return %a, %b\n";

MeasuredWinners WinnerOfProgram(const std::string& winner, bool has_text = true) {
  const ProgramGraph graph = *ProgramGraph::Parse(kProgram);
  const Program program = *Program::Bind(graph, {MemoryKind::kHost, 3, 3});
  MeasuredWinners winners;
  winners.Put(DispatchKey::Of(program.anchor()), 480, Id(winner));
  if (has_text) winners.PutProgram(graph.digest(), graph.ToText());
  return winners;
}

TEST(WinnerCheckTest, WinnersOfProgramsAreMadeReady) {
  for (const View& view : Check(WinnerOfProgram("scripted/a+scripted/b"), [](int) {
         return std::vector{Scripted("a"), Scripted("b")};
       })) {
    ASSERT_TRUE(view.refused) << view.refused.error().ToText();
    EXPECT_TRUE(view.refused->empty());
    EXPECT_EQ(view.plans_prepared, 2);
    EXPECT_EQ(view.winners.size(), 1u);
  }
}

TEST(WinnerCheckTest, ARankThatListsOtherChoicesOfAProgramIsNamed) {
  for (const View& view : Check(WinnerOfProgram("scripted/a+scripted/a"), [](int rank) {
         return rank == 1 ? std::vector{Scripted("a")} : std::vector{Scripted("a"), Scripted("b")};
       })) {
    ASSERT_FALSE(view.refused);
    EXPECT_EQ(view.refused.error().code, ErrorCode::kDisagreement);
    EXPECT_EQ(view.refused.error().ranks, std::vector<int>{5});
  }
}

TEST(WinnerCheckTest, AProgramWithoutTextOrWithAnotherOneIsLeftOut) {
  MeasuredWinners other = WinnerOfProgram("scripted/a+scripted/a");
  const uint64_t digest = other.rows().begin()->first.program_digest;
  other.PutProgram(digest, "%0 = input f32 [R, 4]\n%1 = all_reduce sum %0\nreturn %1\n");
  for (const MeasuredWinners& winners : {WinnerOfProgram("scripted/a+scripted/a", false), other}) {
    for (const View& view : Check(winners, [](int) { return std::vector{Scripted("a")}; })) {
      ASSERT_TRUE(view.refused) << view.refused.error().ToText();
      ASSERT_EQ(view.refused->size(), 1u);
      EXPECT_THAT(view.refused->front(), ::testing::HasSubstr("program"));
      EXPECT_TRUE(view.winners.empty());
      EXPECT_EQ(view.plans_prepared, 0);
    }
  }
}

TEST(WinnerCheckTest, ARankThatMadeItsWinnersReadyTooSlowlyHasTimeToSaySo) {
  constexpr int64_t kTimeoutNs = 1000;
  HubForTest hub(1);
  const SlowClock clock(10 * kTimeoutNs);
  const std::unique_ptr<RankExchange> inner = MakeExchangeForTest(hub, 0);
  NotingExchange exchange(*inner, clock);
  BackendForTest backend(hub, 0, {Scripted("a"), Scripted("b")});
  auto groups = BackendGroups::Create({&backend}, exchange, clock, {});
  ASSERT_TRUE(groups) << groups.error().ToText();
  MeasuredWinners winners;
  winners.Put(DispatchKey::Of(AllReduce(1)), 1024, Id("scripted/a"));
  const auto refused = CheckMeasuredWinners(exchange, **groups, AllReduce(1), 7, 1, clock,
                                            kTimeoutNs, nullptr, winners);
  ASSERT_TRUE(refused) << refused.error().ToText();
  EXPECT_GE(exchange.left_ns["choice lists"], kTimeoutNs);
  EXPECT_GE(exchange.left_ns["winners ready"], kTimeoutNs);
}

TEST(MeasuredWinnersTest, TravelAsBytesAndMakeATable) {
  const MeasuredWinners winners = TwoSizes();
  const Result<MeasuredWinners> read = MeasuredWinners::Parse(winners.Serialize());
  ASSERT_TRUE(read) << read.error().ToText();
  EXPECT_EQ(*read, winners);
  const Result<DispatchTable> table = read->BuildTable();
  ASSERT_TRUE(table) << table.error().ToText();
  ASSERT_EQ(table->rows().size(), 1u);
  EXPECT_EQ(table->rows()[0].ranges.size(), 2u);
  EXPECT_EQ(table->rows()[0].smallest_bytes, 1024u);
  EXPECT_EQ(MeasuredWinners::Parse("").value().size(), 0u);
  const std::string bytes = winners.Serialize();
  EXPECT_FALSE(MeasuredWinners::Parse(bytes.substr(0, bytes.size() - 1)));
}

TEST(MeasuredWinnersTest, ALaterWinnerOfASizeCounts) {
  MeasuredWinners winners = TwoSizes();
  const DispatchKey key = DispatchKey::Of(AllReduce(3));
  winners.Put(key, 4096, Id("scripted/a"));
  EXPECT_EQ(winners.BuildTable()->rows()[0].ranges.size(), 1u);
  winners.Erase(key, 1024);
  EXPECT_EQ(winners.size(), 1u);
  winners.Erase(key, 4096);
  EXPECT_TRUE(winners.empty());
}

}  // namespace
}  // namespace cotune
