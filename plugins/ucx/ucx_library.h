// UCX, found at run time: one build runs with and without it.
#ifndef COTUNE_PLUGINS_UCX_UCX_LIBRARY_H_
#define COTUNE_PLUGINS_UCX_UCX_LIBRARY_H_

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include <compare>
#include <map>
#include <string>

#include "plugins/sdk/failure.h"
#include "plugins/ucx/ucx_functions.h"

namespace cotune::ucx {

struct UcxFunctions {
// A name that is declared cannot be in parentheses.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define COTUNE_DECLARE(name) decltype(&::name) name = nullptr;
  COTUNE_UCP_FUNCTIONS(COTUNE_DECLARE)
#undef COTUNE_DECLARE
  decltype(&::ucp_get_version) ucp_get_version = nullptr;
  const char* (*ucs_status_string)(ucs_status_t status) = nullptr;
  void (*ucs_debug_disable_signals)() = nullptr;
  // Null where this UCX does not have it.
  void (*ucs_log_push_handler)(ucs_log_func_t handler) = nullptr;
};

struct UcxVersion {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  auto operator<=>(const UcxVersion&) const = default;
  std::string Text() const;
};

// Any thread; copies are cheap; never unloaded.
class UcxLibrary {
 public:
  // The copy that is in the process already; else the one that `named` (the setting ucx.library) or
  // COTUNE_UCX_LIBRARY says; else that of the Python environment, then the system's.
  // COTUNE_UNSUPPORTED says what was tried, or which copy is too old, incomplete, or made of parts
  // of two. UCX that this call loads writes its log to standard error, unless UCX_LOG_FILE says
  // where: by itself it writes to standard output, into the program's results. The log of a copy
  // that was there before belongs to whoever loaded that.
  static sdk::Result<UcxLibrary> Open(const std::string& named,
                                      const std::map<std::string, std::string>& environment);

  const UcxFunctions* operator->() const { return &functions_; }
  const UcxVersion& version() const { return version_; }
  // The file of libucp.
  const std::string& path() const { return path_; }

  // "Endpoint timeout".
  std::string StatusText(ucs_status_t status) const;

 private:
  sdk::Result<void> Load(const std::string& candidate, std::string* not_found);
  sdk::Result<void> CheckVersion();
  sdk::Result<void> FindFunctions(void* ucp);

  UcxFunctions functions_;
  UcxVersion version_;
  std::string path_;
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_UCX_LIBRARY_H_
