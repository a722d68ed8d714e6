// The messages of the control channel to the user beside errors.
#ifndef COTUNE_SYNC_WIRE_LOG_H_
#define COTUNE_SYNC_WIRE_LOG_H_

#include <functional>
#include <optional>
#include <string>

#include "core/base/event_sink.h"
#include "core/base/status.h"

namespace cotune::sync {

struct LogLine {
  Severity severity = Severity::kInfo;
  std::string text;
  // The code of the failure that the line reports, if it ends the job: the calls of every rank
  // return an error with this code and text.
  std::optional<ErrorCode> failure{};
};

// Called from any thread of the exchange, one call at a time per exchange. Must not call the
// exchange.
using LogSink = std::function<void(const LogLine&)>;

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_WIRE_LOG_H_
