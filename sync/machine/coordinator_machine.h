// The coordinator as a state machine: (event, now) -> actions. The socket server, the in-process
// exchange and the simulated network run this same machine.
#ifndef COTUNE_SYNC_MACHINE_COORDINATOR_MACHINE_H_
#define COTUNE_SYNC_MACHINE_COORDINATOR_MACHINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "sync/machine/channel.h"
#include "sync/machine/liveness.h"
#include "sync/machine/peer_state.h"
#include "sync/machine/rendezvous.h"
#include "sync/machine/store.h"
#include "sync/wire/frame_codec.h"
#include "sync/wire/limits.h"
#include "sync/wire/log.h"

namespace cotune::sync {

using ConnectionId = uint64_t;

// ---- Events ----
struct Connected {
  ConnectionId id;
};
struct FrameCame {
  ConnectionId id;
  FramePtr frame;
};
// Some bytes of a long frame came: a sign of life.
struct BytesCame {
  ConnectionId id;
};
// The bytes are no frame; nothing more is read from this connection.
struct BadBytesCame {
  ConnectionId id;
  std::string why;
};
struct ConnectionEnded {
  ConnectionId id;
};
struct TimeReached {};
// Rank 0 waits for nobody any more.
struct StopAsked {};
using CoordinatorEvent = std::variant<Connected, FrameCame, BytesCame, BadBytesCame,
                                      ConnectionEnded, TimeReached, StopAsked>;

// ---- Actions ----
struct SendFrame {
  std::vector<ConnectionId> to;
  FramePtr frame;
  bool droppable = false;  // a heartbeat: not worth queueing behind other bytes
};
// After what was sent to it.
struct CloseConnection {
  ConnectionId id;
};
using CoordinatorAction = std::variant<SendFrame, CloseConnection, LogLine>;
using CoordinatorActions = std::vector<CoordinatorAction>;

struct CoordinatorConfig {
  JobIdentity job;
  int64_t heartbeat_interval_ns = kHeartbeatIntervalNs;
  int64_t heartbeat_timeout_ns = kHeartbeatTimeoutNs;
  // Ends the line about ranks that are missing; may be "".
  std::string missing_ranks_hint{};
  // Looks at the process of a rank that is silent; may be empty.
  std::function<PeerState(ConnectionId)> state_of{};
};

// No clock, no I/O. Not thread-safe.
class CoordinatorMachine {
 public:
  explicit CoordinatorMachine(CoordinatorConfig config);

  CoordinatorActions OnEvent(const CoordinatorEvent& event, int64_t now_ns);

  // When TimeReached is due; INT64_MAX for never.
  int64_t next_time_ns() const;

  // How long a frame from this connection may be now: nothing but a small HELLO before it has
  // joined.
  uint64_t FrameBytesMax(ConnectionId id) const;

  // Nobody who joined is still there.
  bool everybody_gone() const;
  const std::optional<Error>& failure() const { return failure_; }

  // After a failure of the rendezvous: until when ranks may still come that have not been told why.
  // Now or earlier when there are none.
  int64_t tell_until_ns() const;

 private:
  struct Member {
    std::optional<ConnectionId> connection;
    bool joined = false;
    bool left = false;           // the end of its connection is no loss
    bool knows_failure = false;  // was declined because the job had failed
    std::string declined;        // why another process that said it was this rank was turned away
  };

  void On(const Connected& event, int64_t now_ns);
  void On(const FrameCame& event, int64_t now_ns);
  void On(const BytesCame& event, int64_t now_ns);
  void On(const BadBytesCame& event, int64_t now_ns);
  void On(const ConnectionEnded& event, int64_t now_ns);
  void On(const TimeReached& event, int64_t now_ns);
  void On(const StopAsked& event, int64_t now_ns);

  void OnHello(ConnectionId id, const wire::Hello& hello, int64_t now_ns);
  void OnMemberFrame(int rank, const wire::Frame& frame, int64_t now_ns);
  void OnGiveUp(int rank, const wire::GiveUp& give_up);
  void OnArrive(int rank, const wire::Arrive& arrive, int64_t now_ns);
  Channel* OpenChannel(int rank, const wire::Arrive& arrive);
  void OnBye(int rank, const std::string& channel, int64_t now_ns);
  void Apply(ChannelOutput output, int64_t now_ns);
  void Reply(const std::vector<Store::Reply>& replies);

  void DeclineConnection(ConnectionId id, const Error& error);
  // A process that is none of the ranks that the job waits for: the job goes on without it.
  void TurnAway(ConnectionId id, const Error& error);
  void FailAll(Error error);
  // The first loss fails the exchange. A later one is told all the same, because groups that did
  // not have the first lost rank still run.
  void OnLoss(Error loss);
  // To all who are still there.
  void SendFailure(const Error& error);
  void SendBye(std::vector<ConnectionId> to);
  void FailProtocol(int rank, const std::string& what);
  void SendPings(int64_t now_ns);
  // Once, a while after the first rank has joined: names the ranks that are still missing.
  void NoticeMissingRanks(int64_t now_ns);
  std::string StateText(int rank, int64_t now_ns) const;
  PeerState StateOf(int rank) const;
  std::vector<ConnectionId> ConnectionsOf(const std::vector<int>& ranks) const;
  std::vector<int> PresentRanks() const;
  Channel* FindChannel(int rank, const std::string& name);
  bool rendezvous_open() const;
  void Log(Severity severity, std::string text);

  CoordinatorConfig config_;
  std::optional<int64_t> begin_ns_;               // of the job: when the first event came
  std::vector<Member> members_;                   // [world_size]
  std::map<ConnectionId, int> ranks_;             // of connections that have joined
  std::map<ConnectionId, int64_t> unidentified_;  // connected, no HELLO yet: until when it may take
  std::map<std::string, Channel> channels_;       // "" is the job
  std::set<std::string> channel_names_;           // ever opened
  Store store_;
  Liveness liveness_;
  int64_t next_ping_ns_ = 0;
  int64_t join_deadline_ns_ = INT64_MAX;   // the earliest of those who came
  std::optional<int64_t> join_notice_ns_;  // when it is due; INT64_MAX: it was given
  std::string turned_away_;                // why the last process was, while ranks came
  std::set<std::string> logged_declines_;  // at most kDeclinesLoggedMax
  std::optional<Error> failure_;
  CoordinatorActions actions_;  // of the event under way
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_COORDINATOR_MACHINE_H_
