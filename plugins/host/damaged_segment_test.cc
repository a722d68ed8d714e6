// A segment that another process has damaged gives an error, and no access outside of this
// process's memory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include "plugins/host/backend.h"
#include "plugins/host/control_block.h"
#include "plugins/host/shared_segment.h"
#include "plugins/host/testing/host_ranks.h"

namespace cotune::host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The control block of the only group of this process.
ControlBlock* FindControlBlock() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("cotune_host_group") == std::string::npos) continue;
    uintptr_t begin = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR, &begin) != 1) return nullptr;
    return reinterpret_cast<ControlBlock*>(begin);
  }
  return nullptr;
}

class DamagedSegmentTest : public ::testing::Test {
 protected:
  DamagedSegmentTest() : group_(job_.host(), "g", 0, {7}, MonotonicNs() + 60 * kSecondNs) {}

  void SetUp() override {
    ASSERT_EQ(group_.status(), COTUNE_OK) << group_.error().message;
    control_ = FindControlBlock();
    ASSERT_NE(control_, nullptr);
  }

  cotune_status_t Health(cotune_error_t& error) const {
    error = EmptyError();
    return BackendApi()->group_health(group_.group(), &error);
  }

  JobForTest job_;
  GroupForTest group_;
  ControlBlock* control_ = nullptr;
};

TEST_F(DamagedSegmentTest, AFailureOfARankThatIsNotThereIsAnErrorThatSaysSo) {
  cotune_error_t error{};
  for (uint32_t kind = 0; kind < 256; ++kind) {
    for (const auto& [culprit, reporter] : {std::pair{0xFFu, 0u}, {0u, 0xFFu}, {1u, 1u}}) {
      control_->failure.store(0xFF000000u | kind << 16 | culprit << 8 | reporter);
      EXPECT_EQ(Health(error), COTUNE_INTERNAL) << kind;
      EXPECT_EQ(error.failed_rank, -1);
      EXPECT_THAT(std::string(error.message),
                  AllOf(HasSubstr("group 'g'"), HasSubstr("is damaged")));
    }
  }
}

TEST_F(DamagedSegmentTest, AFailureOfNoKnownKindIsAnErrorThatSaysSo) {
  cotune_error_t error{};
  control_->failure.store(Pack(GroupFailure{GroupFailure::Kind::kOtherCall, 0, 0, 0xFF}));
  EXPECT_EQ(Health(error), COTUNE_PEER_FAILED);
  for (const uint32_t kind : {7u, 0xFFu}) {
    control_->failure.store(kind << 16);
    EXPECT_EQ(Health(error), COTUNE_INTERNAL);
    EXPECT_THAT(std::string(error.message), HasSubstr("is damaged"));
  }
  control_->failure.store(0);
  EXPECT_EQ(Health(error), COTUNE_OK);
}

TEST(SharedSegmentTest, ItsFileKeepsItsSize) {
  const auto segment = SharedSegment::Create(2, 1 << 20);
  ASSERT_TRUE(segment) << segment.error().message;
  const int file = segment->Announce().file;
  const off_t size = lseek(file, 0, SEEK_END);
  ASSERT_GT(size, 0);
  EXPECT_EQ(fcntl(file, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(ftruncate(file, 0), 0) << "a rank that maps it would end by SIGBUS";
  EXPECT_NE(ftruncate(file, 2 * size), 0);
  EXPECT_EQ(lseek(file, 0, SEEK_END), size);
}

}  // namespace
}  // namespace cotune::host
