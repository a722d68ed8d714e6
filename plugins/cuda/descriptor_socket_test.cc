#include "plugins/cuda/descriptor_socket.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace cotune::cuda {
namespace {

constexpr int kSoonMs = 20'000;

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
  auto socket = DescriptorSocket::Open();
  ASSERT_TRUE(socket) << socket.error().message;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto own = DescriptorSocket::Open();
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
  const auto left = DescriptorSocket::Open();
  const auto right = DescriptorSocket::Open();
  ASSERT_TRUE(left && right);
  EXPECT_NE(left->name(), right->name());
  EXPECT_FALSE(left->name().empty());
  EXPECT_EQ(left->name().size(), 32u);
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
  const auto socket = DescriptorSocket::Open();
  ASSERT_TRUE(socket);
  std::string gone;
  {
    const auto other = DescriptorSocket::Open();
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
  const auto socket = DescriptorSocket::Open();
  const auto stranger = DescriptorSocket::Open();
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

// A receiver that does not read makes the sender wait, and then say so.
TEST(DescriptorSocketTest, AFullQueueEndsAtTheTimeout) {
  const auto left = DescriptorSocket::Open();
  const auto right = DescriptorSocket::Open();
  ASSERT_TRUE(left && right);
  const Descriptor memory = MemoryWith("x");
  border::Result<void> sent;
  for (int i = 0; i < 100'000 && sent; ++i)
    sent = left->Send(right->name(), {i, right->secret()}, memory.get(), 1);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().status, COTUNE_DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace cotune::cuda
