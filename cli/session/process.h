#ifndef COTUNE_CLI_SESSION_PROCESS_H_
#define COTUNE_CLI_SESSION_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/output/console.h"
#include "core/base/status.h"
#include "core/events/stage_observer.h"
#include "integration/launch_context.h"

namespace cotune::cli {

// A further listener of the events of a rank; nullptr: none. Programs for tests bring one along.
using MakeRankListener =
    std::function<Result<std::unique_ptr<StageObserver>>(const LaunchContext& context)>;

// The process as a command sees it.
struct Process {
  Console& console;
  Environment environment;
  std::vector<std::string> arguments;  // without the program's name
  bool log_is_terminal = false;        // progress may be redrawn
  size_t log_columns = 80;
  MakeRankListener make_listener{};  // may be empty
};

}  // namespace cotune::cli

#endif  // COTUNE_CLI_SESSION_PROCESS_H_
