// How long the stages of a tune took on one rank, summed from its events.
#ifndef COTUNE_CORE_SCHEDULER_TUNE_TIMES_H_
#define COTUNE_CORE_SCHEDULER_TUNE_TIMES_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/events/stage_observer.h"

namespace cotune {

// What the tuning thread spent in each stage; what lies between stages is in none of them.
struct StageTimes {
  int64_t choices_ns = 0;  // listed, and looked up in the database
  int64_t compile_ns = 0;
  int64_t warm_ns = 0;
  int64_t sync_ns = 0;  // the pre-sync, with the comparison of the choices
  int64_t measure_ns = 0;
  int64_t agree_ns = 0;
  int64_t save_ns = 0;
  bool operator==(const StageTimes&) const = default;
};

// The stages whose work belongs to one node.
struct NodeTimes {
  std::string node;        // its problem class; nodes of one class share a row
  int64_t choices_ns = 0;  // listed
  int64_t compile_ns = 0;  // summed over the threads that made plans at the same time
  int64_t measure_ns = 0;
  bool operator==(const NodeTimes&) const = default;
};

struct TuneTimes {
  StageTimes all;
  std::vector<NodeTimes> nodes{};  // in the order in which they were first met
  bool operator==(const TuneTimes&) const = default;
};

// Hears one event at a time, each with its time, on the thread that emits it.
class TimesListener final : public StageObserver {
 public:
  void OnEvent(const Event& event) override;
  const TuneTimes& times() const { return times_; }

 private:
  void EndSpan(const Event& event, int64_t span_ns);
  NodeTimes& Node(std::string_view node);

  TuneTimes times_;
  std::map<std::thread::id, std::vector<int64_t>> begins_ns_;  // of the open spans of each thread
  bool is_in_cell_ = false;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TUNE_TIMES_H_
