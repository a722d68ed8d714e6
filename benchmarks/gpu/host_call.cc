// Measures what one call costs the host: cotune_all_reduce of 1 KiB against the bare launch of an
// empty kernel.
//
//   host_call DATABASE PLUGIN_FOLDERS, one process for each GPU, as ranks of a job
//
// Rank 0 prints {"bare_launch_ns": ..., "call_ns": ..., "default_call_ns": ...}: the medians over
// batches.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/driver/cuda_driver.h"
#include "integration/capi/cotune.h"

namespace cotune::gpu {
namespace {

constexpr uint64_t kCount = 512;
// A batch fits into the queue of a stream, so that no launch waits for the GPU.
constexpr int kBatch = 100;
constexpr int kBatches = 51;

constexpr char kEmptyPtx[] = R"ptx(
.version 7.0
.target sm_80
.address_size 64
.visible .entry empty(.param .u64 p_data) { ret; }
)ptx";

struct DestroyGroup {
  void operator()(cotune_group* group) const { cotune_group_destroy(group); }
};
using Group = std::unique_ptr<cotune_group, DestroyGroup>;

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The host's time for one of `launch`, the median over batches; negative when one fails.
int64_t TimeNs(const CudaDriver& driver, CuStream stream, const std::function<bool()>& launch) {
  std::vector<int64_t> batches_ns;
  for (int batch = 0; batch < kBatches; ++batch) {
    const int64_t began_ns = NowNs();
    for (int i = 0; i < kBatch; ++i) {
      if (!launch()) return -1;
    }
    batches_ns.push_back((NowNs() - began_ns) / kBatch);
    if (driver->StreamSynchronize(stream) != kCuSuccess) return -1;
  }
  std::nth_element(batches_ns.begin(), batches_ns.begin() + kBatches / 2, batches_ns.end());
  return batches_ns[kBatches / 2];
}

Group Join(const char* plugins) {
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.memory = COTUNE_GROUP_MEMORY_CUDA;
  options.plugin_path = plugins;
  options.ignores_database = 1;  // what this machine has tuned is not the subject
  cotune_error error{};
  error.struct_size = sizeof(error);
  cotune_group* group = nullptr;
  if (cotune_group_create(&options, &group, &error) != COTUNE_SUCCESS) {
    std::fprintf(stderr, "error: %s\n", error.text);
  }
  return Group(group);
}

// The resources of a rank; memory and context go with the process.
struct Rank {
  CudaDriver driver;
  Group group;
  CuStream stream = nullptr;
  CuFunction empty = nullptr;
  CuDevicePointer send = 0;
  CuDevicePointer recv = 0;
};

bool Prepare(Rank& rank) {
  CuDevice device = 0;
  CuContext context = nullptr;
  CuModule module = nullptr;
  const CudaDriver& driver = rank.driver;
  const CuResult codes[] = {
      driver->DeviceGet(&device, cotune_group_device(rank.group.get())),
      driver->PrimaryContextRetain(&context, device),
      driver->ContextSetCurrent(context),
      driver->StreamCreate(&rank.stream, kCuStreamNonBlocking),
      driver->ModuleLoadData(&module, kEmptyPtx),
      driver->ModuleGetFunction(&rank.empty, module, "empty"),
      driver->MemoryAllocate(&rank.send, kCount * 2),
      driver->MemoryAllocate(&rank.recv, kCount * 2),
  };
  for (const CuResult code : codes) {
    if (const auto checked = driver.Check(code, "making ready"); !checked) {
      std::fprintf(stderr, "error: %s\n", checked.error().text.c_str());
      return false;
    }
  }
  return cotune_group_set_stream(rank.group.get(), rank.stream) == COTUNE_SUCCESS;
}

int64_t TimeBareLaunchNs(const Rank& rank) {
  CuDevicePointer data = rank.recv;
  void* parameters[] = {&data};
  CuLaunchConfig config{};
  config.grid_x = config.grid_y = config.grid_z = 1;
  config.block_x = 256;
  config.block_y = config.block_z = 1;
  config.stream = rank.stream;
  return TimeNs(rank.driver, rank.stream, [&] {
    return rank.driver->LaunchKernel(&config, rank.empty, parameters, nullptr) == kCuSuccess;
  });
}

int64_t TimeCallNs(const Rank& rank) {
  return TimeNs(rank.driver, rank.stream, [&] {
    return cotune_all_reduce(rank.group.get(), reinterpret_cast<const void*>(rank.send),
                             reinterpret_cast<void*>(rank.recv), kCount, COTUNE_BF16,
                             COTUNE_REDUCE_SUM) == COTUNE_SUCCESS;
  });
}

int Run(const char* database, const char* plugins) {
  const DriverResult<CudaDriver> driver = CudaDriver::Open();
  if (!driver) {
    std::fprintf(stderr, "error: %s\n", driver.error().text.c_str());
    return 3;
  }
  Rank rank{*driver, Join(plugins)};
  if (rank.group == nullptr || !Prepare(rank)) return 3;
  const int64_t bare_ns = TimeBareLaunchNs(rank);
  const int64_t default_ns = TimeCallNs(rank);
  const bool loaded = cotune_load(rank.group.get(), database) == COTUNE_SUCCESS;
  const int64_t call_ns = loaded ? TimeCallNs(rank) : -1;
  if (bare_ns < 0 || default_ns < 0 || call_ns < 0) {
    std::fprintf(stderr, "error: %s\n", cotune_last_error(rank.group.get()));
    return 1;
  }
  if (cotune_group_rank(rank.group.get()) == 0) {
    std::printf("{\"bare_launch_ns\": %lld, \"call_ns\": %lld, \"default_call_ns\": %lld}\n",
                static_cast<long long>(bare_ns), static_cast<long long>(call_ns),
                static_cast<long long>(default_ns));
  }
  return 0;
}

}  // namespace
}  // namespace cotune::gpu

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: host_call DATABASE PLUGIN_FOLDERS\n");
    return 2;
  }
  return cotune::gpu::Run(argv[1], argv[2]);
}
