#include "plugins/sdk/testing/probe_backend.h"

#include <new>
#include <stdexcept>

namespace cotune::sdk {

ProbeState probe;

Result<void> Answer() {
  switch (probe.throws) {
    case Throws::kNothing:
      break;
    case Throws::kStandard:
      throw std::runtime_error("out of luck");
    case Throws::kNoMemory:
      throw std::bad_alloc();
    case Throws::kInt:
      throw 42;
  }
  return probe.answer;
}

Handles::Handles(const cotune_backend_api_t& api, int32_t device) : api_(api) {
  host_.struct_size = sizeof(host_);
  error_.struct_size = sizeof(error_);
  params_.struct_size = sizeof(params_);
  params_.name = "g";
  params_.world_size = 2;
  params_.job_ranks = kJobRanks;
  params_.device = device;
  problem_.struct_size = sizeof(problem_);
  problem_.collective = COTUNE_ALL_REDUCE;
  problem_.reduction = COTUNE_SUM;
  problem_.memory_kind = device < 0 ? COTUNE_MEMORY_HOST : COTUNE_MEMORY_CUDA;
  problem_.dtype = {COTUNE_DTYPE_FLOAT, 32, 1};
  problem_.count = 1;
  problem_.bytes = 4;
  problem_.world_size = 2;
  problem_.ranks_per_node = 2;
  launch_.struct_size = sizeof(launch_);
  launch_.stream = {device < 0 ? COTUNE_STREAM_HOST : COTUNE_STREAM_CUDA, device, nullptr};
}

}  // namespace cotune::sdk
