// One rank's backend and group in the built plugin, over the libraries that stand in for NVIDIA's.
#ifndef COTUNE_PLUGINS_NCCL_TESTING_NCCL_RANKS_H_
#define COTUNE_PLUGINS_NCCL_TESTING_NCCL_RANKS_H_

#include <string>
#include <vector>

#include "plugins/nccl/testing/fakes.h"

namespace cotune::nccl {

class FakeRank {
 public:
  // The plugin and both libraries, which it finds in the process then.
  static FakeNcclState& LoadLibraries();

  // The backend alone.
  FakeRank(const JobForTest& job, int device) : FakeRank(job.host(), device) {}
  // The table outlives the rank.
  FakeRank(const cotune_host_t& host, int device);
  // And a group.
  FakeRank(const JobForTest& job, const std::string& group, int rank, int world_size,
           int64_t deadline_ns = Soon())
      : FakeRank(job.host(), group, rank, world_size, deadline_ns) {}
  FakeRank(const cotune_host_t& host, const std::string& group, int rank, int world_size,
           int64_t deadline_ns = Soon());
  ~FakeRank();
  FakeRank(const FakeRank&) = delete;
  FakeRank& operator=(const FakeRank&) = delete;

  // host_of_rank empty: all ranks are on one host.
  void Join(const std::string& group, int rank, int world_size, int64_t deadline_ns,
            const std::vector<int32_t>& host_of_rank = {});

  const cotune_backend_api_t& api() const { return api_; }
  cotune_group_t* group() const { return group_; }
  // The status of the latest call.
  cotune_status_t status() const { return status_; }
  const cotune_error_t& error() const { return error_; }
  std::string message() const { return error_.message; }

  std::vector<std::string> Runnable(const cotune_problem_t& problem) const;
  std::string RefusalOf(const cotune_problem_t& problem, const std::string& choice) const;

  // Null when it is refused.
  cotune_plan_t* Prepare(const cotune_problem_t& problem, const std::string& choice);
  // The fakes do not look at buffers: these are addresses only, far enough from each other.
  static const void* Send() { return reinterpret_cast<const void*>(uintptr_t{1} << 40); }
  static void* Receive() { return reinterpret_cast<void*>(uintptr_t{2} << 40); }
  static gpu::CuStream Stream() { return reinterpret_cast<gpu::CuStream>(uintptr_t{0x5000}); }
  cotune_launch_t LaunchArguments(int64_t deadline_ns = Soon()) const;
  cotune_status_t Launch(cotune_plan_t* plan, int64_t deadline_ns = Soon());
  cotune_status_t Health();
  // Prepare, launch, destroy; "" or what went wrong.
  std::string Run(const cotune_problem_t& problem, const std::string& choice);

 private:
  std::vector<cotune_choice_t> List(const cotune_problem_t& problem) const;

  const cotune_backend_api_t& api_;
  const int device_;
  cotune_backend_t* backend_ = nullptr;
  cotune_group_t* group_ = nullptr;
  cotune_status_t status_ = COTUNE_OK;
  cotune_error_t error_ = EmptyError();
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_TESTING_NCCL_RANKS_H_
