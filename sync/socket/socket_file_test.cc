// The file of the coordinator's socket: who may make it, and what becomes of those that are left.
#include "sync/socket/socket_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "core/base/clock.h"
#include "sync/socket/socket_exchange.h"
#include "sync/testing/rank_processes.h"

namespace cotune::sync {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kDeadlineNs = 20 * kSecondNs;

using Exchange = Result<std::unique_ptr<RankExchange>>;

void MakeFile(const std::string& path) {
  close(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

TEST(SocketFile, StaleSocketIsReplacedAndLogged) {
  const PrivateDirectory directory;
  Processes processes;
  const auto options = OptionsForTest(directory, 0, 1, kDeadlineNs);
  processes.Start([&](Reporter& report) {
    const MonotonicClock clock;
    const Exchange exchange = ConnectSocketExchange(options, clock);
    report.Line(exchange.has_value() ? "joined" : exchange.error().ToText());
    raise(SIGKILL);
  });
  ASSERT_TRUE(processes.WaitForEnd({0}, kDeadlineNs));
  ASSERT_EQ(processes.last_line(0), "joined");
  ASSERT_EQ(access(directory.socket_path().c_str(), F_OK), 0) << "nothing is stale";
  Log log;
  auto again = options;
  again.log = log.sink();
  const MonotonicClock clock;
  const Exchange exchange = ConnectSocketExchange(again, clock);
  ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
  EXPECT_THAT(log.lines(), Contains(HasSubstr("stale socket")));
}

TEST(SocketFile, AHandlerOfRankZeroRemovesItsSocketAndNoOther) {
  const PrivateDirectory directory;
  Processes processes;
  const auto options = OptionsForTest(directory, 0, 1, kDeadlineNs);
  processes.Start([&](Reporter& report) {
    const MonotonicClock clock;
    Exchange exchange = ConnectSocketExchange(options, clock);
    if (!exchange.has_value()) return report.ErrorLine(exchange.error());
    RemoveNotedSocketFile();
    report.Line(access(directory.socket_path().c_str(), F_OK) == 0 ? "is left" : "is removed");
    exchange->reset();
    // The path may be another's by now.
    MakeFile(directory.socket_path());
    RemoveNotedSocketFile();
    report.Line(access(directory.socket_path().c_str(), F_OK) == 0 ? "another is left"
                                                                   : "another is removed");
  });
  ASSERT_TRUE(processes.WaitForEnd({0}, kDeadlineNs));
  EXPECT_THAT(processes.lines(0), ElementsAre("is removed", "another is left"));
}

// A path whose bytes cannot be read before Open has been called, so that the thread which notes it
// is interrupted while it copies them.
class GuardedPath {
 public:
  explicit GuardedPath(const std::string& path) {
    // An allocation of this size has pages of its own.
    text_.reserve(1 << 20);
    text_ = path;
    const auto address = reinterpret_cast<uintptr_t>(text_.data());
    page_ = reinterpret_cast<void*>(address / kPageBytes * kPageBytes);
    mprotect(page_, kPageBytes, PROT_NONE);
  }
  const std::string& text() const { return text_; }
  void Open() const { mprotect(page_, kPageBytes, PROT_READ | PROT_WRITE); }

 private:
  static constexpr size_t kPageBytes = 4096;
  std::string text_;
  void* page_ = nullptr;
};

const GuardedPath* guarded_path = nullptr;
const std::string* second_path = nullptr;
bool is_second_left = false;

// A second thread that notes a path, and a handler of a signal that ends the process.
void NoteSecondPathAndRemove(int) {
  NoteSocketFile(*second_path);
  RemoveNotedSocketFile();
  is_second_left = access(second_path->c_str(), F_OK) == 0;
  guarded_path->Open();
}

TEST(SocketFile, WhileAPathIsNotedNoOtherIsNotedAndNoneIsRemoved) {
  const PrivateDirectory directory;
  const std::string first = directory.path() + "/first";
  const std::string second = directory.path() + "/second";
  MakeFile(first);
  MakeFile(second);
  Processes processes;
  processes.Start([&](Reporter& report) {
    const GuardedPath path(first);
    guarded_path = &path;
    second_path = &second;
    struct sigaction action = {};
    action.sa_handler = NoteSecondPathAndRemove;
    sigaction(SIGSEGV, &action, nullptr);
    NoteSocketFile(path.text());
    report.Line(is_second_left ? "the second is left" : "the second is removed");
    RemoveNotedSocketFile();
    report.Line(access(first.c_str(), F_OK) == 0 ? "the first is left" : "the first is removed");
  });
  ASSERT_TRUE(processes.WaitForEnd({0}, kDeadlineNs));
  EXPECT_THAT(processes.lines(0), ElementsAre("the second is left", "the first is removed"));
}

// One that is bound and does not listen yet is not stale.
TEST(SocketFile, SocketThatIsBeingMadeIsLeftAlone) {
  const PrivateDirectory directory;
  const int making = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  directory.socket_path().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(making, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const MonotonicClock clock;
  const Exchange exchange =
      ConnectSocketExchange(OptionsForTest(directory, 0, 1, kDeadlineNs), clock);
  ASSERT_FALSE(exchange.has_value());
  EXPECT_THAT(exchange.error().what, HasSubstr("another job uses the socket path"));
  EXPECT_EQ(access(directory.socket_path().c_str(), F_OK), 0) << "it was removed";
  close(making);
}

// Two that find one stale socket: who comes second must not remove what the first has made.
TEST(SocketFile, ListenersInOneDirectoryTakeTurns) {
  const PrivateDirectory directory;
  const int held = open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  const MonotonicClock clock;
  const Exchange late = ConnectSocketExchange(OptionsForTest(directory, 0, 1, 0), clock);
  ASSERT_FALSE(late.has_value()) << "it did not wait for its turn";
  EXPECT_EQ(late.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(late.error().what, HasSubstr("cannot lock the socket's directory"));
  EXPECT_NE(access(directory.socket_path().c_str(), F_OK), 0);
  std::thread waits([&] {
    const Exchange exchange =
        ConnectSocketExchange(OptionsForTest(directory, 0, 1, kDeadlineNs), clock);
    EXPECT_TRUE(exchange.has_value()) << exchange.error().ToText();
  });
  close(held);
  waits.join();
}

void LeaveStaleSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  close(fd);
}

TEST(SocketFile, SocketsOfDeadJobsAreRemovedAndNothingElse) {
  const PrivateDirectory directory;
  const std::string dead = directory.path() + "/0123456789abcdef.sock";
  const std::string others[] = {directory.path() + "/bus.sock", directory.path() + "/x",
                                directory.path() + "/0123456789ABCDEF.sock",
                                directory.path() + "/0123456789abcde.sock"};
  LeaveStaleSocket(dead);
  for (const std::string& other : others) LeaveStaleSocket(other);
  const std::string file = directory.path() + "/fedcba9876543210.sock";
  std::ofstream(file) << "no socket";
  const MonotonicClock clock;
  auto living_options = OptionsForTest(directory, 0, 1, kDeadlineNs);
  living_options.socket_path = directory.path() + "/00000000000000aa.sock";
  const Exchange living = ConnectSocketExchange(living_options, clock);
  ASSERT_TRUE(living.has_value()) << living.error().ToText();
  EXPECT_NE(access(dead.c_str(), F_OK), 0) << "it was left behind";
  LeaveStaleSocket(dead);
  Log log;
  auto options = OptionsForTest(directory, 0, 1, kDeadlineNs);
  options.log = log.sink();
  const Exchange exchange = ConnectSocketExchange(options, clock);
  ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
  EXPECT_NE(access(dead.c_str(), F_OK), 0) << "it was left behind";
  EXPECT_THAT(log.lines(), Contains(HasSubstr("removed 1 socket of jobs that have ended")));
  for (const std::string& other : others) EXPECT_EQ(access(other.c_str(), F_OK), 0) << other;
  EXPECT_EQ(access(file.c_str(), F_OK), 0);
  EXPECT_EQ(access(living_options.socket_path.c_str(), F_OK), 0);
  EXPECT_TRUE((*living)->Step("s", "", 0, NowNs() + kDeadlineNs).has_value());
}

TEST(SocketFile, LivingJobIsLeftAlone) {
  const PrivateDirectory directory;
  const MonotonicClock clock;
  const auto options = OptionsForTest(directory, 0, 1, kDeadlineNs);
  const Exchange first = ConnectSocketExchange(options, clock);
  ASSERT_TRUE(first.has_value()) << first.error().ToText();
  const Exchange second = ConnectSocketExchange(options, clock);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(second.error().what, HasSubstr("another job uses the socket path"));
  EXPECT_TRUE((*first)->Step("s", "", 0, NowNs() + kDeadlineNs).has_value());
}

TEST(SocketFile, FileThatIsNoSocketIsNotRemoved) {
  const PrivateDirectory directory;
  std::ofstream(directory.socket_path()) << "precious";
  const MonotonicClock clock;
  const Exchange exchange =
      ConnectSocketExchange(OptionsForTest(directory, 0, 1, kDeadlineNs), clock);
  ASSERT_FALSE(exchange.has_value());
  EXPECT_EQ(exchange.error().code, ErrorCode::kEnvironment);
  std::string text;
  std::ifstream(directory.socket_path()) >> text;
  EXPECT_EQ(text, "precious");
}

TEST(SocketFile, DirectoryThatOthersCanEnterIsRefused) {
  const PrivateDirectory directory;
  const MonotonicClock clock;
  for (const mode_t mode : {0755, 0770, 0701}) {
    ASSERT_EQ(chmod(directory.path().c_str(), mode), 0);
    for (const int rank : {0, 1}) {
      const Exchange exchange =
          ConnectSocketExchange(OptionsForTest(directory, rank, 2, kDeadlineNs), clock);
      ASSERT_FALSE(exchange.has_value());
      EXPECT_EQ(exchange.error().code, ErrorCode::kEnvironment);
      EXPECT_THAT(exchange.error().what, HasSubstr("open to other users"));
    }
  }
  ASSERT_EQ(chmod(directory.path().c_str(), 0700), 0);
}

TEST(SocketFile, MissingDirectoryIsMadePrivate) {
  const PrivateDirectory directory;
  auto options = OptionsForTest(directory, 0, 1, kDeadlineNs);
  options.socket_path = directory.path() + "/made/s";
  const MonotonicClock clock;
  const Exchange exchange = ConnectSocketExchange(options, clock);
  ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
  struct stat info = {};
  ASSERT_EQ(stat((directory.path() + "/made").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

}  // namespace
}  // namespace cotune::sync
