#include "sync/machine/agreement_round.h"

#include <algorithm>

namespace cotune::sync {

void AgreementRound::Start(size_t members) {
  phase_ = Phase::kVoting;
  answered_.assign(members, false);
}

AgreementRound::Next AgreementRound::OnVote(size_t member, bool yes) {
  if (phase_ != Phase::kVoting || answered_[member]) return Next::kNothing;
  if (!yes) {
    phase_ = Phase::kDeclined;
    return Next::kDecline;
  }
  answered_[member] = true;
  if (!std::all_of(answered_.begin(), answered_.end(), [](bool a) { return a; })) {
    return Next::kNothing;
  }
  phase_ = Phase::kRecording;
  answered_.assign(answered_.size(), false);
  return Next::kCommit;
}

AgreementRound::Next AgreementRound::OnAcknowledge(size_t member) {
  if (phase_ != Phase::kRecording) return Next::kNothing;
  answered_[member] = true;
  if (!std::all_of(answered_.begin(), answered_.end(), [](bool a) { return a; })) {
    return Next::kNothing;
  }
  phase_ = Phase::kDone;
  return Next::kGo;
}

std::vector<size_t> AgreementRound::WaitsFor() const {
  std::vector<size_t> waits;
  if (phase_ != Phase::kVoting && phase_ != Phase::kRecording) return waits;
  for (size_t i = 0; i < answered_.size(); ++i) {
    if (!answered_[i]) waits.push_back(i);
  }
  return waits;
}

}  // namespace cotune::sync
