#include "core/backend/version_text.h"

namespace cotune {

std::string VersionText(const Backend& backend) {
  const std::string libraries = backend.libraries();
  return backend.version() + (libraries.empty() ? "" : " with " + libraries);
}

}  // namespace cotune
