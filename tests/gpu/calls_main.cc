// One rank of one case through the C API: calls CASE [--flag value ...].
#include <cstdio>
#include <string>

#include "fmt/format.h"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

struct Case {
  const char* name;
  Status (*run)(ApiRank& rank, const Flags& flags);
};

constexpr Case kCases[] = {
    {"chain", RunChain},
    {"tuned", RunTuned},
    {"streams", RunStreams},
    {"fault", RunFault},
    {"mismatch", RunMismatch},
    {"foreign", RunForeign},
    {"late", RunLate},
    {"programs", RunProgramCalls},
    {"kernel_fault", RunKernelFault},
    {"tables", RunTables},
    {"left", RunLeft},
    {"canary", RunCanary},
    {"graph_memory", RunGraphMemory},
    {"graph_outlives", RunGraphOutlives},
    {"graph_end", RunGraphEnd},
    {"captured_exchange", RunCapturedExchange},
};

int Report(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.ToText().c_str());
  return ExitCode(error.code);
}

int Run(const Case& which, const Flags& flags) {
  const Result<std::unique_ptr<ApiRank>> rank = ApiRank::Join(flags);
  if (!rank) return Report(rank.error());
  if (const Status done = which.run(**rank, flags); !done) return Report(done.error());
  std::string choices;
  for (const auto& [backend, count] : (*rank)->calls_by_backend()) {
    choices += fmt::format(" {}={}", backend, count);
  }
  std::printf("summary rank=%d calls=%llu wrong=%llu choices%s\n", (*rank)->rank(),
              static_cast<unsigned long long>((*rank)->calls()),
              static_cast<unsigned long long>((*rank)->wrong()), choices.c_str());
  return (*rank)->wrong() == 0 ? 0 : ExitCode(ErrorCode::kWrongResult);
}

}  // namespace
}  // namespace cotune::gputest

int main(int argc, char** argv) {
  using cotune::gputest::Flags;
  const std::string name = argc > 1 ? argv[1] : "";
  for (const auto& each : cotune::gputest::kCases) {
    if (name != each.name) continue;
    const cotune::Result<Flags> flags = Flags::Parse(argc, argv, 2);
    return flags ? cotune::gputest::Run(each, *flags) : cotune::gputest::Report(flags.error());
  }
  std::fprintf(stderr, "error: there is no case '%s'\n", name.c_str());
  return 2;
}
