// One rank's end of the coordinator's socket: RankMachine with a socket around it.
#ifndef COTUNE_SYNC_SOCKET_SOCKET_LINK_H_
#define COTUNE_SYNC_SOCKET_SOCKET_LINK_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/fork_guard.h"
#include "core/base/status.h"
#include "sync/exchange/rank_link.h"
#include "sync/machine/rank_machine.h"
#include "sync/socket/coordinator_server.h"
#include "sync/socket/unix_socket.h"
#include "sync/wire/frame_codec.h"

namespace cotune::sync {

// The thread that makes a call sends and receives itself. When several threads wait, one of them
// reads for all. A thread of the link sends heartbeats, so that they go on while the caller
// computes, and reads between calls, so that a failure is known before the next one. In a forked
// child calls fail with kUsage, nothing is sent, and the link is not destroyed: its threads are not
// there, and another thread may have held its mutex.
class SocketLink final : public RankLink {
 public:
  // `socket` is connected and non-blocking; `server` is the coordinator when it lives in this
  // process, and ends with the link. `clock` must outlive the link. `on_loss` as in
  // SocketExchangeOptions.
  using OnLoss = std::function<void(const Error&)>;
  static Result<std::shared_ptr<SocketLink>> Make(RankConfig config, HomeFd socket,
                                                  std::unique_ptr<CoordinatorServer> server,
                                                  const Clock& clock, OnLoss on_loss);
  ~SocketLink() override;

  Result<FramePtr> Call(Ask ask) override;
  void Leave(const std::string& channel) override;
  void GiveUp(const Error& error) override;
  const Clock& clock() const override { return clock_; }
  int64_t JobBeginNs() override;

 private:
  SocketLink(RankConfig config, HomeFd socket, HomeFd wake,
             std::unique_ptr<CoordinatorServer> server, const Clock& clock, OnLoss on_loss);

  // All of these with mutex_ held.
  void OnEvent(const RankEvent& event);
  void Do(SendToCoordinator& action);
  void Do(CompleteCall& action);
  void Do(ReportLoss& action);
  void Do(Disconnect& action);
  void Flush();
  void WakeReader();
  // Returns at until_ns when nothing has come.
  void ReadOnce(std::unique_lock<std::mutex>& lock, int64_t until_ns);
  void Receive();

  void BeatUntilStopped();

  const HomeProcess home_;
  const Clock& clock_;
  const uint64_t frame_bytes_max_;
  const int64_t heartbeat_interval_ns_;
  const OnLoss on_loss_;  // may be empty
  std::unique_ptr<CoordinatorServer> server_;
  const HomeFd socket_;
  const HomeFd wake_;  // an eventfd that ends the reader's wait

  std::mutex mutex_;
  std::condition_variable changed_;
  RankMachine machine_;
  FrameReader reader_;
  std::string outbox_;    // what the socket has not taken yet
  bool reading_ = false;  // a thread waits at the socket
  bool connected_ = true;
  int calls_open_ = 0;
  CallToken next_token_ = 1;
  std::map<CallToken, Result<FramePtr>> completed_;
  std::vector<char> read_buffer_;

  bool stopping_ = false;
  std::condition_variable stop_;
  std::thread heartbeat_thread_;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SOCKET_SOCKET_LINK_H_
