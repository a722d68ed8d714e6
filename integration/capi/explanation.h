// What a group runs for one call and why, as data, and its two forms.
#ifndef COTUNE_INTEGRATION_CAPI_EXPLANATION_H_
#define COTUNE_INTEGRATION_CAPI_EXPLANATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/database/tuned_database_entry.h"
#include "core/problem/problem.h"
#include "integration/dispatcher.h"

namespace cotune::capi {

// One measured size.
struct MeasuredSize {
  DatabaseEntry entry;
  // The backends of the group that it was measured without, so that the next tune measures it
  // again.
  std::vector<std::string> not_raced;
};

struct Explained {
  std::string subject;           // the call, in words
  ProblemClass cls;              // of a program: that of its anchor
  uint64_t bytes = 0;            // likewise
  std::optional<uint64_t> rows;  // of a program
  std::string program_text;      // canonical; "" for a single collective
  CallExplanation call;
  // Smallest and largest size that the table in force was made from for such calls, or for those of
  // the relative; nullopt where it has none.
  std::optional<uint64_t> smallest_measured_bytes{};
  std::optional<uint64_t> largest_measured_bytes{};
  // Of this rank: what was measured in the range of the table with the winner that runs.
  std::vector<MeasuredSize> measured{};
};

// Lines of text.
std::string ExplanationText(const Explained& explained);
// One JSON object; cotune.h lists its members.
std::string ExplanationJson(const Explained& explained);

}  // namespace cotune::capi

#endif  // COTUNE_INTEGRATION_CAPI_EXPLANATION_H_
