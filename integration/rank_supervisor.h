// Sees the ranks that were started to their end.
#ifndef COTUNE_INTEGRATION_RANK_SUPERVISOR_H_
#define COTUNE_INTEGRATION_RANK_SUPERVISOR_H_

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "integration/error_collector.h"
#include "integration/rank_log.h"
#include "integration/rank_process.h"
#include "integration/signal_pipe.h"
#include "integration/spawn.h"
#include "integration/terminal.h"

namespace cotune {

// One thread, one poll: signals, what ranks print, their ends, and the time. None of these waits
// for another.
class RankSupervisor {
 public:
  // All outlive it; `ranks` are running.
  RankSupervisor(const SpawnRequest& request, std::vector<RankProcess>& ranks, SignalPipe& signals,
                 const Clock& clock);

  // Until all have ended and are collected.
  void Run();
  SpawnResult TakeResult();

 private:
  bool AnyRunning() const;
  bool NoneStopped() const;
  bool IsJobOver() const { return interrupted_ || failed_; }

  // Waits until there is something to do, or it is time.
  void Wait();
  int TimeoutMs() const;
  void HandleSignals();
  void OnSignal(int number);
  // This process, the ranks, and the terminal, as a shell's job that is stopped and goes on.
  void Suspend();

  void ReadOutputs();
  // False when there is nothing now.
  bool ReadOutput(RankProcess& rank);
  void CloseOutput(RankProcess& rank);

  void Reap();
  void OnStopped(RankProcess& rank, int signal_number);
  void OnContinued(RankProcess& rank);
  void OnEnded(RankProcess& rank);
  // After an end: says whose it was, and ends the others where that is asked for.
  void HandleLoss();
  void EndRanksThatWaitInVain();

  // Names the ranks that have been stopped for a while, once for each time that ranks are stopped.
  void NoticeStoppedRanks();

  // From now on ranks have a bounded time to end.
  void BeginGrace();
  // To every rank that runs, and to what it has started.
  void SendAll(int signal_number) const;
  void KillAll();
  void CollectAll();

  void TakeExit(const RankProcess& rank);
  bool HasEndedWell(const RankProcess& rank) const;
  // Returns whether it gave an exit code without a word that it was done, or an error.
  bool HasLeftInTheMiddle(const RankProcess& rank) const;
  bool IsMentioned(const RankProcess& rank) const;
  std::string EndText(const RankProcess& rank) const;
  // "; rank 1 has ended with exit code 0": the rank that the others miss may have left without an
  // error.
  std::string GoodEndsText() const;
  std::string Describe(const RankProcess& rank, const std::string& what) const;
  void AddMessage(const RankProcess& rank, const std::string& what);

  const SpawnRequest& request_;
  std::vector<RankProcess>& ranks_;
  SignalPipe& signals_;
  const Clock& clock_;
  const int64_t started_ns_;
  Terminal terminal_;
  RankLog log_;
  ErrorCollector errors_;
  size_t next_to_read_ = 0;
  int64_t grace_end_ns_ = 0;       // 0: it has not begun
  int64_t unjoined_end_ns_ = 0;    // 0: no rank was lost before all had joined
  int64_t stopped_notice_ns_ = 0;  // when a line is due; 0: no rank is stopped, or it was given
  sigset_t passed_on_;             // signals of the user
  bool interrupted_ = false;       // by one
  bool was_failing_ = false;       // when it came: a rank had already ended badly
  bool failed_ = false;            // a rank has ended badly
  bool loss_is_told_ = false;
  int told_rank_ = -1;        // whose end on_loss was told
  bool ends_others_ = false;  // the others were sent SIGTERM
  SpawnResult result_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_RANK_SUPERVISOR_H_
