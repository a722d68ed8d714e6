#include "plugins/cuda/memory/descriptor_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

namespace {

tl::unexpected<sdk::Failure> Failed(const char* call) {
  const int code = errno;
  return Fail(COTUNE_INTERNAL,
              fmt::format("{} failed while file descriptors went between ranks: {}", call,
                          std::strerror(code)),
              code);
}

tl::unexpected<sdk::Failure> Late() {
  return Fail(COTUNE_DEADLINE_EXCEEDED, "a peer's file descriptor did not come in time");
}

// The time that is left for a wait that signals may interrupt.
class TimeLeft {
 public:
  explicit TimeLeft(int timeout_ms)
      : end_(std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms)) {}
  int ms() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end_ - std::chrono::steady_clock::now());
    return static_cast<int>(std::max<int64_t>(0, left.count()));
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

// The only descriptor of a message; if there are more, none, and all are closed.
Descriptor DescriptorOf(msghdr& message) {
  std::vector<Descriptor> found;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(each) + i * sizeof(int), sizeof(fd));
      found.emplace_back(fd);
    }
  }
  return found.size() == 1 ? std::move(found.front()) : Descriptor();
}

constexpr char kSocketName[] = "/socket";

// False where the path does not fit.
bool MakeAddress(const std::string& folder, sockaddr_un* address) {
  const std::string path = folder + kSocketName;
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) return false;
  std::memcpy(address->sun_path, path.data(), path.size());
  return true;
}

// The folder of another process of this user's. What is sent into it goes to nobody else: it is
// open, so it cannot be exchanged any more, and only this user makes sockets in it.
Result<Descriptor> OpenFolderOfPeer(const std::string& path) {
  Descriptor folder(open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (folder.get() < 0 || fstat(folder.get(), &info) != 0) {
    const int code = errno;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("a peer cannot be reached by a Unix socket in {} ({}): it has gone, or "
                            "its container has other files there",
                            path, std::strerror(code)),
                code);
  }
  if (info.st_uid != geteuid() || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("a peer's folder {} belongs to user {} and has mode {:o}: it has to be "
                            "this user's alone; do all ranks run as the same user?",
                            path, info.st_uid, info.st_mode & 07777));
  }
  return folder;
}

bool FillRandom(void* data, size_t bytes) {
  return getrandom(data, bytes, 0) == static_cast<ssize_t>(bytes);
}

}  // namespace

Result<SocketFolder> SocketFolder::Make(const std::vector<std::string>& bases) {
  std::string why;
  for (const std::string& base : bases) {
    std::string path = base + "/cotune.XXXXXX";
    if (path.size() + sizeof(kSocketName) > DescriptorSocket::kNameBytesMax) {
      why += fmt::format("; {}: the path is too long for a socket", base);
    } else if (mkdtemp(path.data()) == nullptr) {
      why += fmt::format("; {}: {}", base, std::strerror(errno));
    } else {
      return SocketFolder(std::move(path));
    }
  }
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("no folder for the socket that ranks send each other descriptors by{}; "
                          "set XDG_RUNTIME_DIR to a short path of a folder that you may write to",
                          why));
}

SocketFolder::~SocketFolder() {
  if (path_.empty()) return;
  unlink((path_ + kSocketName).c_str());
  rmdir(path_.c_str());
}

std::vector<std::string> DescriptorSocket::DefaultBases(
    const std::map<std::string, std::string>& environment) {
  std::vector<std::string> bases;
  const auto runtime = environment.find("XDG_RUNTIME_DIR");
  const bool is_absolute = runtime != environment.end() && runtime->second.rfind('/', 0) == 0;
  if (is_absolute) bases.push_back(runtime->second);
  bases.emplace_back("/tmp");
  return bases;
}

Result<DescriptorSocket> DescriptorSocket::Open(const std::vector<std::string>& bases) {
  COTUNE_TRY(auto folder, SocketFolder::Make(bases));
  DescriptorSocket made(std::move(folder),
                        Descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
  if (made.socket_.get() < 0) return Failed("socket");
  if (!FillRandom(made.secret_.data(), sizeof(made.secret_))) return Failed("getrandom");
  sockaddr_un address{};
  if (!MakeAddress(made.name(), &address) ||
      bind(made.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Failed("bind");
  }
  return made;
}

Result<void> DescriptorSocket::Send(const std::string& to, const DescriptorLabel& label,
                                    int descriptor, int timeout_ms) const {
  COTUNE_TRY(const auto folder, OpenFolderOfPeer(to));
  sockaddr_un address{};
  // Such a path is short.
  static_cast<void>(MakeAddress(fmt::format("/proc/self/fd/{}", folder.get()), &address));
  DescriptorLabel sent = label;
  iovec data{&sent, sizeof(sent)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = sizeof(address);
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  const TimeLeft left(timeout_ms);
  while (true) {
    // No time at all would mean no limit.
    const int limit_ms = std::max(1, left.ms());
    const timeval limit{limit_ms / 1000, limit_ms % 1000 * 1000};
    if (setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
      return Failed("setsockopt");
    }
    if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) return {};
    if (errno != EINTR) break;
  }
  if (errno == ECONNREFUSED || errno == ENOENT) {
    return Fail(COTUNE_UNSUPPORTED, "a peer cannot be reached by a Unix socket: it has gone",
                errno);
  }
  if (errno == EAGAIN) {
    return Fail(COTUNE_DEADLINE_EXCEEDED, "a peer does not take file descriptors", EAGAIN);
  }
  return Failed("sendmsg");
}

Result<DescriptorSocket::Received> DescriptorSocket::Receive(int timeout_ms) const {
  const TimeLeft left(timeout_ms);
  while (true) {
    pollfd waited{socket_.get(), POLLIN, 0};
    const int ready = poll(&waited, 1, left.ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return Failed("poll");
    if (ready == 0) return Late();
    DescriptorLabel label;
    iovec data{&label, sizeof(label)};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (bytes < 0) return Failed("recvmsg");
    Descriptor descriptor = DescriptorOf(message);
    // Every process of this user can send to the socket.
    const bool is_meant = bytes == sizeof(label) && label.secret == secret_;
    if (is_meant && descriptor.get() >= 0) return Received{label.sender, std::move(descriptor)};
    // While strangers send there is always something to receive.
    if (left.ms() == 0) return Late();
  }
}

}  // namespace cotune::cuda
