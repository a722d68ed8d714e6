// The version of a backend in words, with the libraries that it uses.
#ifndef COTUNE_CORE_BACKEND_VERSION_TEXT_H_
#define COTUNE_CORE_BACKEND_VERSION_TEXT_H_

#include <string>

#include "core/backend/backend.h"

namespace cotune {

// "1.0.0", or "1.0.0 with NCCL 2.28.9" where the backend uses libraries that it finds at run time.
std::string VersionText(const Backend& backend);

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_VERSION_TEXT_H_
