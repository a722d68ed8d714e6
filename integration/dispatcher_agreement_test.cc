// Choices of collectives that all ranks have agreed on, in whatever program they stand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/problem/program.h"
#include "integration/agreed_choices.h"
#include "integration/testing/dispatcher_fixture.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/host/backend.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kScript[] = "choice usual default\nchoice winner\nchoice other";

// The fake backend, whose choice "two_buffers" cannot run in place.
const cotune_backend_api_t* FakeWithTwoBuffers() {
  static const cotune_backend_api_t made = [] {
    cotune_backend_api_t table = *fake::BackendApi();
    table.list_choices = [](const cotune_backend_t* backend, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                            uint32_t* count, cotune_error_t* error) {
      const cotune_status_t status =
          fake::BackendApi()->list_choices(backend, problem, first, stride, capacity, count, error);
      if ((problem->flags & COTUNE_PROBLEM_IN_PLACE) == 0) return status;
      for (uint32_t i = 0; i < std::min(capacity, *count); ++i) {
        auto* const choice = reinterpret_cast<cotune_choice_t*>(
            reinterpret_cast<std::byte*>(first) + size_t{i} * stride);
        if (std::string_view(choice->name) != "two_buffers") continue;
        choice->status = COTUNE_UNSUPPORTED;
        std::snprintf(choice->reason, sizeof(choice->reason), "it needs two buffers");
      }
      return status;
    };
    return table;
  }();
  return &made;
}

ProblemClass SumOfFloats() {
  ProblemClass cls;
  cls.reduction = Reduction::kSum;
  return cls;
}

AgreedChoices::Candidates OneOf(const char* id) { return {{Id(id)}}; }

TEST(AgreedChoicesTest, TheFirstAgreementStays) {
  AgreedChoices agreed;
  EXPECT_TRUE(agreed.empty());
  agreed.Add(SumOfFloats(), 8, OneOf("fake/a"));
  agreed.Add(SumOfFloats(), 8, OneOf("fake/b"));
  EXPECT_EQ(agreed.Find(SumOfFloats(), 8), OneOf("fake/a"));
  EXPECT_FALSE(agreed.Find(SumOfFloats(), 16));
  agreed.AddAllCounts(SumOfFloats(), 1, [](uint64_t) { return OneOf("fake/c"); });
  agreed.AddAllCounts(SumOfFloats(), 2, [](uint64_t) { return OneOf("fake/d"); });
  agreed.Add(SumOfFloats(), 32, OneOf("fake/e"));
  EXPECT_EQ(agreed.Find(SumOfFloats(), 8), OneOf("fake/a"));
  EXPECT_EQ(agreed.Find(SumOfFloats(), 32), OneOf("fake/c"));
}

TEST(AgreedChoicesTest, TheOwnerOfAllCountsReplacesThem) {
  AgreedChoices agreed;
  agreed.Add(SumOfFloats(), 8, OneOf("fake/a"));
  agreed.AddAllCounts(SumOfFloats(), 1, [](uint64_t) { return OneOf("fake/b"); });
  agreed.AddAllCounts(SumOfFloats(), 1, [](uint64_t) { return OneOf("fake/c"); });
  agreed.AddAllCounts(SumOfFloats(), 2, [](uint64_t) { return OneOf("fake/d"); });
  EXPECT_EQ(agreed.Find(SumOfFloats(), 8), OneOf("fake/a"));
  EXPECT_EQ(agreed.Find(SumOfFloats(), 16), OneOf("fake/c"));
}

TEST(AgreedChoicesTest, ACountIsComputedOnceUntilItIsForgotten) {
  AgreedChoices agreed;
  std::string id = "fake/a";
  int computed = 0;
  agreed.AddAllCounts(SumOfFloats(), 1, [&](uint64_t) {
    ++computed;
    return OneOf(id.c_str());
  });
  EXPECT_EQ(agreed.Find(SumOfFloats(), 8), OneOf("fake/a"));
  id = "fake/b";
  EXPECT_EQ(agreed.Find(SumOfFloats(), 8), OneOf("fake/a"));
  EXPECT_EQ(computed, 1);
  agreed.ForgetComputed();
  EXPECT_EQ(agreed.Find(SumOfFloats(), 8), OneOf("fake/b"));
}

TEST(AgreedChoicesTest, ADefaultIsAnAgreement) {
  AgreedChoices agreed;
  agreed.Add(SumOfFloats(), 8, {});
  const std::optional<AgreedChoices::Candidates> found = agreed.Find(SumOfFloats(), 8);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->empty());
}

class DispatcherAgreementTest : public DispatcherTest {
 protected:
  static ProgramGraph Parsed(const std::string& text) { return *ProgramGraph::Parse(text); }
  ProgramGraph Alone() const {
    return Parsed("program alone\n%x = input f32 [R, 1]\n%y = all_reduce sum %x\nreturn %y\n");
  }
  static DispatchRow RowOf(const ProgramGraph& graph, BufferClass buffers,
                           std::vector<SizeRange> ranges) {
    const Result<Program> program = Program::Bind(graph, {MemoryKind::kHost, 1, 1, buffers});
    return {DispatchKey::Of(program->anchor()), std::move(ranges)};
  }
  static DispatchTable TableOf(const ProgramGraph& graph, std::vector<SizeRange> ranges) {
    return *DispatchTable::Build({RowOf(graph, BufferClass::kPlain, std::move(ranges))});
  }
  static std::vector<SizeRange> Everywhere(const std::string& id) {
    return {SizeRange{0, UINT64_MAX, Id(id)}};
  }
  // The choice that runs the program at these rows, without operands, or the error.
  std::string RunsAtRows(const ProgramGraph& graph, uint64_t rows) {
    const Result<CallExplanation> explanation =
        dispatcher_->Explain(ProgramCall{.graph = &graph, .rows = rows});
    return explanation ? explanation->choice.text() : explanation.error().ToText();
  }
  void RegisterBuffers() {
    for (std::vector<float>* each : {&send_, &recv_}) {
      const Status registered =
          job_->groups().RegisterMemory({}, each->data(), each->size() * sizeof(float), INT64_MAX);
      ASSERT_TRUE(registered) << registered.error().ToText();
    }
  }
};

TEST_F(DispatcherAgreementTest, CallsOfTheCollectiveFollow) {
  JoinFake(kScript);
  dispatcher_->SetTable(TableOf(Alone(), {{0, UINT64_MAX, Id("fake/winner")}}));
  EXPECT_FALSE(*dispatcher_->IsAgreed(Alone(), 16));
  ASSERT_TRUE(dispatcher_->Agree(Alone(), std::array<uint64_t, 1>{16}));
  EXPECT_TRUE(*dispatcher_->IsAgreed(Alone(), 16));
  EXPECT_FALSE(*dispatcher_->IsAgreed(Alone(), 17));
  // A later table changes what is not agreed only.
  dispatcher_->SetTable(TableOf(Alone(), {{0, UINT64_MAX, Id("fake/other")}}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/winner");
  EXPECT_EQ(Runs(SumOf(17)), "fake/other");
  ASSERT_TRUE(dispatcher_->Run(SumOf(16)));
}

TEST_F(DispatcherAgreementTest, AllRowsHaveTheRangesOfTheTable) {
  JoinFake(kScript);
  dispatcher_->SetTable(
      TableOf(Alone(), {{0, 256, Id("fake/winner")}, {256, UINT64_MAX, Id("fake/other")}}));
  ASSERT_TRUE(dispatcher_->Agree(Alone(), {}));
  dispatcher_->SetTable(TableOf(Alone(), {{0, UINT64_MAX, Id("fake/usual")}}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/winner");
  EXPECT_EQ(Runs(SumOf(64)), "fake/other");
  EXPECT_EQ(Runs(SumOf(0)), "fake/winner");
  EXPECT_TRUE(*dispatcher_->IsAgreed(Alone(), 12345));
}

TEST_F(DispatcherAgreementTest, AProgramThatAgreesOnAllRowsAgainFollowsTheTable) {
  JoinFake(kScript);
  const ProgramGraph other = Parsed(
      "program other\n%x = input f32 [R, 1]\n%y = all_reduce sum %x\n%z = neg %y\nreturn %z\n");
  ASSERT_TRUE(dispatcher_->Agree(Alone(), std::array<uint64_t, 1>{8}));
  dispatcher_->SetTable(TableOf(Alone(), Everywhere("fake/winner")));
  ASSERT_TRUE(dispatcher_->Agree(Alone(), {}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/winner");
  dispatcher_->SetTable(TableOf(Alone(), Everywhere("fake/other")));
  ASSERT_TRUE(dispatcher_->Agree(other, {}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/winner") << "another program owns the collective";
  ASSERT_TRUE(dispatcher_->Agree(Alone(), {}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/other");
  EXPECT_EQ(Runs(SumOf(8)), "fake/usual") << "an agreement on one count stays";
}

// The second collective has four columns, so that its table would give another choice.
TEST_F(DispatcherAgreementTest, TheFirstOfTwoEqualCollectivesDecidesAllRows) {
  JoinFake(std::string(kScript) + "\nparts");
  const ProgramGraph graph = Parsed(
      "%x = input f32 [R, 1]\n%w = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = all_reduce sum "
      "%w\n"
      "return %y, %z\n");
  dispatcher_->SetTable(
      TableOf(graph, {{0, 128, Id("fake/winner")}, {128, UINT64_MAX, Id("fake/other")}}));
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(dispatcher_->Agree(graph, {}));
    EXPECT_EQ(Runs(SumOf(16)), "fake/winner") << "time " << times;
    EXPECT_EQ(Runs(SumOf(64)), "fake/other") << "time " << times;
  }
}

TEST_F(DispatcherAgreementTest, WithoutATableTheDefaultIsAgreed) {
  JoinFake(kScript);
  ASSERT_TRUE(dispatcher_->Agree(Alone(), std::array<uint64_t, 1>{16}));
  dispatcher_->SetTable(TableOf(Alone(), {{0, UINT64_MAX, Id("fake/other")}}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/usual");
}

TEST_F(DispatcherAgreementTest, AProgramRunsItsCollectivesAsTheyAreAgreed) {
  JoinWith(host::BackendApi());
  const ProgramGraph other = Parsed(
      "program other\n%x = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = mul %y, 2\n"
      "%w = all_reduce max %z\nreturn %w\n");
  EXPECT_FALSE(*dispatcher_->IsAgreed(other, 4));
  ASSERT_TRUE(dispatcher_->Agree(Alone(), std::array<uint64_t, 1>{16}));
  // Its second collective is open.
  EXPECT_FALSE(*dispatcher_->IsAgreed(other, 4));
  const ProgramGraph second =
      Parsed("program second\n%x = input f32 [R, 2]\n%y = all_reduce max %x\nreturn %y\n");
  ASSERT_TRUE(dispatcher_->Agree(second, std::array<uint64_t, 1>{8}));
  EXPECT_TRUE(*dispatcher_->IsAgreed(other, 4));
  const std::vector<float> x(16, 3.0F);
  std::vector<float> w(16);
  const std::array<const void*, 1> inputs{x.data()};
  const std::array<void*, 1> outputs{w.data()};
  ProgramCall call;
  call.graph = &other;
  call.rows = 4;
  call.inputs = inputs;
  call.outputs = outputs;
  const Status ran = dispatcher_->Run(call);
  ASSERT_TRUE(ran) << ran.error().ToText();
  EXPECT_EQ(w, std::vector<float>(16, 6.0F));
}

// Other ranks may have no operation around the collective, or other ones.
TEST_F(DispatcherAgreementTest, OperationsThatFitAnyCollectiveStayInIt) {
  JoinWith(host::BackendApi());
  const std::string sum = "%x = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = neg %y\n";
  const ProgramGraph fused = Parsed(sum + "return %z\n");
  const ProgramGraph longer = Parsed(sum + "%w = abs %z\nreturn %w\n");
  DispatchRow of_longer = RowOf(longer, BufferClass::kPlain, Everywhere("host/copy?fuse=1"));
  of_longer.next_best = {{64, NextBest({Id("host/copy?fuse=1.2"), Id("host/copy")})}};
  dispatcher_->SetTable(*DispatchTable::Build(
      {RowOf(fused, BufferClass::kPlain, Everywhere("host/copy?fuse=1")), of_longer}));
  EXPECT_EQ(RunsAtRows(fused, 4), "host/copy?fuse=1");
  ASSERT_TRUE(dispatcher_->Agree(fused, std::array<uint64_t, 1>{4}));
  EXPECT_EQ(RunsAtRows(fused, 4), "host/copy?fuse=1");
  EXPECT_EQ(Runs(SumOf(16)), "host/copy");
  ASSERT_TRUE(*dispatcher_->IsAgreed(longer, 4));
  EXPECT_EQ(RunsAtRows(longer, 4), "host/copy?fuse=1");
  const std::vector<float> x(16, -3.0F);
  std::vector<float> w(16);
  const std::array<const void*, 1> inputs{x.data()};
  const std::array<void*, 1> outputs{w.data()};
  const Status ran = dispatcher_->Run(
      ProgramCall{.graph = &longer, .rows = 4, .inputs = inputs, .outputs = outputs});
  ASSERT_TRUE(ran) << ran.error().ToText();
  EXPECT_EQ(w, std::vector<float>(16, 3.0F));
}

TEST_F(DispatcherAgreementTest, OfAWinnerThatNeedsTheSameProgramOnAllRanksTheNextBestIsAgreed) {
  JoinFake("choice usual default\nchoice winner fuses=2\nchoice second\nparts");
  const ProgramGraph graph =
      Parsed("%x = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = neg %y\nreturn %z\n");
  DispatchRow row = RowOf(graph, BufferClass::kPlain, Everywhere("fake/winner?fuse=1"));
  row.next_best = {{64, NextBest({Id("fake/second")})}};
  dispatcher_->SetTable(*DispatchTable::Build({row}));
  EXPECT_EQ(RunsAtRows(graph, 4), "fake/winner?fuse=1");
  ASSERT_TRUE(dispatcher_->Agree(graph, std::array<uint64_t, 1>{4}));
  EXPECT_EQ(RunsAtRows(graph, 4), "fake/second");
}

// As a kernel that is made for regions, and runs a collective by itself beside one.
TEST_F(DispatcherAgreementTest, AWinnerThatIsListedForRegionsAloneRunsTheCollective) {
  JoinFake("choice usual default\nchoice winner fuses=2 fits_any_region only_regions\nparts");
  const ProgramGraph graph =
      Parsed("%x = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = neg %y\nreturn %z\n");
  DispatchRow row = RowOf(graph, BufferClass::kPlain, Everywhere("fake/winner?fuse=1"));
  row.next_best = {{64, NextBest({Id("fake/usual")})}};
  dispatcher_->SetTable(*DispatchTable::Build({row}));
  EXPECT_EQ(Runs(SumOf(16)), "fake/usual");
  ASSERT_TRUE(dispatcher_->Agree(graph, std::array<uint64_t, 1>{4}));
  EXPECT_EQ(RunsAtRows(graph, 4), "fake/winner?fuse=1");
  const ProgramGraph other =
      Parsed("%x = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = abs %y\nreturn %z\n");
  EXPECT_EQ(RunsAtRows(other, 4), "fake/winner");
  EXPECT_EQ(Runs(SumOf(16)), "fake/winner");
  const Status ran = dispatcher_->Run(SumOf(16));
  EXPECT_TRUE(ran) << ran.error().ToText();
  EXPECT_EQ(recv_, send_);
  // A fused choice is known to run this count alone.
  dispatcher_->SetTable(*DispatchTable::Build({row}));
  ASSERT_TRUE(dispatcher_->Agree(graph, {}));
  EXPECT_EQ(RunsAtRows(graph, 5), "fake/winner?fuse=1");
  EXPECT_EQ(Runs(SumOf(20)), "fake/winner");
}

// The row of registered operands is that of this very program, and another rank may have another
// one around the collective.
TEST_F(DispatcherAgreementTest, RegisteredOperandsOfAProgramFollow) {
  JoinWith(FakeWithMemory(),
           "choice usual default\nchoice winner\nchoice other\nchoice zero_copy\nparts");
  const ProgramGraph graph =
      Parsed("%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n");
  const auto table_with = [&](const std::string& plain_winner) {
    return *DispatchTable::Build(
        {RowOf(graph, BufferClass::kPlain, Everywhere(plain_winner)),
         RowOf(graph, BufferClass::kSymmetric, Everywhere("fake/zero_copy"))});
  };
  dispatcher_->SetTable(table_with("fake/winner"));
  SumOf(16);
  RegisterBuffers();
  const std::array<const void*, 1> inputs{send_.data()};
  const std::array<void*, 1> outputs{recv_.data()};
  const ProgramCall call{.graph = &graph, .rows = 4, .inputs = inputs, .outputs = outputs};
  const auto runs = [&] {
    const Status ran = dispatcher_->Run(call);
    EXPECT_TRUE(ran) << ran.error().ToText();
    EXPECT_EQ(recv_, std::vector<float>(16, -3.0F));
    return dispatcher_->Explain(call)->choice.text();
  };
  EXPECT_EQ(runs(), "fake/zero_copy") << "nothing is agreed";
  ASSERT_TRUE(dispatcher_->Agree(graph, std::array<uint64_t, 1>{4}));
  EXPECT_EQ(runs(), "fake/winner") << "the winner on plain operands is the agreed choice";
  dispatcher_->SetTable(table_with("fake/other"));
  EXPECT_EQ(runs(), "fake/winner") << "the winner on plain operands is another choice";
}

TEST_F(DispatcherAgreementTest, RegisteredBuffersOfACallFollow) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice winner\nchoice other\nchoice zero_copy");
  const auto table_with = [&](const std::string& plain_winner) {
    return *DispatchTable::Build(
        {RowOf(Alone(), BufferClass::kPlain, Everywhere(plain_winner)),
         RowOf(Alone(), BufferClass::kSymmetric, Everywhere("fake/zero_copy"))});
  };
  dispatcher_->SetTable(table_with("fake/winner"));
  const Call call = SumOf(16);
  RegisterBuffers();
  EXPECT_EQ(Runs(call), "fake/zero_copy") << "nothing is agreed";
  ASSERT_TRUE(dispatcher_->Agree(Alone(), std::array<uint64_t, 1>{16}));
  EXPECT_EQ(Runs(call), "fake/winner");
  dispatcher_->SetTable(table_with("fake/other"));
  EXPECT_EQ(Runs(call), "fake/winner");
  ASSERT_TRUE(dispatcher_->Run(call));
  EXPECT_EQ(recv_, send_);
}

TEST_F(DispatcherAgreementTest, CallsInPlaceFollow) {
  JoinFake(std::string(kScript) + "\nparts");
  DispatchRow of_calls_in_place = RowOf(Alone(), BufferClass::kPlain, Everywhere("fake/other"));
  of_calls_in_place.key.in_place = true;
  dispatcher_->SetTable(*DispatchTable::Build(
      {RowOf(Alone(), BufferClass::kPlain, Everywhere("fake/winner")), of_calls_in_place}));
  const ProgramGraph in_place =
      Parsed("%x = input f32 [R, 4]\n%y = all_reduce sum %x\nreturn %y into %x\n");
  const ProgramGraph with_more =
      Parsed("%x = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = neg %y\nreturn %y into %x, %z\n");
  Call call = SumOf(16);
  call.send = call.recv;
  EXPECT_EQ(Runs(call), "fake/other") << "calls in place have a row of their own";
  ASSERT_TRUE(dispatcher_->Agree(Alone(), std::array<uint64_t, 1>{16}));
  EXPECT_EQ(Runs(call), "fake/winner");
  EXPECT_TRUE(*dispatcher_->IsAgreed(in_place, 4));
  EXPECT_EQ(RunsAtRows(in_place, 4), "fake/winner");
  EXPECT_TRUE(*dispatcher_->IsAgreed(with_more, 4));
  EXPECT_EQ(RunsAtRows(with_more, 4), "fake/winner");
  recv_.assign(16, 2.0F);
  const std::array<const void*, 1> inputs{recv_.data()};
  const std::array<void*, 1> outputs{recv_.data()};
  const Status ran = dispatcher_->Run(
      ProgramCall{.graph = &in_place, .rows = 4, .inputs = inputs, .outputs = outputs});
  ASSERT_TRUE(ran) << ran.error().ToText();
  EXPECT_EQ(recv_, std::vector<float>(16, 2.0F));
}

// The winner may refuse a collective of a count that was not measured: the next best choice is
// agreed on then, at one count or at all of them.
TEST_F(DispatcherAgreementTest, WhatTheWinnerRefusesIsAgreedToRunByTheNextBest) {
  const ProgramGraph pair = Parsed(
      "program pair\n%x = input f32 [R, 1]\n%y = all_reduce sum %x\n%z = all_reduce max %y\n"
      "return %z\n");
  for (const bool is_at_all_rows : {false, true}) {
    JoinFake("choice usual default\nchoice narrow bytes_max=64\nchoice second bytes_max=68");
    DispatchRow row = RowOf(Alone(), BufferClass::kPlain, Everywhere("fake/narrow"));
    row.next_best = {{64, NextBest({Id("fake/second")})}};
    // Each step of a program's choice is tried for its own collective.
    DispatchRow of_pair = RowOf(pair, BufferClass::kPlain, Everywhere("fake/usual+fake/narrow"));
    of_pair.next_best = {{64, NextBest({Id("fake/narrow+fake/second")})}};
    dispatcher_->SetTable(*DispatchTable::Build({row, of_pair}));
    const std::array<uint64_t, 3> rows{16, 17, 18};
    const std::span<const uint64_t> agreed =
        is_at_all_rows ? std::span<const uint64_t>() : std::span<const uint64_t>(rows);
    ASSERT_TRUE(dispatcher_->Agree(Alone(), agreed));
    EXPECT_EQ(Runs(SumOf(16)), "fake/narrow");
    EXPECT_EQ(Runs(SumOf(17)), "fake/second");
    EXPECT_EQ(Runs(SumOf(18)), "fake/usual");
    const Status ran = dispatcher_->Run(SumOf(17));
    EXPECT_TRUE(ran) << ran.error().ToText();
    ASSERT_TRUE(dispatcher_->Agree(pair, agreed));
    EXPECT_EQ(RunsAtRows(pair, 16), "fake/narrow");
    EXPECT_EQ(RunsAtRows(pair, 17), "fake/second");
    Call max = SumOf(17);
    max.reduction = Reduction::kMax;
    EXPECT_EQ(Runs(max), "fake/second");
    dispatcher_.reset();
    job_.reset();
  }
}

// A rank that took another choice by itself would be out of step with those that call it out of
// place.
TEST_F(DispatcherAgreementTest, ACallInPlaceThatTheChoiceCannotRunIsRefused) {
  JoinWith(FakeWithTwoBuffers(), "choice usual default\nchoice two_buffers\nparts");
  dispatcher_->SetTable(TableOf(Alone(), Everywhere("fake/two_buffers")));
  ASSERT_TRUE(dispatcher_->Agree(Alone(), std::array<uint64_t, 1>{16}));
  Call call = SumOf(16);
  call.send = call.recv;
  const Status refused = dispatcher_->Run(call);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().ToText(),
              AllOf(HasSubstr("fake/two_buffers cannot run this call in place"),
                    HasSubstr("the ranks have agreed on this choice")));
  const ProgramGraph with_more =
      Parsed("%x = input f32 [R, 4]\n%y = all_reduce sum %x\n%z = neg %y\nreturn %y into %x, %z\n");
  EXPECT_THAT(RunsAtRows(with_more, 4), HasSubstr("cannot run this call in place"));
  // A collective that is not agreed has choices of its own in place, and the group goes on.
  Call other = SumOf(8);
  other.send = other.recv;
  EXPECT_EQ(Runs(other), "fake/usual");
  const Call apart = SumOf(16);
  EXPECT_EQ(Runs(apart), "fake/two_buffers");
  const Status ran = dispatcher_->Run(apart);
  EXPECT_TRUE(ran) << ran.error().ToText();
  EXPECT_EQ(recv_, send_);
}

TEST_F(DispatcherAgreementTest, RowsThatDoNotFitAreRefused) {
  JoinFake(kScript);
  const ProgramGraph one =
      Parsed("program one\n%x = input f32 [1, 4]\n%y = all_reduce sum %x\nreturn %y\n");
  const Status refused = dispatcher_->Agree(one, std::array<uint64_t, 1>{2});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().ToText(), HasSubstr("2 rows do not fit the program"));
  ASSERT_TRUE(dispatcher_->Agree(one, {}));
  EXPECT_EQ(Runs(SumOf(4)), "fake/usual");
}

}  // namespace
}  // namespace cotune
