#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/gpu/api_program.h"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

using Programs = ApiPrograms;

// All programs back to back on one stream, several times, each on other data.
Status RunQueued(ApiRank& rank, Programs& programs, uint32_t salts, std::string_view what) {
  for (uint32_t salt = 0; salt < salts; ++salt) {
    for (const auto& each : programs) {
      if (Status s = each->Fill(salt); !s) return s;
    }
    for (const auto& each : programs) {
      if (Status s = each->Enqueue(rank.group()); !s) return s;
    }
    if (Status s = rank.Await(rank.group(), rank.stream()); !s) return s;
    for (const auto& each : programs) {
      if (Status s = each->Check(salt, what); !s) return s;
    }
  }
  return {};
}

// One graph of all programs. They were made ready, and none of them need have run.
Status RunGraph(ApiRank& rank, Programs& programs, int64_t replays, std::string_view what) {
  const auto enqueue = [&]() -> Status {
    for (const auto& each : programs) {
      if (Status s = each->Enqueue(rank.group()); !s) return s;
    }
    return {};
  };
  for (const auto& each : programs) {
    if (Status s = each->Prepare(rank.group()); !s) return s;
    if (Status s = each->Fill(0); !s) return s;
  }
  COTUNE_TRY(const CallMemory::Replay replay, rank.memory().Capture(rank.stream(), enqueue));
  for (int64_t i = 0; i < replays; ++i) {
    const auto salt = static_cast<uint32_t>(i % 3);
    for (const auto& each : programs) {
      if (Status s = each->Fill(salt); !s) return s;
    }
    if (Status s = (replay)(); !s) return s;
    if (Status s = rank.Await(rank.group(), rank.stream()); !s) return s;
    for (const auto& each : programs) {
      if (Status s = each->Check(salt, fmt::format("{}, replay {}", what, i)); !s) return s;
    }
  }
  return {};
}

}  // namespace

Status RunProgramCalls(ApiRank& rank, const Flags& flags) {
  COTUNE_TRY(const auto texts, ProgramTexts(flags, rank.size()));
  Programs programs;
  for (const std::string& rows : flags.List("rows", "1,7,100")) {
    for (const ProgramText& text : texts) {
      COTUNE_TRY(auto made, ApiProgram::Make(rank, text, std::strtoull(rows.c_str(), nullptr, 10)));
      programs.push_back(std::move(made));
    }
  }
  const int64_t replays = flags.Number("replays", 10);
  if (Status s = RunGraph(rank, programs, replays, "untuned"); !s) return s;
  if (Status s = RunQueued(rank, programs, 3, "untuned"); !s) return s;
  if (flags.Number("tune", 1) == 0) return {};
  if (Status s = ApiProgram::Tune(rank, programs); !s) return s;
  if (Status s = RunQueued(rank, programs, 3, "tuned"); !s) return s;
  return RunGraph(rank, programs, replays, "tuned");
}

}  // namespace cotune::gputest
