// Ranks of several hosts in one job, played on one by identities that the test gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "integration/dispatcher.h"
#include "integration/job.h"
#include "integration/tune_run.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/host/backend.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A store of the caller, as ranks that are threads share it.
class StoreOfThreads final : public sync::RendezvousStore {
 public:
  Status Put(std::string_view value, int64_t) override {
    const std::lock_guard lock(mutex_);
    value_ = value;
    changed_.notify_all();
    return {};
  }
  Result<std::optional<std::string>> Get(int64_t) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return value_.has_value(); });
    return value_;
  }
  Status Delete(int64_t) override { return {}; }
  std::string name() const override { return "store of the test"; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> value_;
};

class SeveralHostsTest : public ::testing::Test {
 protected:
  SeveralHostsTest() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~SeveralHostsTest() override { std::filesystem::remove_all(folder_); }

  // Each rank joins the job from the host that is named, and does this.
  void RunRanks(const std::vector<std::string>& hosts,
                const std::vector<const cotune_backend_api_t*>& tables,
                const std::function<void(Job&)>& body) {
    const auto store = std::make_shared<StoreOfThreads>();
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      threads.emplace_back([&, rank] {
        JobOptions options;
        options.context.launcher = "test";
        options.context.job_id = "job";
        options.context.rank = static_cast<int>(rank);
        options.context.world_size = static_cast<int>(hosts.size());
        options.context.socket_path = folder_ + "/s";
        options.store = store;
        options.host_identity = hosts[rank];
        options.catalogue.tables.assign(tables.begin(), tables.end());
        const auto job = Job::Join(options);
        ASSERT_TRUE(job) << job.error().ToText();
        body(**job);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::string folder_;
};

std::vector<std::string> BackendsOf(const Job& job) {
  std::vector<std::string> names;
  for (const auto& [name, identity] : job.fingerprint().backends) names.push_back(name);
  return names;
}

std::string ReasonOf(const Job& job, const std::string& backend) {
  for (const PluginReport& report : job.plugin_reports()) {
    if (report.backend == backend) return report.reason;
  }
  return "not reported";
}

TEST_F(SeveralHostsTest, ABackendThatNeedsOneRefusesAndAnotherTunesAndRuns) {
  RunRanks({"a", "b"}, {host::BackendApi(), fake::BackendApi()}, [](Job& job) {
    EXPECT_THAT(job.places().host_of_rank(), ElementsAre(0, 1));
    ASSERT_EQ(job.groups().members().size(), 1u);
    EXPECT_EQ(job.groups().members()[0].backend->name(), "fake");
    // Parts of programs need no group.
    EXPECT_EQ(job.groups().part_backend()->name(), "host");
    EXPECT_THAT(BackendsOf(job), ElementsAre("fake", "host"));
    EXPECT_THAT(ReasonOf(job, "host"),
                HasSubstr("the 2 ranks of group 'job/host/0' are on 2 hosts"));
    Dispatcher dispatcher(job);
    TuneRequest request;
    const ProblemClass sum = job.Class(Collective::kAllReduce, Dtype::kF32, Reduction::kSum);
    EXPECT_EQ(sum.ranks_per_node, 1);
    request.nodes.push_back({*Program::SingleCollective(sum), {1024}});
    const Result<TuneReport> tuned = RunTune(job, request);
    ASSERT_TRUE(tuned) << tuned.error().ToText();
    dispatcher.SetTable(tuned->outcome.table);
    const std::vector<float> send(256, static_cast<float>(job.rank() + 1));
    std::vector<float> recv(256);
    Call call;
    call.reduction = Reduction::kSum;
    call.count = send.size();
    call.send = send.data();
    call.recv = recv.data();
    const Result<CallExplanation> explanation = dispatcher.Explain(call);
    ASSERT_TRUE(explanation) << explanation.error().ToText();
    EXPECT_TRUE(explanation->from_table);
    EXPECT_EQ(explanation->choice.text(), "fake/plain");
    const Status ran = dispatcher.Run(call);
    ASSERT_TRUE(ran) << ran.error().ToText();
    EXPECT_EQ(recv, std::vector<float>(256, 3.0F));
  });
}

TEST_F(SeveralHostsTest, ASubgroupOnOneHostHasBackendsThatNeedOne) {
  RunRanks({"a", "b", "b"}, {host::BackendApi(), fake::BackendApi()}, [](Job& job) {
    EXPECT_EQ(job.places().ranks_per_host(), 0) << "hosts differ";
    if (job.rank() == 0) return;
    const auto pair = job.Split("pair", {2, 1});
    ASSERT_TRUE(pair) << pair.error().ToText();
    EXPECT_TRUE((*pair)->places().is_one_host());
    EXPECT_THAT(BackendsOf(**pair), ElementsAre("fake", "host"));
  });
}

// Databases and tables of users name these classes: on one host they stay as they are.
TEST_F(SeveralHostsTest, OnOneHostKeysAreThoseOfEarlierVersions) {
  RunRanks({"", "", ""}, {host::BackendApi()}, [](Job& job) {
    EXPECT_TRUE(job.places().is_one_host()) << "they have the boot id of this machine";
    const ProblemClass sum = job.Class(Collective::kAllReduce, Dtype::kF32, Reduction::kSum);
    EXPECT_EQ(ToText(sum), "all_reduce/sum/f32/host/plain/out_of_place/world3x3");
    std::vector<std::string> fields;
    for (const auto& [name, value] : job.fingerprint().machine) fields.push_back(name);
    EXPECT_THAT(fields, ElementsAre("architecture", "cores", "cpu_model", "numa_nodes"));
  });
}

TEST_F(SeveralHostsTest, TheSocketRefusesWhatALauncherPlacesElsewhere) {
  JobOptions options;
  options.context.job_id = "job";
  options.context.socket_path = folder_ + "/s";
  options.context.world_size = 4;
  options.context.local_size = 2;
  options.catalogue.tables = {fake::BackendApi()};
  const auto job = Job::Join(options);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(job.error().ToText(), HasSubstr("the job has 4 ranks, 2 of them on this host"));
  EXPECT_THAT(job.error().ToText(), HasSubstr("JobOptions.connect"));
}

}  // namespace
}  // namespace cotune
