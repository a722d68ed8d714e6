// Tests how the adapter translates calls and statuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plugins/loader/testing/probe_backend.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using BackendAdapterTest = ProbeBackendTest;

TEST(HostServicesTest, ASettingOfAllBackendsIsGivenUnlessABackendHasItsOwn) {
  const MonotonicClock clock;
  const auto exchanges = sync::MakeLocalExchanges(1, clock);
  const HostServices services(*exchanges[0], clock, {{"probe.own", "3"}, {"probe.shared", "4"}},
                              nullptr, {{"shared", "on"}});
  const cotune_host_t& host = services.table();
  EXPECT_STREQ(host.setting(host.context, "other.shared"), "on");
  EXPECT_STREQ(host.setting(host.context, "probe.shared"), "4");
  EXPECT_STREQ(host.setting(host.context, "probe.own"), "3");
  EXPECT_EQ(host.setting(host.context, "other.own"), nullptr);
}

TEST_F(BackendAdapterTest, NameVersionAndProblemArriveUnchanged) {
  EXPECT_EQ(backend_->name(), "probe");
  EXPECT_EQ(backend_->version(), "2.1");
  problem_.cls.in_place = true;
  problem_.cls.buffer_class = BufferClass::kSymmetric;
  List();
  EXPECT_EQ(probe_.problem.struct_size, sizeof(cotune_problem_t));
  EXPECT_EQ(probe_.problem.collective, static_cast<uint32_t>(COTUNE_ALL_REDUCE));
  EXPECT_EQ(probe_.problem.reduction, static_cast<uint32_t>(COTUNE_MAX));
  EXPECT_EQ(probe_.problem.memory_kind, static_cast<uint32_t>(COTUNE_MEMORY_HOST));
  EXPECT_EQ(probe_.problem.dtype.code, COTUNE_DTYPE_BFLOAT);
  EXPECT_EQ(probe_.problem.dtype.bits, 16);
  EXPECT_EQ(probe_.problem.dtype.lanes, 1);
  EXPECT_EQ(probe_.problem.flags,
            static_cast<uint32_t>(COTUNE_PROBLEM_IN_PLACE | COTUNE_PROBLEM_SYMMETRIC));
  EXPECT_EQ(probe_.problem.count, 6u);
  EXPECT_EQ(probe_.problem.bytes, 12u);
  EXPECT_EQ(probe_.problem.world_size, 4);
  EXPECT_EQ(probe_.problem.ranks_per_node, 2);
  EXPECT_EQ(probe_.problem.root, 0);
  EXPECT_EQ(probe_.problem.topology_digest, 0xABCDu);
}

TEST_F(BackendAdapterTest, EveryDtypeIsSpelledAsInDlpack) {
  const std::map<Dtype, std::pair<int, int>> spelled = {
      {Dtype::kF32, {COTUNE_DTYPE_FLOAT, 32}}, {Dtype::kF64, {COTUNE_DTYPE_FLOAT, 64}},
      {Dtype::kF16, {COTUNE_DTYPE_FLOAT, 16}}, {Dtype::kBf16, {COTUNE_DTYPE_BFLOAT, 16}},
      {Dtype::kI32, {COTUNE_DTYPE_INT, 32}},   {Dtype::kI64, {COTUNE_DTYPE_INT, 64}},
      {Dtype::kU8, {COTUNE_DTYPE_UINT, 8}},
  };
  for (Dtype dtype : AllDtypes()) {
    problem_.cls.dtype = dtype;
    List();
    EXPECT_EQ(probe_.problem.dtype.code, spelled.at(dtype).first) << Name(dtype);
    EXPECT_EQ(probe_.problem.dtype.bits, spelled.at(dtype).second) << Name(dtype);
  }
}

TEST_F(BackendAdapterTest, TheHostShowsABackendItsOwnSettingsOnly) {
  const cotune_host_t& host = *probe_.host;
  EXPECT_STREQ(host.setting(host.context, "depth"), "3");
  EXPECT_EQ(host.setting(host.context, "probe.depth"), nullptr);
  EXPECT_EQ(host.setting(host.context, nullptr), nullptr);
  host.log(host.context, 2, "it is warm");
  EXPECT_THAT(log_, ElementsAre("probe: it is warm"));
  EXPECT_EQ(host.store_put(host.context, "k", "abc", 3), COTUNE_OK);
  char value[4] = {};
  uint64_t size = 0;
  EXPECT_EQ(host.store_get(host.context, "k", value, 2, &size, clock_.now_ns()),
            COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(size, 3u);
  EXPECT_EQ(host.store_get(host.context, "k", value, 3, &size, clock_.now_ns()), COTUNE_OK);
  EXPECT_STREQ(value, "abc");
  EXPECT_EQ(host.store_delete(host.context, "k"), COTUNE_OK);
  EXPECT_EQ(host.store_get(host.context, "k", value, 3, &size, clock_.now_ns()),
            COTUNE_DEADLINE_EXCEEDED);
  EXPECT_EQ(host.store_put(host.context, nullptr, "abc", 3), COTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(host.store_put(host.context, std::string(256, 'k').c_str(), "abc", 3),
            COTUNE_INVALID_ARGUMENT);
}

TEST_F(BackendAdapterTest, APlanIsCapturableWhereItsChoiceIs) {
  probe_.choices = {Entry("a", COTUNE_CHOICE_CAPTURABLE), Entry("b", 0)};
  const auto group = Group();
  const Program program = Program::SingleCollective(problem_.cls).value();
  for (const Choice& choice : List().choices) {
    const auto plan = group->Prepare(program, problem_, choice, 5);
    ASSERT_TRUE(plan) << plan.error().ToText();
    EXPECT_EQ((*plan)->is_capturable(), choice.id.choice_name() == "a");
  }
}

// The text, without a NUL where it fills the field.
TEST_F(BackendAdapterTest, ProgramsOfMoreThanOneCollectiveAreRefused) {
  const ProblemClass& cls = problem_.cls;
  const Program program = Program::Bind(ProgramGraph::Parse("%x = input f32 [R, 1]\n"
                                                            "%y = all_reduce sum %x\n"
                                                            "%z = all_reduce sum %y\n"
                                                            "return %z\n")
                                            .value(),
                                        {cls.memory, cls.world_size, cls.ranks_per_node})
                              .value();
  const ChoiceList list = backend_->ListChoices(program, problem_);
  EXPECT_THAT(list.choices, IsEmpty());
  EXPECT_THAT(list.refusals.at(0).reason, HasSubstr("fusion extension not offered"));
  const auto group = Group();
  const auto plan =
      group->Prepare(program, problem_, Choice{.id = ChoiceId::Parse("probe/a").value()}, 5);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
}

TEST_F(BackendAdapterTest, StatusesBecomeErrorsThatNameJobRanks) {
  const auto group = Group();
  EXPECT_THAT(probe_.job_ranks, ElementsAre(7, 5, 9));
  EXPECT_THAT(probe_.host_of_rank, ElementsAre(0, 1, 0));
  const auto plan = Prepare(*group).value();
  const std::map<cotune_status_t, ErrorCode> codes = {
      {COTUNE_INVALID_ARGUMENT, ErrorCode::kUsage},
      {COTUNE_UNSUPPORTED, ErrorCode::kUnsupported},
      {COTUNE_OUT_OF_RESOURCES, ErrorCode::kEnvironment},
      {COTUNE_DEADLINE_EXCEEDED, ErrorCode::kDeadline},
      {COTUNE_ABORTED, ErrorCode::kAborted},
      {COTUNE_PEER_FAILED, ErrorCode::kRankLost},
      {COTUNE_INTERNAL, ErrorCode::kInternal},
      {-99, ErrorCode::kInternal},
  };
  for (const auto& [status, code] : codes) {
    probe_.status = status;
    probe_.failed_rank = 2;
    probe_.message = "because";
    for (const Error& error : {group->Health().error(), plan->Launch({}).error(),
                               plan->Progress(0).error(), Prepare(*group).error()}) {
      EXPECT_EQ(error.code, code) << status;
      EXPECT_EQ(error.what, "because");
      EXPECT_EQ(error.where, "backend probe");
      EXPECT_THAT(error.ranks, ElementsAre(9)) << status;
    }
    probe_.failed_rank = 3;  // no rank of the group
    EXPECT_THAT(plan->Launch({}).error().ranks, IsEmpty());
    probe_.message = "";
    EXPECT_EQ(plan->Launch({}).error().what, "launch failed without a message");
  }
  probe_.status = COTUNE_IN_PROGRESS;
  EXPECT_FALSE(plan->Progress(0).value());
  probe_.status = COTUNE_OK;
  EXPECT_TRUE(plan->Progress(0).value());
  group->Abort();
  EXPECT_EQ(group->Health().error().code, ErrorCode::kAborted);
}
TEST_F(BackendAdapterTest, LaunchHandsOverBuffersStreamAndDeadline) {
  const auto group = Group();
  const auto plan = Prepare(*group).value();
  char send = 0;
  char recv = 0;
  ASSERT_TRUE(plan->Launch({&send, &recv, nullptr, 77}).has_value());
  EXPECT_EQ(probe_.launch.struct_size, sizeof(cotune_launch_t));
  EXPECT_EQ(probe_.launch.send, &send);
  EXPECT_EQ(probe_.launch.recv, &recv);
  EXPECT_EQ(probe_.launch.stream.kind, static_cast<uint32_t>(COTUNE_STREAM_HOST));
  EXPECT_EQ(probe_.launch.stream.device, -1);
  EXPECT_EQ(probe_.launch.deadline_ns, 77);
}

}  // namespace
}  // namespace cotune
