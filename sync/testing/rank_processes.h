// Ranks as forked processes, for tests.
#ifndef COTUNE_SYNC_TESTING_RANK_PROCESSES_H_
#define COTUNE_SYNC_TESTING_RANK_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "sync/socket/socket_exchange.h"
#include "sync/wire/log.h"

namespace cotune::sync {

// The tools of a process under test: a way to report lines to the parent, and to wait for its word.
class Reporter {
 public:
  Reporter(int report_fd, int word_fd) : report_fd_(report_fd), word_fd_(word_fd) {}

  void Line(const std::string& line);
  // "error rank_lost ranks=2 TEXT".
  void ErrorLine(const Error& error);
  // True when the parent has spoken, within `wait_ns`; waits for ever when it is negative.
  bool HeardWord(int64_t wait_ns = -1) const;

 private:
  int report_fd_;
  int word_fd_;
};

// A private directory that goes away with all in it.
class PrivateDirectory {
 public:
  PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory();
  const std::string& path() const { return path_; }
  std::string socket_path() const { return path_ + "/s"; }

 private:
  std::string path_;
};

// The lines that rank 0's coordinator logs.
class Log {
 public:
  LogSink sink() {
    return [this](const LogLine& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line.text);
    };
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// The parent forks while it has one thread. Children that still run at the end are killed.
class Processes {
 public:
  using Body = std::function<void(Reporter&)>;

  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  // The number of the process: 0, 1, ...
  size_t Start(const Body& body);

  // Reads reports until all of `numbers` have closed theirs; false when that takes longer than
  // wait_ns.
  bool WaitForEnd(const std::vector<size_t>& numbers, int64_t wait_ns);
  // Reads reports until one line of each of `numbers` is `line`.
  bool WaitForLine(const std::vector<size_t>& numbers, const std::string& line, int64_t wait_ns);

  void Speak(size_t number);
  void Signal(size_t number, int signal);

  std::vector<std::string> lines(size_t number) const;
  std::string last_line(size_t number) const;

 private:
  struct Child {
    pid_t pid = -1;
    int report_fd = -1;
    int word_fd = -1;
    std::string report;
    bool ended = false;
  };

  bool ReadUntil(const std::function<bool()>& done, int64_t wait_ns);

  std::vector<Child> children_;
};

// Options with short heartbeats; the rendezvous may take deadline_ns from now.
SocketExchangeOptions OptionsForTest(const PrivateDirectory& directory, int rank, int world_size,
                                     int64_t deadline_ns);

int64_t NowNs();

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_TESTING_RANK_PROCESSES_H_
