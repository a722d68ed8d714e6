// `cotune` with faults on purpose: COTUNE_FAULT in its environment is a fault, as ParseFault reads
// it.
#include <memory>
#include <string>

#include "cli/program.h"
#include "integration/launch_context.h"
#include "integration/testing/fault_injection.h"

int main(int argc, char** argv) {
  cotune::Environment environment = cotune::ProcessEnvironment();
  const std::string text = environment["COTUNE_FAULT"];
  // Nothing else reads it, and the program warns of variables that it does not know.
  environment.erase("COTUNE_FAULT");
  const auto make_listener = [text](const cotune::LaunchContext& context)
      -> cotune::Result<std::unique_ptr<cotune::StageObserver>> {
    if (text.empty()) return std::unique_ptr<cotune::StageObserver>();
    COTUNE_TRY(const cotune::Fault fault, cotune::ParseFault(text, context.world_size));
    return cotune::MakeFaultListener(fault, context.rank);
  };
  return cotune::cli::Main(argc, argv, environment, make_listener);
}
