// Runs the real program in its own environment and collects what it says.
#ifndef COTUNE_CLI_TESTING_PROGRAM_RUN_H_
#define COTUNE_CLI_TESTING_PROGRAM_RUN_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace cotune::cli {

struct ProgramEnd {
  int exit_code = -1;  // -signal when a signal ended it
  std::string out;
  std::string err;
};

// One started program. Its output is read while it is waited for.
class ProgramRun {
 public:
  // environment is all that the program sees.
  ProgramRun(const std::vector<std::string>& command,
             const std::map<std::string, std::string>& environment);
  ~ProgramRun();
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;

  pid_t pid() const { return pid_; }
  // Until standard error holds the text; false when it ends first. What was read is part of what
  // Wait gives.
  bool WaitForError(const std::string& text);
  // Until both outputs are closed and the program has ended.
  ProgramEnd Wait();

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::string err_read_;
};

// A new folder below /tmp with a short name (sockets have little room), removed at the end.
class ShortFolder {
 public:
  ShortFolder();
  ~ShortFolder();
  ShortFolder(const ShortFolder&) = delete;
  ShortFolder& operator=(const ShortFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ReadFileForTest(const std::string& path);
void WriteFileForTest(const std::string& path, const std::string& content);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_TESTING_PROGRAM_RUN_H_
