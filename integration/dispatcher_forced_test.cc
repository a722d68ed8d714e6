// Calls whose collectives run a choice that the user forces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem/program.h"
#include "integration/testing/dispatcher_fixture.h"
#include "plugins/fake/fake_backend.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kScript[] =
    "choice usual default\nchoice winner\nchoice wanted bytes_max=64\n"
    "choice other only=all_gather\nparts";

class Warnings final : public EventSink {
 public:
  void OnEvent(const Event& event) override {
    if (event.type == EventType::kLine && event.severity == Severity::kWarning) {
      texts.emplace_back(event.name);
    }
  }
  std::vector<std::string> texts;
};

class DispatcherForcedTest : public DispatcherTest {
 protected:
  ~DispatcherForcedTest() override {
    dispatcher_.reset();
    job_.reset();  // it may print to warnings_
  }

  void JoinForced(const std::string& force, const std::string& script = kScript) {
    lines_ = &warnings_;
    JoinFake(script);
    Force(force);
  }
  void Force(const std::string& text) {
    TuningSettings settings = job_->settings();
    settings.force = ForcedChoices::Parse(text).value();
    job_->set_settings(settings);
  }
  CallExplanation Explained(const Call& call) {
    Result<CallExplanation> explanation = dispatcher_->Explain(call);
    EXPECT_TRUE(explanation) << explanation.error().ToText();
    return explanation ? *explanation : CallExplanation{.choice = Id("none/none")};
  }
  std::string RunAndExplain(const Call& call) {
    const Status run = dispatcher_->Run(call);
    EXPECT_TRUE(run) << run.error().ToText();
    return Explained(call).choice.text();
  }
  Call GatherOf(uint64_t count) {
    Call call = SumOf(count);
    call.collective = Collective::kAllGather;
    call.reduction = Reduction::kNone;
    return call;
  }
  // One row has 16 bytes.
  static ProgramGraph TwoCollectives() {
    auto graph = ProgramGraph::Parse(
        "program both\n%x = input f32 [R, 4]\n%w = input f32 [R/n, 4]\n%s = all_reduce sum %x\n"
        "%y = neg %s\n%z = all_gather %w\nreturn %y, %z\n");
    EXPECT_TRUE(graph) << graph.error().ToText();
    return *std::move(graph);
  }
  CallExplanation ExplainedProgram(const ProgramGraph& graph, uint64_t rows) {
    Result<CallExplanation> explanation =
        dispatcher_->Explain(ProgramCall{.graph = &graph, .rows = rows});
    EXPECT_TRUE(explanation) << explanation.error().ToText();
    return explanation ? *explanation : CallExplanation{.choice = Id("none/none")};
  }

  Warnings warnings_;
};

TEST_F(DispatcherForcedTest, AForcedChoiceRunsWhateverTheTableHas) {
  JoinForced("all_reduce=fake/wanted");
  EXPECT_EQ(RunAndExplain(SumOf(16)), "fake/wanted") << "without a table";
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/winner")}}));
  const CallExplanation explanation = Explained(SumOf(16));
  EXPECT_EQ(explanation.choice.text(), "fake/wanted");
  EXPECT_TRUE(explanation.is_forced);
  EXPECT_FALSE(explanation.from_table);
  EXPECT_FALSE(explanation.is_agreed);
  EXPECT_EQ(explanation.forced_refused, "");
  Call in_place = SumOf(16);
  in_place.send = in_place.recv;
  EXPECT_EQ(RunAndExplain(in_place), "fake/wanted");
  EXPECT_EQ(RunAndExplain(GatherOf(16)), "fake/usual") << "it is not forced";
  EXPECT_FALSE(Explained(GatherOf(16)).is_forced);
}

TEST_F(DispatcherForcedTest, AnotherSettingCountsFromTheNextPlansOn) {
  JoinForced("");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/winner")}}));
  EXPECT_EQ(RunAndExplain(SumOf(16)), "fake/winner");
  job_->DropPlans();
  Force("all_reduce=fake/wanted");
  EXPECT_EQ(RunAndExplain(SumOf(16)), "fake/wanted");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/usual")}}));
  EXPECT_EQ(RunAndExplain(SumOf(16)), "fake/wanted") << "a load or a tune changes the table alone";
}

TEST_F(DispatcherForcedTest, ASizeThatIsRefusedRunsWhatItWouldRunAnywayAndIsSaidOnce) {
  JoinForced("all_reduce=fake/wanted,all_gather=fake/usual");
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/winner")}}));
  EXPECT_EQ(RunAndExplain(SumOf(16)), "fake/wanted");
  EXPECT_THAT(warnings_.texts, IsEmpty());
  EXPECT_EQ(RunAndExplain(SumOf(17)), "fake/winner");
  EXPECT_EQ(RunAndExplain(SumOf(18)), "fake/winner");
  EXPECT_THAT(warnings_.texts,
              ElementsAre(AllOf(HasSubstr("all_reduce sum f32 out of place of 68 bytes does not "
                                          "run its forced choice, fake/wanted: "),
                                HasSubstr("the setting force_choice"))));
  const CallExplanation explanation = Explained(SumOf(17));
  EXPECT_FALSE(explanation.is_forced);
  EXPECT_TRUE(explanation.from_table);
  EXPECT_THAT(explanation.forced_refused, HasSubstr("fake/wanted: "));
}

TEST_F(DispatcherForcedTest, AProgramRunsItsForcedCollectivesByTheChoiceAndOthersByTheTable) {
  JoinForced("all_reduce=fake/wanted");
  const ProgramGraph graph = TwoCollectives();
  EXPECT_EQ(ExplainedProgram(graph, 4).choice.text(), "fake/wanted+fake/usual");
  const Program program = Program::Bind(graph, {MemoryKind::kHost, 1, 1}).value();
  dispatcher_->SetTable(Table(program.anchor(), {{0, UINT64_MAX, Id("fake/winner+fake/other")}}));
  CallExplanation explanation = ExplainedProgram(graph, 4);
  EXPECT_EQ(explanation.choice.text(), "fake/wanted+fake/other");
  EXPECT_TRUE(explanation.is_forced);
  explanation = ExplainedProgram(graph, 5);
  EXPECT_EQ(explanation.choice.text(), "fake/winner+fake/other") << "80 bytes are too many";
  EXPECT_FALSE(explanation.is_forced);
  EXPECT_THAT(explanation.forced_refused, HasSubstr("fake/wanted: "));
  EXPECT_THAT(warnings_.texts, ElementsAre(HasSubstr("of 80 bytes does not run")));
  std::vector<float> in(16, 1.0F);
  std::vector<float> out(16, 0.0F);
  std::vector<float> gathered(16, 0.0F);
  const void* const inputs[] = {in.data(), in.data()};
  void* const outputs[] = {out.data(), gathered.data()};
  const Status run = dispatcher_->Run(
      ProgramCall{.graph = &graph, .rows = 4, .inputs = inputs, .outputs = outputs});
  ASSERT_TRUE(run) << run.error().ToText();
  EXPECT_EQ(out, std::vector<float>(16, -1.0F));
  EXPECT_EQ(gathered, in);
}

TEST_F(DispatcherForcedTest, AFusedWinnerGivesWayToTheChoicesOfItsCollectives) {
  JoinForced("all_gather=fake/other");
  const ProgramGraph graph = TwoCollectives();
  const Program program = Program::Bind(graph, {MemoryKind::kHost, 1, 1}).value();
  dispatcher_->SetTable(
      Table(program.anchor(), {{0, UINT64_MAX, Id("fake/winner?fuse=1+fake/usual")}}));
  EXPECT_EQ(ExplainedProgram(graph, 4).choice.text(), "fake/winner+fake/other");
}

TEST_F(DispatcherForcedTest, AnAgreedCollectiveRunsItsForcedChoiceInEveryProgram) {
  JoinForced("all_reduce=fake/wanted");
  const ProgramGraph alone =
      ProgramGraph::Parse("%x = input f32 [R, 1]\n%y = all_reduce sum %x\nreturn %y\n").value();
  const ProgramGraph more =
      ProgramGraph::Parse("%x = input f32 [R, 1]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n")
          .value();
  dispatcher_->SetTable(Table(Sum(), {{0, UINT64_MAX, Id("fake/winner")}}));
  const uint64_t rows[] = {16, 17};
  ASSERT_TRUE(dispatcher_->Agree(alone, rows));
  EXPECT_EQ(dispatcher_->IsAgreed(more, 16), true);
  for (const uint64_t each : rows) {
    const char* const expected = each == 16 ? "fake/wanted" : "fake/winner";
    EXPECT_EQ(RunAndExplain(SumOf(each)), expected) << each;
    EXPECT_EQ(ExplainedProgram(more, each).choice.text(), expected) << each;
  }
  EXPECT_FALSE(Explained(SumOf(16)).is_agreed);
  EXPECT_TRUE(Explained(SumOf(16)).is_forced);
}

// The fake backend, which refuses "wanted" in place.
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
        if (std::string_view(choice->name) != "wanted") continue;
        choice->status = COTUNE_UNSUPPORTED;
        std::snprintf(choice->reason, sizeof(choice->reason), "it needs two buffers");
      }
      return status;
    };
    return table;
  }();
  return &made;
}

// Another rank may call the collective out of place, where the choice runs.
TEST_F(DispatcherForcedTest, InPlaceAnAgreedCollectiveDoesNotLeaveItsForcedChoice) {
  lines_ = &warnings_;
  JoinWith(FakeWithTwoBuffers(), kScript);
  Force("all_reduce=fake/wanted");
  Call call = SumOf(16);
  call.send = call.recv;
  EXPECT_EQ(RunAndExplain(call), "fake/usual") << "it is not agreed";
  EXPECT_THAT(warnings_.texts, ElementsAre(HasSubstr("it needs two buffers")));
  const ProgramGraph alone =
      ProgramGraph::Parse("%x = input f32 [R, 1]\n%y = all_reduce sum %x\nreturn %y\n").value();
  const uint64_t rows[] = {16};
  ASSERT_TRUE(dispatcher_->Agree(alone, rows));
  const Status run = dispatcher_->Run(call);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(run.error().ToText(), HasSubstr("fake/wanted cannot run this call in place"));
}

TEST_F(DispatcherForcedTest, OnRegisteredBuffersAChoiceOfTheirOwnCanBeForced) {
  JoinWith(FakeWithMemory(), "choice usual default\nchoice zero_copy\nchoice second");
  Force("all_reduce=fake/zero_copy");
  const Call call = SumOf(16);
  ASSERT_TRUE(job_->groups().RegisterMemory({}, send_.data(), 64, INT64_MAX));
  ASSERT_TRUE(job_->groups().RegisterMemory({}, recv_.data(), 64, INT64_MAX));
  const Status run = dispatcher_->Run(call);
  ASSERT_TRUE(run) << run.error().ToText();
  EXPECT_EQ(Explained(call).choice.text(), "fake/zero_copy");
}

Result<std::unique_ptr<Job>> JoinWithForce(const std::string& folder, const std::string& force) {
  JobOptions options;
  options.context.launcher = "test";
  options.context.job_id = "forced";
  options.context.socket_path = folder + "/forced";
  options.catalogue.tables = {fake::BackendApi()};
  options.catalogue.settings["fake.script"] = kScript;
  options.settings.force = ForcedChoices::Parse(force).value();
  options.force_origin = "COTUNE_FORCE_CHOICE";
  return Job::Join(options);
}

TEST_F(DispatcherForcedTest, AJobKnowsTheChoicesOfItsBackends) {
  EXPECT_TRUE(JoinWithForce(folder_, "all_reduce=fake/wanted,all_gather=fake/other"));
  const auto error = [&](const char* force) {
    const auto job = JoinWithForce(folder_, force);
    EXPECT_FALSE(job) << force;
    if (job) return std::string();
    EXPECT_EQ(job.error().code, ErrorCode::kUsage);
    EXPECT_EQ(job.error().where, "COTUNE_FORCE_CHOICE");
    EXPECT_NE(job.error().next_step, "");
    return job.error().ToText();
  };
  EXPECT_THAT(error("all_reduce=fake/wantde"), HasSubstr("did you mean fake/wanted?"));
  EXPECT_THAT(error("all_reduce=fake/other"),
              HasSubstr("backend fake lists no such choice for it at any size"));
  EXPECT_THAT(error("all_reduce=fakes/wanted"),
              AllOf(HasSubstr("backend fakes is not in use here"),
                    HasSubstr("known: fake; did you mean fake?")));
}

}  // namespace
}  // namespace cotune
