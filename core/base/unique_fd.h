// A file descriptor that closes itself.
#ifndef COTUNE_CORE_BASE_UNIQUE_FD_H_
#define COTUNE_CORE_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace cotune {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_UNIQUE_FD_H_
