#include "cli/program.h"
#include "integration/launch_context.h"

int main(int argc, char** argv) {
  return cotune::cli::Main(argc, argv, cotune::ProcessEnvironment());
}
