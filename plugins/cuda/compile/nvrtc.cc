#include "plugins/cuda/compile/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "gpu/driver/library_search.h"

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Result;

constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;

template <typename Function>
bool Find(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function != nullptr;
}

// NVRTC opens its own second library by name; it finds it only when that is loaded already, unless
// the folder is on the linker's path.
void LoadBuiltins(const std::string& nvrtc_path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(nvrtc_path).parent_path();
  if (folder.empty()) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so")) dlopen(entry.path().c_str(), kFlags);
  }
}

// The compiler's log down to its first error: one line fits into an error of the ABI.
std::string FirstError(const std::string& log) {
  const size_t at = log.find("error");
  if (at == std::string::npos) return log.substr(0, log.find('\n'));
  const size_t line = log.rfind('\n', at) == std::string::npos ? 0 : log.rfind('\n', at) + 1;
  return log.substr(line, log.find('\n', at) - line);
}

}  // namespace

// One translation unit on its way through the compiler.
class Nvrtc::Program {
 public:
  Program(const Functions& functions, void* program) : functions_(functions), program_(program) {}
  ~Program() { functions_.destroy(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int Compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    return functions_.compile(program_, static_cast<int>(texts.size()), texts.data());
  }
  std::string Log() { return Text(functions_.log_size, functions_.log); }
  std::string Cubin() { return Text(functions_.cubin_size, functions_.cubin); }

 private:
  std::string Text(int (*size_of)(void*, size_t*), int (*read)(void*, char*)) {
    size_t bytes = 0;
    if (size_of(program_, &bytes) != 0 || bytes == 0) return "";
    std::string text(bytes, '\0');
    return read(program_, text.data()) == 0 ? text : "";
  }

  const Functions& functions_;
  void* program_;
};

bool Nvrtc::Load(const std::string& candidate, std::string* why) {
  LoadBuiltins(candidate);
  void* library = dlopen(candidate.c_str(), kFlags);
  if (library == nullptr) {
    *why = dlerror();
    return false;
  }
  const bool complete = Find(library, "nvrtcVersion", functions_.version) &&
                        Find(library, "nvrtcGetErrorString", functions_.error_text) &&
                        Find(library, "nvrtcCreateProgram", functions_.create) &&
                        Find(library, "nvrtcDestroyProgram", functions_.destroy) &&
                        Find(library, "nvrtcCompileProgram", functions_.compile) &&
                        Find(library, "nvrtcGetProgramLogSize", functions_.log_size) &&
                        Find(library, "nvrtcGetProgramLog", functions_.log) &&
                        Find(library, "nvrtcGetCUBINSize", functions_.cubin_size) &&
                        Find(library, "nvrtcGetCUBIN", functions_.cubin);
  int major = 0;
  int minor = 0;
  if (!complete || functions_.version(&major, &minor) != 0) {
    *why = candidate + " is not NVRTC of CUDA 11.1 or newer";
    return false;
  }
  version_ = fmt::format("{}.{}", major, minor);
  Dl_info info{};
  const bool has_path = dladdr(reinterpret_cast<void*>(functions_.version), &info) != 0;
  path_ = has_path ? info.dli_fname : candidate;
  return true;
}

Result<Nvrtc> Nvrtc::Open(const std::string& named,
                          const std::map<std::string, std::string>& environment) {
  const gpu::LibraryQuery query{named, {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}};
  std::string reasons;
  for (const std::string& candidate : gpu::LibraryCandidates(query, environment)) {
    Nvrtc nvrtc;
    std::string why;
    if (nvrtc.Load(candidate, &why)) return nvrtc;
    reasons += (reasons.empty() ? "" : "; ") + why;
  }
  return Fail(COTUNE_UNSUPPORTED,
              fmt::format("no NVRTC, which compiles the kernels: {}; install nvidia-cuda-nvrtc, or "
                          "name it by the setting cuda.nvrtc_library",
                          reasons));
}

Result<std::string> Nvrtc::Compile(const SourceText& source, const std::string& architecture,
                                   const std::vector<std::string>& options,
                                   std::string* log) const {
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& [name, text] : source.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  void* handle = nullptr;
  int code = functions_.create(&handle, source.text.c_str(), source.name.c_str(),
                               static_cast<int>(names.size()), texts.data(), names.data());
  if (code != 0) {
    return Fail(COTUNE_INTERNAL, fmt::format("NVRTC {} cannot take {}: {}", version_, source.name,
                                             functions_.error_text(code)));
  }
  Program program(functions_, handle);
  std::vector<std::string> all = {"--gpu-architecture=" + architecture, "--std=c++17"};
  all.insert(all.end(), options.begin(), options.end());
  code = program.Compile(all);
  if (code != 0) {
    return Fail(COTUNE_INTERNAL,
                fmt::format("NVRTC {} does not compile {} for {}: {}", version_, source.name,
                            architecture, FirstError(program.Log())),
                code);
  }
  if (log != nullptr) *log = program.Log();
  std::string cubin = program.Cubin();
  if (cubin.empty()) {
    return Fail(COTUNE_INTERNAL, fmt::format("NVRTC {} gives no code of {} for {}", version_,
                                             source.name, architecture));
  }
  return cubin;
}

}  // namespace cotune::cuda
