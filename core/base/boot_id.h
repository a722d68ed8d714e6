// What tells one host from another, and a host before and after it was started anew.
#ifndef COTUNE_CORE_BASE_BOOT_ID_H_
#define COTUNE_CORE_BASE_BOOT_ID_H_

#include <string>

namespace cotune {

// The id that the kernel draws when it starts; "" when /proc has none. All containers of one host
// have the same: they share its GPUs and processors, but memory of processes only where they share
// /dev/shm too. A backend finds that out when it makes its group.
std::string BootId();

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_BOOT_ID_H_
