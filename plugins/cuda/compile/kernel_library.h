// Kernels that are compiled and loaded on this rank's GPU.
#ifndef COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_LIBRARY_H_
#define COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_LIBRARY_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/driver/graph_uses.h"
#include "plugins/cuda/compile/kernel_cache.h"
#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/cuda/memory/gpu.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// Each kernel is compiled once a machine (KernelCache) and loaded once a process; it stays loaded.
// Any thread; different kernels are made at the same time, by the threads of a process and by the
// ranks of a machine.
class KernelLibrary {
 public:
  // cache_folder, host: see KernelCache.
  KernelLibrary(const Gpu& gpu, Nvrtc nvrtc, std::string cache_folder, const cotune_host_t& host)
      : gpu_(gpu), nvrtc_(std::move(nvrtc)), cache_(std::move(cache_folder), host) {}
  ~KernelLibrary();
  // Leaves all kernels loaded when the library goes.
  void Abandon() { is_abandoned_ = true; }
  // Graphs that use a kernel by itself; those of a group are known to the group.
  gpu::GraphUses& graphs() { return graphs_; }
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  // deadline_ns: see KernelCache; the compiler itself takes its time.
  sdk::Result<gpu::CuFunction> Get(const KernelUnit& unit, int64_t deadline_ns);

 private:
  // One kernel; threads that want it at the same time wait for the one that makes it.
  struct Entry {
    std::mutex mutex;
    gpu::CuModule module = nullptr;
    gpu::CuFunction function = nullptr;
  };
  sdk::Result<gpu::CuFunction> Make(const KernelUnit& unit, const std::string& key,
                                    int64_t deadline_ns, Entry& entry);

  const Gpu& gpu_;
  const Nvrtc nvrtc_;
  const KernelCache cache_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  gpu::GraphUses graphs_;
  bool is_abandoned_ = false;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_LIBRARY_H_
