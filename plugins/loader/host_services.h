// The services that cotune lends to plugins: log, clock, the job's store, settings.
#ifndef COTUNE_PLUGINS_LOADER_HOST_SERVICES_H_
#define COTUNE_PLUGINS_LOADER_HOST_SERVICES_H_

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "core/base/clock.h"
#include "core/ranks/rank_exchange.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune {

// severity: 0 debug, 1 info, 2 warning, 3 error. Called from any thread.
using PluginLog = std::function<void(int32_t severity, const std::string& text)>;

// Owns the table that is handed to plugins; outlives every backend made with it. Any thread may
// call through the table.
class HostServices {
 public:
  // The store of `exchange` serves plugins. settings: "NAME.key" -> value. common_settings: by key
  // alone, for every backend that asks and has no value of its own.
  HostServices(RankExchange& exchange, const Clock& clock,
               std::map<std::string, std::string> settings, PluginLog log,
               std::map<std::string, std::string> common_settings = {});
  HostServices(const HostServices&) = delete;
  HostServices& operator=(const HostServices&) = delete;

  const cotune_host_t& table() const { return table_; }
  // The names that backends have asked for so far, set or not; any thread.
  std::set<std::string> AskedSettings() const;

 private:
  static void Log(void* context, int32_t severity, const char* text);
  static int64_t NowNs(void* context);
  static cotune_status_t StorePut(void* context, const char* key, const void* data, uint64_t size);
  static cotune_status_t StoreGet(void* context, const char* key, void* data, uint64_t capacity,
                                  uint64_t* size, int64_t deadline_ns);
  static cotune_status_t StoreDelete(void* context, const char* key);
  static const char* Setting(void* context, const char* key);

  RankExchange& exchange_;
  const Clock& clock_;
  const std::map<std::string, std::string> settings_;
  const std::map<std::string, std::string> common_settings_;
  const PluginLog log_;
  mutable std::mutex mutex_;
  std::set<std::string> asked_settings_;  // under mutex_
  cotune_host_t table_{};
};

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_HOST_SERVICES_H_
