// The messages of the control channel to the user beside errors.
#ifndef COTUNE_SYNC_WIRE_LOG_H_
#define COTUNE_SYNC_WIRE_LOG_H_

#include <functional>
#include <string>
#include <string_view>

namespace cotune::sync {

enum class LogSeverity { kInfo, kWarning, kError };

struct LogLine {
  LogSeverity severity = LogSeverity::kInfo;
  std::string text;
};

// Called from any thread of the exchange, one call at a time per exchange. Must not call the
// exchange.
using LogSink = std::function<void(LogSeverity, std::string_view)>;

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_WIRE_LOG_H_
