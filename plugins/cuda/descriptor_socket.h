// File descriptors sent between the processes of one machine.
#ifndef COTUNE_PLUGINS_CUDA_DESCRIPTOR_SOCKET_H_
#define COTUNE_PLUGINS_CUDA_DESCRIPTOR_SOCKET_H_

#include <cstdint>
#include <string>

#include "plugins/border/failure.h"

namespace cotune::cuda {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// What arrived. sender_pid: as the kernel tells it, 0 where it lives in another PID namespace.
struct ReceivedDescriptor {
  int64_t tag = 0;
  int64_t sender_pid = 0;
  Descriptor descriptor;
};

// One end: a datagram socket with a name in the abstract namespace, which needs no file and goes
// with the process. One thread.
class DescriptorSocket {
 public:
  static border::Result<DescriptorSocket> Open();

  // Of this end, for Send of another process: printable, at most 15 characters.
  const std::string& name() const { return name_; }

  // tag: tells the receiver what it is. Waits while the receiver's queue is full.
  // COTUNE_UNSUPPORTED: there is no such end, as for processes in different network namespaces.
  border::Result<void> Send(const std::string& to, int64_t tag, int descriptor,
                            int timeout_ms) const;
  // The next one; COTUNE_DEADLINE_EXCEEDED when none has come.
  border::Result<ReceivedDescriptor> Receive(int timeout_ms) const;

 private:
  explicit DescriptorSocket(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
  std::string name_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_DESCRIPTOR_SOCKET_H_
