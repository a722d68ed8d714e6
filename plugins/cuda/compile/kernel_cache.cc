#include "plugins/cuda/compile/kernel_cache.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

namespace cotune::cuda {
namespace {

// In front of the code: tells a file that was cut off from a whole one.
struct Header {
  char magic[8] = {'c', 't', 'c', 'u', 'b', 'i', 'n', '1'};
  uint64_t bytes = 0;
  uint64_t digest = 0;
};

uint64_t DigestOf(const std::string& bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// A larger file is no kernel: kernels have some tens of KiB.
constexpr uint64_t kFileBytesMax = uint64_t{16} << 20;
// The longest wait for a process that compiles: a kernel takes a second, and a process may have
// some of them waiting for its compiler.
constexpr int64_t kLongestWaitNs = 30'000'000'000;
// How long the lock's holder is left alone before it is asked again.
constexpr auto kLockNap = std::chrono::milliseconds(5);
constexpr int32_t kWarning = 2;

// The code of a whole file; "" of a damaged one.
std::string CodeOf(const std::string& file) {
  const Header expected;
  Header header;
  if (file.size() < sizeof(header)) return "";
  std::memcpy(&header, file.data(), sizeof(header));
  std::string code = file.substr(sizeof(header));
  const bool is_whole =
      std::equal(std::begin(header.magic), std::end(header.magic), std::begin(expected.magic)) &&
      header.bytes == code.size() && header.digest == DigestOf(code);
  return is_whole ? code : "";
}

std::string FileOf(const std::string& code) {
  Header header;
  header.bytes = code.size();
  header.digest = DigestOf(code);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + code;
}

std::string NameOf(const std::string& key) {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{:016x}{:016x}.cubin", hash.high64, hash.low64);
}

// Takes the lock if nobody has it. A file system without locks answers neither: then nobody waits.
bool IsHeldByAnother(int lock) {
  return flock(lock, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
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

sdk::Result<std::string> KernelCache::Get(const std::string& key, int64_t deadline_ns,
                                          const Compile& compile) const {
  if (folder_.empty()) return compile();
  const auto folder = PrivateFolder::Open(folder_);
  if (!folder) {
    LogOnce(folder_, fmt::format("kernels are compiled anew in every process, because their cache "
                                 "cannot be used: {}",
                                 folder.error().message));
    return compile();
  }
  const std::string name = NameOf(key);
  if (std::string known = Read(*folder, name); !known.empty()) return known;
  return CompileLocked(*folder, name, deadline_ns, compile);
}

std::string KernelCache::Read(const PrivateFolder& folder, const std::string& name) const {
  const auto file = folder.Read(name, kFileBytesMax);
  if (file) return CodeOf(*file);
  LogOnce(name, fmt::format("a compiled kernel in {} is not used, and made anew: {}", folder_,
                            file.error().message));
  return "";
}

sdk::Result<std::string> KernelCache::CompileLocked(const PrivateFolder& folder,
                                                    const std::string& name, int64_t deadline_ns,
                                                    const Compile& compile) const {
  // The lock ends with its holder, however that ends. Without one (a folder that cannot be written
  // to, a holder that does not go on) everybody compiles.
  const Descriptor lock = folder.OpenLock(name + ".lock");
  if (lock.get() >= 0) AwaitLock(lock.get(), deadline_ns);
  if (std::string known = Read(folder, name); !known.empty()) return known;
  auto code = compile();
  // A cache that cannot be written to costs time, nothing else: no error.
  if (code) static_cast<void>(folder.Write(name, FileOf(*code)));
  return code;
}

void KernelCache::AwaitLock(int lock, int64_t deadline_ns) const {
  if (!IsHeldByAnother(lock)) return;
  const int64_t begin_ns = host_.now_ns(host_.context);
  const int64_t end_ns = begin_ns + std::min((deadline_ns - begin_ns) / 2, kLongestWaitNs);
  while (host_.now_ns(host_.context) < end_ns) {
    std::this_thread::sleep_for(kLockNap);
    if (!IsHeldByAnother(lock)) return;
  }
}

void KernelCache::LogOnce(const std::string& subject, const std::string& text) const {
  const std::lock_guard lock(mutex_);
  if (host_.log == nullptr || !logged_.insert(subject).second) return;
  host_.log(host_.context, kWarning, text.c_str());
}

}  // namespace cotune::cuda
