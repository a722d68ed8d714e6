#include "core/choice/precompile.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/testing/empty_plan.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

// Prepares slowly enough to see two at once; fails for choices named "bad".
class SlowGroup final : public BackendGroup {
 public:
  Result<std::unique_ptr<Plan>> Prepare(const Program&, const Problem&, const Choice& choice,
                                        int64_t) override {
    ++prepared;
    if (choice.id.algorithm() == "bad") return Fail(ErrorCode::kUnsupported, "cannot be compiled");
    if (choice.id.algorithm() == "throws") throw std::runtime_error("out of luck");
    if (choice.id.algorithm() == "throws_int") throw 42;
    if (wanted_at_once > 1) MeetOthers();
    is_gate_open.wait(false);
    return std::make_unique<EmptyPlan>();
  }
  Status RegisterMemory(void*, uint64_t, int64_t) override {
    return Fail(ErrorCode::kUnsupported, "not used");
  }
  void UnregisterMemory(void*) override {}
  Status Health() override { return {}; }
  void Abort() override {}

  std::atomic<int> prepared = 0;
  std::atomic<bool> is_gate_open = true;
  int wanted_at_once = 1;

 private:
  // Returns when `wanted_at_once` threads are in here together.
  void MeetOthers() {
    std::unique_lock lock(mutex_);
    ++entered_;
    const int full = (entered_ + wanted_at_once - 1) / wanted_at_once * wanted_at_once;
    changed_.notify_all();
    changed_.wait(lock, [&] { return entered_ >= full; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int entered_ = 0;
};

// A backend of which no more is needed than that it is another one.
class IdleBackend final : public Backend {
 public:
  const std::string& name() const override { return name_; }
  const std::string& version() const override { return name_; }
  ChoiceList ListChoices(const Program&, const Problem&) const override { return {}; }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters&) override {
    return Fail(ErrorCode::kUnsupported, "not used");
  }

 private:
  const std::string name_ = "idle";
};

// Notes the choices that begin.
class BeginNotes final : public PrepareNotes {
 public:
  bool IsSuspect(const ChoiceCaller&) override { return false; }
  void Begin(const ChoiceCaller& caller) override { begun.emplace_back(caller.id().algorithm()); }
  void End(const ChoiceCaller&) override {}

  std::vector<std::string> begun;
};

class PrecompileTest : public ::testing::Test {
 protected:
  PrecompileTest() {
    auto group = std::make_unique<SlowGroup>();
    group_ = group.get();
    member_.group = std::move(group);
  }

  ChoiceCaller* Add(const std::string& name, bool is_collective = false) {
    Choice choice{.id = *ChoiceId::FromBackend("test", name),
                  .prepare_is_collective = is_collective};
    callers_.push_back(std::make_unique<ChoiceCaller>(program_, Problem{program_.anchor(), 1, 0},
                                                      std::move(choice), std::vector{&member_}));
    pointers_.push_back(callers_.back().get());
    return pointers_.back();
  }

  static Program AnyProgram() {
    ProblemClass cls;
    cls.reduction = Reduction::kSum;
    return *Program::SingleCollective(cls);
  }

  Program program_ = AnyProgram();
  BackendMember member_;
  SlowGroup* group_ = nullptr;
  std::vector<std::unique_ptr<ChoiceCaller>> callers_;
  std::vector<ChoiceCaller*> pointers_;
};

TEST_F(PrecompileTest, RunsInParallelAndOnlyOnce) {
  for (int i = 0; i < 4; ++i) Add("good");
  group_->wanted_at_once = 2;  // with fewer threads this would never return
  PrecompileAll(pointers_, 2, 0);
  EXPECT_EQ(group_->prepared, 4);
  PrecompileAll(pointers_, 2, 0);
  EXPECT_EQ(group_->prepared, 4);
}

TEST_F(PrecompileTest, EveryRankBeginsWithAShareOfItsOwn) {
  for (const size_t count : {0u, 1u, 3u, 100u}) {
    for (const int world_size : {1, 2, 3, 8}) {
      std::set<size_t> begun;
      size_t in_shares = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const std::vector<size_t> order = PrecompileOrder(count, {rank, world_size});
        EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), count);
        ASSERT_EQ(order.size(), count);
        const auto ranks = static_cast<size_t>(world_size);
        const auto number = static_cast<size_t>(rank);
        const size_t share = count * (number + 1) / ranks - count * number / ranks;
        begun.insert(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(share));
        in_shares += share;
      }
      EXPECT_EQ(begun.size(), count) << world_size;
      EXPECT_EQ(in_shares, count);
    }
  }
}

TEST_F(PrecompileTest, CallersOfThePartBackendComeFirst) {
  IdleBackend of_parts;
  IdleBackend other;
  BackendMember with_parts{&of_parts, std::make_unique<SlowGroup>()};
  BackendMember without{&other, std::make_unique<SlowGroup>()};
  const auto add = [&](const char* name, std::vector<BackendMember*> members,
                       const ProgramSupport& support) {
    callers_.push_back(std::make_unique<ChoiceCaller>(
        program_, Problem{program_.anchor(), 1, 0},
        Choice{.id = *ChoiceId::FromBackend("test", name)}, std::move(members), support));
    pointers_.push_back(callers_.back().get());
  };
  const ProgramSupport support{.part_backend = &of_parts};
  for (int i = 0; i < 8; ++i) {
    add("other", {&without}, support);
    add("both", {&without, &with_parts}, support);
    add("parts", {&with_parts}, support);
    // Without parts in the program no backend has precedence.
    add("other", {&with_parts}, {});
  }
  for (const int rank : {0, 1}) {
    const auto notes = std::make_shared<BeginNotes>();
    PrecompileAll(pointers_, 1, 0, {rank, 2}, nullptr, notes);
    ASSERT_EQ(notes->begun.size(), 32u);
    const auto is_other = [](const std::string& name) { return name == "other"; };
    EXPECT_TRUE(std::none_of(notes->begun.begin(), notes->begun.begin() + 16, is_other)) << rank;
    EXPECT_TRUE(std::all_of(notes->begun.begin() + 16, notes->begun.end(), is_other)) << rank;
  }
}

TEST(PrecompileThreadsTest, TheRanksOfAMachineShareItsProcessors) {
  EXPECT_EQ(DefaultPrecompileThreads(2, 2, 1), 2u);
  EXPECT_EQ(DefaultPrecompileThreads(2, 2, 2), 1u);
  EXPECT_EQ(DefaultPrecompileThreads(16, 16, 8), 2u);
  EXPECT_EQ(DefaultPrecompileThreads(16, 16, 3), 6u);
  EXPECT_EQ(DefaultPrecompileThreads(16, 16, 40), 1u);
  // A rank that is bound to few processors has no more threads.
  EXPECT_EQ(DefaultPrecompileThreads(4, 64, 8), 4u);
  EXPECT_EQ(DefaultPrecompileThreads(2, 64, 4), 2u);
  // The system does not say.
  EXPECT_EQ(DefaultPrecompileThreads(0, 1, 4), 1u);
}

TEST_F(PrecompileTest, AFailureIsRememberedUntilReset) {
  ChoiceCaller* bad = Add("bad");
  PrecompileAll(pointers_, 1, 0);
  const Status again = bad->Precompile(0);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().what, "cannot be compiled");
  EXPECT_EQ(group_->prepared, 1);
  bad->Reset();
  EXPECT_FALSE(bad->Precompile(0).has_value());
  EXPECT_EQ(group_->prepared, 2);
}

TEST_F(PrecompileTest, AfterAnInterruptNoOtherPrepareBegins) {
  for (int i = 0; i < 6; ++i) Add("good");
  group_->is_gate_open = false;
  const auto have_both_begun = [this] {
    if (group_->prepared < 2) return false;
    group_->is_gate_open = true;
    group_->is_gate_open.notify_all();
    return true;
  };
  ASSERT_TRUE(PrecompileAll(pointers_, 2, 0, {}, nullptr, nullptr, have_both_begun));
  EXPECT_EQ(group_->prepared, 2);
}

TEST_F(PrecompileTest, AnExceptionIsAFailureLikeAnyOther) {
  ChoiceCaller* throws = Add("throws");
  ChoiceCaller* throws_int = Add("throws_int");
  ASSERT_TRUE(PrecompileAll(pointers_, 2, 0));
  EXPECT_EQ(throws->Precompile(0).error().ToText(),
            "preparing it threw an exception (test/throws): out of luck");
  EXPECT_EQ(throws_int->Precompile(0).error().cause, "it is no std::exception");
  EXPECT_EQ(group_->prepared, 2);
}

TEST_F(PrecompileTest, CollectivePreparesWaitForTheirTurn) {
  Add("together", true);
  PrecompileAll(pointers_, 0, 0);
  EXPECT_EQ(group_->prepared, 0);
}

// Counts what is being made ready; two choices are suspects.
class CountingNotes final : public PrepareNotes {
 public:
  bool IsSuspect(const ChoiceCaller& caller) override {
    return caller.id().algorithm().starts_with("suspect");
  }
  void Begin(const ChoiceCaller& caller) override {
    const std::lock_guard lock(mutex_);
    begun.emplace_back(caller.id().algorithm());
    const int now = ++open_;
    if (IsSuspect(caller)) most_beside_suspect = std::max(most_beside_suspect, now - 1);
  }
  void End(const ChoiceCaller& /*caller*/) override {
    const std::lock_guard lock(mutex_);
    --open_;
  }

  std::vector<std::string> begun;
  int most_beside_suspect = 0;

 private:
  std::mutex mutex_;
  int open_ = 0;
};

TEST_F(PrecompileTest, SuspectsAreMadeReadyAloneAndBehindTheOthers) {
  Add("suspect_a");
  for (int i = 0; i < 4; ++i) Add("good");
  Add("suspect_b");
  const auto notes = std::make_shared<CountingNotes>();
  ASSERT_TRUE(PrecompileAll(pointers_, 4, 0, {}, nullptr, notes));
  EXPECT_EQ(group_->prepared, 6);
  ASSERT_EQ(notes->begun.size(), 6u);
  for (size_t i = 0; i < notes->begun.size(); ++i) {
    EXPECT_EQ(notes->begun[i].starts_with("suspect"), i >= 4) << i << notes->begun[i];
  }
  EXPECT_EQ(notes->most_beside_suspect, 0);
}

TEST_F(PrecompileTest, WithoutAGroupThereIsNoPlan) {
  ChoiceCaller* caller = Add("good");
  member_.group.reset();
  EXPECT_EQ(caller->Precompile(0).error().code, ErrorCode::kAborted);
  EXPECT_EQ(caller->Launch({}, MonotonicClock()).error().code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace cotune
