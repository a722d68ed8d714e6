// Compiled kernels on disk, so that a machine compiles each one once.
#ifndef COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_CACHE_H_
#define COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_CACHE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/cuda/compile/private_folder.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// Files named by a digest of all that the code depends on: source, headers, options, architecture
// and the compiler's version. Any thread, any number of processes: a file appears complete or not
// at all. While one process compiles, the others that want the same code wait for it, for a time.
//
// The code runs on the GPU with all that the process maps there, so it is taken only from files
// that nobody but this user can have written (PrivateFolder). Other files are not read: one line of
// the log says why, and the code is compiled anew. The same for a file that is damaged.
class KernelCache {
 public:
  using Compile = std::function<sdk::Result<std::string>()>;

  // folder: made with its parents when it is missing; "": nothing is kept. The host gives clock and
  // log, and outlives the cache.
  KernelCache(std::string folder, const cotune_host_t& host)
      : folder_(std::move(folder)), host_(host) {}
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // $XDG_CACHE_HOME/cotune/kernels, else ~/.cache/cotune/kernels; "" when neither variable is set.
  static std::string DefaultFolder(const std::map<std::string, std::string>& environment);

  // The code under `key`, from disk or by `compile`. Another process that compiles it is waited for
  // during half of the time to the deadline, and 30 s at most, because a process that was stopped
  // never ends; then there is time to compile without it.
  sdk::Result<std::string> Get(const std::string& key, int64_t deadline_ns,
                               const Compile& compile) const;

 private:
  // "" when there is no file that can be used.
  std::string Read(const PrivateFolder& folder, const std::string& name) const;
  sdk::Result<std::string> CompileLocked(const PrivateFolder& folder, const std::string& name,
                                         int64_t deadline_ns, const Compile& compile) const;
  void AwaitLock(int lock, int64_t deadline_ns) const;
  // Once for each subject.
  void LogOnce(const std::string& subject, const std::string& text) const;

  const std::string folder_;
  const cotune_host_t& host_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> logged_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_COMPILE_KERNEL_CACHE_H_
