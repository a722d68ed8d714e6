// The user's settings of a backend: "depth" is what the user wrote as "NAME.depth".
#ifndef COTUNE_PLUGINS_SDK_SETTINGS_H_
#define COTUNE_PLUGINS_SDK_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/failure.h"

namespace cotune::sdk {

// The values that a size may have.
struct ByteRange {
  uint64_t smallest = 0;
  uint64_t largest = 0;
  uint64_t multiple_of = 1;
};

// For create only, which asks for every setting that the backend has: cotune refuses those that the
// user gave and create did not ask for. Values that cannot be read are COTUNE_INVALID_ARGUMENT.
class Settings {
 public:
  // `host` outlives this object; `backend` is the name in the backend's table.
  Settings(const cotune_host_t& host, std::string backend);

  // Empty where the user has not set it.
  std::optional<std::string> Text(const char* key) const;
  // "on" or "1", "off" or "0".
  Result<bool> Switch(const char* key, bool otherwise) const;
  // "65536", "64K" or "2M".
  Result<uint64_t> Bytes(const char* key, uint64_t otherwise, const ByteRange& range) const;

 private:
  const cotune_host_t& host_;
  const std::string backend_;
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_SETTINGS_H_
