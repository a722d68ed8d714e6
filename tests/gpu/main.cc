// One rank of one case: rank CASE [--flag value ...]. tests/gpu/run starts one process for each
// GPU.
#include <cstdio>
#include <string>

#include "core/base/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tests/gpu/cases.h"

namespace cotune::gputest {
namespace {

struct Case {
  const char* name;
  Status (*run)(Rank& rank, const Flags& flags);
};

constexpr Case kCases[] = {
    {"values", RunValues},
    {"graphs", RunGraphs},
    {"sequence", RunSequence},
    {"same_bits", RunSameBits},
    {"programs", RunPrograms},
    {"force", RunForce},
    {"same_bits_programs", RunSameBitsOfPrograms},
};

// The runner reads these lines of every rank.
void PrintSummary(Rank& rank) {
  for (const auto& [program, fused] : rank.findings().fused_by_program) {
    std::printf("program %s: fused by %s\n", program.c_str(),
                fmt::format("{}", fmt::join(fused, " ")).c_str());
  }
  std::string choices;
  for (const auto& [backend, count] : rank.findings().choices_by_backend) {
    choices += fmt::format(" {}={}", backend, count);
  }
  std::printf("summary rank=%d calls=%llu wrong=%llu choices%s\n", rank.job().rank(),
              static_cast<unsigned long long>(rank.findings().calls),
              static_cast<unsigned long long>(rank.findings().wrong), choices.c_str());
}

int Report(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.ToText().c_str());
  return ExitCode(error.code);
}

int Run(const Case& which, const Flags& flags) {
  Result<std::unique_ptr<Rank>> rank = Rank::Join(flags);
  if (!rank) return Report(rank.error());
  const Status done = which.run(**rank, flags);
  if (!done) {
    // Peers that wait for this rank learn of it now.
    (*rank)->job().groups().AbortAll();
    return Report(done.error());
  }
  PrintSummary(**rank);
  return (*rank)->findings().wrong == 0 ? 0 : ExitCode(ErrorCode::kWrongResult);
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
