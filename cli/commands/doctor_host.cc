// Memory that processes share, limits, and cores.
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/commands/doctor.h"
#include "core/base/counted.h"
#include "core/base/memory_text.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

constexpr const char* kSharedFolder = "/dev/shm";

// UCX 1.13 and 1.22 take so much for the queue of a rank in each of its groups.
constexpr uint64_t kUcxRankBytes = 4'400'000;

uint64_t UcxBytes(int ranks) { return static_cast<uint64_t>(ranks) * kUcxRankBytes; }

std::string UcxNeedText(int ranks) {
  return fmt::format("the ucx backend needs 4.3 MB of it a rank, {} for {}",
                     MemoryText(UcxBytes(ranks)), Counted(ranks, "rank"));
}

// The programs that need memory there.
std::string WhoShares(const Checkup& checkup) {
  const std::string ucx = checkup.has_ucx ? UcxNeedText(checkup.ranks) + "; " : "";
  return ucx + "NCCL and other programs need it, cotune's host backend does not";
}

void CheckSharedMemory(Checkup& checkup) {
  const std::string who = WhoShares(checkup);
  struct statvfs space {};
  struct stat status {};
  if (statvfs(kSharedFolder, &space) != 0 || stat(kSharedFolder, &status) != 0) {
    checkup.Note(kSharedFolder, fmt::format("unknown: {}", std::strerror(errno)),
                 fmt::format("mount a tmpfs there: {}", who));
    return;
  }
  const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  const std::string text =
      fmt::format("{} of {} free, mode {:o}", MemoryText(free_bytes),
                  MemoryText(uint64_t{space.f_blocks} * space.f_frsize), status.st_mode & 07777);
  // A file without a name leaves nothing behind.
  const int file = open(kSharedFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  const int open_error = file < 0 ? errno : 0;
  if (file >= 0) close(file);
  if (open_error != 0 && open_error != EOPNOTSUPP && open_error != EISDIR) {
    checkup.Note(
        kSharedFolder,
        fmt::format("{}; this user cannot make files there: {}", text, std::strerror(open_error)),
        fmt::format("give it mode 1777, writable: {}", who));
    return;
  }
  constexpr uint64_t kEnoughBytes = 256ull << 20;
  if (free_bytes < std::max(kEnoughBytes, checkup.has_ucx ? UcxBytes(checkup.ranks) : 0)) {
    checkup.Note(kSharedFolder, text,
                 fmt::format("make room, or enlarge it (docker: --shm-size=1g): {}", who));
    return;
  }
  checkup.Ok(kSharedFolder, text);
}

void CheckLimits(Checkup& checkup) {
  rlimit size{};
  rlimit files{};
  if (getrlimit(RLIMIT_FSIZE, &size) != 0 || getrlimit(RLIMIT_NOFILE, &files) != 0) {
    checkup.Note("limits", fmt::format("unknown: {}", std::strerror(errno)), "see `ulimit -a`");
    return;
  }
  constexpr rlim_t kFilesMin = 256;
  const std::string text = fmt::format(
      "file size {}, open files {}",
      size.rlim_cur == RLIM_INFINITY ? "unlimited" : MemoryText(size.rlim_cur), files.rlim_cur);
  if (size.rlim_cur != RLIM_INFINITY) {
    checkup.Note("limits", text,
                 "`ulimit -f unlimited`: shared memory of the ranks counts as a file");
  } else if (files.rlim_cur < kFilesMin) {
    checkup.Note("limits", text, fmt::format("raise `ulimit -n` to {} or more", kFilesMin));
  } else {
    checkup.Ok("limits", text);
  }
}

// "no quota", "quota 1.5 cores", or why it is not known.
std::string QuotaText(double& cores) {
  const Result<std::string> line = FirstLine("/sys/fs/cgroup/cpu.max");
  if (!line) return "quota unknown: " + line.error().ToText();
  double quota = 0;
  double period = 0;
  if (line->starts_with("max")) return "no quota";
  if (std::sscanf(line->c_str(), "%lf %lf", &quota, &period) != 2 || period <= 0) {
    return fmt::format("quota unknown: /sys/fs/cgroup/cpu.max says \"{}\"", *line);
  }
  cores = std::min(cores, quota / period);
  return fmt::format("quota {:.1f} cores", quota / period);
}

void CheckCores(Checkup& checkup) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    checkup.Note("cores", fmt::format("unknown: {}", std::strerror(errno)), "see `taskset -p $$`");
    return;
  }
  double usable = CPU_COUNT(&allowed);
  const std::string quota = QuotaText(usable);
  const std::string text =
      fmt::format("{} of {} may be used, {}; {}", CPU_COUNT(&allowed),
                  sysconf(_SC_NPROCESSORS_ONLN), quota, Counted(checkup.ranks, "rank"));
  if (usable < checkup.ranks) {
    checkup.Note("cores", text,
                 fmt::format("ranks that share cores take turns, and their times are noisy: start "
                             "at most {}, or widen the affinity (`taskset`) or the quota",
                             Counted(std::max(1, static_cast<int>(usable)), "rank")));
  } else {
    checkup.Ok("cores", text);
  }
}

}  // namespace

std::string UcxSharedMemoryStep(int ranks) {
  struct statvfs space {};
  if (statvfs(kSharedFolder, &space) != 0) return "";
  const uint64_t free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  if (free_bytes >= UcxBytes(ranks)) return "";
  return fmt::format(
      "enlarge {} (docker: --shm-size=1g): {}, and {} are free; or keep UCX off shared memory: "
      "--set ucx.tls=tcp,self",
      kSharedFolder, UcxNeedText(ranks), MemoryText(free_bytes));
}

void CheckHost(Checkup& checkup) {
  CheckCores(checkup);
  CheckSharedMemory(checkup);
  CheckLimits(checkup);
}

}  // namespace cotune::cli
