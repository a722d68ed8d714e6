#include "cli/output/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "core/base/counted.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cotune::cli {
namespace {

using Json = nlohmann::ordered_json;
using Entry = TraceOfRank::Entry;

constexpr const char* kClock =
    "CLOCK_MONOTONIC of each rank from the job's begin on: ranks can be compared to some us";

const char* CategoryOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::kTune:
      return "tune";
    case SpanKind::kStage:
      return "stage";
    case SpanKind::kNode:
      return "node";
    case SpanKind::kCell:
      return "cell";
    case SpanKind::kCompile:
      return "compile";
  }
  return "invalid";
}

double Microseconds(int64_t time_ns) { return static_cast<double>(time_ns) / 1e3; }

// The events of one rank.
class RankEvents {
 public:
  RankEvents(size_t rank, const TraceOfRank& trace, int64_t origin_ns)
      : rank_(rank), trace_(trace), origin_ns_(origin_ns) {}

  void AppendTo(Json& events) const {
    const std::string dropped =
        trace_.dropped == 0
            ? ""
            : fmt::format(" ({} not kept)",
                          Counted(static_cast<int64_t>(trace_.dropped), "further event"));
    events.push_back(Metadata("process_name", 0, fmt::format("rank {}{}", rank_, dropped)));
    std::set<uint32_t> lanes;
    for (const Entry& entry : trace_.entries) lanes.insert(entry.lane);
    for (const uint32_t lane : lanes) {
      events.push_back(
          Metadata("thread_name", lane, lane == 0 ? "tune" : fmt::format("compile {}", lane)));
    }
    for (const Entry& entry : trace_.entries) events.push_back(EventOf(entry));
  }

 private:
  Json Metadata(const char* what, uint32_t lane, std::string name) const {
    return {{"name", what},
            {"ph", "M"},
            {"pid", rank_},
            {"tid", lane},
            {"args", {{"name", std::move(name)}}}};
  }

  Json EventOf(const Entry& entry) const {
    Json event = {{"name", NameOf(entry)},
                  {"pid", rank_},
                  {"tid", entry.lane},
                  {"ts", Microseconds(entry.time_ns - origin_ns_)}};
    if (entry.type == EventType::kCounter) {
      event["ph"] = "C";
      event["args"] = {{"us", Microseconds(entry.value)}};
      return event;
    }
    event["cat"] = CategoryOf(entry.kind);
    if (entry.type == EventType::kBegin) {
      event["ph"] = "X";
      event["dur"] = Microseconds(entry.value);
    } else {
      event["ph"] = "i";
      event["s"] = "t";  // as tall as its lane
    }
    Json arguments = Json::object();
    if (!Text(entry.node).empty()) arguments["node"] = Text(entry.node);
    if (!Text(entry.choice).empty()) arguments["choice"] = Text(entry.choice);
    if (!arguments.empty()) event["args"] = std::move(arguments);
    return event;
  }

  std::string NameOf(const Entry& entry) const {
    const std::string& name = Text(entry.name);
    return Text(entry.choice).empty() ? name : name + " " + Text(entry.choice);
  }
  const std::string& Text(uint32_t index) const { return trace_.texts[index]; }

  const size_t rank_;
  const TraceOfRank& trace_;
  const int64_t origin_ns_;
};

int64_t FirstTimeNs(const std::vector<TraceOfRank>& traces) {
  int64_t first_ns = INT64_MAX;
  for (const TraceOfRank& trace : traces) {
    for (const Entry& entry : trace.entries) first_ns = std::min(first_ns, entry.time_ns);
  }
  return first_ns;
}

}  // namespace

std::string ChromeTrace(const std::vector<TraceOfRank>& traces) {
  const int64_t origin_ns = FirstTimeNs(traces);
  Json events = Json::array();
  Json dropped = Json::array();
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    RankEvents(rank, traces[rank], origin_ns).AppendTo(events);
    dropped.push_back(traces[rank].dropped);
  }
  const Json document = {{"displayTimeUnit", "ns"},
                         {"otherData", {{"clock", kClock}, {"dropped_events", std::move(dropped)}}},
                         {"traceEvents", std::move(events)}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cotune::cli
