// How ranks meet. core declares it; sync implements it over sockets and in a simulated network.
#ifndef COTUNE_CORE_RANKS_RANK_EXCHANGE_H_
#define COTUNE_CORE_RANKS_RANK_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace cotune {

// Everything that decides and must be equal on all ranks, as (field, value) pairs in a fixed order;
// compared by the coordinator, which names the first field and the odd ranks when they differ.
using AgreedFields = std::vector<std::pair<std::string, std::string>>;

// The messages of all ranks in one step, and the data of the release.
struct StepResult {
  std::vector<std::string> records;  // [world_size], by rank; each at most kRecordBytesMax
  // From the job's begin to the release; equal on all ranks: the one clock for budgets.
  int64_t elapsed_ns = 0;
  // From the job's begin to the start of the next timed part on all ranks; 0: none was asked for.
  int64_t start_elapsed_ns = 0;
  // The job's begin on this process's clock, which turns the two above, and what other ranks say in
  // them, into moments of this process. Processes may have clocks that do not agree, so it is an
  // estimate, off by half the shortest round trip at most.
  int64_t job_begin_ns = 0;
};

struct PreSyncResult {
  bool met = false;             // all ranks came inside the window and all fields agree
  std::vector<int> late_ranks;  // not met: the ranks that were missing when the window closed
  int64_t waited_ns = 0;        // of this rank
};

enum class AgreementOutcome {
  kCommitted,  // every rank has recorded the proposal: use it
  kDeclined,   // no rank uses it: keep the default table
};

// The control channel of one rank. Calls are made by one thread, in the same order on every rank;
// background heartbeats keep running between calls. Every failure (a rank that died, stopped or
// came late, or that is at another step) reaches all ranks as kRankLost with the ranks named, also
// between calls; the exchange is unusable afterwards. Deadlines are absolute, on the clock of this
// process; what travels is the time that is left.
class RankExchange {
 public:
  static constexpr uint64_t kRecordBytesMax = 64 * 1024;
  static constexpr uint64_t kProposalBytesMax = 16 * 1024 * 1024;
  static constexpr uint64_t kStepNameBytesMax = 255;

  virtual ~RankExchange() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // The rank in the job of this exchange's rank `rank`. They differ in subgroups, and the user
  // knows the job's: texts and errors name those.
  virtual int job_rank(int rank) const = 0;

  // Barrier and all-gather of small records in one. `step` names it, in kStepNameBytesMax bytes at
  // most; ranks in steps of different names are an error that says which rank is where.
  // start_delay_ns > 0 asks for a common start time that long after the release (the largest value
  // asked for by any rank counts).
  virtual Result<StepResult> Step(std::string_view step, std::string_view record,
                                  int64_t start_delay_ns, int64_t deadline_ns) = 0;

  // All ranks meet inside window_ns, counted by the coordinator from the first arrival, and compare
  // `fields`. A missed window is not an error: every rank, the late ones too, gets met == false.
  // Fields that differ are kDisagreement on every rank, with field and ranks named; the exchange
  // can be used afterwards.
  virtual Result<PreSyncResult> PreSync(const AgreedFields& fields, int64_t window_ns,
                                        int64_t deadline_ns) = 0;

  // Rank 0's proposal (others pass "") reaches all ranks; each votes what `accept` answers.
  // prepare, all YES, commit, all acknowledged, go. kRankLost after a YES vote means in doubt: this
  // rank stops and never falls back alone.
  using Accept = std::function<bool(std::string_view proposal)>;
  virtual Result<AgreementOutcome> Agree(std::string_view proposal, const Accept& accept,
                                         int64_t deadline_ns) = 0;

  // Rank 0's bytes (others pass "") on every rank; at most kProposalBytesMax.
  virtual Result<std::string> Broadcast(std::string_view bytes, int64_t deadline_ns) = 0;

  // The control channel of a subgroup over the same connection: `ranks` are ranks of this exchange
  // in the group's order, this rank among them. Every rank of the subgroup calls it with the same
  // name, which is new in the job; other ranks do not. The store stays the job's. Lives no longer
  // than this exchange; ranks in errors are the job's.
  virtual Result<std::unique_ptr<RankExchange>> Subgroup(std::string_view name,
                                                         std::span<const int> ranks,
                                                         int64_t deadline_ns) = 0;

  // This rank gives up the job for `error`, which names it: calls under way end with it, on this
  // rank too, and it reaches all ranks as a loss does. Does not wait. Any thread.
  virtual void GiveUp(const Error& error) = 0;

  // The job's store, for backends: any thread. Get waits for the key. Key <= 255 characters, value
  // <= kRecordBytesMax.
  virtual Status StorePut(std::string_view key, std::string_view value) = 0;
  virtual Result<std::string> StoreGet(std::string_view key, int64_t deadline_ns) = 0;
  virtual Status StoreDelete(std::string_view key) = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_RANKS_RANK_EXCHANGE_H_
