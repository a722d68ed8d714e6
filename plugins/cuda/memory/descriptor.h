// Owns a file descriptor.
#ifndef COTUNE_PLUGINS_CUDA_MEMORY_DESCRIPTOR_H_
#define COTUNE_PLUGINS_CUDA_MEMORY_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace cotune::cuda {

// Closes it in the end; -1: none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_MEMORY_DESCRIPTOR_H_
