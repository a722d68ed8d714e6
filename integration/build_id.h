// What tells two builds of one plugin apart.
#ifndef COTUNE_INTEGRATION_BUILD_ID_H_
#define COTUNE_INTEGRATION_BUILD_ID_H_

#include <string>

namespace cotune {

// Of the shared library that `address` lies in, as it is loaded: the build id that the linker has
// written into it (the ELF note NT_GNU_BUILD_ID), in hex; without one the SHA-256 of the file at
// `path`. "" when neither can be had.
std::string BuildIdOf(const void* address, const std::string& path);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_BUILD_ID_H_
