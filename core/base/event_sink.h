// One stream of events: what a program does, as spans, marks, counters and lines, for whoever
// listens.
#ifndef COTUNE_CORE_BASE_EVENT_SINK_H_
#define COTUNE_CORE_BASE_EVENT_SINK_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace cotune {

// The numbers are those of the plugin ABI and of the C API.
enum class Severity : int32_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// The severity that a plugin or a caller means by its number; one beyond the last is an error.
constexpr Severity SeverityOf(int32_t number) {
  return static_cast<Severity>(std::clamp<int32_t>(number, 0, 3));
}

enum class EventType : uint8_t {
  kBegin,    // a span begins on this thread
  kEnd,      // the innermost open span of this thread ends
  kMark,     // a moment without an extent
  kCounter,  // `value` was measured
  kLine,     // `name` is a line of text for the user
};

enum class SpanKind : uint8_t {
  kTune,     // all of a tune
  kStage,    // a stage; `name` is its name
  kNode,     // the part of `node` in the stage around it
  kCell,     // one cell is measured; `name` is its problem
  kCompile,  // the plan of `choice` is made
};

// Texts live as long as the call.
struct Event {
  EventType type = EventType::kMark;
  SpanKind kind = SpanKind::kStage;     // of kBegin, kEnd and kMark
  Severity severity = Severity::kInfo;  // of kLine
  std::string_view name{};
  std::string_view node{};    // the node of the tuned graph that it concerns; "": all of them
  std::string_view choice{};  // the choice that it concerns; "": none
  int64_t value = 0;
  int64_t time_ns = 0;  // 0: nobody has read the clock yet
};

// Events tell what happens and decide nothing. Emitting stages need no clock: the stream that an
// event enters stamps it. An implementation that several threads emit to is thread-safe.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnEvent(const Event& event) = 0;
};

// The name of the spans of SpanKind::kNode.
inline constexpr std::string_view kNodeSpan = "node";
// The name of the spans of SpanKind::kCompile.
inline constexpr std::string_view kCompileSpan = "compile";
// The counter of the samples of a choice, in ns a call.
inline constexpr std::string_view kSampleCounter = "sample";

inline void EmitLine(EventSink& sink, Severity severity, std::string_view text) {
  sink.OnEvent({.type = EventType::kLine, .severity = severity, .name = text});
}

// From its construction to the end of its scope, on one thread. The sink outlives it.
class ScopedSpan {
 public:
  ScopedSpan(EventSink& sink, SpanKind kind, std::string name, std::string node = "",
             std::string choice = "")
      : sink_(sink),
        kind_(kind),
        name_(std::move(name)),
        node_(std::move(node)),
        choice_(std::move(choice)) {
    Emit(EventType::kBegin);
  }
  ~ScopedSpan() { Emit(EventType::kEnd); }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  void Emit(EventType type) const {
    sink_.OnEvent({.type = type, .kind = kind_, .name = name_, .node = node_, .choice = choice_});
  }

  EventSink& sink_;
  const SpanKind kind_;
  const std::string name_;
  const std::string node_;
  const std::string choice_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_EVENT_SINK_H_
