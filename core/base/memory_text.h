// Sizes of memory as they are printed.
#ifndef COTUNE_CORE_BASE_MEMORY_TEXT_H_
#define COTUNE_CORE_BASE_MEMORY_TEXT_H_

#include <cstdint>
#include <string>

namespace cotune {

// "512 bytes", "1.5 KiB", "2.1 GiB".
std::string MemoryText(uint64_t bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_MEMORY_TEXT_H_
