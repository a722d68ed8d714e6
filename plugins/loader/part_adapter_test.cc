// Parts of programs across the ABI: an extension that cannot be used, plans that fail, and that
// each plan is destroyed once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/problem/program_graph.h"
#include "plugins/api/cotune_program_v1.h"
#include "plugins/loader/backend_adapter.h"
#include "plugins/loader/host_services.h"
#include "sync/exchange/local_exchange.h"

// What the plugin does, and what it was asked. The table has no context.
struct cotune_backend_t {
  cotune_status_t prepare_status = COTUNE_OK;
  cotune_status_t launch_status = COTUNE_OK;
  cotune_status_t progress_status = COTUNE_OK;
  bool gives_no_plan = false;
  bool throws_in_prepare = false;
  bool throws_in_launch = false;
  const cotune_program_v1_t* extension = nullptr;
  std::string text;  // of the part
  uint64_t rows = 0;
  uint32_t flags = 0;
  int plans = 0;
  int destroyed = 0;
};

namespace cotune {
namespace {

using ::testing::HasSubstr;

cotune_backend_t* probe = nullptr;

cotune_status_t Say(cotune_status_t status, cotune_error_t* error) {
  if (status != COTUNE_OK) std::strcpy(error->message, "probe says no");
  return status;
}

constexpr cotune_program_v1_t kParts = {
    .struct_size = sizeof(cotune_program_v1_t),
    .flags = 0,
    .list_choices = nullptr,
    .prepare = nullptr,
    .part_prepare =
        [](cotune_backend_t* backend, const cotune_program_t* program, int64_t,
           cotune_program_plan_t** plan, cotune_error_t* error) {
          if (backend->throws_in_prepare) throw std::runtime_error("it threw");
          backend->text = program->text;
          backend->rows = program->values->rows;
          backend->flags = program->flags;
          if (backend->prepare_status != COTUNE_OK) return Say(backend->prepare_status, error);
          if (backend->gives_no_plan) return cotune_status_t{COTUNE_OK};
          ++backend->plans;
          *plan = reinterpret_cast<cotune_program_plan_t*>(backend);
          return cotune_status_t{COTUNE_OK};
        },
    .launch =
        [](cotune_program_plan_t*, const cotune_program_launch_t* launch, cotune_error_t* error) {
          if (probe->throws_in_launch) throw 7;
          if (probe->launch_status != COTUNE_OK) return Say(probe->launch_status, error);
          std::memcpy(launch->outputs[0], launch->inputs[0], sizeof(float));
          return cotune_status_t{COTUNE_OK};
        },
    .progress = [](cotune_program_plan_t*, int64_t,
                   cotune_error_t* error) { return Say(probe->progress_status, error); },
    .plan_destroy = [](cotune_program_plan_t*) { ++probe->destroyed; },
};

constexpr cotune_backend_api_t kTable = {
    .struct_size = sizeof(cotune_backend_api_t),
    .abi_minor = COTUNE_ABI_MINOR,
    .build_flags = 0,
    .memory_kinds = 1u << COTUNE_MEMORY_HOST,
    .name = "probe",
    .version = "1",
    .create =
        [](const cotune_host_t*, int32_t, cotune_backend_t** backend, cotune_error_t*) {
          *backend = probe;
          return cotune_status_t{COTUNE_OK};
        },
    .destroy = [](cotune_backend_t*) {},
    .get_extension = [](const cotune_backend_t* backend, const char* id) -> const void* {
      return std::string_view(id) == COTUNE_PROGRAM_EXTENSION ? backend->extension : nullptr;
    },
    .list_choices = [](const cotune_backend_t*, const cotune_problem_t*, cotune_choice_t*, uint32_t,
                       uint32_t, uint32_t*,
                       cotune_error_t*) -> cotune_status_t { return COTUNE_UNSUPPORTED; },
    .group_create = [](cotune_backend_t*, const cotune_group_params_t*, cotune_group_t**,
                       cotune_error_t*) -> cotune_status_t { return COTUNE_UNSUPPORTED; },
    .group_health = [](cotune_group_t*, cotune_error_t*) -> cotune_status_t { return COTUNE_OK; },
    .group_abort = [](cotune_group_t*) {},
    .group_destroy = [](cotune_group_t*) {},
    .prepare = [](cotune_group_t*, const cotune_problem_t*, const char*, int64_t, cotune_plan_t**,
                  cotune_error_t*) -> cotune_status_t { return COTUNE_UNSUPPORTED; },
    .launch = [](cotune_plan_t*, const cotune_launch_t*, cotune_error_t*) -> cotune_status_t {
      return COTUNE_UNSUPPORTED;
    },
    .progress = [](cotune_plan_t*, int64_t, cotune_error_t*) -> cotune_status_t {
      return COTUNE_INTERNAL;
    },
    .plan_destroy = [](cotune_plan_t*) {},
};

class PartAdapterTest : public ::testing::Test {
 protected:
  PartAdapterTest() {
    table_.build_flags = OwnBuildFlags();
    backend_state_.extension = &kParts;
    probe = &backend_state_;
  }
  ~PartAdapterTest() override { probe = nullptr; }

  Result<std::unique_ptr<Backend>> Adopt() const {
    return AdoptBackend(&table_, services_.table(), -1, "test");
  }
  // Of one element and a row.
  Result<std::unique_ptr<Plan>> Prepare(Backend& backend) const {
    return backend.PreparePart({.part = part_, .rows = 5, .rounds_values = true}, INT64_MAX);
  }
  Status Launch(Plan& plan) {
    const void* const inputs[] = {&x_};
    void* const outputs[] = {&y_};
    LaunchArguments arguments;
    arguments.inputs = inputs;
    arguments.outputs = outputs;
    arguments.deadline_ns = INT64_MAX;
    return plan.Run(arguments, clock_);
  }

  const ProgramGraph part_ = ProgramGraph::Parse(
                                 "%x = input f32 [R, 1]\n%s = all_reduce sum %x\n%y = neg %s\n"
                                 "return %y\n")
                                 .value()
                                 .Region({1}, {{.value = 2}});
  cotune_backend_api_t table_ = kTable;
  cotune_backend_t backend_state_;
  const MonotonicClock clock_;
  std::vector<std::unique_ptr<RankExchange>> exchanges_ = sync::MakeLocalExchanges(1, clock_);
  const HostServices services_{*exchanges_[0], clock_, {}, nullptr};
  float x_ = 3;
  float y_ = 0;
};

TEST_F(PartAdapterTest, APartIsPreparedLaunchedAndDestroyedOnce) {
  {
    auto backend = Adopt().value();
    EXPECT_TRUE(backend->has_parts());
    auto plan = Prepare(*backend);
    ASSERT_TRUE(plan) << plan.error().ToText();
    EXPECT_EQ(backend_state_.text, part_.ToText());
    EXPECT_EQ(backend_state_.rows, 5u);
    EXPECT_EQ(backend_state_.flags, uint32_t{COTUNE_PROGRAM_ROUNDS_VALUES});
    for (int i = 0; i < 3; ++i) {
      y_ = 0;
      ASSERT_TRUE(Launch(**plan));
      EXPECT_EQ(y_, 3);
    }
    EXPECT_EQ(backend_state_.destroyed, 0);
  }
  EXPECT_EQ(backend_state_.plans, 1);
  EXPECT_EQ(backend_state_.destroyed, 1);
}

TEST_F(PartAdapterTest, WithoutTheExtensionThereAreNone) {
  for (const bool has_extension : {false, true}) {
    cotune_program_v1_t without_parts = kParts;
    without_parts.part_prepare = nullptr;
    backend_state_.extension = has_extension ? &without_parts : nullptr;
    const auto backend = Adopt().value();
    EXPECT_FALSE(backend->has_parts());
    const auto plan = Prepare(*backend);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  }
}

TEST_F(PartAdapterTest, AnExtensionThatBreaksItsContractIsRefused) {
  const auto refusal = [&](const cotune_program_v1_t& extension) {
    backend_state_.extension = &extension;
    const auto adopted = Adopt();
    return adopted ? "adopted" : adopted.error().ToText();
  };
  cotune_program_v1_t extension = kParts;
  extension.struct_size = 16;
  EXPECT_THAT(refusal(extension), HasSubstr("struct_size is too small"));
  extension = kParts;
  extension.launch = nullptr;
  EXPECT_THAT(refusal(extension), HasSubstr("launch is NULL"));
  extension = kParts;
  extension.progress = nullptr;
  EXPECT_THAT(refusal(extension), HasSubstr("progress is NULL"));
  extension = kParts;
  extension.plan_destroy = nullptr;
  EXPECT_THAT(refusal(extension), HasSubstr("plan_destroy is NULL"));
  extension = kParts;
  extension.prepare = [](cotune_group_t*, const cotune_program_t*, const char*, int64_t,
                         cotune_program_plan_t**,
                         cotune_error_t*) -> cotune_status_t { return COTUNE_UNSUPPORTED; };
  EXPECT_THAT(refusal(extension), HasSubstr("one of list_choices and prepare is NULL"));
  EXPECT_EQ(refusal(kParts), "adopted");
}

TEST_F(PartAdapterTest, APartThatCannotBePreparedGivesTheReason) {
  const auto backend = Adopt().value();
  const auto failure = [&] {
    const auto plan = Prepare(*backend);
    EXPECT_FALSE(plan);
    return plan ? Error{} : plan.error();
  };
  backend_state_.prepare_status = COTUNE_UNSUPPORTED;
  EXPECT_EQ(failure().code, ErrorCode::kUnsupported);
  EXPECT_THAT(failure().ToText(), HasSubstr("probe says no"));
  backend_state_.prepare_status = COTUNE_OUT_OF_RESOURCES;
  EXPECT_NE(failure().code, ErrorCode::kUnsupported);
  backend_state_.prepare_status = COTUNE_OK;
  backend_state_.gives_no_plan = true;
  EXPECT_EQ(failure().code, ErrorCode::kInternal);
  backend_state_.throws_in_prepare = true;
  EXPECT_THAT(failure().ToText(), HasSubstr("part_prepare"));
  EXPECT_EQ(backend_state_.destroyed, 0);
}

TEST_F(PartAdapterTest, ALaunchThatFailsIsAnErrorAndThePlanIsDestroyedAllTheSame) {
  const auto backend = Adopt().value();
  {
    const auto plan = Prepare(*backend).value();
    backend_state_.launch_status = COTUNE_INTERNAL;
    const Status failed = Launch(*plan);
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().ToText(), HasSubstr("probe says no"));
    backend_state_.launch_status = COTUNE_OK;
    backend_state_.progress_status = COTUNE_INTERNAL;
    EXPECT_FALSE(Launch(*plan));
    backend_state_.progress_status = COTUNE_OK;
    backend_state_.throws_in_launch = true;
    EXPECT_FALSE(Launch(*plan));
  }
  EXPECT_EQ(backend_state_.destroyed, 1);
}

}  // namespace
}  // namespace cotune
