// A rank that fails at a chosen point of the protocol: RankMachine on a plain socket, frame by
// frame. For tests.
#ifndef COTUNE_SYNC_TESTING_SCRIPTED_RANK_H_
#define COTUNE_SYNC_TESTING_SCRIPTED_RANK_H_

#include <optional>
#include <string>
#include <vector>

#include "sync/machine/rank_machine.h"
#include "sync/socket/unix_socket.h"
#include "sync/testing/rank_processes.h"

namespace cotune::sync {

enum class FaultPoint {
  kBeforeHello,
  kAfterHello,
  kBeforeStep,
  kBeforePreSync,
  kBeforeVote,
  kAfterVote,
  kBeforeAcknowledge,
};

enum class FaultKind {
  kKill,  // SIGKILL
  kStop,  // SIGSTOP
  kLate,  // alive by its heartbeats, goes on when the parent speaks
};

// Joins, makes the step "first", a pre-sync, an agreement with a YES, and the step "last", as the
// healthy ranks of the test do; the fault happens at its point. Reports what a healthy rank would.
class ScriptedRank {
 public:
  ScriptedRank(const SocketExchangeOptions& options, FaultPoint point, FaultKind kind,
               int64_t deadline_ns, int64_t window_ns, Reporter& reporter);

  void Run();

 private:
  // nullopt after the error was reported.
  std::optional<FramePtr> Await(const RankEvent& event);
  void Do(const RankEvent& event);
  void SendFrame(const wire::Frame& frame);
  void FaultIfAt(const wire::Frame& frame, bool after);
  void Fault();
  void ReceiveOnce();

  SocketExchangeOptions options_;
  FaultPoint point_;
  FaultKind kind_;
  int64_t deadline_ns_;
  int64_t window_ns_;
  Reporter& reporter_;
  RankMachine machine_;
  HomeFd socket_;
  FrameReader reader_;
  std::optional<Result<FramePtr>> completed_;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_TESTING_SCRIPTED_RANK_H_
