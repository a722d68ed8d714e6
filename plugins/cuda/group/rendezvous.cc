#include "plugins/cuda/group/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

struct Rendezvous::Word {
  int32_t status = COTUNE_OK;
  int32_t native_code = 0;
  MemoryOffer offer;
  char message[192] = {};
};

std::string Rendezvous::KeyOf(const std::string& phase, int rank) const {
  return fmt::format("{}/cuda/{}/{}", group_name_, phase, rank);
}

Result<std::vector<MemoryOffer>> Rendezvous::Exchange(const std::string& phase,
                                                      const Result<MemoryOffer>& own,
                                                      int64_t deadline_ns) {
  Word word;
  if (own) {
    word.offer = *own;
  } else {
    word.status = own.error().status;
    word.native_code = own.error().native_code;
    const size_t length = std::min(own.error().message.size(), sizeof(word.message) - 1);
    std::memcpy(word.message, own.error().message.data(), length);
  }
  const cotune_status_t put =
      host_.store_put(host_.context, KeyOf(phase, rank_).c_str(), &word, sizeof(word));
  if (!own) return tl::unexpected(own.error());
  if (put != COTUNE_OK) {
    return Fail(put, fmt::format("cannot announce this rank in group '{}' (status {}); is the "
                                 "coordinator running?",
                                 group_name_, put));
  }
  std::vector<MemoryOffer> offers(static_cast<size_t>(world_size_));
  for (int peer = 0; peer < world_size_; ++peer) {
    uint64_t size = 0;
    const cotune_status_t got = host_.store_get(host_.context, KeyOf(phase, peer).c_str(), &word,
                                                sizeof(word), &size, deadline_ns);
    if (got == COTUNE_DEADLINE_EXCEEDED) {
      return Fail(COTUNE_PEER_FAILED,
                  fmt::format("rank {} of the group did not come before the deadline", peer), 0,
                  peer);
    }
    if (got != COTUNE_OK || size != sizeof(word)) {
      return Fail(got == COTUNE_OK ? COTUNE_INVALID_ARGUMENT : got,
                  fmt::format("cannot read what rank {} of group '{}' announced (status {}, {} "
                              "bytes)",
                              peer, group_name_, got, size));
    }
    if (word.status != COTUNE_OK) {
      word.message[sizeof(word.message) - 1] = '\0';
      return Fail(word.status, fmt::format("rank {} of the group: {}", peer, word.message),
                  word.native_code, peer);
    }
    offers[static_cast<size_t>(peer)] = word.offer;
  }
  return offers;
}

// A rank may go on as soon as it has read all words, so it cannot delete what the others have yet
// to read: rank 0 sees them all leave, and deletes everything.
void Rendezvous::Part(const std::vector<std::string>& phases, int64_t deadline_ns) {
  const std::string leaving = phases.front() + "/left";
  char left = 1;
  if (rank_ != 0) {
    host_.store_put(host_.context, KeyOf(leaving, rank_).c_str(), &left, sizeof(left));
    return;
  }
  for (int peer = 1; peer < world_size_; ++peer) {
    uint64_t size = 0;
    const cotune_status_t got = host_.store_get(host_.context, KeyOf(leaving, peer).c_str(), &left,
                                                sizeof(left), &size, deadline_ns);
    if (got != COTUNE_OK) return;
  }
  for (int peer = 0; peer < world_size_; ++peer) {
    for (const std::string& phase : phases) {
      host_.store_delete(host_.context, KeyOf(phase, peer).c_str());
    }
    if (peer != 0) host_.store_delete(host_.context, KeyOf(leaving, peer).c_str());
  }
}

}  // namespace cotune::cuda
