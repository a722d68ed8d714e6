// A switch between namespaces whose ports are slow and lose frames, in user space: not every kernel
// has `tc netem`.
#ifndef COTUNE_PLUGINS_UCX_TESTING_SLOW_SWITCH_H_
#define COTUNE_PLUGINS_UCX_TESTING_SLOW_SWITCH_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace cotune::ucx {

struct LinkQuality {
  int64_t delay_ns = 0;  // of a frame, from one rank to another
  double loss = 0;       // the part of all frames that is lost
  bool is_perfect() const { return delay_ns == 0 && loss == 0; }
};

// Frames go on between TAP devices that the caller moves into the namespaces of ranks.
class SlowSwitch {
 public:
  explicit SlowSwitch(LinkQuality quality) : quality_(quality) {}
  ~SlowSwitch();
  SlowSwitch(const SlowSwitch&) = delete;
  SlowSwitch& operator=(const SlowSwitch&) = delete;

  // Makes the TAP device of the next rank, with this name, in the namespace of the caller. Empty,
  // or why there is none.
  std::string AddPort(const std::string& device);
  // The address that the device of a rank needs, by which the switch knows it.
  static std::string AddressOf(int rank);
  // From here on frames are forwarded, by a thread of the switch.
  void Start();

 private:
  struct Frame {
    int64_t due_ns = 0;
    size_t from = 0;
    std::vector<uint8_t> bytes;
  };

  void Run();
  void ReadAll(size_t port);
  void Deliver(const Frame& frame);

  const LinkQuality quality_;
  std::vector<int> ports_;
  int stop_ = -1;
  std::deque<Frame> frames_;  // in the order in which they are due: all take the same time
  std::mt19937 random_{1};
  std::thread thread_;
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_TESTING_SLOW_SWITCH_H_
