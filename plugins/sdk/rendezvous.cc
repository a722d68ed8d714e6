#include "plugins/sdk/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace cotune::sdk {

struct Rendezvous::Header {
  static constexpr uint32_t kFormat = 0x63747731;  // another version of this struct has another one

  uint32_t format = kFormat;
  int32_t status = COTUNE_OK;
  int32_t native_code = 0;
  int32_t speaker = -1;      // the rank that put the word
  int32_t failed_rank = -1;  // the rank that the speaker blames, -1 for none
  char message[sizeof(cotune_error_t::message)] = {};
};

Rendezvous::Rendezvous(const cotune_host_t& host, const cotune_group_params_t& params,
                       std::string backend)
    : host_(host),
      backend_(std::move(backend)),
      group_name_(params.name),
      rank_(params.rank),
      world_size_(params.world_size),
      job_ranks_(params.job_ranks, params.job_ranks + params.world_size) {}

std::string Rendezvous::NameOf(int rank) const {
  return fmt::format("job rank {} (rank {} of the group)", job_ranks_[static_cast<size_t>(rank)],
                     rank);
}

std::string Rendezvous::KeyOf(const std::string& phase, int rank) const {
  return fmt::format("{}/{}/{}/{}", group_name_, backend_, phase, rank);
}

std::string Rendezvous::GivenUpKey() const {
  return fmt::format("{}/{}/given_up", group_name_, backend_);
}

Failure Rendezvous::FailureOf(const Header& header, int speaker) const {
  const bool blames = header.failed_rank >= 0 && header.failed_rank < world_size_;
  const size_t length = strnlen(header.message, sizeof(header.message));
  return {header.status, header.native_code, blames ? header.failed_rank : speaker,
          fmt::format("{}: {}", NameOf(speaker), std::string(header.message, length))};
}

Result<void> Rendezvous::PutBytes(const std::string& key, const Failure* failure, const void* word,
                                  size_t size) const {
  Header header;
  header.speaker = rank_;
  if (failure != nullptr) {
    header.status = failure->status;
    header.native_code = failure->native_code;
    header.failed_rank = failure->failed_rank;
    failure->message.copy(header.message, sizeof(header.message) - 1);
  }
  std::vector<std::byte> bytes(sizeof(Header) + size);
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (word != nullptr) std::memcpy(bytes.data() + sizeof(header), word, size);
  const cotune_status_t put =
      host_.store_put(host_.context, key.c_str(), bytes.data(), bytes.size());
  if (put == COTUNE_OK) return {};
  return Fail(put, fmt::format("cannot announce this rank in group '{}' (status {}); is the "
                               "coordinator running?",
                               group_name_, put));
}

Result<std::string> Rendezvous::GetText(const std::string& phase, int rank, int64_t deadline_ns,
                                        size_t capacity) const {
  Header header;
  std::vector<char> bytes(sizeof(Header) + capacity);
  uint64_t got_bytes = 0;
  const cotune_status_t got = host_.store_get(host_.context, KeyOf(phase, rank).c_str(),
                                              bytes.data(), bytes.size(), &got_bytes, deadline_ns);
  if (got == COTUNE_DEADLINE_EXCEEDED) {
    return Fail(COTUNE_PEER_FAILED,
                fmt::format("{} did not come to '{}' before the deadline", NameOf(rank), phase), 0,
                rank);
  }
  if (got == COTUNE_PEER_FAILED) {
    return Fail(COTUNE_PEER_FAILED, fmt::format("a rank of the job was lost before {} came to '{}'",
                                                NameOf(rank), phase));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (got != COTUNE_OK || got_bytes < sizeof(header) || header.format != Header::kFormat) {
    return Unreadable(rank, got, got_bytes);
  }
  if (header.status != COTUNE_OK) return tl::unexpected(FailureOf(header, rank));
  return std::string(bytes.data() + sizeof(header), got_bytes - sizeof(header));
}

tl::unexpected<Failure> Rendezvous::Unreadable(int rank, cotune_status_t got,
                                               uint64_t bytes) const {
  return Fail(got == COTUNE_OK ? COTUNE_INVALID_ARGUMENT : got,
              fmt::format("cannot read what {} announced (status {}, {} bytes); do all ranks run "
                          "the same {} plugin?",
                          NameOf(rank), got, bytes, backend_));
}

Result<void> Rendezvous::GetBytes(const std::string& phase, int rank, int64_t deadline_ns,
                                  void* word, size_t size) const {
  COTUNE_TRY(const auto text, GetText(phase, rank, deadline_ns, size));
  if (text.size() != size) {
    return Unreadable(rank, COTUNE_OK, sizeof(Header) + text.size());
  }
  std::memcpy(word, text.data(), size);
  return {};
}

Result<std::vector<std::string>> Rendezvous::ExchangeTexts(const std::string& phase,
                                                           const Result<std::string>& own,
                                                           int64_t deadline_ns) const {
  const Failure* const failure = own ? nullptr : &own.error();
  const auto put =
      PutBytes(KeyOf(phase, rank_), failure, own ? own->data() : nullptr, own ? own->size() : 0);
  COTUNE_RETURN_IF_ERROR(own);
  COTUNE_RETURN_IF_ERROR(put);
  std::vector<std::string> texts;
  for (int peer = 0; peer < world_size_; ++peer) {
    COTUNE_TRY(auto text, GetText(phase, peer, deadline_ns, kTextBytesMax));
    texts.push_back(std::move(text));
  }
  return texts;
}

// A rank may go on as soon as it has read all words, so it cannot delete what the others have yet
// to read: rank 0 sees them all leave, and deletes everything.
Result<void> Rendezvous::Part(const std::vector<std::string>& phases, int64_t deadline_ns) const {
  const std::string leaving = phases.front() + "/left";
  if (rank_ != 0) return Put(leaving, Result<char>('\1'));
  for (int peer = 1; peer < world_size_; ++peer) {
    COTUNE_RETURN_IF_ERROR(Get<char>(leaving, peer, deadline_ns));
  }
  for (int peer = 0; peer < world_size_; ++peer) {
    for (const std::string& phase : phases) {
      host_.store_delete(host_.context, KeyOf(phase, peer).c_str());
    }
    if (peer != 0) host_.store_delete(host_.context, KeyOf(leaving, peer).c_str());
  }
  return {};
}

void Rendezvous::Delete(const std::string& phase) const {
  host_.store_delete(host_.context, KeyOf(phase, rank_).c_str());
}

void Rendezvous::GiveUp(const Failure& failure) const {
  // A store that is gone too leaves the others to their deadline.
  static_cast<void>(PutBytes(GivenUpKey(), &failure, nullptr, 0));
}

std::optional<Failure> Rendezvous::WhoGaveUp() const {
  Header header;
  uint64_t size = 0;
  const cotune_status_t got = host_.store_get(host_.context, GivenUpKey().c_str(), &header,
                                              sizeof(header), &size, host_.now_ns(host_.context));
  const bool is_header = got == COTUNE_OK && size == sizeof(header) &&
                         header.format == Header::kFormat && header.speaker >= 0 &&
                         header.speaker < world_size_;
  if (!is_header) return std::nullopt;
  return FailureOf(header, header.speaker);
}

}  // namespace cotune::sdk
