#include "benchmarks/host/mpirun.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace cotune::bench {

std::string OwnPath() { return std::filesystem::read_symlink("/proc/self/exe"); }

int RunMpirun(int ranks, const std::vector<std::string>& flags,
              const std::vector<std::string>& command) {
  const std::string count = std::to_string(ranks);
  std::vector<const char*> words = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                                    count.c_str()};
  for (const std::string& each : flags) words.push_back(each.c_str());
  for (const std::string& each : command) words.push_back(each.c_str());
  words.push_back(nullptr);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execvp(words[0], const_cast<char**>(words.data()));
    std::perror("cannot start mpirun (Debian: openmpi-bin)");
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    std::perror("cannot run mpirun");
    return 1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace cotune::bench
