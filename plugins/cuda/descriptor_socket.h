// File descriptors sent between the processes of one machine.
#ifndef COTUNE_PLUGINS_CUDA_DESCRIPTOR_SOCKET_H_
#define COTUNE_PLUGINS_CUDA_DESCRIPTOR_SOCKET_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>

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

// Random bits that only those know who were told.
using Secret = std::array<uint64_t, 2>;

// What goes with a descriptor.
struct DescriptorLabel {
  int64_t sender = 0;
  Secret secret{};  // of the receiver
};

// One end: a datagram socket with a random name in the abstract namespace, which needs no file and
// goes with the process. One thread.
class DescriptorSocket {
 public:
  static border::Result<DescriptorSocket> Open();

  // Of this end, for Send of another process: 32 characters, printable.
  const std::string& name() const { return name_; }
  // Receive takes only what is labelled with it.
  const Secret& secret() const { return secret_; }

  // Waits while the receiver's queue is full, COTUNE_DEADLINE_EXCEEDED when it stays so.
  // COTUNE_UNSUPPORTED: there is no such end, as for processes in different network namespaces.
  border::Result<void> Send(const std::string& to, const DescriptorLabel& label, int descriptor,
                            int timeout_ms) const;

  struct Received {
    int64_t sender = 0;
    Descriptor descriptor;
  };
  // The next one that has the secret; everything else is dropped. COTUNE_DEADLINE_EXCEEDED when
  // none has come.
  border::Result<Received> Receive(int timeout_ms) const;

 private:
  explicit DescriptorSocket(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
  std::string name_;
  Secret secret_{};
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_DESCRIPTOR_SOCKET_H_
