#include "plugins/cuda/descriptor_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

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

// 1 when the socket is ready, 0 when it was not in time, -1 with errno.
int Await(int fd, int16_t events, int timeout_ms) {
  pollfd waited{fd, events, 0};
  return poll(&waited, 1, timeout_ms);
}

// The only descriptor of a message, and none of any other kind stays open.
Descriptor DescriptorOf(msghdr& message) {
  Descriptor found;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(each), sizeof(fd));
    found = Descriptor(fd);
  }
  return found;
}

int64_t PidOf(msghdr& message) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_CREDENTIALS) continue;
    ucred credentials{};
    std::memcpy(&credentials, CMSG_DATA(each), sizeof(credentials));
    return credentials.pid;
  }
  return 0;
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
  const int fd = made.socket_.get();
  if (fd < 0) return Failed("socket");
  const int on = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) return Failed("setsockopt");
  // Bound without a name, the kernel gives it one that nobody has.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address.sun_family)) != 0) {
    return Failed("bind");
  }
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Failed("getsockname");
  }
  // Behind the family and the zero that marks the namespace.
  constexpr size_t kBegin = offsetof(sockaddr_un, sun_path) + 1;
  if (length > kBegin) made.name_.assign(address.sun_path + 1, length - kBegin);
  return made;
}

Result<void> DescriptorSocket::Send(const std::string& to, int64_t tag, int descriptor,
                                    int timeout_ms) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, to.data(), std::min(to.size(), sizeof(address.sun_path) - 1));
  iovec data{&tag, sizeof(tag)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + to.size());
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  // No time at all would mean no limit.
  const int limit_ms = std::max(1, timeout_ms);
  const timeval limit{limit_ms / 1000, limit_ms % 1000 * 1000};
  if (setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
    return Failed("setsockopt");
  }
  if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) return {};
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

Result<ReceivedDescriptor> DescriptorSocket::Receive(int timeout_ms) const {
  const int ready = Await(socket_.get(), POLLIN, timeout_ms);
  if (ready < 0) return Failed("poll");
  if (ready == 0) {
    return Fail(COTUNE_DEADLINE_EXCEEDED, "a peer's file descriptor did not come in time");
  }
  ReceivedDescriptor received;
  iovec data{&received.tag, sizeof(received.tag)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (bytes < 0) return Failed("recvmsg");
  received.sender_pid = PidOf(message);
  received.descriptor = DescriptorOf(message);
  if (bytes != sizeof(received.tag) || received.descriptor.get() < 0) {
    return Fail(COTUNE_INTERNAL, "a message between ranks came without a file descriptor");
  }
  return received;
}

}  // namespace cotune::cuda
