#include "sync/socket/process_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace cotune::sync {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PeerState, OnlyAStoppedProcessIsCalledStopped) {
  for (const char state : {'T', 't'}) {
    const PeerState stopped = PeerStateOf({.pid = 7, .state = state, .ranks = 64, .processors = 2});
    EXPECT_THAT(stopped.cause, HasSubstr("its process 7 is stopped (state "));
  }
  const PeerState overloaded =
      PeerStateOf({.pid = 7, .state = 'R', .ranks = 1024, .processors = 2});
  EXPECT_EQ(overloaded.cause,
            "its process 7 is alive (state R), and the machine may be overloaded: 1024 ranks on 2 "
            "usable processors, 512.0 to each");
  EXPECT_EQ(overloaded.next_step,
            "start fewer ranks on this machine, or see what that process does");
  const PeerState busy = PeerStateOf({.pid = 7, .state = 'S', .ranks = 2, .processors = 2});
  EXPECT_THAT(busy.cause, AllOf(HasSubstr("it or the machine is busy"), Not(HasSubstr("stopped"))));
  EXPECT_EQ(PeerStateOf({.pid = 7, .state = 'X'}).cause, "its process 7 has ended");
  EXPECT_THAT(PeerStateOf({}).cause, HasSubstr("is not known"));
}

TEST(PeerState, ItIsThatOfTheProcessBehindTheSocket) {
  std::array<int, 2> sockets = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  const ProcessFacts facts = LookAtPeer(sockets[0], 3);
  EXPECT_EQ(facts.pid, getpid());
  EXPECT_THAT(facts.state, ::testing::AnyOf('R', 'S'));
  EXPECT_EQ(facts.ranks, 3);
  EXPECT_GT(facts.processors, 0u);
  for (const int file : sockets) close(file);
}

}  // namespace
}  // namespace cotune::sync
