// The flags of a test program, "--name value".
#ifndef COTUNE_TESTS_GPU_FLAGS_H_
#define COTUNE_TESTS_GPU_FLAGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace cotune::gputest {

// The parts of a text between separators, empty ones left out.
std::vector<std::string> SplitAt(const std::string& text, char separator);

class Flags {
 public:
  // Those from argv[first] on. kUsage for what is no flag with a value.
  static Result<Flags> Parse(int argc, char** argv, int first);
  std::string Text(const std::string& name, const std::string& fallback) const;
  int64_t Number(const std::string& name, int64_t fallback) const;
  // Parted by ','.
  std::vector<std::string> List(const std::string& name, const std::string& fallback) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_FLAGS_H_
