// NVRTC, NVIDIA's compiler as a library, found at run time. It needs neither GPU nor toolkit.
#ifndef COTUNE_PLUGINS_CUDA_COMPILE_NVRTC_H_
#define COTUNE_PLUGINS_CUDA_COMPILE_NVRTC_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// A source text with the headers that it includes, by the names in its #include lines.
struct SourceText {
  std::string name;
  std::string text;
  std::vector<std::pair<std::string, std::string>> headers;
};

// Any thread; copies are cheap; never unloaded.
class Nvrtc {
 public:
  // named: the library's path by the user's wish; "": where Python packages and toolkits keep it,
  // then the system. COTUNE_UNSUPPORTED says what was tried.
  static sdk::Result<Nvrtc> Open(const std::string& named,
                                 const std::map<std::string, std::string>& environment);

  // "13.0"; part of what a compiled kernel is cached by.
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }

  // Machine code for one architecture, "sm_90". COTUNE_INTERNAL with the compiler's first error.
  // log: what the compiler had to say of code that it compiled; nullptr: not wanted.
  sdk::Result<std::string> Compile(const SourceText& source, const std::string& architecture,
                                   const std::vector<std::string>& options,
                                   std::string* log = nullptr) const;

 private:
  struct Functions {
    int (*version)(int* major, int* minor) = nullptr;
    const char* (*error_text)(int code) = nullptr;
    int (*create)(void** program, const char* source, const char* name, int header_count,
                  const char* const* headers, const char* const* header_names) = nullptr;
    int (*destroy)(void** program) = nullptr;
    int (*compile)(void* program, int option_count, const char* const* options) = nullptr;
    int (*log_size)(void* program, size_t* bytes) = nullptr;
    int (*log)(void* program, char* text) = nullptr;
    int (*cubin_size)(void* program, size_t* bytes) = nullptr;
    int (*cubin)(void* program, char* code) = nullptr;
  };
  class Program;

  bool Load(const std::string& candidate, std::string* why);

  Functions functions_;
  std::string version_;
  std::string path_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_COMPILE_NVRTC_H_
