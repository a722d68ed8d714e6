#include "core/selection/stage_observer.h"

namespace cotune {

std::string_view Name(Stage stage) {
  switch (stage) {
    case Stage::kRendezvous:
      return "rendezvous";
    case Stage::kGroups:
      return "groups";
    case Stage::kChoices:
      return "choices";
    case Stage::kKnownCells:
      return "known_cells";
    case Stage::kPrecompile:
      return "precompile";
    case Stage::kWarm:
      return "warm";
    case Stage::kPreSync:
      return "pre_sync";
    case Stage::kCheck:
      return "check";
    case Stage::kBenchmark:
      return "benchmark";
    case Stage::kAgree:
      return "agree";
    case Stage::kVote:
      return "vote";
    case Stage::kCommitted:
      return "committed";
    case Stage::kSave:
      return "save";
    case Stage::kDispatch:
      return "dispatch";
  }
  return "invalid";
}

}  // namespace cotune
