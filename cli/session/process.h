#ifndef COTUNE_CLI_SESSION_PROCESS_H_
#define COTUNE_CLI_SESSION_PROCESS_H_

#include <string>
#include <vector>

#include "cli/output/console.h"
#include "integration/launch_context.h"

namespace cotune::cli {

// The process as a command sees it.
struct Process {
  Console& console;
  Environment environment;
  std::vector<std::string> arguments;  // without the program's name
  bool log_is_terminal = false;        // progress may be redrawn
  size_t log_columns = 80;
};

}  // namespace cotune::cli

#endif  // COTUNE_CLI_SESSION_PROCESS_H_
