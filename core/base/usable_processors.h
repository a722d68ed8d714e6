// Which processors the ranks of a machine may run on. Launchers as a rule bind each rank to its
// own, so that one rank's set says nothing of whether all have one.
#ifndef COTUNE_CORE_BASE_USABLE_PROCESSORS_H_
#define COTUNE_CORE_BASE_USABLE_PROCESSORS_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cotune {

// The processors that this process may use, as Linux writes such lists: "0-3,8". Empty when the
// system does not say.
std::string UsableProcessors();

// The processors of such a list, ascending; empty for what is no such list. Pure.
std::vector<size_t> ProcessorsIn(std::string_view list);

// How many different processors the lists name together. Pure; what is no such list counts for
// nothing, since lists come from other processes.
size_t CountDistinctProcessors(std::span<const std::string> lists);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_USABLE_PROCESSORS_H_
