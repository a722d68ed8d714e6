// Memory of this machine that a program can still get.
#ifndef COTUNE_CORE_BASE_HOST_MEMORY_H_
#define COTUNE_CORE_BASE_HOST_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace cotune {

// About how many bytes the processes of this one's control group can still allocate without
// swapping; nullopt when the system does not say.
std::optional<uint64_t> AvailableHostBytes();

// The parts of it, from the texts of the system's files. Pure.
// "MemAvailable:  123 kB" of /proc/meminfo.
std::optional<uint64_t> ParseMemAvailable(std::string_view meminfo);
// The memory that a control group (version 2) leaves: its memory.max less memory.current, where
// what the system can drop (file pages and reclaimable slabs of memory.stat) counts as free.
// nullopt: no limit, or not readable.
std::optional<uint64_t> ParseGroupAvailable(std::string_view max, std::string_view current,
                                            std::string_view stat);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_HOST_MEMORY_H_
