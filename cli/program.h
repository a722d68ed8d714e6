// The command line program; `main.cc` is the one that ships.
#ifndef COTUNE_CLI_PROGRAM_H_
#define COTUNE_CLI_PROGRAM_H_

#include "cli/session/process.h"
#include "integration/launch_context.h"

namespace cotune::cli {

// Runs the command that the arguments of main() name and gives the exit code. `environment` holds
// the variables that it reads; processes that it starts get those of this process. make_listener
// may be empty.
int Main(int argc, char** argv, Environment environment, MakeRankListener make_listener = {});

}  // namespace cotune::cli

#endif  // COTUNE_CLI_PROGRAM_H_
