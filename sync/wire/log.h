// The messages of the control channel to the user beside errors.
#ifndef COTUNE_SYNC_WIRE_LOG_H_
#define COTUNE_SYNC_WIRE_LOG_H_

#include <functional>
#include <string>
#include <string_view>

#include "core/base/event_sink.h"

namespace cotune::sync {

struct LogLine {
  Severity severity = Severity::kInfo;
  std::string text;
};

// Called from any thread of the exchange, one call at a time per exchange. Must not call the
// exchange.
using LogSink = std::function<void(Severity, std::string_view)>;

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_WIRE_LOG_H_
