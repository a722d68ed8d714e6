#include "integration/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "integration/plugin_scan.h"
#include "plugins/fake/fake_backend.h"
#include "plugins/host/backend.h"
#include "sync/exchange/local_exchange.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~JobTest() override { std::filesystem::remove_all(folder_); }

  // A copy of a plugin: one counts only as a file that nobody else may write.
  std::string Plugin(const std::string& label, const std::string& name) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::filesystem::copy_file(std::filesystem::canonical(label), folder_ + "/" + name);
    std::filesystem::permissions(folder_ + "/" + name, std::filesystem::perms(0755));
    return folder_ + "/" + name;
  }
  std::string HostPlugin(const std::string& name) const {
    return Plugin("plugins/host/cotune_host.so", name);
  }
  std::string Garbage(const std::string& name) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << "this is no library";
    return folder_ + "/" + name;
  }

  JobOptions Options() const {
    JobOptions options;
    options.context.launcher = "test";
    options.context.job_id = "job";
    options.context.socket_path = folder_ + "/s";
    return options;
  }
  static std::vector<std::string> Names(Job& job) {
    std::vector<std::string> names;
    for (const BackendMember& member : job.groups().members()) {
      names.push_back(member.backend->name());
    }
    return names;
  }

  std::string folder_;
};

TEST_F(JobTest, TheSearchPathIsTheVariableWhenItIsSet) {
  EXPECT_THAT(DefaultPluginSearchPath({{"COTUNE_PLUGIN_PATH", "/a:/b c::/d"}}),
              ElementsAre("/a", "/b c", "/d"));
  EXPECT_THAT(DefaultPluginSearchPath({{"COTUNE_PLUGIN_PATH", ""}}), ElementsAre());
}

TEST_F(JobTest, AScanReportsEveryFile) {
  const std::string host = HostPlugin("a/cotune_host.so");
  const std::string broken = Garbage("a/broken.so");
  Garbage("a/notes.txt");
  const PluginScan scan = ScanPlugins({}, {folder_ + "/a", folder_ + "/missing"}, nullptr);
  EXPECT_FALSE(scan.failure) << "nothing of it was named";
  ASSERT_THAT(scan.tables, SizeIs(1));
  EXPECT_STREQ(scan.tables[0].first->name, "host");
  EXPECT_EQ(scan.tables[0].second, host);
  ASSERT_THAT(scan.reports, SizeIs(3));
  EXPECT_EQ(scan.reports[0].path, folder_ + "/missing");
  EXPECT_FALSE(scan.reports[0].loaded);
  EXPECT_EQ(scan.reports[1].path, broken);
  EXPECT_FALSE(scan.reports[1].loaded);
  EXPECT_NE(scan.reports[1].reason, "");
  EXPECT_EQ(scan.reports[2].path, host);
  EXPECT_TRUE(scan.reports[2].loaded);
  EXPECT_EQ(scan.reports[2].backend, "host");
  EXPECT_NE(scan.reports[2].version, "");
}

TEST_F(JobTest, ABrokenPluginThatWasNamedIsAnError) {
  const std::string broken = Garbage("broken.so");
  JobOptions options = Options();
  options.catalogue.plugin_paths = {broken};
  options.catalogue.tables = {host::BackendApi()};
  const auto job = Job::Join(options);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kPluginRefused);
  EXPECT_THAT(job.error().ToText(), HasSubstr(broken));
}

TEST_F(JobTest, ABrokenPluginOnTheSearchPathIsAReport) {
  Garbage("a/broken.so");
  HostPlugin("a/cotune_host.so");
  JobOptions options = Options();
  options.catalogue.plugin_search_path = {folder_ + "/a"};
  const auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  EXPECT_THAT(Names(**job), ElementsAre("host"));
  ASSERT_THAT((*job)->plugin_reports(), SizeIs(2));
  EXPECT_FALSE((*job)->plugin_reports()[0].loaded);
}

TEST_F(JobTest, OfTwoPluginsOfOneBackendTheFirstCounts) {
  const std::string first = HostPlugin("a/one.so");
  const std::string second = HostPlugin("b/two.so");
  const PluginScan scan = ScanPlugins({second}, {folder_ + "/a"}, nullptr);
  ASSERT_THAT(scan.tables, SizeIs(1));
  EXPECT_EQ(scan.tables[0].second, second) << "what the user names comes first";
  ASSERT_THAT(scan.reports, SizeIs(2));
  EXPECT_EQ(scan.reports[1].path, first);
  EXPECT_FALSE(scan.reports[1].loaded);
  EXPECT_EQ(scan.reports[1].reason,
            "its backend 'host' is that of " + second + ", which comes before it");
}

TEST_F(JobTest, AFileThatIsNamedAgainIsLookedAtOnce) {
  const std::string file = HostPlugin("a/one.so");
  const PluginScan scan =
      ScanPlugins({file, folder_ + "/a/../a/one.so"}, {folder_ + "/a"}, nullptr);
  EXPECT_THAT(scan.tables, SizeIs(1));
  ASSERT_THAT(scan.reports, SizeIs(1));
  EXPECT_TRUE(scan.reports[0].is_named);
}

TEST_F(JobTest, ANamedPluginThatATableReplacesIsReported) {
  JobOptions options = Options();
  const std::string file = HostPlugin("a/one.so");
  HostPlugin("b/two.so");
  options.catalogue.plugin_paths = {file};
  options.catalogue.tables = {host::BackendApi()};
  auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  ASSERT_THAT((*job)->plugin_reports(), SizeIs(2));
  EXPECT_FALSE((*job)->plugin_reports()[0].loaded);
  EXPECT_EQ((*job)->plugin_reports()[0].reason,
            "the program registers a backend 'host', which comes before it");
  EXPECT_TRUE((*job)->plugin_reports()[1].loaded);
  options.catalogue.plugin_paths = {};
  options.catalogue.plugin_search_path = {folder_ + "/b"};
  job->reset();  // its socket has the path of the next one
  job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  EXPECT_TRUE((*job)->plugin_reports()[0].loaded) << "nobody asked for it";
}

TEST_F(JobTest, WithoutAnyBackendItSaysWhereToLook) {
  const auto job = Job::Join(Options());
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(job.error().ToText(),
              AllOf(HasSubstr("no backend"), HasSubstr("COTUNE_PLUGIN_PATH")));
}

TEST_F(JobTest, WithoutGroupsItKnowsBackendsAndMachine) {
  JobOptions options = Options();
  options.catalogue.tables = {host::BackendApi()};
  const Fingerprint with_groups = Job::Join(options).value()->fingerprint();
  options.purpose = JobPurpose::kIdentify;
  const Fingerprint without = Job::Join(options).value()->fingerprint();
  EXPECT_EQ(without.backends, with_groups.backends);
  EXPECT_EQ(without.machine, with_groups.machine);
  EXPECT_EQ(without.measuring_mode, "eager");
  options.catalogue.tables.clear();
  const auto none = Job::Join(options);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().ToText(), HasSubstr("no backend"));
}

TEST_F(JobTest, OtherRulesOfFusionAreAnotherMeasuringMode) {
  JobOptions options = Options();
  options.catalogue.tables = {host::BackendApi()};
  options.settings.fusion.is_recursive = false;
  const auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  EXPECT_EQ((*job)->fingerprint().measuring_mode, "eager, fusion=all depth=1");
  TuningSettings settings = (*job)->settings();
  settings.numerics = NumericsRule::kSame;
  settings.fusion.enabled = false;
  (*job)->set_settings(settings);
  EXPECT_EQ((*job)->fingerprint().measuring_mode, "eager, numerics=same, fusion=off");
  EXPECT_FALSE((*job)->groups().program_support().fusion.enabled);
  settings.fusion = {};
  (*job)->set_settings(settings);
  EXPECT_EQ((*job)->fingerprint().measuring_mode, "eager, numerics=same");
}

// The same broken plugin and the same backend for other memory end a run and are rows of a survey.
TEST_F(JobTest, ASurveyReportsWhatEndsARun) {
  cotune_backend_api_t for_gpus = *fake::BackendApi();
  for_gpus.memory_kinds = 1u << static_cast<unsigned>(MemoryKind::kCuda);
  JobOptions options = Options();
  options.catalogue.plugin_paths = {Garbage("broken.so")};
  options.catalogue.tables = {&for_gpus};
  const auto run = Job::Join(options);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::kPluginRefused);

  options.purpose = JobPurpose::kSurvey;
  const auto survey = Job::Join(options);
  ASSERT_TRUE(survey) << survey.error().ToText();
  EXPECT_THAT(Names(**survey), ElementsAre()) << "what was tried is not used";
  const std::vector<PluginReport>& reports = (*survey)->plugin_reports();
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_FALSE(reports[0].loaded);
  EXPECT_EQ(reports[1].backend, "fake");
  EXPECT_TRUE(reports[1].loaded) << "a machine without the hardware is no failure of the plugin";
  EXPECT_THAT(reports[1].reason, HasSubstr("this backend has none"));
}

TEST_F(JobTest, HostComesFirstUnlessTheUserSaysOtherwise) {
  JobOptions options = Options();
  options.catalogue.tables = {fake::BackendApi(), host::BackendApi()};
  {
    const auto job = Job::Join(options);
    ASSERT_TRUE(job) << job.error().ToText();
    EXPECT_THAT(Names(**job), ElementsAre("host", "fake"));
  }
  options.catalogue.backends = {"fake", "host"};
  {
    const auto job = Job::Join(options);
    ASSERT_TRUE(job) << job.error().ToText();
    EXPECT_THAT(Names(**job), ElementsAre("fake", "host"));
  }
  options.catalogue.backends = {"fake"};
  const auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  EXPECT_THAT(Names(**job), ElementsAre("fake"));
}

// A program is measured with its parts, so that their backend belongs to the fingerprint.
TEST_F(JobTest, PartsRunByABackendThatTheUserHasLeftOut) {
  JobOptions options = Options();
  options.catalogue.tables = {fake::BackendApi(), host::BackendApi()};
  options.catalogue.backends = {"fake"};
  auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  EXPECT_THAT(Names(**job), ElementsAre("fake"));
  ASSERT_NE((*job)->groups().program_support().part_backend, nullptr);
  EXPECT_EQ((*job)->groups().program_support().part_backend->name(), "host");
  EXPECT_THAT((*job)->fingerprint().backends, SizeIs(2));
  const Fingerprint joined = (*job)->fingerprint();
  job->reset();  // its socket is free again
  options.purpose = JobPurpose::kIdentify;
  const auto alone = Job::Join(options);
  ASSERT_TRUE(alone) << alone.error().ToText();
  EXPECT_EQ((*alone)->fingerprint().backends, joined.backends);
}

TEST_F(JobTest, ABackendThatIsNotThereIsAnErrorWithTheKnownOnes) {
  JobOptions options = Options();
  options.catalogue.tables = {host::BackendApi()};
  options.catalogue.backends = {"host", "nccl"};
  const auto job = Job::Join(options);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kUsage);
  EXPECT_THAT(job.error().ToText(), AllOf(HasSubstr("'nccl'"), HasSubstr("known: host")));
}

TEST_F(JobTest, ABackendThatCannotBeCreatedIsLeftOutWithItsReason) {
  JobOptions options = Options();
  options.catalogue.tables = {fake::BackendApi(), host::BackendApi()};
  options.catalogue.settings["fake.script"] = "choice usual\ncreate_unsupported no such hardware";
  const auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  EXPECT_THAT(Names(**job), ElementsAre("host"));
  bool found = false;
  for (const PluginReport& report : (*job)->plugin_reports()) {
    if (report.backend != "fake") continue;
    found = true;
    EXPECT_FALSE(report.loaded);
    EXPECT_THAT(report.reason, HasSubstr("no such hardware"));
  }
  EXPECT_TRUE(found);
}

// The fake backend's table, but for create, which notes what check_calls is there.
std::string check_calls_seen;
cotune_status_t CreateAndLookAtCheckCalls(const cotune_host_t* host, int32_t device,
                                          cotune_backend_t** backend, cotune_error_t* error) {
  const char* value = host->setting(host->context, "check_calls");
  check_calls_seen = value == nullptr ? "not set" : value;
  return fake::BackendApi()->create(host, device, backend, error);
}

TEST_F(JobTest, EveryBackendHearsWhetherCallsAreToBeCompared) {
  cotune_backend_api_t table = *fake::BackendApi();
  table.create = CreateAndLookAtCheckCalls;
  JobOptions options = Options();
  options.catalogue.tables = {&table};
  options.catalogue.settings["fake.script"] = "choice usual default";
  {
    const auto job = Job::Join(options);
    ASSERT_TRUE(job) << job.error().ToText();
    EXPECT_EQ(check_calls_seen, "off");
  }
  options.catalogue.check_calls = true;
  const auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  EXPECT_EQ(check_calls_seen, "on");
  EXPECT_EQ((*job)->fingerprint().backends.at("fake").find("check_calls"), std::string::npos)
      << "what was tuned without it counts with it, too";
}

TEST_F(JobTest, LibrariesOfABackendArePartOfWhatAMeasurementIsValidFor) {
  JobOptions options = Options();
  options.catalogue.tables = {fake::BackendApi()};
  options.catalogue.settings["fake.script"] = "choice usual default;libraries libfake 2.1";
  const auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  EXPECT_THAT((*job)->fingerprint().backends.at("fake"),
              testing::StartsWith("1 with libfake 2.1 script="));
}

TEST_F(JobTest, AClassFitsTheGroup) {
  JobOptions options = Options();
  options.catalogue.tables = {host::BackendApi()};
  const auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  const ProblemClass sum = (*job)->Class(Collective::kAllReduce, Dtype::kF16, Reduction::kMax);
  EXPECT_TRUE(Validate(sum));
  EXPECT_EQ(sum.reduction, Reduction::kMax);
  const ProblemClass gather = (*job)->Class(Collective::kAllGather, Dtype::kF16, Reduction::kMax);
  EXPECT_TRUE(Validate(gather));
  EXPECT_EQ(gather.reduction, Reduction::kNone);
  EXPECT_EQ((*job)->world_size(), 1);
  EXPECT_EQ((*job)->fingerprint().backends.count("host"), 1u);
  EXPECT_NE((*job)->topology_digest(), 0u);
}

// Ranks of two processes would meet over it; two threads with an exchange that knows no socket do.
class JobOverOwnExchangeTest : public JobTest {
 protected:
  JobOptions OwnOptions(int rank, int world_size) {
    JobOptions options = Options();
    options.context.socket_path = "/nowhere/s";
    options.context.rank = options.context.local_rank = rank;
    options.context.world_size = options.context.local_size = world_size;
    options.catalogue.tables = {host::BackendApi()};
    return options;
  }
  const MonotonicClock clock_;
  std::vector<std::unique_ptr<RankExchange>> exchanges_ = sync::MakeLocalExchanges(2, clock_);
};

TEST_F(JobOverOwnExchangeTest, RanksMakeTheirGroupsOverIt) {
  std::vector<std::unique_ptr<Job>> jobs(2);
  std::vector<std::function<void(const Error&)>> on_loss(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      JobOptions options = OwnOptions(rank, 2);
      options.connect = [&, rank](const ExchangeRequest& request) {
        on_loss[rank] = request.on_loss;
        return Result<std::unique_ptr<RankExchange>>(std::move(exchanges_[rank]));
      };
      Result<std::unique_ptr<Job>> job = Job::Join(options);
      if (job) jobs[rank] = std::move(*job);
      if (!job) errors[rank] = job.error().ToText();
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_THAT(errors, ElementsAre("", ""));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(jobs[rank]->rank(), rank);
    EXPECT_THAT(Names(*jobs[rank]), ElementsAre("host"));
    EXPECT_FALSE(jobs[rank]->stop().is_set());
  }
  on_loss[0](Error{ErrorCode::kRankLost, "rank 1 is gone", "", "", "", {1}});
  EXPECT_TRUE(jobs[0]->stop().is_set());
  EXPECT_THAT(jobs[0]->FirstLoss()->what, HasSubstr("rank 1 is gone"));
}

TEST_F(JobOverOwnExchangeTest, OneForAnotherJobIsAnError) {
  JobOptions options = OwnOptions(0, 3);
  options.connect = [&](const ExchangeRequest&) {
    return Result<std::unique_ptr<RankExchange>>(std::move(exchanges_[0]));
  };
  const auto job = Job::Join(options);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().code, ErrorCode::kUsage);
  EXPECT_THAT(job.error().ToText(), HasSubstr("is rank 0 of 2, and the job is rank 0 of 3"));
}

TEST_F(JobOverOwnExchangeTest, ItsFailureIsTheJobs) {
  JobOptions options = OwnOptions(0, 2);
  options.connect = [](const ExchangeRequest&) -> Result<std::unique_ptr<RankExchange>> {
    return Fail(ErrorCode::kEnvironment, "no network today");
  };
  const auto job = Job::Join(options);
  ASSERT_FALSE(job);
  EXPECT_THAT(job.error().ToText(), HasSubstr("no network today"));
}

TEST_F(JobTest, SplitsAndGoesInOrder) {
  JobOptions options = Options();
  options.catalogue.tables = {host::BackendApi()};
  const auto job = Job::Join(options);
  ASSERT_TRUE(job) << job.error().ToText();
  const auto half = (*job)->Split("half", {0});
  ASSERT_TRUE(half) << half.error().ToText();
  EXPECT_EQ((*half)->world_size(), 1);
  EXPECT_THAT(Names(**half), ElementsAre("host"));
  EXPECT_FALSE((*job)->Split("outside", {1}));
}

}  // namespace
}  // namespace cotune
