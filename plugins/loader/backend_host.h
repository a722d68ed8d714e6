// The host table as one backend sees it: the job's services, and settings under the backend's name.
#ifndef COTUNE_PLUGINS_LOADER_BACKEND_HOST_H_
#define COTUNE_PLUGINS_LOADER_BACKEND_HOST_H_

#include <string>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune {

// Passes every call on to `services`; setting "key" asks them for "NAME.key". Any thread; outlives
// the backend it is handed to, and `services` outlive it.
class BackendHost {
 public:
  BackendHost(const cotune_host_t& services, std::string backend_name);
  BackendHost(const BackendHost&) = delete;
  BackendHost& operator=(const BackendHost&) = delete;

  const cotune_host_t& table() const { return table_; }

 private:
  static void Log(void* context, int32_t severity, const char* text);
  static int64_t NowNs(void* context);
  static cotune_status_t StorePut(void* context, const char* key, const void* data, uint64_t size);
  static cotune_status_t StoreGet(void* context, const char* key, void* data, uint64_t capacity,
                                  uint64_t* size, int64_t deadline_ns);
  static cotune_status_t StoreDelete(void* context, const char* key);
  static const char* Setting(void* context, const char* key);

  const cotune_host_t& services_;
  const std::string backend_name_;
  cotune_host_t table_{};
};

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_BACKEND_HOST_H_
