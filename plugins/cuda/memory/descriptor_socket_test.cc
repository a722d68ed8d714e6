#include "plugins/cuda/memory/descriptor_socket.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace cotune::cuda {
namespace {

constexpr int kSoonMs = 20'000;

sdk::Result<DescriptorSocket> Open() { return DescriptorSocket::Open({"/tmp"}); }

Descriptor MemoryWith(const char* text) {
  Descriptor memory(memfd_create("descriptor_socket_test", MFD_CLOEXEC));
  EXPECT_EQ(write(memory.get(), text, std::strlen(text)), static_cast<ssize_t>(std::strlen(text)));
  return memory;
}

std::string TextOf(const Descriptor& memory) {
  char text[64] = {};
  const ssize_t size = pread(memory.get(), text, sizeof(text), 0);
  return std::string(text, size < 0 ? 0 : static_cast<size_t>(size));
}

TEST(DescriptorSocketTest, AnotherProcessSendsItsMemory) {
  auto socket = Open();
  ASSERT_TRUE(socket) << socket.error().message;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto own = Open();
    const Descriptor memory = MemoryWith("of the child");
    const bool sent =
        own && own->Send(socket->name(), {7, socket->secret()}, memory.get(), kSoonMs);
    _exit(sent ? 0 : 1);
  }
  const auto received = socket->Receive(kSoonMs);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(received->sender, 7);
  EXPECT_EQ(TextOf(received->descriptor), "of the child");
}

TEST(DescriptorSocketTest, EndsHaveNamesOfTheirOwnAndKeepTheOrder) {
  const auto left = Open();
  const auto right = Open();
  ASSERT_TRUE(left && right);
  EXPECT_NE(left->name(), right->name());
  EXPECT_FALSE(left->name().empty());
  EXPECT_LT(left->name().size(), DescriptorSocket::kNameBytesMax);
  EXPECT_NE(left->secret(), right->secret());
  for (int64_t tag = 0; tag < 5; ++tag) {
    const Descriptor memory = MemoryWith(std::to_string(tag).c_str());
    ASSERT_TRUE(left->Send(right->name(), {tag, right->secret()}, memory.get(), kSoonMs));
  }
  for (int64_t tag = 0; tag < 5; ++tag) {
    const auto received = right->Receive(kSoonMs);
    ASSERT_TRUE(received) << received.error().message;
    EXPECT_EQ(received->sender, tag);
    EXPECT_EQ(TextOf(received->descriptor), std::to_string(tag));
  }
}

TEST(DescriptorSocketTest, NobodyThereAndNothingThereAreTold) {
  const auto socket = Open();
  ASSERT_TRUE(socket);
  std::string gone;
  {
    const auto other = Open();
    ASSERT_TRUE(other);
    gone = other->name();
  }
  const Descriptor memory = MemoryWith("x");
  const auto sent = socket->Send(gone, {}, memory.get(), kSoonMs);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().status, COTUNE_UNSUPPORTED);
  const auto received = socket->Receive(0);
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().status, COTUNE_DEADLINE_EXCEEDED);
}

// Whoever does not know the secret, sends something else, or several descriptors is not heard, and
// nothing that was sent stays open.
TEST(DescriptorSocketTest, StrangersAreDropped) {
  const auto socket = Open();
  const auto stranger = Open();
  ASSERT_TRUE(socket && stranger);
  const Descriptor memory = MemoryWith("of a stranger");
  const Descriptor next = MemoryWith("x");
  ASSERT_TRUE(stranger->Send(socket->name(), {1, stranger->secret()}, memory.get(), kSoonMs));
  const auto none = socket->Receive(0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().status, COTUNE_DEADLINE_EXCEEDED);
  ASSERT_TRUE(stranger->Send(socket->name(), {1, {}}, memory.get(), kSoonMs));
  ASSERT_TRUE(stranger->Send(socket->name(), {2, socket->secret()}, memory.get(), kSoonMs));
  const auto received = socket->Receive(kSoonMs);
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(received->sender, 2);
  // The lowest free number: those of the dropped messages are free again.
  EXPECT_EQ(received->descriptor.get(), next.get() + 1);
}

// There may always be another one of a stranger's.
TEST(DescriptorSocketTest, StrangersDoNotTakeMoreThanTheTime) {
  const auto socket = Open();
  const auto other = Open();
  ASSERT_TRUE(socket && other);
  const Descriptor memory = MemoryWith("x");
  ASSERT_TRUE(other->Send(socket->name(), {1, other->secret()}, memory.get(), kSoonMs));
  ASSERT_TRUE(other->Send(socket->name(), {2, socket->secret()}, memory.get(), kSoonMs));
  const auto late = socket->Receive(0);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().status, COTUNE_DEADLINE_EXCEEDED);
  const auto received = socket->Receive(0);
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(received->sender, 2);
}

// The address is in a folder of mode 0700 rather than in a list that everybody reads.
TEST(DescriptorSocketTest, AnotherUserCannotSend) {
  constexpr int kCannot = 77;
  const auto socket = Open();
  ASSERT_TRUE(socket) << socket.error().message;
  struct stat info {};
  ASSERT_EQ(stat(socket->name().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  EXPECT_EQ(info.st_uid, geteuid());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setuid(12345) != 0) _exit(kCannot);
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (socket->name() + "/socket").c_str(),
                 sizeof(address.sun_path) - 1);
    const bool is_refused =
        sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) < 0 &&
        errno == EACCES;
    _exit(is_refused ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "only root becomes another user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(DescriptorSocketTest, NothingIsSentIntoAFolderOfOthers) {
  const auto socket = Open();
  auto peer = Open();
  ASSERT_TRUE(socket && peer);
  const Descriptor memory = MemoryWith("x");
  ASSERT_EQ(chmod(peer->name().c_str(), 0755), 0);
  auto sent = socket->Send(peer->name(), {1, peer->secret()}, memory.get(), kSoonMs);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().status, COTUNE_UNSUPPORTED);
  EXPECT_NE(sent.error().message.find("mode 755"), std::string::npos) << sent.error().message;
  ASSERT_EQ(chmod(peer->name().c_str(), 0700), 0);
  // A link in the place of the folder.
  const std::string link = socket->name() + "/link";
  ASSERT_EQ(symlink(peer->name().c_str(), link.c_str()), 0);
  sent = socket->Send(link, {1, peer->secret()}, memory.get(), kSoonMs);
  ASSERT_EQ(unlink(link.c_str()), 0);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().status, COTUNE_UNSUPPORTED);
  EXPECT_FALSE(peer->Receive(0));
}

TEST(DescriptorSocketTest, NoFileStaysBehind) {
  std::string name;
  {
    auto socket = Open();
    ASSERT_TRUE(socket);
    name = socket->name();
    const DescriptorSocket moved = std::move(*socket);
    EXPECT_EQ(access(name.c_str(), F_OK), 0);
  }
  EXPECT_NE(access(name.c_str(), F_OK), 0);
}

TEST(DescriptorSocketTest, AFolderThatDoesNotDoIsPassedOver) {
  const auto passed = DescriptorSocket::Open({"/proc", "/tmp/" + std::string(200, 'x'), "/tmp"});
  ASSERT_TRUE(passed) << passed.error().message;
  EXPECT_EQ(passed->name().rfind("/tmp/cotune.", 0), 0u);
  const auto none = DescriptorSocket::Open({"/proc", "/tmp/" + std::string(200, 'x')});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().status, COTUNE_UNSUPPORTED);
  EXPECT_NE(none.error().message.find("too long"), std::string::npos) << none.error().message;
  using Bases = std::vector<std::string>;
  EXPECT_EQ(DescriptorSocket::DefaultBases({{"XDG_RUNTIME_DIR", "/run/user/1"}}),
            (Bases{"/run/user/1", "/tmp"}));
  EXPECT_EQ(DescriptorSocket::DefaultBases({{"XDG_RUNTIME_DIR", "run"}}), Bases{"/tmp"});
}

// A receiver that does not read makes the sender wait, and then say so.
TEST(DescriptorSocketTest, AFullQueueEndsAtTheTimeout) {
  const auto left = Open();
  const auto right = Open();
  ASSERT_TRUE(left && right);
  const Descriptor memory = MemoryWith("x");
  sdk::Result<void> sent;
  for (int i = 0; i < 100'000 && sent; ++i)
    sent = left->Send(right->name(), {i, right->secret()}, memory.get(), 1);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().status, COTUNE_DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace cotune::cuda
