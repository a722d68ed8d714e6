#include "core/backend.h"

namespace cotune {

Status Plan::Run(const LaunchArguments& arguments) {
  if (Status launched = Launch(arguments); !launched) return launched;
  // The plan itself ends the operation at its deadline, so the last Progress always comes.
  while (true) {
    const Result<bool> done = Progress(arguments.deadline_ns);
    if (!done) return tl::make_unexpected(done.error());
    if (*done) return {};
  }
}

}  // namespace cotune
