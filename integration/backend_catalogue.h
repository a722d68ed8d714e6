// The backends of this process: which there are, where they were found, how they are loaded and
// made, under which names, in which order and with which settings. It knows nothing of ranks.
#ifndef COTUNE_INTEGRATION_BACKEND_CATALOGUE_H_
#define COTUNE_INTEGRATION_BACKEND_CATALOGUE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/call_watchdog.h"
#include "core/base/status.h"
#include "core/problem/problem.h"
#include "integration/plugin_scan.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/loader/host_services.h"

namespace cotune {

// The user's wishes for the backends of a job.
struct CatalogueOptions {
  // Plugins the user named, files or folders: failing to load one is an error. Then the folders of
  // the search path.
  std::vector<std::string> plugin_paths;
  std::vector<std::string> plugin_search_path;
  // Function tables registered in the process, beside the plugins. A table comes before a plugin of
  // the same name.
  std::vector<const cotune_backend_api_t*> tables;
  // Backends that the program brings itself, for any memory. No plugin in use has such a name.
  std::vector<std::shared_ptr<Backend>> own_backends;
  // Backends to use, by name, in order of priority; empty: all that work on this memory, "nccl" and
  // "host" first, then by name, and the program's own last. One that is named and not there is an
  // error.
  std::vector<std::string> backends;
  // "NAME.key" -> value, for backends; and where the user gave it, for messages.
  std::map<std::string, std::string> settings;
  std::map<std::string, std::string> setting_origins;
  // Backends compare the calls of ranks where their library does not. No part of what a tuned
  // database is for: the choices are the same.
  bool check_calls = false;
};

class BackendCatalogue {
 public:
  enum class Mode : uint8_t {
    // Makes the backends that the job uses. A plugin or backend that was named and cannot be used
    // is an error.
    kInUse,
    // Tries every plugin, to say what it offers here and why not: backends for other memory are
    // made and dropped, and no plugin is an error. reports() tells.
    kSurvey,
  };
  // Everything of the process that a backend is made with; it outlives the catalogue.
  struct Place {
    MemoryKind memory = MemoryKind::kHost;
    int32_t device = -1;               // CUDA ordinal, -1 on host memory
    HostServices* services = nullptr;  // made with the settings of the options
    CallWatchdog* watchdog = nullptr;  // watches every call into a plugin
  };

  // kPluginRefused: a plugin that was named; kUsage: a backend or a setting of a backend that
  // nobody knows, or a value that the backend refuses; kEnvironment: a backend that was named
  // cannot be used.
  static Result<std::unique_ptr<BackendCatalogue>> Open(CatalogueOptions options, Mode mode,
                                                        const Place& place);

  // In order of priority; they live as long as the catalogue.
  const std::vector<Backend*>& backends() const { return in_use_; }
  // Backends that the user has left out, which can run the parts of programs: the first one, where
  // none of those in use can.
  const std::vector<Backend*>& part_backends() const { return part_backends_; }
  // One for every file that was looked at and every table.
  const std::vector<PluginReport>& reports() const { return reports_; }
  // Settings of backends that nobody could check: the backend is not used here.
  const std::vector<std::string>& setting_warnings() const { return setting_warnings_; }
  // The ids that tell builds of one version of a plugin apart, by backend. A measurement is valid
  // for them as well as for the identity.
  const std::map<std::string, std::string>& builds() const { return builds_; }
  // "key=value key=value" for each backend that has settings, by name.
  const std::map<std::string, std::string>& setting_texts() const { return setting_texts_; }
  // The backend's version with its libraries and settings, for which a measurement is valid. Users
  // read it, so that the build is kept apart.
  std::string IdentityOf(const Backend& backend) const;

  // Why no backend can be used. `group_refusals`: of backends that are there and have no group.
  Error WhyNone(const std::vector<Refusal>& group_refusals) const;

 private:
  BackendCatalogue(CatalogueOptions options, Mode mode, const Place& place);
  Status AddTables(PluginScan& scan) const;
  void Adopt(const cotune_backend_api_t& table, const std::string& path);
  // Adds the program's own backends. kUsage if a plugin in use has the name of one.
  Status AddOwn();
  bool IsOwn(const Backend& backend) const;
  // Makes one of the tables that the user has left out the backend of parts, if one is needed.
  void AdoptForParts(const PluginScan& scan);
  // Makes the backend and drops it, and writes down what became of it.
  void Probe(const cotune_backend_api_t& table);
  // Writes into the backend's reports why it cannot be used. `is_idle`: the plugin is sound, but
  // this machine has nothing for it.
  void NoteFailure(const std::string& backend, const Error& error, bool is_idle);
  // Names the place where the user gave the setting.
  std::string OriginOf(const std::string& setting) const;
  // Keeps the setting for whose value the backend could not be made, if it was one.
  void NoteBadSetting(const std::string& backend, const Error& error);
  Status CheckWanted() const;
  void Order();
  Status CheckSettings();
  bool IsWanted(const std::string& backend) const;
  bool FitsMemory(uint32_t memory_kinds) const;

  const CatalogueOptions options_;
  const Mode mode_;
  const Place place_;
  const std::map<std::string, std::string> setting_texts_;
  std::vector<std::shared_ptr<Backend>> backends_;
  std::vector<Backend*> in_use_;
  std::vector<Backend*> part_backends_;
  std::map<std::string, std::string> builds_;
  std::optional<Error> bad_setting_;
  std::optional<Error> named_failure_;  // the first one of a plugin that the user has named
  std::vector<PluginReport> reports_;
  std::vector<std::string> setting_warnings_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_BACKEND_CATALOGUE_H_
