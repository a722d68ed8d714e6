#include "integration/launch_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kParent = 4321;

const Environment kCotune = {
    {"COTUNE_RANK", "1"}, {"COTUNE_WORLD_SIZE", "3"}, {"COTUNE_JOB_ID", "77-1"}};
const Environment kTorchrun = {{"RANK", "2"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "2"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"TORCHELASTIC_RUN_ID", "run"},
                               {"MASTER_PORT", "29500"}};
const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "2"},          {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"PMIX_NAMESPACE", "prterun-host-5@1"}, {"PMIX_RANK", "2"}};
const Environment kHydra = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}};
const Environment kSlurm = {{"SLURM_PROCID", "2"},   {"SLURM_NTASKS", "4"},
                            {"SLURM_LOCALID", "2"},  {"SLURM_TASKS_PER_NODE", "4"},
                            {"SLURM_JOB_ID", "900"}, {"SLURM_STEP_ID", "3"}};

Environment Joined(Environment first, const Environment& second) {
  for (const auto& [name, value] : second) first[name] = value;
  return first;
}

Error ErrorOf(const Environment& environment) {
  const auto context = DetectLaunchContext(environment, kParent);
  if (context) return {ErrorCode::kInternal, "there is no error", "", "", "", {}};
  return context.error();
}

TEST(LaunchContextTest, NoLauncher) {
  const auto context = DetectLaunchContext({{"PATH", "/bin"}, {"HOME", "/"}}, kParent);
  ASSERT_TRUE(context);
  EXPECT_FALSE(context->has_value());
}

struct LauncherCase {
  const char* launcher;
  Environment environment;
  int rank;
  int world_size;
  const char* job_id;
};

class EachLauncher : public ::testing::TestWithParam<LauncherCase> {};

TEST_P(EachLauncher, IsRecognised) {
  const LauncherCase& each = GetParam();
  const auto context = DetectLaunchContext(each.environment, kParent);
  ASSERT_TRUE(context) << context.error().ToText();
  ASSERT_TRUE(context->has_value());
  EXPECT_EQ((*context)->launcher, each.launcher);
  EXPECT_EQ((*context)->rank, each.rank);
  EXPECT_EQ((*context)->world_size, each.world_size);
  EXPECT_EQ((*context)->local_rank, each.rank);
  EXPECT_EQ((*context)->local_size, each.world_size);
  EXPECT_EQ((*context)->job_id, each.job_id);
  EXPECT_EQ((*context)->socket_path, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, EachLauncher,
    ::testing::Values(LauncherCase{"cotune", kCotune, 1, 3, "cotune-77-1"},
                      LauncherCase{"torchrun", kTorchrun, 2, 4, "torchrun-run-29500"},
                      LauncherCase{"openmpi", kOpenMpi, 2, 4, "openmpi-prterun-host-5@1"},
                      LauncherCase{"hydra", kHydra, 2, 4, "hydra-4321"},
                      LauncherCase{"slurm", kSlurm, 2, 4, "slurm-900-3"}),
    [](const auto& info) { return info.param.launcher; });

// torchrun starts all workers anew when one fails; one of the last attempt may still be ending.
TEST(LaunchContextTest, AttemptsOfTorchrunAreJobsOfTheirOwn) {
  const auto id = [](Environment environment, const char* attempt) {
    environment["TORCHELASTIC_RESTART_COUNT"] = attempt;
    const auto context = DetectLaunchContext(environment, kParent);
    return context && *context ? (*context)->job_id : "no context";
  };
  EXPECT_EQ(id(kTorchrun, "0"), "torchrun-run-29500-0");
  EXPECT_EQ(id(kTorchrun, "1"), "torchrun-run-29500-1");
  // It alone does not tell jobs apart.
  Environment bare = kTorchrun;
  bare.erase("TORCHELASTIC_RUN_ID");
  bare.erase("MASTER_PORT");
  EXPECT_EQ(id(bare, "1"), "torchrun-4321-1");
  EXPECT_EQ(id(kSlurm, "1"), "slurm-900-3");
}

TEST(LaunchContextTest, TheSocketCanBeGiven) {
  const auto context = DetectLaunchContext(Joined(kCotune, {{"COTUNE_SOCKET", "/x/s"}}), kParent);
  ASSERT_TRUE(context && *context);
  EXPECT_EQ((*context)->socket_path, "/x/s");
}

TEST(LaunchContextTest, EqualLaunchersAreNoConflict) {
  const auto context = DetectLaunchContext(Joined(kOpenMpi, kSlurm), kParent);
  ASSERT_TRUE(context) << context.error().ToText();
  EXPECT_EQ((*context)->launcher, "openmpi");
  const auto both = DetectLaunchContext(Joined(kTorchrun, kSlurm), kParent);
  ASSERT_TRUE(both) << both.error().ToText();
  EXPECT_EQ((*both)->launcher, "torchrun");
}

TEST(LaunchContextTest, ContradictingLaunchersAreNamedWithTheirValues) {
  Environment slurm = kSlurm;
  slurm["SLURM_PROCID"] = "3";
  const Error rank = ErrorOf(Joined(kOpenMpi, slurm));
  EXPECT_EQ(rank.code, ErrorCode::kUsage);
  EXPECT_THAT(rank.ToText(), AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=2"), HasSubstr("SLURM_PROCID=3"),
                                   HasSubstr("openmpi"), HasSubstr("slurm")));
  slurm["SLURM_PROCID"] = "2";
  slurm["SLURM_NTASKS"] = "8";
  const Error size = ErrorOf(Joined(kTorchrun, slurm));
  EXPECT_EQ(size.code, ErrorCode::kUsage);
  EXPECT_THAT(size.ToText(), AllOf(HasSubstr("WORLD_SIZE=4"), HasSubstr("SLURM_NTASKS=8")));
}

// A job that cotune starts inside a rank of another one has its own numbers.
TEST(LaunchContextTest, CotunesOwnVariablesWin) {
  const auto context = DetectLaunchContext(Joined(kCotune, kSlurm), kParent);
  ASSERT_TRUE(context) << context.error().ToText();
  EXPECT_EQ((*context)->launcher, "cotune");
  EXPECT_EQ((*context)->world_size, 3);
}

TEST(LaunchContextTest, AnAllocationIsNoLauncher) {
  for (const Environment& environment :
       {Environment{{"SLURM_JOB_ID", "900"}, {"SLURM_NTASKS", "8"}},
        Environment{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "900"}},
        Environment{{"WORLD_SIZE", "4"}}}) {
    const auto context = DetectLaunchContext(environment, kParent);
    ASSERT_TRUE(context) << context.error().ToText();
    EXPECT_FALSE(context->has_value());
  }
}

TEST(LaunchContextTest, AnIncompleteSetNamesWhatIsMissing) {
  EXPECT_THAT(ErrorOf({{"COTUNE_RANK", "0"}}).ToText(),
              HasSubstr("COTUNE_RANK is set but COTUNE_WORLD_SIZE is not"));
  EXPECT_THAT(ErrorOf({{"PMI_SIZE", "2"}}).ToText(),
              HasSubstr("PMI_SIZE is set but PMI_RANK is not"));
  EXPECT_THAT(ErrorOf({{"RANK", "0"}, {"WORLD_SIZE", ""}}).ToText(),
              HasSubstr("RANK is set but WORLD_SIZE is not"));
}

TEST(LaunchContextTest, WhatIsNoNumberIsNamed) {
  for (const char* text : {"two", "2x", "-1", "99999999999", " 2", "2(x2)"}) {
    const Error error = ErrorOf({{"RANK", text}, {"WORLD_SIZE", "4"}});
    EXPECT_EQ(error.code, ErrorCode::kUsage) << text;
    EXPECT_THAT(error.ToText(), HasSubstr(std::string("RANK=") + text));
  }
}

TEST(LaunchContextTest, ARankOutsideTheWorldIsNamed) {
  EXPECT_THAT(ErrorOf({{"RANK", "4"}, {"WORLD_SIZE", "4"}}).ToText(),
              HasSubstr("RANK=4 is not a rank of WORLD_SIZE=4"));
}

TEST(LaunchContextTest, VariablesThatMayBeLeftOverAreNamed) {
  LaunchContext context;
  context.launcher = "torchrun";
  context.rank = 1;
  context.world_size = 3;
  EXPECT_EQ(LeftOverText(context),
            "this process is rank 1 of 3 by RANK and WORLD_SIZE: without a launcher unset them");
  context.launcher = "options";
  EXPECT_EQ(LeftOverText(context), "this process is rank 1 of 3 by the options of its group");
  context.launcher = "none";
  EXPECT_EQ(LeftOverText(context), "");
}

TEST(LaunchContextTest, OnSeveralHostsItCountsThoseOfThisOne) {
  Environment openmpi = kOpenMpi;
  openmpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  Environment slurm = kSlurm;
  slurm["SLURM_TASKS_PER_NODE"] = "2(x2)";
  Environment uneven = kSlurm;
  uneven["SLURM_TASKS_PER_NODE"] = "3,1";
  EXPECT_EQ((**DetectLaunchContext(openmpi, 1)).local_size, 2);
  EXPECT_EQ((**DetectLaunchContext(slurm, 1)).local_size, 2);
  EXPECT_NE((**DetectLaunchContext(uneven, 1)).local_size, 4);
}

class SocketPath : public ::testing::Test {
 protected:
  SocketPath() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    runtime_ = mkdtemp(pattern.data());
  }
  ~SocketPath() override { std::filesystem::remove_all(runtime_); }
  Environment environment() const { return {{"XDG_RUNTIME_DIR", runtime_}}; }
  std::string runtime_;
};

TEST_F(SocketPath, IsPrivateAndDependsOnTheJobOnly) {
  const auto path = DefaultSocketPath(environment(), "a/very/../odd job");
  ASSERT_TRUE(path) << path.error().ToText();
  EXPECT_THAT(*path, AllOf(HasSubstr(runtime_ + "/cotune/"), HasSubstr(".sock")));
  EXPECT_EQ(path->find('/', runtime_.size() + 8), std::string::npos);
  struct stat info {};
  ASSERT_EQ(stat((runtime_ + "/cotune").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(*DefaultSocketPath(environment(), "a/very/../odd job"), *path);
  EXPECT_NE(*DefaultSocketPath(environment(), "another"), *path);
}

TEST_F(SocketPath, RefusesAFolderThatOthersMayEnter) {
  std::filesystem::create_directory(runtime_ + "/cotune");
  std::filesystem::permissions(runtime_ + "/cotune", std::filesystem::perms(0755));
  const auto path = DefaultSocketPath(environment(), "job");
  ASSERT_FALSE(path);
  EXPECT_EQ(path.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(path.error().ToText(), HasSubstr(runtime_ + "/cotune"));
}

TEST_F(SocketPath, RefusesALink) {
  std::filesystem::create_directory(runtime_ + "/elsewhere");
  std::filesystem::permissions(runtime_ + "/elsewhere", std::filesystem::perms(0700));
  std::filesystem::create_directory_symlink(runtime_ + "/elsewhere", runtime_ + "/cotune");
  EXPECT_FALSE(DefaultSocketPath(environment(), "job"));
}

TEST_F(SocketPath, RefusesAPathThatIsTooLong) {
  const std::string deep = runtime_ + "/" + std::string(100, 'x');
  std::filesystem::create_directory(deep);
  const auto path = DefaultSocketPath({{"XDG_RUNTIME_DIR", deep}}, "job");
  ASSERT_FALSE(path);
  EXPECT_EQ(path.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(path.error().ToText(), AllOf(HasSubstr("too long"), HasSubstr("XDG_RUNTIME_DIR")));
}

}  // namespace
}  // namespace cotune
