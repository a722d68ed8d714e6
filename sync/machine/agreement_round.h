// One agreement as the coordinator sees it: prepare, all YES, commit, all acknowledged, go.
#ifndef COTUNE_SYNC_MACHINE_AGREEMENT_ROUND_H_
#define COTUNE_SYNC_MACHINE_AGREEMENT_ROUND_H_

#include <cstddef>
#include <vector>

namespace cotune::sync {

// Members are positions in the channel. A member that never votes counts as NO: COMMIT needs every
// YES. Pure.
class AgreementRound {
 public:
  enum class Phase {
    kIdle,       // no agreement is under way
    kVoting,     // PREPARE is out
    kRecording,  // COMMIT is out: from here on no member may be told DECLINED
    kDeclined,   // a NO was heard
    kDone,       // GO is out
  };
  enum class Next { kNothing, kCommit, kDecline, kGo };

  void Start(size_t members);
  void Stop() { phase_ = Phase::kIdle; }

  // Returns what to tell all members now. A second vote or acknowledgement of one member changes
  // nothing.
  Next OnVote(size_t member, bool yes);
  Next OnAcknowledge(size_t member);

  Phase phase() const { return phase_; }
  // Positions that the round waits for.
  std::vector<size_t> WaitsFor() const;

 private:
  Phase phase_ = Phase::kIdle;
  std::vector<bool> answered_;  // [members], in the present phase
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_AGREEMENT_ROUND_H_
