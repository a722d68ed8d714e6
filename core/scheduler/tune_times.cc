#include "core/scheduler/tune_times.h"

#include <algorithm>

namespace cotune {
namespace {

// The sum that a stage counts for; nullptr: it lies inside of others.
int64_t* SumOf(Stage stage, StageTimes& times) {
  switch (stage) {
    case Stage::kChoices:
    case Stage::kKnownCells:
      return &times.choices_ns;
    case Stage::kPrecompile:
      return &times.compile_ns;
    case Stage::kWarm:
      return &times.warm_ns;
    case Stage::kPreSync:
      return &times.sync_ns;
    case Stage::kAgree:
      return &times.agree_ns;
    case Stage::kSave:
      return &times.save_ns;
    case Stage::kRendezvous:
    case Stage::kGroups:
    case Stage::kCheck:
    case Stage::kBenchmark:
    case Stage::kVote:
    case Stage::kCommitted:
    case Stage::kDispatch:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

void TimesListener::OnEvent(const Event& event) {
  if (event.type != EventType::kBegin && event.type != EventType::kEnd) return;
  const auto thread = std::this_thread::get_id();
  std::vector<int64_t>& begins_ns = begins_ns_[thread];
  if (event.type == EventType::kBegin) {
    begins_ns.push_back(event.time_ns);
    if (event.kind == SpanKind::kCell) is_in_cell_ = true;
    return;
  }
  if (begins_ns.empty()) return;  // its begin was before anybody listened
  const int64_t span_ns = event.time_ns - begins_ns.back();
  begins_ns.pop_back();
  if (begins_ns.empty()) begins_ns_.erase(thread);
  EndSpan(event, span_ns);
}

void TimesListener::EndSpan(const Event& event, int64_t span_ns) {
  switch (event.kind) {
    case SpanKind::kStage:
      if (const auto stage = FindStage(event.name)) {
        if (int64_t* const sum = SumOf(*stage, times_.all)) *sum += span_ns;
      }
      break;
    case SpanKind::kNode:
      Node(event.node).choices_ns += span_ns;
      break;
    case SpanKind::kCell:
      is_in_cell_ = false;
      times_.all.measure_ns += span_ns;
      Node(event.node).measure_ns += span_ns;
      break;
    case SpanKind::kCompile:
      // A plan that all ranks make together is made where its cell is measured, and counts there.
      if (!is_in_cell_) Node(event.node).compile_ns += span_ns;
      break;
    case SpanKind::kTune:
      break;
  }
}

NodeTimes& TimesListener::Node(std::string_view node) {
  const auto found = std::find_if(times_.nodes.begin(), times_.nodes.end(),
                                  [&](const NodeTimes& each) { return each.node == node; });
  if (found != times_.nodes.end()) return *found;
  return times_.nodes.emplace_back(NodeTimes{.node = std::string(node)});
}

}  // namespace cotune
