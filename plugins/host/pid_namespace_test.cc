// Ranks whose process numbers do not mean the same, as in two containers that share their network:
// they are refused for the true reason, and no rank is reported as dead.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "plugins/host/testing/host_ranks.h"

namespace cotune::host {
namespace {

constexpr int64_t kLongNs = 120 * kSecondNs;

enum class ProcOf { kOld, kNew };

std::string ErrorOf(const char* call) { return std::string(call) + ": " + std::strerror(errno); }

std::string MountProc() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return ErrorOf("mount of /");
  return mount("proc", "/proc", "proc", 0, nullptr) == 0 ? "" : ErrorOf("mount of /proc");
}

// The words of `body` in the first process of a new PID namespace.
std::string InPidNamespace(ProcOf proc, const std::function<std::string()>& body) {
  std::array<int, 2> words{};
  if (pipe(words.data()) != 0) return ErrorOf("pipe");
  constexpr int kSpaces = CLONE_NEWPID | CLONE_NEWNS;
  if (unshare(kSpaces) != 0 && unshare(CLONE_NEWUSER | kSpaces) != 0) return ErrorOf("unshare");
  const pid_t child = fork();
  if (child == 0) {
    std::string text = proc == ProcOf::kNew ? MountProc() : "";
    if (text.empty()) text = body();
    const ssize_t written = write(words[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(words[1]);
  std::string text;
  std::array<char, 512> block{};
  for (ssize_t got = 0; (got = read(words[0], block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<size_t>(got));
  }
  close(words[0]);
  int status = 0;
  const bool has_ended = waitpid(child, &status, 0) == child && status == 0;
  return has_ended ? text : text + " (status " + std::to_string(status) + ")";
}

std::string WhyNoPidNamespace() {
  RankProcesses one(1, [](int) { return InPidNamespace(ProcOf::kNew, [] { return ""; }); });
  return one.Wait(0);
}

std::string JoinAs(const JobForTest& job, int rank) {
  const GroupForTest group(job.host(), "g", rank, {10, 11}, MonotonicNs() + kLongNs);
  return std::to_string(group.status()) + " " + group.error().message;
}

class PidNamespaceTest : public testing::TestWithParam<ProcOf> {};

TEST_P(PidNamespaceTest, RanksOfTwoNamespacesAreRefusedAndNobodyHasDied) {
  if (const std::string why = WhyNoPidNamespace(); !why.empty()) {
    GTEST_SKIP() << "no PID namespace can be made here: " << why;
  }
  for (const int apart : {0, 1}) {
    JobForTest job;
    RankProcesses ranks(2, [&](int rank) -> std::string {
      const auto join = [&] { return JoinAs(job, rank); };
      return rank == apart ? InPidNamespace(GetParam(), join) : join();
    });
    for (const int rank : {1, 0}) {
      const std::string words = ranks.Wait(rank);
      EXPECT_EQ(words.find("died"), std::string::npos) << rank << ": " << words;
      EXPECT_NE(words.find("PID namespace"), std::string::npos) << rank << ": " << words;
      EXPECT_EQ(words.find(std::to_string(COTUNE_UNSUPPORTED)), 0u) << rank << ": " << words;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Proc, PidNamespaceTest, testing::Values(ProcOf::kOld, ProcOf::kNew),
                         [](const auto& info) {
                           return info.param == ProcOf::kOld ? "OfTheOldOne" : "OfItsOwn";
                         });

// Both ranks in one new namespace, which /proc does not show.
TEST(ForeignProcTest, RanksThatCannotSeeEachOtherSayWhy) {
  if (const std::string why = WhyNoPidNamespace(); !why.empty()) {
    GTEST_SKIP() << "no PID namespace can be made here: " << why;
  }
  JobForTest job;
  RankProcesses world(1, [&](int) {
    return InPidNamespace(ProcOf::kOld, [&]() -> std::string {
      RankProcesses ranks(2, [&](int rank) { return JoinAs(job, rank); });
      return ranks.Wait(1) + "\n" + ranks.Wait(0);
    });
  });
  const std::string words = world.Wait(0);
  EXPECT_EQ(words.find("died"), std::string::npos) << words;
  EXPECT_NE(words.find("the /proc of this rank is that of another PID namespace"),
            std::string::npos)
      << words;
}

}  // namespace
}  // namespace cotune::host
