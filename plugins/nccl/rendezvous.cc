#include "plugins/nccl/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace cotune::nccl {
namespace {

constexpr uint32_t kFormat = 0x6e63636c;  // another plugin version has another value

}  // namespace

struct Rendezvous::Word {
  uint32_t format = kFormat;
  int32_t status = COTUNE_OK;
  int32_t native_code = 0;
  Announcement announcement;
  char message[208] = {};
};

Rendezvous::Rendezvous(const cotune_host_t& host, const cotune_group_params_t& params)
    : host_(host),
      group_name_(params.name),
      rank_(params.rank),
      world_size_(params.world_size),
      job_ranks_(params.job_ranks, params.job_ranks + params.world_size) {}

std::string Rendezvous::NameOf(int rank) const {
  return fmt::format("job rank {} (rank {} of the group)", job_ranks_[static_cast<size_t>(rank)],
                     rank);
}

std::string Rendezvous::KeyOf(const std::string& phase, int rank) const {
  return fmt::format("{}/nccl/{}/{}", group_name_, phase, rank);
}

Result<void> Rendezvous::Put(const std::string& phase, const Result<Announcement>& own) {
  Word word;
  if (own) {
    word.announcement = *own;
  } else {
    word.status = own.error().status;
    word.native_code = own.error().native_code;
    const size_t length = std::min(own.error().message.size(), sizeof(word.message) - 1);
    std::memcpy(word.message, own.error().message.data(), length);
  }
  const std::string key = KeyOf(phase, rank_);
  const cotune_status_t put = host_.store_put(host_.context, key.c_str(), &word, sizeof(word));
  if (put == COTUNE_OK) return {};
  return Fail(put, fmt::format("cannot announce this rank in group '{}' (status {}); is the "
                               "coordinator running?",
                               group_name_, put));
}

Result<Announcement> Rendezvous::Get(const std::string& phase, int rank,
                                     int64_t deadline_ns) const {
  Word word;
  uint64_t size = 0;
  const cotune_status_t got = host_.store_get(host_.context, KeyOf(phase, rank).c_str(), &word,
                                              sizeof(word), &size, deadline_ns);
  if (got == COTUNE_DEADLINE_EXCEEDED) {
    return Fail(COTUNE_PEER_FAILED,
                fmt::format("{} did not come to '{}' before the deadline", NameOf(rank), phase), 0,
                rank);
  }
  if (got == COTUNE_PEER_FAILED) {
    return Fail(COTUNE_PEER_FAILED, fmt::format("a rank of the job was lost before {} came to '{}'",
                                                NameOf(rank), phase));
  }
  if (got != COTUNE_OK || size != sizeof(word) || word.format != kFormat) {
    return Fail(got == COTUNE_OK ? COTUNE_INVALID_ARGUMENT : got,
                fmt::format("cannot read what {} announced (status {}, {} bytes); do all ranks run "
                            "the same nccl plugin?",
                            NameOf(rank), got, size));
  }
  if (word.status != COTUNE_OK) {
    word.message[sizeof(word.message) - 1] = '\0';
    return Fail(word.status, fmt::format("{}: {}", NameOf(rank), word.message), word.native_code,
                rank);
  }
  return word.announcement;
}

Result<std::vector<Announcement>> Rendezvous::Meet(const std::string& phase,
                                                   const Result<Announcement>& own,
                                                   int64_t deadline_ns) {
  const auto put = Put(phase, own);
  if (!own) return tl::unexpected(own.error());
  if (!put) return tl::unexpected(put.error());
  std::vector<Announcement> all;
  for (int rank = 0; rank < world_size_; ++rank) {
    auto word = Get(phase, rank, deadline_ns);
    if (!word) return tl::unexpected(word.error());
    all.push_back(*word);
  }
  auto parted = Part(phase, deadline_ns);
  if (!parted) return tl::unexpected(parted.error());
  return all;
}

// A rank may go as soon as it has met the others, so it cannot delete what they have yet to read:
// rank 0 sees them all leave, and deletes everything.
Result<void> Rendezvous::Part(const std::string& phase, int64_t deadline_ns) {
  const std::string leaving = phase + "/left";
  if (rank_ != 0) return Put(leaving, Announcement{});
  for (int peer = 1; peer < world_size_; ++peer) {
    if (auto left = Get(leaving, peer, deadline_ns); !left) return tl::unexpected(left.error());
  }
  for (int peer = 0; peer < world_size_; ++peer) {
    host_.store_delete(host_.context, KeyOf(phase, peer).c_str());
    host_.store_delete(host_.context, KeyOf(leaving, peer).c_str());
  }
  return {};
}

}  // namespace cotune::nccl
