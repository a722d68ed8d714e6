#include "plugins/fake/exchange.h"

#include <algorithm>
#include <cstring>

namespace cotune::fake {
namespace {

// A value of the store holds a mark and a part of the data.
constexpr uint64_t kPartBytes = 60'000;
constexpr char kMore = 'M';  // further parts follow
constexpr char kLast = 'L';
constexpr char kAbort = 'A';  // the rank does not take part

}  // namespace

std::string Exchange::Key(uint64_t operation, int32_t rank, uint64_t part) const {
  return name_ + "/" + std::to_string(operation) + "/" + std::to_string(rank) + "/" +
         std::to_string(part);
}

cotune_status_t Exchange::PutAll(uint64_t operation, char mark, const char* data, uint64_t size) {
  uint64_t part = 0;
  for (uint64_t done = 0; part == 0 || done < size; ++part) {
    const uint64_t bytes = std::min(kPartBytes, size - done);
    std::string value(1, done + bytes < size ? kMore : mark);
    value.append(data + done, bytes);
    const cotune_status_t put = host_.store_put(host_.context, Key(operation, rank_, part).c_str(),
                                                value.data(), value.size());
    if (put != COTUNE_OK) return put;
    done += bytes;
  }
  puts_.emplace_back(operation, part);
  return COTUNE_OK;
}

// A rank that has begun operation n has read everything of n - 1, so what everybody has put for n -
// 2 is of no use.
void Exchange::DeletePutsOf(uint64_t operation) {
  for (const auto& [put, parts] : puts_) {
    for (uint64_t part = 0; put <= operation && part < parts; ++part) {
      host_.store_delete(host_.context, Key(put, rank_, part).c_str());
    }
  }
  std::erase_if(puts_, [&](const auto& put) { return put.first <= operation; });
}

cotune_status_t Exchange::Begin(const void* data, uint64_t size) {
  if (aborted_) return COTUNE_ABORTED;
  const uint64_t operation = ++operation_;
  sends_.clear();
  partial_.clear();
  next_part_ = 0;
  if (operation >= 3) DeletePutsOf(operation - 2);
  const cotune_status_t put = PutAll(operation, kLast, static_cast<const char*>(data), size);
  if (put == COTUNE_OK) given_ = operation;
  return put;
}

cotune_status_t Exchange::Continue(int64_t until_ns) {
  while (waiting_for() < world_size_) {
    if (aborted_) return COTUNE_ABORTED;
    std::string value(kPartBytes + 1, '\0');
    uint64_t size = 0;
    const cotune_status_t got =
        host_.store_get(host_.context, Key(operation_, waiting_for(), next_part_).c_str(),
                        value.data(), value.size(), &size, until_ns);
    if (got == COTUNE_DEADLINE_EXCEEDED) return aborted_ ? COTUNE_ABORTED : COTUNE_IN_PROGRESS;
    if (got != COTUNE_OK) return got;
    if (value[0] == kAbort) return COTUNE_ABORTED;
    partial_.append(value, 1, size - 1);
    ++next_part_;
    if (value[0] == kMore) continue;
    sends_.push_back(std::move(partial_));
    partial_.clear();
    next_part_ = 0;
  }
  return COTUNE_OK;
}

void Exchange::Abort() {
  if (aborted_.exchange(true)) return;
  // For peers that wait for this rank: in the operation that it has not given its bytes for yet.
  // Bytes that are given stay: a peer may still have to read them.
  const uint64_t operation = given_.load() + 1;
  host_.store_put(host_.context, Key(operation, rank_, 0).c_str(), &kAbort, 1);
}

}  // namespace cotune::fake
