// Owns a file descriptor.
#ifndef COTUNE_PLUGINS_SDK_DESCRIPTOR_H_
#define COTUNE_PLUGINS_SDK_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace cotune::sdk {

// Closes the descriptor when it is destroyed or gets another one; -1 stands for none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    // The temporary takes this object's descriptor with it, so that it is closed now.
    Descriptor(std::move(other)).Swap(*this);
    return *this;
  }

  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  void Swap(Descriptor& other) noexcept { std::swap(fd_, other.fd_); }

  int fd_ = -1;
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_DESCRIPTOR_H_
