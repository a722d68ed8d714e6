// Lines of text about the failure of a whole job, which a listener knows without reading the text.
#ifndef COTUNE_CORE_BASE_FAILURE_LINE_H_
#define COTUNE_CORE_BASE_FAILURE_LINE_H_

#include <optional>
#include <string_view>

#include "core/base/event_sink.h"
#include "core/base/status.h"

namespace cotune {

// Emits a line of kError. `code` is that of the error that every rank gets for the failure. The
// event carries it as `value`, which is 0 in all other lines.
inline void EmitFailureLine(EventSink& sink, ErrorCode code, std::string_view text) {
  sink.OnEvent({.type = EventType::kLine,
                .severity = Severity::kError,
                .name = text,
                .value = static_cast<int64_t>(code) + 1});
}

// The code of the failure that the event is a line about; nullopt: it is something else.
inline std::optional<ErrorCode> FailureOfLine(const Event& event) {
  if (event.type != EventType::kLine || event.value == 0) return std::nullopt;
  return static_cast<ErrorCode>(event.value - 1);
}

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_FAILURE_LINE_H_
