#include "plugins/host/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cotune::host {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kControlBytes =
    (sizeof(ControlBlock) + kPageBytes - 1) / kPageBytes * kPageBytes;

constexpr uint64_t kLinesBytes = 2 * kLinesPerHalf * sizeof(TaggedLine);
static_assert(kLinesBytes % kPageBytes == 0);

std::string ErrorText(int code) { return std::strerror(code); }

tl::unexpected<Failure> NoMemory(const char* call, uint64_t bytes, int code,
                                 const char* next_step) {
  return Fail(COTUNE_OUT_OF_RESOURCES,
              fmt::format("{} of {} bytes of shared memory failed: {}; {}", call, bytes,
                          ErrorText(code), next_step),
              code);
}

// A file beyond this limit would end the process by SIGXFSZ instead of giving an error.
bool ExceedsFileSizeLimit(uint64_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         bytes > limit.rlim_cur;
}

// The segment is found by the number of rank 0's process.
Result<void> CheckProcessNumbers(const SegmentAnnouncement& announcement) {
  constexpr const char* kMend =
      "start them in one (docker: --pid=host or --pid=container:NAME, kubernetes: "
      "shareProcessNamespace or hostPID)";
  const sdk::ProcessIdentity rank_zero{announcement.pid, announcement.start_ticks,
                                       announcement.pid_space};
  if (!sdk::ShareProcessNumbers(rank_zero, sdk::OwnIdentity())) {
    return Fail(
        COTUNE_UNSUPPORTED,
        fmt::format("group rank 0 is in another PID namespace (there it is pid {}), and the "
                    "host backend finds its memory by the process number; {}",
                    announcement.pid, kMend));
  }
  if (!sdk::ProcIsOwn()) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("the /proc of this rank is that of another PID namespace, so that the "
                            "memory of group rank 0 (pid {}) cannot be found; mount /proc anew "
                            "(unshare: --mount-proc)",
                            announcement.pid));
  }
  return {};
}

}  // namespace

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(slot_bytes_, other.slot_bytes_);
  std::swap(world_size_, other.world_size_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

uint64_t SharedSegment::SegmentBytes(int world_size, uint64_t slot_bytes) {
  return kControlBytes + static_cast<uint64_t>(world_size) * (kLinesBytes + slot_bytes);
}

TaggedLine* SharedSegment::Lines(int rank) const {
  return reinterpret_cast<TaggedLine*>(base_ + kControlBytes +
                                       static_cast<uint64_t>(rank) * (kLinesBytes + slot_bytes_));
}

std::byte* SharedSegment::Slot(int rank) const {
  return reinterpret_cast<std::byte*>(Lines(rank)) + kLinesBytes;
}

Result<void> SharedSegment::Map() {
  void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (base == MAP_FAILED) {
    return NoMemory("mapping", bytes_, errno,
                    "see `ulimit -v`, or lower the setting host.slot_bytes");
  }
  base_ = static_cast<std::byte*>(base);
  return {};
}

Result<SharedSegment> SharedSegment::Create(int world_size, uint64_t slot_bytes) {
  SharedSegment segment;
  segment.world_size_ = world_size;
  segment.slot_bytes_ = slot_bytes;
  segment.bytes_ = SegmentBytes(world_size, slot_bytes);
  if (ExceedsFileSizeLimit(segment.bytes_)) {
    return NoMemory("reservation", segment.bytes_, EFBIG,
                    "raise `ulimit -f`, or lower the setting host.slot_bytes");
  }
  segment.file_ =
      sdk::Descriptor(memfd_create("cotune_host_group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!segment.file_.is_open()) {
    return NoMemory("memfd_create", segment.bytes_, errno, "see `ulimit -n` and free memory");
  }
  if (ftruncate(segment.file_.get(), static_cast<off_t>(segment.bytes_)) != 0 ||
      fallocate(segment.file_.get(), 0, 0, static_cast<off_t>(kControlBytes)) != 0) {
    return NoMemory("reservation", segment.bytes_, errno, "see free memory and the memory cgroup");
  }
  // A process that made the file smaller would end all ranks by SIGBUS. A system without seals goes
  // on without this protection.
  static_cast<void>(
      fcntl(segment.file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  COTUNE_RETURN_IF_ERROR(segment.Map());
  uint8_t* token = segment.control().token;
  constexpr auto kTokenBytes = sizeof(ControlBlock::token);
  if (getrandom(token, kTokenBytes, 0) != static_cast<ssize_t>(kTokenBytes)) {
    return Fail(COTUNE_INTERNAL, fmt::format("getrandom failed: {}", ErrorText(errno)), errno);
  }
  return segment;
}

SegmentAnnouncement SharedSegment::Announce() const {
  SegmentAnnouncement announcement;
  const sdk::ProcessIdentity self = sdk::OwnIdentity();
  announcement.pid = self.pid;
  announcement.start_ticks = self.start_ticks;
  announcement.pid_space = self.pid_space;
  announcement.file = file_.get();
  announcement.slot_bytes = slot_bytes_;
  announcement.world_size = world_size_;
  std::memcpy(announcement.token, control().token, sizeof(announcement.token));
  return announcement;
}

Result<void> SharedSegment::ReserveSlot(int rank) {
  auto* const begin = reinterpret_cast<std::byte*>(Lines(rank));
  const uint64_t bytes = kLinesBytes + slot_bytes_;
  if (fallocate(file_.get(), 0, begin - base_, static_cast<off_t>(bytes)) != 0) {
    return NoMemory("reservation", bytes, errno, "see free memory and the memory cgroup");
  }
#ifdef MADV_POPULATE_WRITE
  // Only saves page faults later: a kernel that does not know it changes nothing.
  madvise(begin, bytes, MADV_POPULATE_WRITE);
#endif
  return {};
}

Result<SharedSegment> SharedSegment::Open(const SegmentAnnouncement& announcement, int world_size,
                                          uint64_t slot_bytes) {
  if (announcement.world_size != world_size || announcement.slot_bytes != slot_bytes) {
    return Fail(
        COTUNE_INVALID_ARGUMENT,
        fmt::format("group rank 0 has world_size {} and host.slot_bytes {}, this rank has {} "
                    "and {}; give all ranks the same values",
                    announcement.world_size, announcement.slot_bytes, world_size, slot_bytes));
  }
  SharedSegment segment;
  segment.world_size_ = world_size;
  segment.slot_bytes_ = slot_bytes;
  segment.bytes_ = SegmentBytes(world_size, slot_bytes);
  COTUNE_RETURN_IF_ERROR(CheckProcessNumbers(announcement));
  const std::string path = fmt::format("/proc/{}/fd/{}", announcement.pid, announcement.file);
  segment.file_ = sdk::Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!segment.file_.is_open()) {
    const int code = errno;
    if (!sdk::IsAlive({announcement.pid, announcement.start_ticks, announcement.pid_space})) {
      return Fail(
          COTUNE_PEER_FAILED,
          fmt::format("group rank 0 (pid {}) died before this rank joined", announcement.pid), code,
          0);
    }
    if (code == EMFILE || code == ENFILE) {
      return NoMemory("opening", segment.bytes_, code, "see `ulimit -n`");
    }
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("cannot open {}: {}; ranks must run as one user in one PID namespace "
                            "(containers: --pid=host or share it)",
                            path, ErrorText(code)),
                code);
  }
  struct stat info {};
  if (fstat(segment.file_.get(), &info) != 0 ||
      static_cast<uint64_t>(info.st_size) != segment.bytes_) {
    return Fail(COTUNE_INTERNAL,
                fmt::format("{} is not the segment of group rank 0: {} bytes, not {}", path,
                            info.st_size, segment.bytes_));
  }
  COTUNE_RETURN_IF_ERROR(segment.Map());
  if (std::memcmp(segment.control().token, announcement.token, sizeof(announcement.token)) != 0) {
    return Fail(COTUNE_INTERNAL, fmt::format("{} is not the segment of group rank 0: its token "
                                             "differs; was the process number reused?",
                                             path));
  }
  return segment;
}

}  // namespace cotune::host
