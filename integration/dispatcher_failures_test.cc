// Tests of the dispatcher with calls that are wrong, and with backends that refuse, fail or hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "integration/dispatcher.h"
#include "integration/testing/dispatcher_fixture.h"
#include "plugins/api/cotune_program_v1.h"
#include "plugins/fake/fake_backend.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The fake backend, with parts that refuse every launch.
const cotune_backend_api_t* FakeWithRefusingParts() {
  static cotune_backend_api_t table = *fake::BackendApi();
  table.get_extension = [](const cotune_backend_t* backend, const char* id) -> const void* {
    const void* const found = fake::BackendApi()->get_extension(backend, id);
    if (found == nullptr || std::string_view(id) != COTUNE_PROGRAM_EXTENSION) return found;
    static cotune_program_v1_t refusing = *static_cast<const cotune_program_v1_t*>(found);
    refusing.launch = [](cotune_program_plan_t*, const cotune_program_launch_t*, cotune_error_t*) {
      return cotune_status_t{COTUNE_UNSUPPORTED};
    };
    return &refusing;
  };
  return &table;
}

class DispatcherFailuresTest : public DispatcherTest {
 protected:
  // The deadlines are so short that a stuck call is known after a moment.
  void JoinFakeThatIsStuck(const std::string& script, std::promise<Error>& reported) {
    JobOptions options;
    options.context.job_id = "job";
    options.context.socket_path = folder_ + "/s";
    options.catalogue.tables = {fake::BackendApi()};
    options.catalogue.settings["fake.script"] = script;
    options.settings.collective_autotune_timeout_ns = 100'000'000;
    options.on_stuck = [&reported](const Error& error) { reported.set_value(error); };
    job_ = Job::Join(options).value();
    dispatcher_ = std::make_unique<Dispatcher>(*job_);
  }
};

TEST_F(DispatcherFailuresTest, ACallThatIsStuckEndsEveryOtherCallAtOnceByItsName) {
  std::promise<Error> reported;
  JoinFakeThatIsStuck("choice a default; breach progress never_returns", reported);
  Call call = SumOf(16);
  call.timeout_ns = 100'000'000;
  // The thread never comes back, so all that it uses stays.
  Dispatcher* const dispatcher = dispatcher_.release();
  static std::vector<Job*> kept_jobs;
  static std::vector<Dispatcher*> kept_dispatchers;
  static std::vector<std::vector<float>> kept_buffers;
  kept_jobs.push_back(job_.release());
  kept_dispatchers.push_back(dispatcher);
  kept_buffers.push_back(std::move(send_));
  kept_buffers.push_back(std::move(recv_));
  std::thread([dispatcher, call] { static_cast<void>(dispatcher->Run(call)); }).detach();
  const std::string text = reported.get_future().get().ToText();
  EXPECT_THAT(text, HasSubstr("progress of choice fake/a for all_reduce/sum/f32"));
  EXPECT_THAT(text, HasSubstr("does not return"));
  while (kept_jobs.back()->stuck() == nullptr) std::this_thread::yield();
  const Status health = dispatcher->Health();
  ASSERT_FALSE(health);
  EXPECT_EQ(health.error().code, ErrorCode::kDeadline);
  EXPECT_EQ(health.error().ToText(), text);
  EXPECT_EQ(dispatcher->Run(call).error().ToText(), text);
}

TEST_F(DispatcherFailuresTest, WhatAPluginThrowsIsTheErrorOfTheCall) {
  for (const std::string how : {"throws", "throws_int"}) {
    for (const std::string function : {"prepare", "launch", "progress"}) {
      JoinFake("choice a default; breach " + function + " " + how);
      const Status ran = dispatcher_->Run(SumOf(16));
      ASSERT_FALSE(ran);
      EXPECT_THAT(ran.error().ToText(), HasSubstr(function + " threw an exception"));
      EXPECT_THAT(ran.error().ToText(), HasSubstr("choice fake/a"));
      dispatcher_.reset();
      job_.reset();
    }
  }
}

// The fake backend, whose calls end at their deadline and name no rank, as those of a library do
// that does not know which rank is late.
const cotune_backend_api_t* FakeThatNamesNobody() {
  static const cotune_backend_api_t kTable = [] {
    cotune_backend_api_t table = *fake::BackendApi();
    table.launch = [](cotune_plan_t*, const cotune_launch_t*, cotune_error_t*) {
      return cotune_status_t{COTUNE_DEADLINE_EXCEEDED};
    };
    return table;
  }();
  return &kTable;
}

// The errors of the ranks that make a call, by rank; the others make none and stay in the job until
// these are over.
std::map<int, Error> ErrorsOfCalls(const std::string& folder, int world_size,
                                   const std::vector<int>& callers) {
  std::map<int, Error> errors;
  std::mutex mutex;
  std::barrier over(world_size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      JobOptions options;
      options.context.job_id = "job";
      options.context.socket_path = folder + "/s";
      options.context.rank = options.context.local_rank = rank;
      options.context.world_size = options.context.local_size = world_size;
      options.catalogue.tables = {FakeThatNamesNobody()};
      options.catalogue.settings["fake.script"] = "choice a default";
      const std::unique_ptr<Job> job = Job::Join(options).value();
      Dispatcher dispatcher(*job);
      std::vector<float> data(16, 1.0F);
      Call call;
      call.reduction = Reduction::kSum;
      call.count = data.size();
      call.send = call.recv = data.data();
      call.timeout_ns = 400'000'000;
      if (std::find(callers.begin(), callers.end(), rank) != callers.end()) {
        const Status ran = dispatcher.Run(call);
        const std::lock_guard lock(mutex);
        if (!ran) errors[rank] = ran.error();
      }
      over.arrive_and_wait();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return errors;
}

TEST_F(DispatcherFailuresTest, AtADeadlineEveryRankThatStaysSilentIsNamed) {
  const auto one = ErrorsOfCalls(folder_, 3, {0, 1});
  ASSERT_EQ(one.size(), 2u);
  for (const auto& [rank, error] : one) {
    EXPECT_EQ(error.code, ErrorCode::kRankLost) << rank;
    EXPECT_EQ(error.ranks, (std::vector<int>{2})) << rank << ": " << error.ToText();
    EXPECT_THAT(error.ToText(), HasSubstr("rank 2 has not reported the same"));
  }
  // A rank that has reported it is not named, whatever ranks before it have not.
  const auto middle = ErrorsOfCalls(folder_, 3, {0, 2});
  ASSERT_EQ(middle.size(), 2u);
  for (const auto& [rank, error] : middle) {
    EXPECT_EQ(error.ranks, (std::vector<int>{1})) << rank << ": " << error.ToText();
  }
  // The first of two may only be slow, so that naming it alone would hide the other.
  const auto two = ErrorsOfCalls(folder_, 3, {0});
  ASSERT_EQ(two.size(), 1u);
  EXPECT_EQ(two.at(0).code, ErrorCode::kRankLost);
  EXPECT_EQ(two.at(0).ranks, (std::vector<int>{1, 2}));
  EXPECT_THAT(two.at(0).ToText(), HasSubstr("ranks 1, 2 have not reported the same"));
}

// The collective in front has run, here and perhaps on peers, so that the ranks would be out of
// step.
TEST_F(DispatcherFailuresTest, AStepThatIsRefusedInTheMiddleOfAProgramEndsTheGroup) {
  JoinWith(FakeWithRefusingParts(), "choice usual default\nparts");
  const ProgramGraph graph =
      ProgramGraph::Parse("%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n")
          .value();
  const Call plain = SumOf(16);
  ASSERT_TRUE(dispatcher_->Run(plain));
  const void* const inputs[] = {send_.data()};
  void* const outputs[] = {recv_.data()};
  const Status ran = dispatcher_->Run(
      ProgramCall{.graph = &graph, .rows = 4, .inputs = inputs, .outputs = outputs});
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(ran.error().ToText(), HasSubstr("a step of the program cannot run"));
  const Status later = dispatcher_->Run(plain);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().ToText(), ran.error().ToText());
}

TEST_F(DispatcherFailuresTest, AWinnerThatRefusesASizeGivesWayToTheDefault) {
  JoinFake("choice usual default\nchoice narrow bytes_max=64");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/narrow")}}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/narrow");
  const Result<CallExplanation> explanation = dispatcher_->Explain(SumOf(17));
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->choice.text(), "fake/usual");
  EXPECT_FALSE(explanation->from_table);
  EXPECT_THAT(explanation->table_choice_refused, HasSubstr("fake/narrow"));
  const Status run = dispatcher_->Run(SumOf(17));
  EXPECT_TRUE(run) << run.error().ToText();
}

TEST_F(DispatcherFailuresTest, AWinnerThatIsNotKnownAtASizeGivesWayToTheDefault) {
  JoinFake("choice usual default");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/gone?chunk=4096")}}));
  const Result<CallExplanation> explanation = dispatcher_->Explain(SumOf(16));
  ASSERT_TRUE(explanation) << explanation.error().ToText();
  EXPECT_EQ(explanation->choice.text(), "fake/usual");
  EXPECT_THAT(explanation->table_choice_refused, HasSubstr("fake/gone"));
  EXPECT_TRUE(dispatcher_->Run(SumOf(16)));
}

// A table that was tuned at one size only: every other size runs.
TEST_F(DispatcherFailuresTest, AWinnerOfABackendThatIsGoneGivesWayToTheDefault) {
  JoinFake("choice usual default");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("nccl/ring")}}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/usual");
}

TEST_F(DispatcherFailuresTest, SaysWhyNothingCanRun) {
  JoinFake("choice usual default only=broadcast");
  const Status run = dispatcher_->Run(SumOf(16));
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(run.error().ToText(), AllOf(HasSubstr("all_reduce"), HasSubstr("fake/usual")));
}

TEST_F(DispatcherFailuresTest, AMalformedCallLeavesTheGroupUsable) {
  JoinFake("choice usual default");
  const auto usage = [&](const Call& call, const std::string& text) {
    const Status run = dispatcher_->Run(call);
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().code, ErrorCode::kUsage);
    EXPECT_THAT(run.error().ToText(), HasSubstr(text));
  };
  Call call = SumOf(16);
  call.send = nullptr;
  usage(call, "send buffer is NULL");
  call = SumOf(16);
  call.recv = nullptr;
  usage(call, "receive buffer is NULL");
  call = SumOf(16);
  call.reduction = Reduction::kNone;
  usage(call, "reduction");
  call = SumOf(16);
  call.root = 1;
  usage(call, "root");
  call = SumOf(16);
  call.collective = Collective::kBroadcast;
  usage(call, "reduction");
  EXPECT_TRUE(dispatcher_->Run(SumOf(16)));
}

TEST_F(DispatcherFailuresTest, TheFirstFailureIsTheAnswerToEveryLaterCall) {
  JoinFake("choice usual default launch_fails_on=0 launch_fails_at=2");
  ASSERT_TRUE(dispatcher_->Run(SumOf(16)));
  const Status first = dispatcher_->Run(SumOf(16));
  ASSERT_FALSE(first);
  const Status other = dispatcher_->Run(SumOf(99));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().ToText(), first.error().ToText());
}

// Peers may run the tuned choice, so this rank does not take the default by itself.
TEST_F(DispatcherFailuresTest, ATunedChoiceThatOneRankCannotMakeReadyEndsTheGroup) {
  const std::pair<const char*, ErrorCode> cases[] = {
      {"prepare_refused_on=0", ErrorCode::kEnvironment},  // a refusal alone ends no group
      {"prepare_fails_on=0", ErrorCode::kInternal}};
  for (const auto& [how, code] : cases) {
    JoinFake(std::string("choice usual default; choice tuned ") + how);
    const Call call = SumOf(16);
    ASSERT_TRUE(dispatcher_->Run(call)) << "the default, without a table";
    dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/tuned")}}));
    const Status ran = dispatcher_->Run(call);
    ASSERT_FALSE(ran) << how;
    EXPECT_EQ(ran.error().code, code) << ran.error().ToText();
    if (code == ErrorCode::kEnvironment) {
      EXPECT_THAT(ran.error().ToText(), HasSubstr("fake/tuned of the tuned table cannot be made"));
    }
    for (const uint64_t count : {16, 99}) {
      const Status later = dispatcher_->Run(SumOf(count));
      ASSERT_FALSE(later) << how;
      EXPECT_EQ(later.error().ToText(), ran.error().ToText());
    }
    EXPECT_FALSE(dispatcher_->Health());
    dispatcher_.reset();
    job_.reset();
  }
}

}  // namespace
}  // namespace cotune
