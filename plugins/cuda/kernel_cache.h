// Compiled kernels on disk, so that a machine compiles each one once.
#ifndef COTUNE_PLUGINS_CUDA_KERNEL_CACHE_H_
#define COTUNE_PLUGINS_CUDA_KERNEL_CACHE_H_

#include <functional>
#include <map>
#include <string>

#include "plugins/border/failure.h"

namespace cotune::cuda {

// Files named by a digest of all that the code depends on: source, headers, options, architecture
// and the compiler's version. Any thread, any number of processes: a file appears complete or not
// at all. A file that cannot be used is compiled anew and replaced. While one process compiles, the
// others that want the same code wait for it.
class KernelCache {
 public:
  // folder: made with its parents when it is missing; "": nothing is kept.
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}

  // $XDG_CACHE_HOME/cotune/kernels, else ~/.cache/cotune/kernels; "" when neither variable is set.
  static std::string DefaultFolder(const std::map<std::string, std::string>& environment);

  // The code under `key`, from disk or by `compile`.
  border::Result<std::string> Get(
      const std::string& key, const std::function<border::Result<std::string>()>& compile) const;

 private:
  std::string PathOf(const std::string& key) const;
  border::Result<std::string> CompileLocked(
      const std::string& path, const std::function<border::Result<std::string>()>& compile) const;
  void Store(const std::string& path, const std::string& code) const;

  std::string folder_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_KERNEL_CACHE_H_
