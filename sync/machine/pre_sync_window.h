// The pre-sync: ranks meet inside a window and compare what decides.
#ifndef COTUNE_SYNC_MACHINE_PRE_SYNC_WINDOW_H_
#define COTUNE_SYNC_MACHINE_PRE_SYNC_WINDOW_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/status.h"
#include "sync/machine/meeting.h"

namespace cotune::sync {

// When the window of a pre-sync closes: window_ns of the first arrival after it, but no later than
// the deadline of a rank that waits.
int64_t WindowEndNs(const Meeting& meeting, int64_t window_ns);

// The first (field, value) pair that differs, as kDisagreement with the odd ranks and the values of
// both sides; nullopt when all agree. `ranks` are the members of a full meeting.
std::optional<Error> CompareFields(const Meeting& meeting, const std::vector<int>& ranks);

// Windows that closed before everybody came. Each late rank is told of each of them when it comes.
// Pure.
class MissedWindows {
 public:
  void Add(uint64_t call, const std::vector<int>& late_ranks);

  // The ranks that missed the window of this call, `rank` among them; nullopt when `rank` did not
  // miss it. The record goes away with its last late rank.
  std::optional<std::vector<int>> Tell(uint64_t call, int rank);

  size_t size() const { return missed_.size(); }
  // Ranks that have not been told of the oldest window.
  std::vector<int> OldestLateRanks() const;

 private:
  struct Missed {
    std::vector<int> late_ranks;
    std::vector<int> untold_ranks;
  };
  std::map<uint64_t, Missed> missed_;  // by call
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_PRE_SYNC_WINDOW_H_
