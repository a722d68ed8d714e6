// Ranks that are shell scripts.
#ifndef COTUNE_INTEGRATION_TESTING_SHELL_RANKS_H_
#define COTUNE_INTEGRATION_TESTING_SHELL_RANKS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "integration/spawn.h"

namespace cotune {

inline constexpr int64_t kSecondNs = 1'000'000'000;

inline SpawnRequest Shell(const std::string& script, int ranks) {
  SpawnRequest request;
  request.command = {"sh", "-c", script};
  request.ranks = ranks;
  request.grace_ns = 60 * kSecondNs;
  return request;
}

inline std::string InFolder(const std::string& script) {
  return "cd \"$TEST_TMPDIR\"; fifo=f.$$; mkfifo $fifo; trap 'rm -f $fifo' EXIT; " + script;
}

// A rank that says that it is ready and waits for ever, unless a signal ends it.
inline std::string Waiting(const std::string& on_signal) {
  return InFolder("exec 3<>$fifo; rm $fifo; " + on_signal + "echo ready; read x <&3; exit 1");
}

inline size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

inline bool BothReady(const std::string& output) { return Count(output, "ready") == 2; }

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_TESTING_SHELL_RANKS_H_
