// Choices of collectives that all ranks have agreed on, in whatever program they stand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/program.h"
#include "integration/agreed_choices.h"
#include "integration/testing/dispatcher_fixture.h"
#include "plugins/host/backend.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

constexpr char kScript[] = "choice usual default\nchoice winner\nchoice other";

ProblemClass SumOfFloats() {
  ProblemClass cls;
  cls.reduction = Reduction::kSum;
  return cls;
}

TEST(AgreedChoicesTest, TheFirstAgreementStays) {
  AgreedChoices agreed;
  EXPECT_TRUE(agreed.empty());
  agreed.Add(SumOfFloats(), 8, Id("fake/a"));
  agreed.Add(SumOfFloats(), 8, Id("fake/b"));
  EXPECT_EQ(agreed.Find(SumOfFloats(), 8), AgreedChoices::Choice(Id("fake/a")));
  EXPECT_FALSE(agreed.Find(SumOfFloats(), 16));
  agreed.AddAllCounts(SumOfFloats(), [](uint64_t) { return Id("fake/c"); });
  agreed.AddAllCounts(SumOfFloats(), [](uint64_t) { return Id("fake/d"); });
  agreed.Add(SumOfFloats(), 32, Id("fake/e"));
  EXPECT_EQ(agreed.Find(SumOfFloats(), 8), AgreedChoices::Choice(Id("fake/a")));
  EXPECT_EQ(agreed.Find(SumOfFloats(), 32), AgreedChoices::Choice(Id("fake/c")));
}

TEST(AgreedChoicesTest, ADefaultIsAnAgreement) {
  AgreedChoices agreed;
  agreed.Add(SumOfFloats(), 8, std::nullopt);
  const std::optional<AgreedChoices::Choice> found = agreed.Find(SumOfFloats(), 8);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->has_value());
}

class DispatcherAgreementTest : public DispatcherTest {
 protected:
  static ProgramGraph Parsed(const std::string& text) { return *ProgramGraph::Parse(text); }
  ProgramGraph Alone() const {
    return Parsed("program alone\n%x = input f32 [R, 1]\n%y = all_reduce sum %x\nreturn %y\n");
  }
  DispatchTable TableOf(const ProgramGraph& graph, std::vector<SizeRange> ranges) {
    const Result<Program> program =
        Program::Bind(graph, {MemoryKind::kHost, 1, 1, BufferClass::kPlain});
    return Table(program->anchor(), std::move(ranges));
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
  EXPECT_TRUE(*dispatcher_->IsAgreed(Alone(), 12345));
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
