// "Did you mean": the known name that is closest to what the user typed.
#ifndef COTUNE_CORE_BASE_NEAREST_NAME_H_
#define COTUNE_CORE_BASE_NEAREST_NAME_H_

#include <span>
#include <string>
#include <string_view>

namespace cotune {

// The candidate with the smallest edit distance. If every distance is more than half of the longer
// name, the only candidate of which the typed name is an abbreviation ("avg" of "average"), or "".
std::string NearestName(std::string_view typed, std::span<const std::string_view> candidates);

// "known: a, b, c; did you mean b?" — the last part only when there is a near name.
std::string KnownNamesText(std::string_view typed, std::span<const std::string_view> candidates);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_NEAREST_NAME_H_
