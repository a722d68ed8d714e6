#include "core/base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace cotune {
namespace {

size_t EditDistance(std::string_view left, std::string_view right) {
  std::vector<size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= left.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= right.size(); ++j) {
      const size_t substituted = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[right.size()];
}

// Returns whether `typed` is `name` with letters left out, as "avg" is of "average".
bool IsAbbreviation(std::string_view typed, std::string_view name) {
  constexpr size_t kLettersMin = 3;
  if (typed.size() < kLettersMin || name.empty() || typed.front() != name.front()) return false;
  size_t found = 0;
  for (const char letter : name) {
    if (found < typed.size() && letter == typed[found]) ++found;
  }
  return found == typed.size();
}

// Returns the only candidate that is abbreviated so, or "".
std::string AbbreviatedName(std::string_view typed, std::span<const std::string_view> candidates) {
  std::string_view name;
  for (const std::string_view candidate : candidates) {
    if (!IsAbbreviation(typed, candidate)) continue;
    if (!name.empty()) return "";
    name = candidate;
  }
  return std::string(name);
}

}  // namespace

std::string NearestName(std::string_view typed, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = SIZE_MAX;
  for (std::string_view candidate : candidates) {
    const size_t distance = EditDistance(typed, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (best_distance > std::max(typed.size(), best.size()) / 2) {
    return AbbreviatedName(typed, candidates);
  }
  return std::string(best);
}

std::string KnownNamesText(std::string_view typed, std::span<const std::string_view> candidates) {
  std::string text = "known: ";
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0) text += ", ";
    text += candidates[i];
  }
  const std::string nearest = NearestName(typed, candidates);
  if (!nearest.empty()) text += "; did you mean " + nearest + "?";
  return text;
}

}  // namespace cotune
