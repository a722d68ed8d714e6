// One operation of the fake backend: everybody's send buffers through the job's store.
#ifndef COTUNE_PLUGINS_FAKE_EXCHANGE_H_
#define COTUNE_PLUGINS_FAKE_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::fake {

// The ranks of a group that exchange buffers one operation after the other. Abort is for any
// thread, the rest for one.
class Exchange {
 public:
  Exchange(const cotune_host_t& host, std::string name, int32_t rank, int32_t world_size)
      : host_(host), name_(std::move(name)), rank_(rank), world_size_(world_size) {}

  // Begins the next operation and gives this rank's bytes to the others.
  cotune_status_t Begin(const void* data, uint64_t size);
  // COTUNE_OK: sends() has everybody's bytes. COTUNE_IN_PROGRESS: until_ns came first.
  // COTUNE_ABORTED: a rank aborted.
  cotune_status_t Continue(int64_t until_ns);
  const std::vector<std::string>& sends() const { return sends_; }
  // The first rank that has not come; world_size when all have.
  int32_t waiting_for() const { return static_cast<int32_t>(sends_.size()); }
  // Tells the others that this rank does not come any more.
  void Abort();
  bool aborted() const { return aborted_.load(); }

 private:
  std::string Key(uint64_t operation, int32_t rank, uint64_t part) const;
  cotune_status_t PutAll(uint64_t operation, char mark, const char* data, uint64_t size);
  void DeletePutsOf(uint64_t operation);

  const cotune_host_t& host_;
  const std::string name_;
  const int32_t rank_;
  const int32_t world_size_;
  uint64_t operation_ = 0;           // the last that this rank has begun
  std::atomic<uint64_t> given_ = 0;  // the last that this rank has given its bytes for
  std::atomic<bool> aborted_ = false;
  std::vector<std::string> sends_;
  std::string partial_;  // of rank waiting_for()
  uint64_t next_part_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> puts_;  // operation, parts: what the store still holds
};

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_EXCHANGE_H_
