#include "plugins/ucx/testing/slow_switch.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "plugins/testing/rank_processes.h"

namespace cotune::ucx {
namespace {

using backend_test::MonotonicNs;

constexpr size_t kAddressBytes = 6;
constexpr size_t kFrameBytesMax = 65'536;

// The port of the rank with the address, or `ports` for one that is for all.
size_t PortOf(const uint8_t* address, size_t ports) {
  constexpr std::array<uint8_t, kAddressBytes - 1> kPrefix = {2, 0, 0, 0, 0};
  const bool is_rank = std::equal(kPrefix.begin(), kPrefix.end(), address);
  const size_t port = is_rank ? address[kAddressBytes - 1] - size_t{1} : ports;
  return std::min(port, ports);
}

}  // namespace

SlowSwitch::~SlowSwitch() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    if (write(stop_, &one, sizeof(one)) != sizeof(one)) std::perror("eventfd");
    thread_.join();
  }
  for (const int port : ports_) close(port);
  if (stop_ >= 0) close(stop_);
}

std::string SlowSwitch::AddPort(const std::string& device) {
  const int port = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (port < 0) return std::string("/dev/net/tun: ") + std::strerror(errno);
  ports_.push_back(port);
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device.c_str());
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(port, TUNSETIFF, &request) != 0) return std::string("TAP: ") + std::strerror(errno);
  return "";
}

std::string SlowSwitch::AddressOf(int rank) {
  char text[18];
  std::snprintf(text, sizeof(text), "02:00:00:00:00:%02x", rank + 1);
  return text;
}

void SlowSwitch::Start() {
  stop_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { Run(); });
}

void SlowSwitch::Run() {
  // Timers are exact to 50 us otherwise.
  prctl(PR_SET_TIMERSLACK, 1);
  std::vector<pollfd> polled;
  for (const int port : ports_) polled.push_back({.fd = port, .events = POLLIN, .revents = 0});
  polled.push_back({.fd = stop_, .events = POLLIN, .revents = 0});
  while (true) {
    timespec timeout{};
    if (!frames_.empty()) {
      const int64_t rest_ns = std::max<int64_t>(frames_.front().due_ns - MonotonicNs(), 0);
      constexpr int64_t kSecondNs = 1'000'000'000;
      timeout = {.tv_sec = rest_ns / kSecondNs, .tv_nsec = rest_ns % kSecondNs};
    }
    ppoll(polled.data(), polled.size(), frames_.empty() ? nullptr : &timeout, nullptr);
    if (polled.back().revents != 0) return;
    for (size_t port = 0; port < ports_.size(); ++port) {
      if ((polled[port].revents & POLLIN) != 0) ReadAll(port);
    }
    while (!frames_.empty() && frames_.front().due_ns <= MonotonicNs()) {
      Deliver(frames_.front());
      frames_.pop_front();
    }
  }
}

void SlowSwitch::ReadAll(size_t port) {
  std::bernoulli_distribution is_lost(quality_.loss);
  std::vector<uint8_t> bytes(kFrameBytesMax);
  while (true) {
    const ssize_t got = read(ports_[port], bytes.data(), bytes.size());
    if (got < static_cast<ssize_t>(kAddressBytes)) return;
    if (is_lost(random_)) continue;
    frames_.push_back({.due_ns = MonotonicNs() + quality_.delay_ns,
                       .from = port,
                       .bytes = {bytes.begin(), bytes.begin() + got}});
  }
}

// A port whose rank does not read loses the frame, as a switch does.
void SlowSwitch::Deliver(const Frame& frame) {
  const size_t to = PortOf(frame.bytes.data(), ports_.size());
  for (size_t port = 0; port < ports_.size(); ++port) {
    if (port == frame.from || (to != ports_.size() && port != to)) continue;
    if (write(ports_[port], frame.bytes.data(), frame.bytes.size()) < 0) continue;
  }
}

}  // namespace cotune::ucx
