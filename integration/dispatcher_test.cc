#include "integration/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_sink.h"
#include "core/testing/twin_recipes.h"
#include "integration/testing/allocation_count.h"
#include "integration/testing/dispatcher_fixture.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/host/backend.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Counts the marks of calls.
class CallMarks final : public StageObserver {
 public:
  void OnEvent(const Event& event) override {
    if (StageBegunBy(event) == Stage::kDispatch) ++calls_;
  }
  int calls() const { return calls_; }

 private:
  int calls_ = 0;
};

TEST_F(DispatcherTest, MarksEachCallForAnObserverThatTakesMarks) {
  CallMarks marks;
  observer_ = &marks;
  JoinFake("choice usual default");
  const Call call = SumOf(16);
  ASSERT_TRUE(dispatcher_->Run(call));
  ASSERT_TRUE(dispatcher_->Run(call)) << "by the plan of the latest call";
  EXPECT_EQ(marks.calls(), 2);
  dispatcher_.reset();
  dispatcher_ = std::make_unique<Dispatcher>(*job_, /*marks_calls=*/false);
  ASSERT_TRUE(dispatcher_->Run(call));
  EXPECT_EQ(marks.calls(), 2);
  dispatcher_.reset();
  job_.reset();  // before its observer
}

TEST_F(DispatcherTest, ChecksACallThatIsLikeTheLatestOne) {
  JoinFake("choice usual default");
  const Call call = SumOf(16);
  ASSERT_TRUE(dispatcher_->Run(call));
  Call without_buffer = call;
  without_buffer.recv = nullptr;
  const Status refused = dispatcher_->Run(without_buffer);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_THAT(refused.error().what, HasSubstr("the receive buffer is NULL"));
  ASSERT_TRUE(dispatcher_->Run(call));
  job_->stop().Set({ErrorCode::kRankLost, "rank 3 is lost", "", "", "", {3}});
  const Status stopped = dispatcher_->Run(call);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().what, "rank 3 is lost");
}

TEST_F(DispatcherTest, RegisteredBuffersHaveRowsOfTheirOwn) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice plain_winner\nchoice zero_copy");
  const Call call = SumOf(16);
  ProblemClass symmetric = Sum();
  symmetric.buffer_class = BufferClass::kSymmetric;
  const auto everywhere = [](const std::string& id) {
    return std::vector<SizeRange>{{0, UINT64_MAX, Id(id)}};
  };
  dispatcher_->SetTable(*DispatchTable::Build(
      {DispatchRow{DispatchKey::Of(Sum()), everywhere("fake/plain_winner")},
       DispatchRow{DispatchKey::Of(symmetric), everywhere("fake/zero_copy")}}));
  EXPECT_EQ(Runs(call), "fake/plain_winner");
  BackendGroups& groups = job_->groups();
  ASSERT_TRUE(groups.RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  EXPECT_EQ(Runs(call), "fake/plain_winner") << "only one of two buffers is registered";
  ASSERT_TRUE(groups.RegisterMemory({}, send_.data(), 60, INT64_MAX));
  EXPECT_EQ(Runs(call), "fake/plain_winner") << "the last element is not registered";
  groups.UnregisterMemory(send_.data());
  ASSERT_TRUE(groups.RegisterMemory({}, send_.data(), 64, INT64_MAX));
  EXPECT_EQ(Runs(call), "fake/zero_copy");
  ASSERT_TRUE(dispatcher_->Run(call));
  for (size_t i = 0; i < recv_.size(); ++i) EXPECT_EQ(recv_[i], 3.0F) << i;
  groups.UnregisterMemory(recv_.data());
  EXPECT_EQ(Runs(call), "fake/plain_winner");
  // For a broadcast only receive buffers count: all ranks but one send nothing.
  Call broadcast = call;
  broadcast.collective = Collective::kBroadcast;
  broadcast.reduction = Reduction::kNone;
  ProblemClass received = job_->Class(Collective::kBroadcast, Dtype::kF32, Reduction::kNone);
  received.buffer_class = BufferClass::kSymmetric;
  dispatcher_->SetTable(Table(received, everywhere("fake/zero_copy")));
  EXPECT_EQ(Runs(broadcast), "fake/usual");
  groups.UnregisterMemory(send_.data());
  ASSERT_TRUE(groups.RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  EXPECT_EQ(Runs(broadcast), "fake/zero_copy");
}

TEST_F(DispatcherTest, RegisteredOperandsOfAProgramHaveRowsOfTheirOwn) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice plain_winner\nchoice zero_copy\nparts");
  const ProgramGraph graph =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n")
          .value();
  const auto key = [&](BufferClass buffers) {
    return DispatchKey::Of(
        Program::Bind(graph, {MemoryKind::kHost, 1, 1, buffers}).value().anchor());
  };
  dispatcher_->SetTable(*DispatchTable::Build(
      {DispatchRow{key(BufferClass::kPlain), {{0, UINT64_MAX, Id("fake/plain_winner")}}},
       DispatchRow{key(BufferClass::kSymmetric), {{0, UINT64_MAX, Id("fake/zero_copy")}}}}));
  SumOf(16);
  const void* const inputs[] = {send_.data()};
  void* const outputs[] = {recv_.data()};
  const ProgramCall call{.graph = &graph, .rows = 4, .inputs = inputs, .outputs = outputs};
  const auto runs = [&] {
    recv_.assign(16, 0);
    EXPECT_TRUE(dispatcher_->Run(call));
    for (size_t i = 0; i < recv_.size(); ++i) EXPECT_EQ(recv_[i], -3.0F) << i;
    return dispatcher_->Explain(call).value().choice.text();
  };
  EXPECT_EQ(runs(), "fake/plain_winner");
  BackendGroups& groups = job_->groups();
  ASSERT_TRUE(groups.RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  EXPECT_EQ(runs(), "fake/plain_winner") << "the input is not registered";
  ASSERT_TRUE(groups.RegisterMemory({}, send_.data(), 64, INT64_MAX));
  EXPECT_EQ(runs(), "fake/zero_copy");
  EXPECT_TRUE(dispatcher_->Prepare(call));
  groups.UnregisterMemory(recv_.data());
  EXPECT_EQ(runs(), "fake/plain_winner");
  groups.UnregisterMemory(send_.data());
  EXPECT_EQ(runs(), "fake/plain_winner");
}

TEST_F(DispatcherTest, AWinnerOfASecondFormRunsItsRecipe) {
  const ProgramGraph graph = ProgramGraph::Parse(
                                 "%x = input f32 [R, 4]\n%a = all_reduce sum %x\n"
                                 "%b = all_reduce sum %x\n%y = neg %a\n%z = mul %b, 2\n"
                                 "return %y, %z\n")
                                 .value();
  const DispatchKey key =
      DispatchKey::Of(Program::Bind(graph, {MemoryKind::kHost, 1, 1}).value().anchor());
  std::vector<float> second(16);
  SumOf(16);
  const void* const inputs[] = {send_.data()};
  void* const outputs[] = {recv_.data(), second.data()};
  const ProgramCall call{.graph = &graph, .rows = 4, .inputs = inputs, .outputs = outputs};
  for (const bool has_form : {true, false}) {
    recipes_ = has_form ? std::make_shared<TwinRecipes>() : nullptr;
    JoinFake("choice usual default\nchoice winner\nparts");
    dispatcher_->SetTable(
        *DispatchTable::Build({DispatchRow{key, {{0, UINT64_MAX, Id("fake/winner?via=once")}}}}));
    recv_.assign(16, 0);
    second.assign(16, 0);
    const Status ran = dispatcher_->Run(call);
    ASSERT_TRUE(ran) << ran.error().ToText();
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(recv_[i], -3.0F) << i;
      EXPECT_EQ(second[i], 6.0F) << i;
    }
    // A job that does not know the form runs the default.
    EXPECT_EQ(dispatcher_->Explain(call).value().choice.text(),
              has_form ? "fake/winner?via=once" : "fake/usual");
    dispatcher_.reset();
    job_.reset();
  }
}

TEST_F(DispatcherTest, RegisteredBuffersRunAsPlainOnesBelowTheirSmallestMeasuredSize) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice plain_winner\nchoice zero_copy");
  const Call large = SumOf(16);
  Call small = large;
  small.count = 15;
  ASSERT_TRUE(job_->groups().RegisterMemory({}, send_.data(), 64, INT64_MAX));
  ASSERT_TRUE(job_->groups().RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  ProblemClass symmetric = Sum();
  symmetric.buffer_class = BufferClass::kSymmetric;
  const DispatchRow measured{
      DispatchKey::Of(symmetric), {{0, UINT64_MAX, Id("fake/zero_copy")}}, 64};
  dispatcher_->SetTable(*DispatchTable::Build(
      {DispatchRow{DispatchKey::Of(Sum()), {{0, UINT64_MAX, Id("fake/plain_winner")}}}, measured}));
  EXPECT_EQ(Runs(small), "fake/plain_winner");
  ASSERT_TRUE(dispatcher_->Run(small));
  EXPECT_EQ(Runs(large), "fake/zero_copy");
  dispatcher_->SetTable(*DispatchTable::Build({measured}));
  EXPECT_EQ(Runs(small), "fake/zero_copy") << "nothing nearer was measured";
}

TEST_F(DispatcherTest, RegisteredBuffersRunAsPlainOnesWhereNothingElseIsTuned) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice plain_winner");
  const Call call = SumOf(16);
  ASSERT_TRUE(job_->groups().RegisterMemory({}, send_.data(), 64, INT64_MAX));
  ASSERT_TRUE(job_->groups().RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  EXPECT_EQ(Runs(call), "fake/usual");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/plain_winner")}}));
  EXPECT_EQ(Runs(call), "fake/plain_winner");
}

TEST_F(DispatcherTest, WithoutATableTheDefaultChoiceRuns) {
  JoinFake("choice other\nchoice usual default");
  const Call call = SumOf(16);
  const Status run = dispatcher_->Run(call);
  ASSERT_TRUE(run) << run.error().ToText();
  EXPECT_EQ(recv_, send_);
  const Result<CallExplanation> explanation = dispatcher_->Explain(call);
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->choice.text(), "fake/usual");
  EXPECT_FALSE(explanation->from_table);
}

TEST_F(DispatcherTest, TheTableDecidesBySize) {
  JoinFake("choice usual default\nchoice small\nchoice large");
  dispatcher_->SetTable(
      Table(Sum(), {{0, 100, Id("fake/small")}, {100, UINT64_MAX, Id("fake/large")}}));
  EXPECT_EQ(Runs(SumOf(24)), "fake/small");
  EXPECT_EQ(Runs(SumOf(25)), "fake/large");
  const Result<CallExplanation> explanation = dispatcher_->Explain(SumOf(1000));
  ASSERT_TRUE(explanation);
  EXPECT_TRUE(explanation->from_table);
  EXPECT_EQ(explanation->first_bytes, 100u);
  EXPECT_EQ(explanation->end_bytes, UINT64_MAX);
  Call other = SumOf(24);
  other.reduction = Reduction::kMax;
  EXPECT_EQ(Runs(other), "fake/small") << "the table has nothing nearer to max than sum";
  other = SumOf(24);
  other.collective = Collective::kAllGather;
  other.reduction = Reduction::kNone;
  EXPECT_EQ(Runs(other), "fake/usual") << "the table has no other all_gather";
}

TEST_F(DispatcherTest, ANewTableCountsFromTheNextCallOn) {
  JoinFake("choice usual default\nchoice one\nchoice two");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/one")}}));
  EXPECT_EQ(Runs(SumOf(8)), "fake/one");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/two")}}));
  EXPECT_EQ(Runs(SumOf(8)), "fake/two");
}

// A winner of a neighbouring size that cannot run at this one.
TEST_F(DispatcherTest, AWinnerOfTheHostBackendRunsAtEverySize) {
  JoinWith(host::BackendApi());
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("host/two_shot?chunk=262144")}}));
  for (uint64_t count : {0u, 1u, 16u, 1000u, 65537u, 1u << 20}) {
    const Status run = dispatcher_->Run(SumOf(count));
    EXPECT_TRUE(run) << count << ": " << run.error().ToText();
  }
}

TEST_F(DispatcherTest, ATimeWithoutEndIsNoDeadlineInThePast) {
  JoinFake("choice usual default");
  Call call = SumOf(16);
  call.timeout_ns = INT64_MAX;
  const Status run = dispatcher_->Run(call);
  EXPECT_TRUE(run) << run.error().ToText();
}

TEST_F(DispatcherTest, InPlaceIsACallOfItsOwn) {
  JoinFake("choice usual default\nchoice apart\nchoice together");
  ProblemClass in_place = Sum();
  in_place.in_place = true;
  dispatcher_->SetTable(*DispatchTable::Build(
      {DispatchRow{DispatchKey::Of(Sum()), {{0, UINT64_MAX, Id("fake/apart")}}},
       DispatchRow{DispatchKey::Of(in_place), {{0, UINT64_MAX, Id("fake/together")}}}}));
  Call call = SumOf(16);
  EXPECT_EQ(Runs(call), "fake/apart");
  call.send = call.recv;
  EXPECT_EQ(Runs(call), "fake/together");
  // Without elements the pointers say nothing.
  call.count = 0;
  EXPECT_EQ(Runs(call), "fake/apart");
  call.send = nullptr;
  EXPECT_EQ(Runs(call), "fake/apart");
}

// A row of a call with one measured size, and the choices that run what its winner refuses.
DispatchTable TableWithNextBest(const ProblemClass& cls, const std::string& winner,
                                const std::vector<std::string>& next_best) {
  std::vector<ChoiceId> choices;
  for (const std::string& text : next_best) choices.push_back(Id(text));
  return *DispatchTable::Build({DispatchRow{DispatchKey::Of(cls),
                                            {{0, UINT64_MAX, Id(winner)}},
                                            64,
                                            {{64, NextBest(std::move(choices))}}}});
}

TEST_F(DispatcherTest, ACallThatItsWinnerRefusesRunsTheNextBestChoice) {
  JoinFake(
      "choice usual default\nchoice narrow bytes_max=64\nchoice second bytes_max=68\n"
      "choice third bytes_max=72");
  dispatcher_->SetTable(
      TableWithNextBest(Sum(), "fake/narrow", {"gone/first", "fake/second", "fake/third"}));
  const auto explained = [&](uint64_t count) {
    const Call call = SumOf(count);
    const Status run = dispatcher_->Run(call);
    EXPECT_TRUE(run) << run.error().ToText();
    EXPECT_EQ(recv_, send_);
    return dispatcher_->Explain(call).value();
  };
  CallExplanation explanation = explained(16);
  EXPECT_EQ(explanation.choice.text(), "fake/narrow");
  EXPECT_TRUE(explanation.from_table);
  EXPECT_FALSE(explanation.is_next_best);
  explanation = explained(17);
  EXPECT_EQ(explanation.choice.text(), "fake/second");
  EXPECT_FALSE(explanation.from_table);
  EXPECT_TRUE(explanation.is_next_best);
  EXPECT_THAT(explanation.table_choice_refused, HasSubstr("fake/narrow: "));
  EXPECT_EQ(explanation.end_bytes, UINT64_MAX);
  EXPECT_FALSE(explanation.relative);
  EXPECT_EQ(explained(18).choice.text(), "fake/third");
  explanation = explained(19);
  EXPECT_EQ(explanation.choice.text(), "fake/usual") << "no choice of the row can run it";
  EXPECT_FALSE(explanation.is_next_best);
  EXPECT_THAT(explanation.table_choice_refused, HasSubstr("fake/narrow: "));
}

// Peers may run the next best choice, so this rank takes no further one by itself.
TEST_F(DispatcherTest, ANextBestChoiceThatCannotBeMadeReadyEndsTheGroup) {
  JoinFake(
      "choice usual default\nchoice narrow bytes_max=64\nchoice second prepare_refused_on=0\n"
      "choice third");
  dispatcher_->SetTable(TableWithNextBest(Sum(), "fake/narrow", {"fake/second", "fake/third"}));
  const Status run = dispatcher_->Run(SumOf(17));
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(run.error().ToText(), HasSubstr("fake/second of the tuned table cannot be made"));
}

// A plan that all ranks make together waits for a call: explain names it, and does not make it.
TEST_F(DispatcherTest, ExplainMakesNoNextBestPlanThatNeedsAllRanks) {
  JoinFake(
      "choice usual default\nchoice narrow bytes_max=64\n"
      "choice second collective_prepare prepare_fails_on=0");
  dispatcher_->SetTable(TableWithNextBest(Sum(), "fake/narrow", {"fake/second"}));
  const Result<CallExplanation> explanation = dispatcher_->Explain(SumOf(17));
  ASSERT_TRUE(explanation) << explanation.error().ToText();
  EXPECT_EQ(explanation->choice.text(), "fake/second");
  EXPECT_TRUE(explanation->is_next_best);
  EXPECT_THAT(explanation->table_choice_refused, HasSubstr("fake/narrow: "));
  EXPECT_FALSE(dispatcher_->Run(SumOf(17))) << "the call makes it";
}

TEST_F(DispatcherTest, ACallWithoutARowRunsByItsNearestRelative) {
  JoinFake("choice usual default\nchoice small\nchoice large");
  dispatcher_->SetTable(
      Table(Sum(), {{0, 64, Id("fake/small")}, {64, UINT64_MAX, Id("fake/large")}}));
  Call call = SumOf(16);
  EXPECT_FALSE(dispatcher_->Explain(call)->relative);
  call.send = call.recv;
  const Result<CallExplanation> explanation = dispatcher_->Explain(call);
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->choice.text(), "fake/large");
  EXPECT_TRUE(explanation->from_table);
  EXPECT_EQ(explanation->relative, DispatchKey::Of(Sum()));
  EXPECT_EQ(explanation->first_bytes, 64u);
  ASSERT_TRUE(dispatcher_->Run(call));
  // Ranges are in bytes: 16 elements of f64 are as large as 32 of f32.
  call.dtype = Dtype::kF64;
  call.count = 8;
  EXPECT_EQ(Runs(call), "fake/large");
  call.count = 7;
  EXPECT_EQ(Runs(call), "fake/small");
  call.reduction = Reduction::kMax;
  EXPECT_EQ(Runs(call), "fake/small");
  // A row of its own counts as soon as there is one.
  ProblemClass in_place = Sum();
  in_place.in_place = true;
  dispatcher_->SetTable(Table(in_place, {{0, UINT64_MAX, Id("fake/usual")}}));
  call = SumOf(16);
  call.send = call.recv;
  EXPECT_EQ(Runs(call), "fake/usual");
  EXPECT_FALSE(dispatcher_->Explain(call)->relative);
}

TEST_F(DispatcherTest, ARelativesWinnerRunsOnlyIfABackendListsIt) {
  JoinFake("choice usual default\nchoice winner only=all_reduce bytes_max=64\nchoice second");
  dispatcher_->SetTable(TableWithNextBest(Sum(), "fake/winner", {"fake/second"}));
  Call call = SumOf(17);
  call.send = call.recv;
  const Result<CallExplanation> explanation = dispatcher_->Explain(call);
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->choice.text(), "fake/second");
  EXPECT_TRUE(explanation->is_next_best);
  EXPECT_EQ(explanation->relative, DispatchKey::Of(Sum()));
  EXPECT_THAT(explanation->table_choice_refused, HasSubstr("fake/winner: "));
}

// The default is of one numerics class, and by numerics=same no other one runs.
TEST_F(DispatcherTest, ByNumericsSameNoChoiceOfAnotherClassRuns) {
  JoinFake(
      "choice usual default numerics=ring\nchoice tree numerics=tree\n"
      "choice second numerics=ring");
  dispatcher_->SetTable(TableWithNextBest(Sum(), "fake/tree", {"fake/second"}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/tree");
  TuningSettings settings = job_->settings();
  settings.numerics = NumericsRule::kSame;
  job_->set_settings(settings);
  dispatcher_->SetTable(TableWithNextBest(Sum(), "fake/tree", {"fake/second"}));
  Call call = SumOf(16);
  for (const bool in_place : {false, true}) {
    if (in_place) call.send = call.recv;
    const Result<CallExplanation> explanation = dispatcher_->Explain(call);
    ASSERT_TRUE(explanation);
    EXPECT_EQ(explanation->choice.text(), "fake/second");
    EXPECT_TRUE(explanation->is_next_best);
    EXPECT_EQ(explanation->relative.has_value(), in_place);
    EXPECT_EQ(explanation->table_choice_refused,
              "fake/tree: numerics=same: adds in another order (tree)");
  }
}

// The plan of registered buffers is for the backend that has taken them.
TEST_F(DispatcherTest, OnRegisteredBuffersTheNextBestIsOneOfTheWinnersBackend) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice zero_copy bytes_max=60\nchoice second");
  const Call call = SumOf(16);
  ASSERT_TRUE(job_->groups().RegisterMemory({}, send_.data(), 64, INT64_MAX));
  ASSERT_TRUE(job_->groups().RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  ProblemClass symmetric = Sum();
  symmetric.buffer_class = BufferClass::kSymmetric;
  dispatcher_->SetTable(
      TableWithNextBest(symmetric, "fake/zero_copy", {"other/faster", "fake/second"}));
  EXPECT_EQ(Runs(call), "fake/second");
}

// Keeps the warnings that rank 0 prints.
class Warnings final : public EventSink {
 public:
  void OnEvent(const Event& event) override {
    if (event.type == EventType::kLine && event.severity == Severity::kWarning) {
      texts.emplace_back(event.name);
    }
  }
  std::vector<std::string> texts;
};

TEST_F(DispatcherTest, AGroupWarnsOnceOfCallsThatNoRowIsNearTo) {
  Warnings warnings;
  lines_ = &warnings;
  JoinFake("choice usual default\nchoice winner\nparts");
  Call gather = SumOf(16);
  gather.collective = Collective::kAllGather;
  gather.reduction = Reduction::kNone;
  ASSERT_TRUE(dispatcher_->Run(gather)) << "without any row nothing is said";
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/winner")}}));
  Call in_place = SumOf(16);
  in_place.send = in_place.recv;
  in_place.dtype = Dtype::kI32;
  ASSERT_TRUE(dispatcher_->Run(in_place));
  EXPECT_TRUE(warnings.texts.empty()) << "it runs by a relative: " << warnings.texts.front();
  gather = SumOf(16);
  gather.collective = Collective::kAllGather;
  gather.reduction = Reduction::kNone;
  ASSERT_TRUE(dispatcher_->Run(gather));
  gather.dtype = Dtype::kI32;
  ASSERT_TRUE(dispatcher_->Run(gather));
  const ProgramGraph graph =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n")
          .value();
  ASSERT_TRUE(dispatcher_->Prepare(ProgramCall{.graph = &graph, .rows = 4}));
  EXPECT_EQ(warnings.texts,
            (std::vector<std::string>{
                "calls of all_gather f32 out of place run the default choice: the table has other "
                "calls, and none that is near to these; `cotune tune --collective all_gather "
                "--dtype f32` tunes them (this is not repeated for further calls)"}));
  dispatcher_.reset();
  job_.reset();  // it may print to `warnings`
}

TEST_F(DispatcherTest, TheWarningOfAProgramNamesTheOptionThatTunesIt) {
  Warnings warnings;
  lines_ = &warnings;
  JoinFake("choice usual default\nchoice winner\nparts");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/winner")}}));
  const ProgramGraph graph = ProgramGraph::Parse(
                                 "program halves\n%x = input f32 [R, 4]\n%s = all_reduce sum "
                                 "%x\n%y = neg %s\nreturn %y\n")
                                 .value();
  ASSERT_TRUE(dispatcher_->Prepare(ProgramCall{.graph = &graph, .rows = 4}));
  ASSERT_EQ(warnings.texts.size(), 1u);
  EXPECT_THAT(warnings.texts[0], AllOf(HasSubstr("calls of program halves run the default choice"),
                                       HasSubstr("`cotune tune --program FILE` tunes them")));
  dispatcher_.reset();
  job_.reset();
}

// More sizes than plans are kept: those used longest ago are made again.
TEST_F(DispatcherTest, KeepsABoundedNumberOfPlans) {
  JoinWith(host::BackendApi());
  for (int round = 0; round < 2; ++round) {
    for (uint64_t count = 1; count <= 1200; ++count) {
      const Status run = dispatcher_->Run(SumOf(count));
      ASSERT_TRUE(run) << run.error().ToText();
      ASSERT_EQ(recv_, send_);
    }
  }
}

// The fake backend with a count of the plans that live.
int live_plans = 0;
cotune_backend_api_t FakeThatCountsPlans() {
  cotune_backend_api_t table = *fake::BackendApi();
  table.prepare = [](cotune_group_t* group, const cotune_problem_t* problem, const char* name,
                     int64_t deadline_ns, cotune_plan_t** plan, cotune_error_t* error) {
    const cotune_status_t status =
        fake::BackendApi()->prepare(group, problem, name, deadline_ns, plan, error);
    if (status == COTUNE_OK) ++live_plans;
    return status;
  };
  table.plan_destroy = [](cotune_plan_t* plan) {
    --live_plans;
    fake::BackendApi()->plan_destroy(plan);
  };
  return table;
}

// The fake backend, which keeps the deadline of the last choice that is made ready.
int64_t prepare_deadline_ns = 0;
cotune_backend_api_t FakeThatKeepsDeadlines() {
  cotune_backend_api_t table = *fake::BackendApi();
  table.prepare = [](cotune_group_t* group, const cotune_problem_t* problem, const char* name,
                     int64_t deadline_ns, cotune_plan_t** plan, cotune_error_t* error) {
    prepare_deadline_ns = deadline_ns;
    return fake::BackendApi()->prepare(group, problem, name, deadline_ns, plan, error);
  };
  return table;
}

TEST_F(DispatcherTest, AChoiceIsMadeReadyWithinTheTimeoutOfItsCallIfMeasurementsHaveLess) {
  static const cotune_backend_api_t backend = FakeThatKeepsDeadlines();
  JoinWith(&backend, "choice a default");
  constexpr int64_t kHourNs = 3'600'000'000'000;
  ASSERT_LT(job_->settings().collective_autotune_timeout_ns, kHourNs);
  for (const int64_t timeout_ns : {kHourNs, 2 * kHourNs, int64_t{1}}) {
    Call call = SumOf(static_cast<uint64_t>(16 + timeout_ns % 7));
    call.timeout_ns = timeout_ns;
    const int64_t least_ns = std::max(timeout_ns, job_->settings().collective_autotune_timeout_ns);
    const int64_t before_ns = job_->clock().now_ns();
    dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/a")}}));  // without plans
    static_cast<void>(dispatcher_->Run(call));
    EXPECT_GE(prepare_deadline_ns, before_ns + least_ns);
    EXPECT_LE(prepare_deadline_ns, job_->clock().now_ns() + least_ns);
  }
}

TEST_F(DispatcherTest, TablesThatFollowEachOtherLeaveABoundedNumberOfPlans) {
  static const cotune_backend_api_t backend = FakeThatCountsPlans();
  live_plans = 0;
  JoinWith(&backend, "choice a default; choice b");
  int most = 0;
  for (int i = 0; i < 100; ++i) {
    const ChoiceId winner = Id(i % 2 == 0 ? "fake/a" : "fake/b");
    dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, winner}}));
    for (const uint64_t count : {100, 200}) {
      const Call call = SumOf(count);
      ASSERT_TRUE(dispatcher_->Run(call));
      EXPECT_EQ(recv_, std::vector<float>(count, 3.0F));
      EXPECT_EQ(dispatcher_->Explain(call)->choice, winner);
    }
    most = std::max(most, live_plans);
  }
  EXPECT_LE(most, 8 * 2);
  EXPECT_GE(most, 2);
}

TEST_F(DispatcherTest, ACallWithAPlanAllocatesNothing) {
  JoinWith(host::BackendApi());
  const Call call = SumOf(1000);
  ASSERT_TRUE(dispatcher_->Run(call));
  const uint64_t before = AllocationCount();
  for (int i = 0; i < 100; ++i) {
    if (!dispatcher_->Run(call)) FAIL();
  }
  const uint64_t after = AllocationCount();
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace cotune
