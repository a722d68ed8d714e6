// How communicators come and go: within a deadline, and leaving nothing behind.
#include "plugins/nccl/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/nccl/testing/fakes.h"

namespace cotune::nccl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CommunicatorTest : public ::testing::Test {
 protected:
  CommunicatorTest() : state_(LoadFakeNccl()), nccl_(*NcclLibrary::Open("", {})) {
    state_.init_hangs = false;
    state_.split_hangs = false;
    state_.init_result = kNcclSuccess;
    state_.async_error = kNcclSuccess;
    state_.aborts = 0;
    state_.finalizes = 0;
    nccl_->GetUniqueId(&id_);
  }
  ~CommunicatorTest() override {
    EXPECT_THAT(state_.misuse, IsEmpty());
    EXPECT_EQ(state_.communicators, 0);
  }
  static int64_t Shortly() { return MonotonicNs() + kSecondNs / 50; }

  FakeNcclState& state_;
  NcclLibrary nccl_;
  JobForTest job_;
  NcclUniqueId id_{};
};

TEST_F(CommunicatorTest, RanksMakeADeferredAndFromItADirectOne) {
  RunRanks(3, [&](int rank) {
    Communicator origin(nccl_, job_.host(), std::nullopt);
    ASSERT_TRUE(origin.Create(id_, {rank, 3}, Soon()));
    Communicator direct(nccl_, job_.host(), std::nullopt);
    ASSERT_TRUE(direct.CreateFrom(origin, {rank, 3}, Soon()));
    EXPECT_NE(direct.get(), nullptr);
    EXPECT_NE(direct.get(), origin.get());
    EXPECT_TRUE(direct.AsyncError());
    origin.Destroy(Soon());
    EXPECT_EQ(origin.get(), nullptr);
  });
  EXPECT_EQ(state_.finalizes, 3);
  EXPECT_EQ(state_.aborts, 3) << "of the direct ones";
}

TEST_F(CommunicatorTest, ARankThatLeavesAloneDoesNotWaitBeyondTheDeadline) {
  RunRanks(2, [&](int rank) {
    Communicator origin(nccl_, job_.host(), std::nullopt);
    ASSERT_TRUE(origin.Create(id_, {rank, 2}, Soon()));
    if (rank == 0) origin.Destroy(Shortly());
  });
  EXPECT_EQ(state_.finalizes, 1);
  EXPECT_EQ(state_.aborts, 2);
}

TEST_F(CommunicatorTest, ALateRankEndsInTheDeadline) {
  Communicator origin(nccl_, job_.host(), std::nullopt);
  const auto made = origin.Create(id_, {0, 2}, Shortly());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, COTUNE_DEADLINE_EXCEEDED);
  EXPECT_THAT(made.error().message, HasSubstr("ncclCommInitRankConfig"));
  EXPECT_EQ(origin.get(), nullptr);
  EXPECT_EQ(state_.aborts, 1);
}

TEST_F(CommunicatorTest, AnInitThatFailsIsAborted) {
  state_.init_result = kNcclRemoteError;
  Communicator origin(nccl_, job_.host(), std::nullopt);
  const auto made = origin.Create(id_, {0, 1}, Soon());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, COTUNE_PEER_FAILED);
  EXPECT_EQ(made.error().native_code, kNcclRemoteError);
  EXPECT_EQ(state_.aborts, 1);
}

TEST_F(CommunicatorTest, ASplitThatHangsEndsBoth) {
  Communicator origin(nccl_, job_.host(), std::nullopt);
  ASSERT_TRUE(origin.Create(id_, {0, 1}, Soon()));
  state_.split_hangs = true;
  Communicator direct(nccl_, job_.host(), std::nullopt);
  const auto made = direct.CreateFrom(origin, {0, 1}, Shortly());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, COTUNE_DEADLINE_EXCEEDED);
  EXPECT_EQ(origin.get(), nullptr);
  EXPECT_EQ(direct.get(), nullptr);
  EXPECT_EQ(state_.aborts, 2);
}

TEST_F(CommunicatorTest, AbortIsIdempotentAndLeavesNothingToDestroy) {
  Communicator origin(nccl_, job_.host(), std::nullopt);
  ASSERT_TRUE(origin.Create(id_, {0, 1}, Soon()));
  origin.Abort();
  origin.Abort();
  origin.Destroy(Soon());
  EXPECT_TRUE(origin.AsyncError());
  EXPECT_EQ(state_.aborts, 1);
  EXPECT_EQ(state_.finalizes, 0);
}

TEST_F(CommunicatorTest, AsyncErrorsAreNoticed) {
  Communicator origin(nccl_, job_.host(), std::nullopt);
  ASSERT_TRUE(origin.Create(id_, {0, 1}, Soon()));
  Communicator direct(nccl_, job_.host(), std::nullopt);
  ASSERT_TRUE(direct.CreateFrom(origin, {0, 1}, Soon()));
  state_.async_error = kNcclRemoteError;
  EXPECT_EQ(direct.AsyncError().error().status, COTUNE_PEER_FAILED);
  state_.async_error = kNcclInProgress;
  EXPECT_TRUE(direct.AsyncError());
}

}  // namespace
}  // namespace cotune::nccl
