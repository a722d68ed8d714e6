// A process that starts ranks, as a test sees it from outside.
#ifndef COTUNE_INTEGRATION_TESTING_SPAWNER_H_
#define COTUNE_INTEGRATION_TESTING_SPAWNER_H_

#include <sys/types.h>

#include <functional>
#include <string>

#include "integration/spawn.h"

namespace cotune {

// A process of its own that spawns; what its ranks write comes back through a pipe, or through a
// terminal of theirs.
class SpawnerForTest {
 public:
  enum class Output { kPipe, kTerminal };

  explicit SpawnerForTest(const SpawnRequest& request, Output output = Output::kPipe);
  SpawnerForTest(const SpawnerForTest&) = delete;
  SpawnerForTest& operator=(const SpawnerForTest&) = delete;
  ~SpawnerForTest();

  pid_t pid() const { return pid_; }
  // Reads until `done`, or until nobody holds the pipe any more; false after a minute.
  bool ReadUntil(const std::function<bool(const std::string&)>& done);
  bool ReadToTheEnd();
  // As somebody at the terminal.
  void Type(const std::string& text) const;
  // These two end the test when they take longer than a minute.
  bool AwaitStop() const;
  int ExitCode() const;
  const std::string& output() const { return output_; }

 private:
  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string output_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_TESTING_SPAWNER_H_
