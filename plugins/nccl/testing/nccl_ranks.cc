#include "plugins/nccl/testing/nccl_ranks.h"

#include <stdlib.h>

#include <mutex>
#include <numeric>

namespace cotune::nccl {
FakeNcclState& FakeRank::LoadLibraries() {
  // The environment of whoever runs the tests may name another copy.
  unsetenv("COTUNE_NCCL_LIBRARY");
  LoadFakeCuda();
  // By one thread, as a program does: ThreadSanitizer does not see the lock of the dynamic linker.
  LoadPlugin();
  return LoadFakeNccl();
}

FakeRank::FakeRank(const cotune_host_t& host, int device) : api_(LoadPlugin()), device_(device) {
  // [setup]: one thread at a time.
  static std::mutex setup;
  const std::lock_guard lock(setup);
  status_ = api_.create(&host, device, &backend_, &error_);
}

FakeRank::FakeRank(const cotune_host_t& host, const std::string& group, int rank, int world_size,
                   int64_t deadline_ns)
    : FakeRank(host, rank) {
  if (status_ == COTUNE_OK) Join(group, rank, world_size, deadline_ns);
}

FakeRank::~FakeRank() {
  api_.group_destroy(group_);
  api_.destroy(backend_);
}

void FakeRank::Join(const std::string& group, int rank, int world_size, int64_t deadline_ns,
                    const std::vector<int32_t>& host_of_rank) {
  std::vector<int32_t> job_ranks(static_cast<size_t>(world_size));
  std::iota(job_ranks.begin(), job_ranks.end(), 0);
  cotune_group_params_t params{};
  params.struct_size = sizeof(params);
  params.name = group.c_str();
  params.rank = rank;
  params.world_size = world_size;
  params.job_ranks = job_ranks.data();
  params.device = device_;
  params.deadline_ns = deadline_ns;
  if (!host_of_rank.empty()) params.host_of_rank = host_of_rank.data();
  status_ = api_.group_create(backend_, &params, &group_, &error_);
}

std::vector<cotune_choice_t> FakeRank::List(const cotune_problem_t& problem) const {
  std::vector<cotune_choice_t> choices(64);
  uint32_t count = 0;
  const cotune_status_t listed =
      api_.list_choices(backend_, &problem, choices.data(), sizeof(cotune_choice_t),
                        static_cast<uint32_t>(choices.size()), &count, nullptr);
  choices.resize(listed == COTUNE_OK ? count : 0);
  return choices;
}

std::vector<std::string> FakeRank::Runnable(const cotune_problem_t& problem) const {
  std::vector<std::string> names;
  for (const cotune_choice_t& choice : List(problem)) {
    if (choice.status == COTUNE_OK) names.emplace_back(choice.name);
  }
  return names;
}

std::string FakeRank::RefusalOf(const cotune_problem_t& problem, const std::string& name) const {
  for (const cotune_choice_t& choice : List(problem)) {
    if (choice.name == name) return choice.status == COTUNE_OK ? "runs" : choice.reason;
  }
  return "not listed";
}

cotune_plan_t* FakeRank::Prepare(const cotune_problem_t& problem, const std::string& choice) {
  cotune_plan_t* plan = nullptr;
  status_ = api_.prepare(group_, &problem, choice.c_str(), Soon(), &plan, &error_);
  return plan;
}

cotune_launch_t FakeRank::LaunchArguments(int64_t deadline_ns) const {
  cotune_launch_t launch{};
  launch.struct_size = sizeof(launch);
  launch.send = Send();
  launch.recv = Receive();
  launch.stream = {COTUNE_STREAM_CUDA, device_, Stream()};
  launch.deadline_ns = deadline_ns;
  return launch;
}

cotune_status_t FakeRank::Launch(cotune_plan_t* plan, int64_t deadline_ns) {
  const cotune_launch_t launch = LaunchArguments(deadline_ns);
  status_ = api_.launch(plan, &launch, &error_);
  return status_;
}

cotune_status_t FakeRank::Health() {
  status_ = api_.group_health(group_, &error_);
  return status_;
}

std::string FakeRank::Run(const cotune_problem_t& problem, const std::string& choice) {
  cotune_plan_t* plan = Prepare(problem, choice);
  if (plan == nullptr) return "prepare: " + message();
  const cotune_status_t launched = Launch(plan);
  api_.plan_destroy(plan);
  return launched == COTUNE_OK ? "" : "launch: " + message();
}

}  // namespace cotune::nccl
