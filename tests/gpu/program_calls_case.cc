#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/gpu/api_program.h"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

using Programs = ApiPrograms;

Status NoteBackends(ApiRank& rank, const Programs& programs) {
  for (const auto& each : programs) {
    COTUNE_TRY(const std::string choice, each->Choice(rank.group()));
    COTUNE_RETURN_IF_ERROR(rank.NoteBackends(choice));
  }
  return {};
}

// Data that no call before has had: all programs use the same scratch memory.
Status FillAll(ApiRank& rank, Programs& programs) {
  for (const auto& each : programs) {
    if (Status s = each->Fill(rank.NextSalt()); !s) return s;
  }
  return {};
}

// All programs back to back on one stream, several times.
Status RunQueued(ApiRank& rank, Programs& programs, int64_t rounds, std::string_view what) {
  for (int64_t round = 0; round < rounds; ++round) {
    if (Status s = FillAll(rank, programs); !s) return s;
    for (const auto& each : programs) {
      if (Status s = each->Enqueue(rank.group()); !s) return s;
    }
    if (Status s = rank.Await(rank.group(), rank.stream()); !s) return s;
    for (const auto& each : programs) {
      if (Status s = each->Check(what); !s) return s;
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
  }
  if (Status s = FillAll(rank, programs); !s) return s;
  COTUNE_TRY(const CallMemory::Replay replay, rank.memory().Capture(rank.stream(), enqueue));
  for (int64_t i = 0; i < replays; ++i) {
    if (Status s = FillAll(rank, programs); !s) return s;
    if (Status s = (replay)(); !s) return s;
    if (Status s = rank.Await(rank.group(), rank.stream()); !s) return s;
    for (const auto& each : programs) {
      if (Status s = each->Check(fmt::format("{}, replay {}", what, i)); !s) return s;
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
  COTUNE_RETURN_IF_ERROR(NoteBackends(rank, programs));
  if (Status s = RunGraph(rank, programs, replays, "untuned"); !s) return s;
  if (Status s = RunQueued(rank, programs, 3, "untuned"); !s) return s;
  if (flags.Number("tune", 1) == 0) return {};
  if (Status s = ApiProgram::Tune(rank, programs); !s) return s;
  COTUNE_RETURN_IF_ERROR(NoteBackends(rank, programs));
  if (Status s = RunQueued(rank, programs, 3, "tuned"); !s) return s;
  return RunGraph(rank, programs, replays, "tuned");
}

}  // namespace cotune::gputest
