#include "plugins/cuda/kernel_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace cotune::cuda {
namespace {

namespace fs = std::filesystem;

// In front of the code: tells a file that was cut off from a whole one.
struct Header {
  char magic[8] = {'c', 't', 'c', 'u', 'b', 'i', 'n', '1'};
  uint64_t bytes = 0;
  uint64_t digest = 0;
};

uint64_t DigestOf(const std::string& bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Header expected;
  Header header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header))) return "";
  const std::string code((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const bool is_whole =
      std::equal(std::begin(header.magic), std::end(header.magic), std::begin(expected.magic)) &&
      header.bytes == code.size() && header.digest == DigestOf(code);
  return is_whole ? code : "";
}

}  // namespace

std::string KernelCache::DefaultFolder(const std::map<std::string, std::string>& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  if (const std::string cache = value("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/cotune/kernels";
  }
  const std::string home = value("HOME");
  return home.empty() ? "" : home + "/.cache/cotune/kernels";
}

std::string KernelCache::PathOf(const std::string& key) const {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{}/{:016x}{:016x}.cubin", folder_, hash.high64, hash.low64);
}

border::Result<std::string> KernelCache::Get(
    const std::string& key, const std::function<border::Result<std::string>()>& compile) const {
  if (folder_.empty()) return compile();
  const std::string path = PathOf(key);
  if (std::string known = Read(path); !known.empty()) return known;
  std::error_code error;
  fs::create_directories(folder_, error);
  return CompileLocked(path, compile);
}

border::Result<std::string> KernelCache::CompileLocked(
    const std::string& path, const std::function<border::Result<std::string>()>& compile) const {
  // The lock ends with its holder, however that ends. Without one (a folder that cannot be written
  // to) everybody compiles.
  const int lock = open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock >= 0) flock(lock, LOCK_EX);
  border::Result<std::string> code = Read(path);
  if (code->empty()) {
    code = compile();
    if (code) Store(path, *code);
  }
  if (lock >= 0) close(lock);
  return code;
}

// A cache that cannot be written to costs time, nothing else: no error.
void KernelCache::Store(const std::string& path, const std::string& code) const {
  static std::atomic<uint64_t> count{0};
  std::error_code error;
  const std::string temporary = fmt::format("{}.{}.{}", path, getpid(), count.fetch_add(1));
  Header header;
  header.bytes = code.size();
  header.digest = DigestOf(code);
  {
    std::ofstream file(temporary, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(code.data(), static_cast<std::streamsize>(code.size()));
    if (!file.flush()) {
      fs::remove(temporary, error);
      return;
    }
  }
  fs::rename(temporary, path, error);
  if (error) fs::remove(temporary, error);
}

}  // namespace cotune::cuda
