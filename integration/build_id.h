// The id that tells two builds of one plugin apart.
#ifndef COTUNE_INTEGRATION_BUILD_ID_H_
#define COTUNE_INTEGRATION_BUILD_ID_H_

#include <string>

namespace cotune {

// The build id that the linker has written into the shared library at `address` (the ELF note
// NT_GNU_BUILD_ID), as it is loaded, in hex; without one the SHA-256 of the file at `path`. "" when
// neither can be had.
std::string BuildIdOf(const void* address, const std::string& path);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_BUILD_ID_H_
