// Regions of programs cross the ABI as the header states it, lists and plans that break the rules
// become refusals and errors, and the extension destroys each plan once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/problem/program.h"
#include "plugins/loader/testing/probe_backend.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Behaviour of the extension beside the answers of the probe backend, and its last arguments.
struct State {
  std::string text;  // the last region that was listed or prepared
  uint64_t digest = 0;
  uint64_t rows = 0;
  uint64_t topology_digest = 0;
  uint32_t flags = 0;
  int32_t world_size = 0;
  int32_t ranks_per_node = 0;
  uint32_t node_count = 0;
  int32_t into = -1;  // the input that output 0 overwrites
  std::string choice;
  bool gives_no_plan = false;
  bool throws = false;
  cotune_status_t progress = COTUNE_OK;
  int launches = 0;
  int destroyed = 0;
  const void* input = nullptr;
  void* output = nullptr;
  int64_t deadline_ns = 0;
};
State state;

void Keep(const cotune_program_t& region) {
  state.text = region.text;
  state.digest = region.digest;
  state.rows = region.values->rows;
  state.topology_digest = region.topology_digest;
  state.flags = region.flags;
  state.world_size = region.world_size;
  state.ranks_per_node = region.ranks_per_node;
  state.node_count = region.node_count;
  state.into = region.output_into[0];
}

cotune_backend_t& Of(cotune_program_plan_t* plan) {
  return *reinterpret_cast<cotune_backend_t*>(plan);
}

constexpr cotune_program_v1_t kPrograms = {
    .struct_size = sizeof(cotune_program_v1_t),
    .flags = 0,
    .list_choices =
        [](const cotune_backend_t* backend, const cotune_program_t* region, cotune_choice_t* first,
           uint32_t stride, uint32_t capacity, uint32_t* count, cotune_error_t* error) {
          if (state.throws) throw std::runtime_error("it threw");
          Keep(*region);
          if (backend->status != COTUNE_OK) return Answer(*backend, error);
          *count = static_cast<uint32_t>(backend->choices.size());
          for (uint32_t i = 0; i < std::min(capacity, *count); ++i) {
            std::memcpy(reinterpret_cast<char*>(first) + i * stride, &backend->choices[i],
                        sizeof(cotune_choice_t));
          }
          return cotune_status_t{COTUNE_OK};
        },
    .prepare =
        [](cotune_group_t* group, const cotune_program_t* region, const char* choice_name, int64_t,
           cotune_program_plan_t** plan, cotune_error_t* error) {
          if (state.throws) throw std::runtime_error("it threw");
          Keep(*region);
          state.choice = choice_name;
          if (!state.gives_no_plan) *plan = reinterpret_cast<cotune_program_plan_t*>(group);
          return Answer(cotune::Of(group), error);
        },
    .part_prepare = nullptr,
    .launch =
        [](cotune_program_plan_t* plan, const cotune_program_launch_t* launch,
           cotune_error_t* error) {
          if (state.throws) throw 7;
          ++state.launches;
          state.input = launch->inputs[0];
          state.output = launch->outputs[0];
          state.deadline_ns = launch->deadline_ns;
          return Answer(Of(plan), error);
        },
    .progress =
        [](cotune_program_plan_t* plan, int64_t, cotune_error_t* error) {
          if (Of(plan).status != COTUNE_OK) return Answer(Of(plan), error);
          return state.progress;
        },
    .plan_destroy = [](cotune_program_plan_t*) { ++state.destroyed; },
};

class RegionAdapterTest : public ProbeBackendTest {
 protected:
  RegionAdapterTest() {
    state = {};
    probe_.program = &kPrograms;
    Adopt();
  }
  void Adopt() { backend_ = AdoptBackend(&table_, services_.table(), -1, "test").value(); }

  ChoiceList ListRegion() const { return backend_->ListChoices(region_, Anchor()); }
  Problem Anchor() const { return region_.ProblemAtRows(6, 0xABCD); }
  Result<std::unique_ptr<Plan>> PrepareRegion(BackendGroup& group) const {
    return group.Prepare(region_, Anchor(), Choice{.id = ChoiceId::Parse("probe/a").value()}, 5);
  }
  Status Launch(Plan& plan) {
    const void* const inputs[] = {&x_, &x_};
    void* const outputs[] = {&y_};
    LaunchArguments arguments;
    arguments.inputs = inputs;
    arguments.outputs = outputs;
    arguments.deadline_ns = 55;
    return plan.Launch(arguments);
  }

  // rms_norm is a compound, so that lowering shows.
  const ProgramGraph graph_ = ProgramGraph::Parse(
                                  "%x = input f32 [R, 8]\n%g = input f32 [1, 8] replicated\n"
                                  "%s = all_reduce sum %x\n%y = rms_norm %s, %g, eps=0.5\n"
                                  "return %y\n")
                                  .value();
  const Program region_ = Program::Bind(graph_, {MemoryKind::kHost, 4, 2}).value();
  float x_ = 3;
  float y_ = 0;
};

TEST_F(RegionAdapterTest, IsListedAtItsSizeWithPrimitiveOperations) {
  probe_.choices = {Entry("a", COTUNE_CHOICE_DEFAULT), Entry("b")};
  const ChoiceList list = ListRegion();
  ASSERT_THAT(list.choices, SizeIs(2));
  EXPECT_EQ(list.choices[0].id.text(), "probe/a");
  EXPECT_THAT(list.refusals, IsEmpty());
  const ProgramGraph lowered = graph_.Lower();
  EXPECT_EQ(state.text, lowered.ToText());
  EXPECT_EQ(state.digest, lowered.digest());
  EXPECT_EQ(state.node_count, lowered.nodes().size());
  EXPECT_GT(state.node_count, graph_.nodes().size());
  EXPECT_EQ(state.rows, 6u);
  EXPECT_EQ(state.world_size, 4);
  EXPECT_EQ(state.ranks_per_node, 2);
  EXPECT_EQ(state.topology_digest, 0xABCDu);
  EXPECT_EQ(state.flags, 0u);
  EXPECT_EQ(probe_.list_calls, 0u) << "the function of the table was asked";
}

// The plugin is asked about the region with what it overwrites, and gets one address for both.
TEST_F(RegionAdapterTest, OverItsOperandNamesTheInput) {
  probe_.choices = {Entry("a")};
  const Program over =
      Program::Bind(ProgramGraph::Parse("%z = input f32 [R, 8]\n%x = input f32 [R, 8]\n"
                                        "%s = all_reduce sum %x\n%y = add %s, %z\n"
                                        "return %y into %x\n")
                        .value(),
                    {MemoryKind::kHost, 4, 2})
          .value();
  const Problem problem = over.ProblemAtRows(6, 0);
  ASSERT_THAT(backend_->ListChoices(over, problem).choices, SizeIs(1));
  EXPECT_EQ(state.into, 1);
  state.into = -1;
  const auto group = Group();
  const auto plan =
      group->Prepare(over, problem, Choice{.id = ChoiceId::Parse("probe/a").value()}, 5);
  ASSERT_TRUE(plan.has_value()) << plan.error().ToText();
  EXPECT_EQ(state.into, 1);
  EXPECT_TRUE(ListRegion().choices.size() == 1 && state.into == -1) << "it overwrites nothing";
}

TEST_F(RegionAdapterTest, OfRegisteredOperandsSaysSo) {
  const Program symmetric =
      Program::Bind(graph_, {MemoryKind::kHost, 4, 2, BufferClass::kSymmetric}).value();
  backend_->ListChoices(symmetric, symmetric.ProblemAtRows(6, 0));
  EXPECT_EQ(state.flags, uint32_t{COTUNE_PROGRAM_SYMMETRIC});
}

TEST_F(RegionAdapterTest, IsListedAndPreparedWithEveryValueRoundedIfTheProgramSaysSo) {
  const Program rounded =
      Program::Bind(graph_, {MemoryKind::kHost, 4, 2, BufferClass::kPlain, true}).value();
  probe_.choices = {Entry("a", COTUNE_CHOICE_DEFAULT)};
  EXPECT_THAT(backend_->ListChoices(rounded, rounded.ProblemAtRows(6, 0)).choices, SizeIs(1));
  EXPECT_EQ(state.flags, uint32_t{COTUNE_PROGRAM_ROUNDS_VALUES});
  state.flags = 0;
  const Choice choice{.id = ChoiceId::Parse("probe/a").value()};
  const auto group = Group();
  ASSERT_TRUE(group->Prepare(rounded, rounded.ProblemAtRows(6, 0), choice, 5).has_value());
  EXPECT_EQ(state.flags, uint32_t{COTUNE_PROGRAM_ROUNDS_VALUES});
}

TEST_F(RegionAdapterTest, EntriesThatBreakTheRulesAreRefusedAlone) {
  cotune_choice_t refused = Entry("c");
  refused.status = COTUNE_UNSUPPORTED;
  std::strcpy(refused.reason, "too many rows");
  probe_.choices = {Entry("a"),       Entry("a"),        refused,
                    Entry("No Name"), Entry("d?fuse=1"), Entry("e", 1u << 31)};
  const ChoiceList list = ListRegion();
  ASSERT_THAT(list.choices, SizeIs(1));
  EXPECT_TRUE(list.choices[0].is_default);
  ASSERT_THAT(list.refusals, SizeIs(5));
  EXPECT_EQ(list.refusals[0].reason, "its plugin lists this name twice");
  EXPECT_EQ(list.refusals[1].choice, "probe/c");
  EXPECT_EQ(list.refusals[1].reason, "too many rows");
  EXPECT_THAT(list.refusals[2].reason, HasSubstr("without a proper name"));
  EXPECT_THAT(list.refusals[3].reason, HasSubstr("without a proper name"));
  EXPECT_THAT(list.refusals[4].reason, HasSubstr("which this cotune does not know"));
}

TEST_F(RegionAdapterTest, AWholeRegionIsRefusedWithTheReason) {
  const auto reason = [&] {
    const ChoiceList list = ListRegion();
    EXPECT_THAT(list.choices, IsEmpty());
    EXPECT_THAT(list.refusals, SizeIs(1));
    EXPECT_EQ(list.refusals.at(0).choice, "probe");
    return list.refusals.at(0).reason;
  };
  probe_.status = COTUNE_UNSUPPORTED;
  probe_.message = "no rms_norm here";
  EXPECT_EQ(reason(), "no rms_norm here");
  probe_.message = "";
  EXPECT_THAT(reason(), HasSubstr("without a reason"));
  state.throws = true;
  EXPECT_THAT(reason(), HasSubstr("list_choices threw an exception: it threw"));
}

TEST_F(RegionAdapterTest, WithoutTheFunctionsThereIsNoFusion) {
  cotune_program_v1_t none = kPrograms;
  none.list_choices = nullptr;
  none.prepare = nullptr;
  for (const cotune_program_v1_t* program : {&none, static_cast<cotune_program_v1_t*>(nullptr)}) {
    probe_.program = program;
    Adopt();
    const ChoiceList list = ListRegion();
    ASSERT_THAT(list.refusals, SizeIs(1));
    EXPECT_THAT(list.refusals[0].reason, HasSubstr("fusion extension not offered"));
    const auto plan = PrepareRegion(*Group());
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  }
}

TEST_F(RegionAdapterTest, IsPreparedLaunchedAndDestroyedOnce) {
  const auto group = Group();
  {
    const auto plan = PrepareRegion(*group);
    ASSERT_TRUE(plan) << plan.error().ToText();
    EXPECT_EQ(state.choice, "a");
    EXPECT_EQ(state.text, graph_.Lower().ToText());
    ASSERT_TRUE(Launch(**plan));
    EXPECT_EQ(state.input, &x_);
    EXPECT_EQ(state.output, &y_);
    EXPECT_EQ(state.deadline_ns, 55);
    state.progress = COTUNE_IN_PROGRESS;
    EXPECT_FALSE(*(*plan)->Progress(0));
    state.progress = COTUNE_OK;
    EXPECT_TRUE(*(*plan)->Progress(0));
    EXPECT_EQ(state.destroyed, 0);
  }
  EXPECT_EQ(state.destroyed, 1);
}

TEST_F(RegionAdapterTest, SharesItsGroupWithThePlansOfCollectives) {
  const auto group = Group();
  const auto region = PrepareRegion(*group).value();
  const auto sum = Prepare(*group).value();
  EXPECT_FALSE(region->IsAborted());
  group->Abort();
  EXPECT_TRUE(region->IsAborted());
  EXPECT_TRUE(sum->IsAborted());
  EXPECT_EQ(Launch(*region).error().code, ErrorCode::kAborted);
}

TEST_F(RegionAdapterTest, AFailureNamesTheJobRank) {
  const auto group = Group();
  const auto plan = PrepareRegion(*group).value();
  probe_.status = COTUNE_PEER_FAILED;
  probe_.failed_rank = 2;
  probe_.message = "rank 2 did not come";
  const Status launched = Launch(*plan);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().code, ErrorCode::kRankLost);
  EXPECT_THAT(launched.error().ranks, ElementsAre(9));
  const auto progressed = plan->Progress(0);
  ASSERT_FALSE(progressed);
  EXPECT_THAT(progressed.error().ranks, ElementsAre(9));
  const auto prepared = PrepareRegion(*group);
  ASSERT_FALSE(prepared);
  EXPECT_THAT(prepared.error().ranks, ElementsAre(9));
}

TEST_F(RegionAdapterTest, APluginThatBreaksItsContractBecomesAnError) {
  const auto group = Group();
  state.gives_no_plan = true;
  const auto none = PrepareRegion(*group);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInternal);
  state.gives_no_plan = false;
  const auto plan = PrepareRegion(*group).value();
  state.throws = true;
  const auto prepared = PrepareRegion(*group);
  ASSERT_FALSE(prepared);
  EXPECT_THAT(prepared.error().ToText(), HasSubstr("prepare threw an exception"));
  const Status launched = Launch(*plan);
  ASSERT_FALSE(launched);
  EXPECT_THAT(launched.error().ToText(), HasSubstr("launch threw an exception"));
  EXPECT_THAT(launched.error().ToText(), HasSubstr(kBuffersStayInUse));
  EXPECT_THAT(launched.error().ToText(), HasSubstr("a region of a program"));
}

}  // namespace
}  // namespace cotune
