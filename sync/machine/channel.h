// One channel as the coordinator sees it: the whole job, or a subgroup. Every member makes the same
// calls in the same order; a call is over when all have come, or its window has closed.
#ifndef COTUNE_SYNC_MACHINE_CHANNEL_H_
#define COTUNE_SYNC_MACHINE_CHANNEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "sync/machine/agreement_round.h"
#include "sync/machine/meeting.h"
#include "sync/machine/pre_sync_window.h"
#include "sync/wire/frame_codec.h"
#include "sync/wire/wire_forward.h"

namespace cotune::sync {

// The actions that a channel asks of the coordinator.
struct ChannelOutput {
  struct Send {
    std::vector<int> ranks;
    FramePtr frame;
  };
  std::vector<Send> sends;
  std::vector<std::string> notes;  // for the log
  std::optional<Error> failure;    // of the whole job
  bool waits_for_ranks =
      false;  // the failure: its ranks did not come in time; the coordinator knows how they are
};

// Pure: (event, now) -> output. Ranks are those of the job; the caller passes members only.
class Channel {
 public:
  // begin_ns: of the job, on the coordinator's clock.
  Channel(std::string name, std::vector<int> ranks, int64_t begin_ns);

  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  bool HasMember(int rank) const;

  void OnArrive(int rank, wire::Arrive arrive, int64_t now_ns, ChannelOutput& output);
  void OnVote(int rank, const wire::Vote& vote, ChannelOutput& output);
  void OnAcknowledge(int rank, const wire::Acknowledge& acknowledge, ChannelOutput& output);
  // The rank makes no more calls here. An error for those who wait for it.
  void OnLeft(int rank, ChannelOutput& output);
  void OnTime(int64_t now_ns, ChannelOutput& output);

  // When OnTime has something to do; INT64_MAX when nothing is under way.
  int64_t next_time_ns() const;

  bool left_by_all() const;
  // Says where the rank was seen last: "waits in step 'x'", "was last in pre-sync".
  std::string PlaceText(int rank) const;
  // Members that wait for others now.
  std::vector<int> WaitingRanks() const;

 private:
  struct Member {
    uint64_t next_call = 0;
    bool left = false;
    bool waits = false;
    std::string last_place;
  };

  size_t Position(int rank) const;
  void TellMissedWindow(int rank, const wire::Arrive& arrive, ChannelOutput& output);
  void OnFull(int64_t now_ns, ChannelOutput& output);
  void CheckSameGroup(ChannelOutput& output) const;
  void ReleaseAll(int64_t now_ns, ChannelOutput& output);
  void PreSyncFull(int64_t now_ns, ChannelOutput& output);
  void PrepareAll(ChannelOutput& output);
  void CloseWindow(int64_t now_ns, ChannelOutput& output);
  void Rule(wire::Ruling ruling, ChannelOutput& output);
  void Over(const std::vector<int>& ranks);
  bool IsCurrentAgreement(uint64_t call) const;
  std::vector<int> AgreementWaitsFor() const;
  void FailLeft(std::vector<int> left, ChannelOutput& output) const;
  void FailDeadline(ChannelOutput& output) const;

  int64_t begin_ns_;
  std::string name_;
  std::vector<int> ranks_;
  std::unordered_map<int, size_t> positions_;  // of ranks in ranks_
  std::vector<Member> members_;                // as ranks_
  size_t left_ = 0;                            // members that have
  Meeting meeting_;
  AgreementRound agreement_;
  MissedWindows missed_windows_;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_CHANNEL_H_
