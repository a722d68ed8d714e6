// NCCL, found at run time: one build runs with and without it.
#ifndef COTUNE_PLUGINS_NCCL_NCCL_LIBRARY_H_
#define COTUNE_PLUGINS_NCCL_NCCL_LIBRARY_H_

#include <map>
#include <string>

#include "plugins/nccl/nccl_abi.h"
#include "plugins/sdk/failure.h"

namespace cotune::nccl {

constexpr int kOldestVersion = 21900;
constexpr int kOldestTunerVersion = 22200;   // with the cost table
constexpr int kOldestWindowVersion = 22700;  // with symmetric memory

// "2.28.9" of 22809.
std::string VersionText(int version);

// Any thread; copies are cheap; never unloaded.
class NcclLibrary {
 public:
  // The copy that is in the process already; else the one that `named` (a setting) or
  // COTUNE_NCCL_LIBRARY says; else where Python packages and toolkits keep it, then the system.
  // Its version is asked before anything else. COTUNE_UNSUPPORTED says what was tried, or which
  // copy is too old, incomplete, or another one than the process has.
  static sdk::Result<NcclLibrary> Open(const std::string& named,
                                       const std::map<std::string, std::string>& environment);

  const NcclFunctions* operator->() const { return &functions_; }
  int version() const { return version_; }
  const std::string& path() const { return path_; }
  bool has_windows() const { return functions_.CommWindowRegister != nullptr; }

  // A result as a value: COTUNE_PEER_FAILED for a remote error, COTUNE_OUT_OF_RESOURCES and so on.
  // NCCL's last words about `comm` (may be null) go along. kNcclInProgress is no failure.
  sdk::Result<void> Check(NcclResult result, const char* call, NcclComm comm) const;

 private:
  sdk::Result<void> Load(const std::string& candidate, std::string* not_found);
  sdk::Result<void> FindFunctions(void* library);

  NcclFunctions functions_;
  int version_ = 0;
  std::string path_;
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_NCCL_LIBRARY_H_
