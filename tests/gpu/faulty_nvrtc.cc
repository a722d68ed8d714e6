// NVRTC with a fault: a library that the setting cuda.nvrtc_library names, which passes all calls
// on to the real NVRTC. In the texts of kernels that run operations inside of a collective it
// replaces one text by another, so that a tune meets a wrong kernel in an unchanged product. NVRTC
// gets all headers with each kernel; the fault is put into those that the kernel includes.
//
// Variables: FAULTY_NVRTC_REAL, the path of the real library; FAULTY_NVRTC_REPLACED,
// FAULTY_NVRTC_BY, the fault; without FAULTY_NVRTC_REPLACED there is none.
// FAULTY_NVRTC_KERNELS_FILE: a file that gets one line for each kernel with the fault. Any thread.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using Create = int(void**, const char*, const char*, int, const char* const*, const char* const*);

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void* Open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  std::fprintf(stderr, "faulty_nvrtc: FAULTY_NVRTC_REAL names no library: %s\n", dlerror());
  std::abort();
}

// NVRTC finds its second library by name only if it is loaded already.
void* OpenReal() {
  const std::filesystem::path path = Variable("FAULTY_NVRTC_REAL");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error)) {
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so")) Open(entry.path());
  }
  return Open(path);
}

template <typename Function>
Function* Real(const char* symbol) {
  static void* const library = OpenReal();
  void* const function = dlsym(library, symbol);
  if (function == nullptr) {
    std::fprintf(stderr, "faulty_nvrtc: the library of FAULTY_NVRTC_REAL has no function %s\n",
                 symbol);
    std::abort();
  }
  return reinterpret_cast<Function*>(function);
}

// Replaces all occurrences; returns whether there was one.
bool PutFault(std::string_view replaced, std::string_view by, std::string& text) {
  bool has_fault = false;
  for (size_t at = 0; (at = text.find(replaced, at)) != std::string::npos; at += by.size()) {
    text.replace(at, replaced.size(), by);
    has_fault = true;
  }
  return has_fault;
}

// A text of a kernel.
struct Text {
  std::string name;
  std::string content;
  bool is_included = false;
};

// Marks the headers that the text includes, and those that they include.
void MarkIncluded(const std::string& text, std::vector<Text>& headers) {
  for (Text& header : headers) {
    if (header.is_included) continue;
    if (text.find("#include \"" + header.name + "\"") == std::string::npos) continue;
    header.is_included = true;
    MarkIncluded(header.content, headers);
  }
}

void NoteFault(const std::string& kernel) {
  const std::string path = Variable("FAULTY_NVRTC_KERNELS_FILE");
  if (path.empty()) return;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string line = kernel + "\n";
  // One write appends a whole line, also beside other processes.
  if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::fprintf(stderr, "faulty_nvrtc: cannot write %s\n", path.c_str());
    std::abort();
  }
  close(file);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): names of NVRTC.
EXPORTED int nvrtcCreateProgram(void** program, const char* source, const char* name,
                                int header_count, const char* const* headers,
                                const char* const* header_names) {
  std::vector<Text> texts;
  for (int i = 0; i < header_count; ++i) texts.push_back({header_names[i], headers[i]});
  std::string kernel = source;
  const std::string replaced = Variable("FAULTY_NVRTC_REPLACED");
  // Parts use the same headers, and have to stay right.
  const bool is_fused = std::string_view(name).find("_rows") != std::string_view::npos ||
                        std::string_view(name).find("_leaves") != std::string_view::npos;
  bool has_fault = false;
  if (!replaced.empty() && is_fused) {
    const std::string by = Variable("FAULTY_NVRTC_BY");
    MarkIncluded(kernel, texts);
    has_fault = PutFault(replaced, by, kernel);
    for (Text& text : texts) {
      if (text.is_included) has_fault = PutFault(replaced, by, text.content) || has_fault;
    }
  }
  if (has_fault) NoteFault(name);
  std::vector<const char*> pointers;
  for (const Text& text : texts) pointers.push_back(text.content.c_str());
  return Real<Create>("nvrtcCreateProgram")(program, kernel.c_str(), name, header_count,
                                            pointers.data(), header_names);
}

EXPORTED int nvrtcVersion(int* major, int* minor) {
  return Real<int(int*, int*)>("nvrtcVersion")(major, minor);
}
EXPORTED const char* nvrtcGetErrorString(int code) {
  return Real<const char*(int)>("nvrtcGetErrorString")(code);
}
EXPORTED int nvrtcDestroyProgram(void** program) {
  return Real<int(void**)>("nvrtcDestroyProgram")(program);
}
EXPORTED int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  return Real<int(void*, int, const char* const*)>("nvrtcCompileProgram")(program, count, options);
}
EXPORTED int nvrtcGetProgramLogSize(void* program, size_t* bytes) {
  return Real<int(void*, size_t*)>("nvrtcGetProgramLogSize")(program, bytes);
}
EXPORTED int nvrtcGetProgramLog(void* program, char* text) {
  return Real<int(void*, char*)>("nvrtcGetProgramLog")(program, text);
}
EXPORTED int nvrtcGetCUBINSize(void* program, size_t* bytes) {
  return Real<int(void*, size_t*)>("nvrtcGetCUBINSize")(program, bytes);
}
EXPORTED int nvrtcGetCUBIN(void* program, char* code) {
  return Real<int(void*, char*)>("nvrtcGetCUBIN")(program, code);
}
// NOLINTEND(readability-identifier-naming)
