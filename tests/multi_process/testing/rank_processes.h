// Ranks as forked processes, for tests: lines they report, words the test says, how they ended.
#ifndef COTUNE_TESTS_MULTI_PROCESS_TESTING_RANK_PROCESSES_H_
#define COTUNE_TESTS_MULTI_PROCESS_TESTING_RANK_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cotune {

inline constexpr int64_t kSecondNs = 1'000'000'000;

// The ends of a rank's pipes to and from the test.
class TestLink {
 public:
  TestLink(int report_fd, int word_fd) : report_fd_(report_fd), word_fd_(word_fd) {}
  // Newlines inside become spaces. One thread at a time.
  void Report(std::string line);
  // Waits until the test says the next word. Safe in the handler of a signal.
  void AwaitWord();
  // The same as Report for a line that ends in a newline, safe in the handler of a signal.
  void ReportInHandler(std::string_view line) const;

 private:
  int report_fd_;
  int word_fd_;
};

// A private folder that goes away with all that is in it.
class PrivateFolder {
 public:
  PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The test forks while it has one thread. What still runs at the end is killed and collected.
class RankProcesses {
 public:
  // The rank's part; its result is the exit code.
  using Body = std::function<int(TestLink&)>;

  RankProcesses() = default;
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses();

  void Start(const Body& body);
  size_t size() const { return children_.size(); }

  // Both false when it takes longer than wait_ns. Lines are read meanwhile.
  bool WaitForEnd(const std::vector<size_t>& numbers, int64_t wait_ns);
  bool WaitForLine(size_t number, std::string_view start, int64_t wait_ns);

  void Say(size_t number);
  // Waits for the line of each of these ranks; then each gets its word, in this order. False
  // when the lines take longer than wait_ns.
  bool Release(const std::vector<size_t>& numbers, std::string_view start, int64_t wait_ns);
  void Signal(size_t number, int signal);
  // Waits until a signal has stopped the process; false when it has ended.
  bool WaitForStop(size_t number);

  // The end of a process: its exit code, or -signal.
  int ExitOf(size_t number) const { return children_[number].exit; }
  const std::vector<std::string>& LinesOf(size_t number) const { return children_[number].lines; }
  // Lines that begin with `start`, without it.
  std::vector<std::string> LinesOf(size_t number, std::string_view start) const;
  // Everything every rank said, for the message of a failed expectation.
  std::string Transcript() const;

 private:
  struct Child {
    pid_t pid = -1;
    int pid_fd = -1;
    int report_fd = -1;
    int word_fd = -1;
    std::string partial_line;
    std::vector<std::string> lines;
    bool ended = false;
    int exit = 0;
  };

  bool ReadUntil(const std::function<bool()>& done, int64_t wait_ns);
  static void ReadReports(Child& child);
  static void Collect(Child& child);

  std::vector<Child> children_;
};

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_TESTING_RANK_PROCESSES_H_
