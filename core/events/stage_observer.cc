#include "core/events/stage_observer.h"

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

std::optional<Stage> FindStage(std::string_view name) {
  for (int i = 0; i < kStages; ++i) {
    const auto stage = static_cast<Stage>(i);
    if (Name(stage) == name) return stage;
  }
  return std::nullopt;
}

std::optional<Stage> StageBegunBy(const Event& event) {
  const bool begins = event.type == EventType::kBegin || event.type == EventType::kMark;
  return begins && event.kind == SpanKind::kStage ? FindStage(event.name) : std::nullopt;
}

std::optional<Stage> StageEndedBy(const Event& event) {
  const bool ends = event.type == EventType::kEnd && event.kind == SpanKind::kStage;
  return ends ? FindStage(event.name) : std::nullopt;
}

void MarkStage(EventSink& sink, Stage stage) {
  sink.OnEvent({.type = EventType::kMark, .kind = SpanKind::kStage, .name = Name(stage)});
}

void EmitRefusedCells(StageObserver& observer, std::string_view warning) {
  observer.OnRefusedCells(
      {.type = EventType::kLine, .severity = Severity::kWarning, .name = warning});
}

}  // namespace cotune
