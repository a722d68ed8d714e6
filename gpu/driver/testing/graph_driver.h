// A library that stands in for libcuda.so.1 and knows which memory is there and which graphs live.
#ifndef COTUNE_GPU_DRIVER_TESTING_GRAPH_DRIVER_H_
#define COTUNE_GPU_DRIVER_TESTING_GRAPH_DRIVER_H_

#include <cstddef>
#include <map>

#include "gpu/driver/cuda_types.h"

namespace cotune::gpu {

// One thread. The memory has addresses and no content; freed addresses are given out again first,
// as those of a driver are.
struct GraphDriverState {
  std::map<CuDevicePointer, size_t> reserved;  // address ranges by address
  std::map<CuDevicePointer, size_t> mapped;
  std::map<CuDevicePointer, size_t> allocated;  // sizes by address
  CuGraph capture = nullptr;                    // one for all streams; nullptr: none
  unsigned long long captures = 0;              // so far
  int user_objects = 0;                         // that live
  bool refuses_user_objects = false;
};

}  // namespace cotune::gpu

extern "C" __attribute__((visibility("default"))) cotune::gpu::GraphDriverState*
graph_driver_state();

#endif  // COTUNE_GPU_DRIVER_TESTING_GRAPH_DRIVER_H_
