#include "plugins/cuda/descriptor_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace cotune::cuda {

using border::Fail;
using border::Result;

namespace {

tl::unexpected<border::Failure> Failed(const char* call) {
  const int code = errno;
  return Fail(COTUNE_INTERNAL,
              fmt::format("{} failed while file descriptors went between ranks: {}", call,
                          std::strerror(code)),
              code);
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

// The zero in front marks the abstract namespace.
sockaddr_un AddressOf(const std::string& name, socklen_t* length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return address;
}

bool FillRandom(void* data, size_t bytes) {
  return getrandom(data, bytes, 0) == static_cast<ssize_t>(bytes);
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Result<DescriptorSocket> DescriptorSocket::Open() {
  DescriptorSocket made(Descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
  if (made.socket_.get() < 0) return Failed("socket");
  std::array<uint64_t, 2> bits{};
  if (!FillRandom(bits.data(), sizeof(bits)) ||
      !FillRandom(made.secret_.data(), sizeof(made.secret_))) {
    return Failed("getrandom");
  }
  made.name_ = fmt::format("{:016x}{:016x}", bits[0], bits[1]);
  socklen_t length = 0;
  const sockaddr_un address = AddressOf(made.name_, &length);
  if (bind(made.socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return Failed("bind");
  }
  return made;
}

Result<void> DescriptorSocket::Send(const std::string& to, const DescriptorLabel& label,
                                    int descriptor, int timeout_ms) const {
  socklen_t length = 0;
  sockaddr_un address = AddressOf(to, &length);
  DescriptorLabel sent = label;
  iovec data{&sent, sizeof(sent)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = length;
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
  if (errno == ECONNREFUSED) {
    return Fail(COTUNE_UNSUPPORTED,
                "a peer cannot be reached by a Unix socket: it has gone, or lives in another "
                "network namespace",
                ECONNREFUSED);
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
    if (ready == 0) {
      return Fail(COTUNE_DEADLINE_EXCEEDED, "a peer's file descriptor did not come in time");
    }
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
    // Anybody on the machine can send to the socket.
    const bool is_meant = bytes == sizeof(label) && label.secret == secret_;
    if (is_meant && descriptor.get() >= 0) return Received{label.sender, std::move(descriptor)};
  }
}

}  // namespace cotune::cuda
