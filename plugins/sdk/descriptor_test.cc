// When a descriptor is closed, and that each is closed once.
#include "plugins/sdk/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <utility>

namespace cotune::sdk {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int NewFile() { return memfd_create("descriptor_test", MFD_CLOEXEC); }

TEST(DescriptorTest, IsClosedAtItsEnd) {
  int fd = -1;
  {
    const Descriptor owner(NewFile());
    fd = owner.get();
    EXPECT_TRUE(owner.is_open());
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_FALSE(Descriptor().is_open());
}

TEST(DescriptorTest, AMovedOneHasANewOwnerOnly) {
  Descriptor first(NewFile());
  const int fd = first.get();
  {
    const Descriptor second(std::move(first));
    EXPECT_EQ(second.get(), fd);
    EXPECT_EQ(first.get(), -1);  // NOLINT(bugprone-use-after-move): that is what is tested
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(DescriptorTest, AssignmentClosesTheFormerOneAtOnce) {
  Descriptor owner(NewFile());
  Descriptor other(NewFile());
  const int former = owner.get();
  const int next = other.get();
  owner = std::move(other);
  EXPECT_FALSE(IsOpen(former));
  EXPECT_TRUE(IsOpen(next));
  owner = Descriptor();
  EXPECT_FALSE(IsOpen(next));
}

}  // namespace
}  // namespace cotune::sdk
