// A backend whose answers a test sets, and its handles through the table of the shell.
#ifndef COTUNE_PLUGINS_SDK_TESTING_PROBE_BACKEND_H_
#define COTUNE_PLUGINS_SDK_TESTING_PROBE_BACKEND_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/problem.h"

namespace cotune::sdk {

enum class Throws { kNothing, kStandard, kNoMemory, kInt };

// The behaviour of the backend below, and its traces.
struct ProbeState {
  Throws throws = Throws::kNothing;
  Result<void> answer;
  bool is_complete = true;
  int objects = 0;
  int aborts = 0;
  void* registered = nullptr;
  int part_launches = 0;
  int region_launches = 0;
  std::string region_choice;
  std::string part_text;
  int64_t part_deadline_ns = 0;
};
extern ProbeState probe;

// Every function of the backend ends in this: it throws, or gives the answer of the probe.
Result<void> Answer();

struct Counted {
  Counted() { ++probe.objects; }
  ~Counted() { --probe.objects; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

template <class Object>
Result<std::unique_ptr<Object>> MakeOrFail() {
  COTUNE_RETURN_IF_ERROR(Answer());
  return std::make_unique<Object>();
}

struct HostPlan : Counted {
  static Result<void> Launch(const cotune_launch_t& /*launch*/) { return Answer(); }
  static Result<bool> Progress(int64_t /*until_ns*/) {
    COTUNE_RETURN_IF_ERROR(Answer());
    return probe.is_complete;
  }
};

template <class PlanOfGroup>
struct ProbeGroup : Counted {
  using Plan = PlanOfGroup;

  static int world_size() { return 2; }
  static std::optional<Failure> Health() {
    auto answer = Answer();
    return answer ? std::nullopt : std::optional<Failure>(answer.error());
  }
  static void Abort() {
    ++probe.aborts;
    static_cast<void>(Answer());
  }
  static Result<std::unique_ptr<Plan>> Prepare(const Problem& /*problem*/,
                                               std::string_view /*choice*/,
                                               int64_t /*deadline_ns*/) {
    return MakeOrFail<Plan>();
  }
};

template <class GroupOfBackend, uint32_t kKind>
struct ProbeBackend : Counted {
  using Group = GroupOfBackend;
  using Problem = sdk::Problem;

  static constexpr char kName[] = "probe";
  static constexpr char kVersion[] = "7";
  static constexpr uint32_t kMemoryKind = kKind;
  static constexpr int kRanksMax = 4;

  static Result<std::unique_ptr<ProbeBackend>> Create(const cotune_host_t& /*host*/,
                                                      int32_t /*device*/) {
    return MakeOrFail<ProbeBackend>();
  }
  static int32_t device() { return kKind == COTUNE_MEMORY_HOST ? -1 : 3; }
  static std::string LibrariesText() requires(kKind == COTUNE_MEMORY_CUDA) { return "libwire 2.1"; }
  static Result<Problem> CheckProblem(const cotune_problem_t& problem) {
    return sdk::CheckProblem(problem, {.memory_kind = kKind, .ranks_max = kRanksMax});
  }
  static Result<std::vector<cotune_choice_t>> ListChoices(const Problem& /*problem*/) {
    COTUNE_RETURN_IF_ERROR(Answer());
    return std::vector{ChoiceEntry("good", "", 2, COTUNE_CHOICE_DEFAULT, "own.order"),
                       ChoiceEntry("bad", "not here", 1, COTUNE_CHOICE_REPRODUCIBLE, "")};
  }
  static Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& /*params*/) {
    return MakeOrFail<Group>();
  }
};

using HostBackend = ProbeBackend<ProbeGroup<HostPlan>, COTUNE_MEMORY_HOST>;

// One backend with one group and one plan, through its table.
class Handles {
 public:
  Handles(const cotune_backend_api_t& api, int32_t device);
  ~Handles() {
    api_.plan_destroy(plan_);
    api_.group_destroy(group_);
    api_.destroy(backend_);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  cotune_status_t Create() { return api_.create(&host_, params_.device, &backend_, &error_); }
  cotune_status_t Join() { return api_.group_create(backend_, &params_, &group_, &error_); }
  cotune_status_t Prepare() { return api_.prepare(group_, &problem_, "good", 0, &plan_, &error_); }
  cotune_status_t List() {
    return api_.list_choices(backend_, &problem_, choices_, sizeof(choices_[0]), 2, &count_,
                             &error_);
  }
  cotune_status_t Launch() { return api_.launch(plan_, &launch_, &error_); }
  cotune_status_t Progress() { return api_.progress(plan_, 0, &error_); }
  cotune_status_t Health() { return api_.group_health(group_, &error_); }
  void Abort() { api_.group_abort(group_); }
  void MakeAll() {
    ASSERT_EQ(Create(), COTUNE_OK) << error_.message;
    ASSERT_EQ(Join(), COTUNE_OK) << error_.message;
    ASSERT_EQ(Prepare(), COTUNE_OK) << error_.message;
  }
  std::string message() const { return error_.message; }

  static constexpr int32_t kJobRanks[] = {4, 5};
  const cotune_backend_api_t& api_;
  cotune_host_t host_{};
  cotune_error_t error_{};
  cotune_group_params_t params_{};
  cotune_problem_t problem_{};
  cotune_launch_t launch_{};
  cotune_choice_t choices_[2] = {};
  uint32_t count_ = 0;
  cotune_backend_t* backend_ = nullptr;
  cotune_group_t* group_ = nullptr;
  cotune_plan_t* plan_ = nullptr;
};

// Begins with a new probe, and ends without objects of its backend.
class ProbeTest : public ::testing::Test {
 protected:
  ProbeTest() { probe = {}; }
  ~ProbeTest() override { EXPECT_EQ(probe.objects, 0) << "objects that nobody destroyed"; }
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_TESTING_PROBE_BACKEND_H_
