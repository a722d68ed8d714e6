#include "cli/testing/program_run.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fmt/format.h"

namespace cotune::cli {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Appends what is there; false at the end of the stream.
bool ReadSome(int file, std::string& text) {
  std::array<char, 4096> block{};
  const ssize_t got = read(file, block.data(), block.size());
  if (got > 0) text.append(block.data(), static_cast<size_t>(got));
  return got > 0;
}

}  // namespace

ProgramRun::ProgramRun(const std::vector<std::string>& command,
                       const std::map<std::string, std::string>& environment) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) {
    variables.push_back(fmt::format("{}={}", name, value));
  }
  const int failed = posix_spawn(&pid_, command[0].c_str(), &actions, nullptr,
                                 Pointers(arguments).data(), Pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
  if (failed != 0) std::abort();
}

ProgramRun::~ProgramRun() {
  close(out_);
  close(err_);
  if (pid_ > 0) Wait();
}

bool ProgramRun::WaitForError(const std::string& text) {
  while (err_read_.find(text) == std::string::npos) {
    if (!ReadSome(err_, err_read_)) return false;
  }
  return true;
}

ProgramEnd ProgramRun::Wait() {
  ProgramEnd end;
  end.err = err_read_;
  std::array<pollfd, 2> files = {{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    if (poll(files.data(), files.size(), -1) < 0) break;
    if (files[0].revents != 0 && !ReadSome(out_, end.out)) files[0].fd = -1;
    if (files[1].revents != 0 && !ReadSome(err_, end.err)) files[1].fd = -1;
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return end;
}

ShortFolder::ShortFolder() : path_("/tmp/ctXXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) std::abort();
}

ShortFolder::~ShortFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadFileForTest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteFileForTest(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace cotune::cli
