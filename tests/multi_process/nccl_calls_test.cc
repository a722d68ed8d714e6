// The comparison of NCCL's calls over the store of a real job: ranks are processes, and there is no
// GPU and no NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "fmt/format.h"
#include "plugins/loader/host_services.h"
#include "plugins/nccl/call_comparison.h"
#include "plugins/nccl/call_record.h"
#include "plugins/nccl/sdk_names.h"
#include "sync/socket/socket_exchange.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 3;
constexpr int64_t kPatienceNs = 120 * kSecondNs;

nccl::CallRecord Call(nccl::Reduction reduction) {
  return nccl::RecordOf({.reduction = reduction, .count = 1000, .world_size = kRanks}, "auto");
}

// The state of one rank in its process. Its first failure becomes the line "failed ...".
class Rank {
 public:
  Rank(int rank, const std::string& socket, TestLink& link) : link_(link) {
    sync::SocketExchangeOptions options;
    options.rank = rank;
    options.world_size = kRanks;
    options.job_id = "job";
    options.socket_path = socket;
    options.code_version = "test";
    options.deadline_ns = clock_.now_ns() + kPatienceNs;
    exchange_ = sync::ConnectSocketExchange(options, clock_).value();
    services_.emplace(*exchange_, clock_, std::map<std::string, std::string>{}, nullptr);
    comparison_.emplace(
        services_->table(), nccl::CallComparison::Member{"g", rank, kRanks},
        [this](const nccl::Failure& failure) { failure_.set_value(failure.message); });
  }

  void Add(nccl::Reduction reduction) { comparison_->Add(Call(reduction), Deadline()); }
  void Await(uint64_t calls) { comparison_->Await(calls, Deadline()); }
  void ReportFailure() { link_.Report("failed " + failure_.get_future().get()); }
  void Leave() { comparison_.reset(); }

 private:
  int64_t Deadline() const { return clock_.now_ns() + 10 * kPatienceNs; }

  TestLink& link_;
  const MonotonicClock clock_;
  std::unique_ptr<RankExchange> exchange_;
  std::optional<HostServices> services_;
  std::promise<std::string> failure_;
  std::optional<nccl::CallComparison> comparison_;
};

class NcclCallsTest : public ::testing::Test {
 protected:
  void Start(const std::function<void(Rank&, int rank, TestLink&)>& body) {
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.Start([this, rank, body](TestLink& link) {
        Rank self(rank, folder_.path() + "/s", link);
        body(self, rank, link);
        return 0;
      });
    }
  }

  const PrivateFolder folder_;
  RankProcesses ranks_;
};

TEST_F(NcclCallsTest, TheFirstDifferenceIsNamedByAllRanks) {
  Start([](Rank& self, int rank, TestLink&) {
    for (int i = 0; i < 500; ++i) self.Add(nccl::Reduction::kSum);
    self.Await(500);
    self.Add(rank == 2 ? nccl::Reduction::kMax : nccl::Reduction::kSum);
    self.ReportFailure();
  });
  ASSERT_TRUE(ranks_.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks_.Transcript();
  for (size_t rank : {0, 1, 2}) {
    const std::string peer = rank == 2 ? "group rank 0" : "group rank 2";
    EXPECT_THAT(ranks_.LinesOf(rank, "failed "),
                ElementsAre(AllOf(HasSubstr(peer + " called all_reduce of 1000 f32 ("),
                                  HasSubstr(fmt::format("where group rank {} (this rank)", rank)),
                                  HasSubstr("launch 501 of the group"))));
  }
}

// The rank that leaves waits for records that have not come.
TEST_F(NcclCallsTest, ARankLeavesAtOnceAndItsCallsStay) {
  Start([](Rank& self, int rank, TestLink& link) {
    if (rank > 0) link.AwaitWord();
    self.Add(nccl::Reduction::kSum);
    if (rank == 0) {
      self.Add(nccl::Reduction::kSum);
      self.Leave();
      link.Report("left");
      link.AwaitWord();  // its process is still part of the job
      return;
    }
    self.Await(1);
    self.Add(nccl::Reduction::kMax);
    self.ReportFailure();
    link.Report("done");
  });
  ASSERT_TRUE(ranks_.WaitForLine(0, "left", kPatienceNs)) << ranks_.Transcript();
  for (size_t rank : {1, 2}) ranks_.Say(rank);
  for (size_t rank : {1, 2}) {
    ASSERT_TRUE(ranks_.WaitForLine(rank, "done", kPatienceNs)) << ranks_.Transcript();
    EXPECT_THAT(ranks_.LinesOf(rank, "failed "),
                ElementsAre(AllOf(HasSubstr("group rank 0 called all_reduce of 1000 f32 (sum)"),
                                  HasSubstr("launch 2 of the group"))));
  }
  ranks_.Say(0);
  ASSERT_TRUE(ranks_.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks_.Transcript();
}

// The control channel tells of the death; the comparison only stops.
TEST_F(NcclCallsTest, ADeathEndsTheComparisonWithoutAnotherError) {
  Start([](Rank& self, int rank, TestLink& link) {
    link.Report("ready");
    link.AwaitWord();
    if (rank == 2) raise(SIGKILL);
    self.Add(nccl::Reduction::kSum);
    self.Await(1);
    link.Report("ended");
  });
  for (size_t rank : {0, 1, 2}) {
    ASSERT_TRUE(ranks_.WaitForLine(rank, "ready", kPatienceNs)) << ranks_.Transcript();
  }
  for (size_t rank : {0, 1, 2}) ranks_.Say(rank);
  ASSERT_TRUE(ranks_.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks_.Transcript();
  for (size_t rank : {0, 1}) {
    EXPECT_THAT(ranks_.LinesOf(rank, "ended"), ElementsAre(""));
    EXPECT_THAT(ranks_.LinesOf(rank, "failed "), IsEmpty()) << ranks_.Transcript();
    EXPECT_EQ(ranks_.ExitOf(rank), 0) << ranks_.Transcript();
  }
}

}  // namespace
}  // namespace cotune
