#include "core/base/status.h"

namespace cotune {

std::string Error::ToText() const {
  std::string text = what;
  if (!where.empty()) text += " (" + where + ")";
  if (!cause.empty()) text += ": " + cause;
  if (!next_step.empty()) text += "; " + next_step;
  return text;
}

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kEnvironment:
      return "environment";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kWrongResult:
      return "wrong_result";
    case ErrorCode::kRankLost:
      return "rank_lost";
    case ErrorCode::kDeadline:
      return "deadline";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kDatabase:
      return "database";
    case ErrorCode::kPluginRefused:
      return "plugin_refused";
    case ErrorCode::kInterrupted:
      return "interrupted";
    case ErrorCode::kDisagreement:
      return "disagreement";
  }
  return "internal";
}

int ExitCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal:
      return 1;
    case ErrorCode::kUsage:
      return 2;
    case ErrorCode::kEnvironment:
    case ErrorCode::kUnsupported:
      return 3;
    case ErrorCode::kWrongResult:
      return 4;
    case ErrorCode::kRankLost:
    case ErrorCode::kDeadline:
    case ErrorCode::kAborted:
    case ErrorCode::kDisagreement:
      return 5;
    case ErrorCode::kDatabase:
      return 7;
    case ErrorCode::kPluginRefused:
      return 8;
    case ErrorCode::kInterrupted:
      return 130;
  }
  return 1;
}

bool LeavesDoubt(ErrorCode code) {
  return code == ErrorCode::kRankLost || code == ErrorCode::kDeadline ||
         code == ErrorCode::kAborted;
}

}  // namespace cotune
