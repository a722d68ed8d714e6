// Tracks which ranks have come to one call of a channel, and which are somewhere else.
#ifndef COTUNE_SYNC_MACHINE_MEETING_H_
#define COTUNE_SYNC_MACHINE_MEETING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "sync/wire/wire_forward.h"

namespace cotune::sync {

// One call: opened by the first arrival, full when every member has arrived. Members are positions
// in the channel. Pure.
class Meeting {
 public:
  // `ranks`: ranks in the job of the members.
  Meeting(std::string channel, std::vector<int> ranks);

  void Open(uint64_t call, int64_t now_ns);
  void Close();  // forgets what was said

  // The member must not have arrived yet.
  void Arrive(size_t member, wire::Arrive arrive, int64_t now_ns);

  bool open() const { return open_; }
  uint64_t call() const { return call_; }
  bool full() const { return arrived_ == ranks_.size(); }
  bool mismatched() const { return mismatched_; }
  bool has(size_t member) const { return arrivals_[member] != nullptr; }
  const wire::Arrive& arrival(size_t member) const { return *arrivals_[member]; }
  int64_t arrived_ns(size_t member) const { return arrived_ns_[member]; }
  wire::CallKind kind() const { return kind_; }
  int64_t opened_ns() const { return opened_ns_; }
  int64_t first_window_ns() const { return first_window_ns_; }  // what the first arrival asked for

  // The earliest deadline of those who came; ranks at different calls shorten it.
  int64_t deadline_ns() const { return deadline_ns_; }

  std::vector<int> ArrivedRanks() const;
  std::vector<int> MissingRanks() const;
  std::string Text() const;  // of the call that the first arrival opened

  // "rank 2 is at 'benchmark 7', ranks 0, 1, 3 are at the agreement"; the smaller groups are at
  // fault.
  Error MismatchError() const;

 private:
  std::string channel_;
  std::vector<int> ranks_;
  bool open_ = false;
  bool mismatched_ = false;
  uint64_t call_ = 0;
  wire::CallKind kind_{};
  std::string name_;
  int64_t opened_ns_ = 0;
  int64_t first_window_ns_ = 0;
  int64_t deadline_ns_ = 0;
  size_t arrived_ = 0;
  std::vector<std::shared_ptr<const wire::Arrive>> arrivals_;  // [members]; nullptr: not yet
  std::vector<int64_t> arrived_ns_;                            // [members], of those who have
};

// Positions grouped by equal text; the largest group first, ties by the lowest position. What most
// ranks say is taken as right, the rest are the odd ones.
struct Opinion {
  std::string text;
  std::vector<int> ranks;
};
std::vector<Opinion> GroupOpinions(const std::vector<int>& ranks,
                                   const std::vector<std::string>& texts);

// Ranks of all groups but the first, ascending.
std::vector<int> OddRanks(const std::vector<Opinion>& opinions);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_MEETING_H_
