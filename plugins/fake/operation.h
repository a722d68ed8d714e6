// One collective: every rank puts what each other rank needs of it into the job's store, fetches
// what it needs itself, and works out its result.
#ifndef COTUNE_PLUGINS_FAKE_OPERATION_H_
#define COTUNE_PLUGINS_FAKE_OPERATION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/failure.h"

namespace cotune::fake {

using sdk::Failure;
using sdk::Result;

// The state that the operations of a group share.
struct GroupState {
  const cotune_host_t* host = nullptr;
  std::string name;
  int32_t rank = 0;
  std::vector<int32_t> job_ranks;    // by rank in the group
  std::atomic<bool> aborted{false};  // set by any thread
  // A rank that hangs tells the others nothing any more, as a process that is stuck.
  std::atomic<bool> is_silent{false};
  uint64_t operations = 0;            // started so far, the same number on every rank
  std::atomic<uint64_t> meetings{0};  // likewise

  int32_t world_size() const { return static_cast<int32_t>(job_ranks.size()); }
  int64_t now_ns() const { return host->now_ns(host->context); }
};

// The script's effect on one launch.
struct Misbehaviour {
  int64_t least_ns = 0;  // it takes at least that long
  bool hangs = false;
  bool names_late = false;  // the rank that did not come, as late as the ABI allows
  bool is_wrong = false;
  bool overruns = false;
};

// One rank's part. Every value in the store has one reader, which deletes it.
class Operation {
 public:
  Operation(GroupState& group, const cotune_problem_t& problem, const cotune_launch_t& launch,
            const Misbehaviour& misbehaviour);

  // One step at least, more until until_ns. True: the result is there. The group cannot be used
  // after a failure.
  Result<bool> Advance(int64_t until_ns);

 private:
  enum class Phase { kSend, kReceive, kFinish, kDone };

  Result<void> Step(int64_t now_ns, int64_t until_ns);
  Result<void> SendChunk();
  Result<void> ReceiveChunk(int64_t until_ns);
  Result<void> Finish(int64_t now_ns, int64_t until_ns);
  void WriteResult();
  Failure PastDeadline() const;
  // When the operation gives up.
  int64_t EndNs() const;

  bool IsSource(int32_t rank) const;
  const std::byte* BlockFor(int32_t rank) const;
  uint64_t ChunkBytes(uint64_t offset) const;
  std::string Key(int32_t from, int32_t to) const;
  void NextPeer();

  GroupState& group_;
  const cotune_problem_t problem_;
  const cotune_launch_t launch_;
  const Misbehaviour misbehaviour_;
  const uint64_t number_;
  const int64_t started_ns_;
  const uint64_t block_bytes_;                  // that one rank sends to one other
  std::vector<std::vector<std::byte>> blocks_;  // received, by rank
  Phase phase_ = Phase::kSend;
  int32_t peer_ = 0;     // whom the phase is at
  uint64_t offset_ = 0;  // and how far
};

// Frees this rank and, within milliseconds, every other rank that waits in this group. Any thread.
void Abort(GroupState& group);

// Meets all ranks of the group through the store, as often as every rank calls it; `what` is what a
// rank that does not come has not done. COTUNE_PEER_FAILED names the first of them.
Result<void> Meet(GroupState& group, const std::string& what, int64_t deadline_ns);

// Gives the processor up until a time, or for a few milliseconds at most: to be called again.
void PauseUntil(const GroupState& group, int64_t until_ns);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_OPERATION_H_
