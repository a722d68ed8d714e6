// Callers' memory, registered by all ranks of a group.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "plugins/cuda/group/group.h"
#include "plugins/cuda/memory/caller_memory.h"
#include "plugins/cuda/memory/descriptor_socket.h"

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

// One end of what a registration needs on this rank.
struct Group::Registration {
  ExportedMemory own;
  DescriptorSocket socket;
};

namespace {

int MillisecondsUntil(int64_t deadline_ns, int64_t now_ns) {
  constexpr int64_t kNsPerMs = 1'000'000;
  constexpr int64_t kLongestMs = 3'600'000;
  return static_cast<int>(std::clamp<int64_t>((deadline_ns - now_ns) / kNsPerMs, 0, kLongestMs));
}

std::string ShownPhase(int number) { return fmt::format("memory{}", number); }
std::string MappedPhase(int number) { return fmt::format("mapped{}", number); }

}  // namespace

Result<Group::Registration> Group::BeginRegistration(void* data, uint64_t bytes) const {
  if (auto failure = Health()) return tl::unexpected(*failure);
  COTUNE_RETURN_IF_ERROR(registered_.Check(data, bytes));
  COTUNE_TRY(auto exported, ExportMemory(gpu_, data, bytes));
  COTUNE_TRY(auto socket, DescriptorSocket::Open(memory_.socket_bases()));
  return Registration{std::move(exported), std::move(socket)};
}

Result<void> Group::RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns) {
  // Whatever has happened to this rank, its peers hear of it.
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  const int number = registrations_++;
  const auto registration = BeginRegistration(data, bytes);
  auto done = RegisterOnAll(registration, number, data, bytes, deadline_ns);
  // Words that stay in the store do not undo a registration.
  static_cast<void>(meeting_.Part({ShownPhase(number), MappedPhase(number)}, deadline_ns));
  return done;
}

Result<void> Group::RegisterOnAll(const Result<Registration>& registration, int number, void* data,
                                  uint64_t bytes, int64_t deadline_ns) {
  Result<MemoryOffer> own = MemoryOffer{};
  if (registration) {
    own->bytes = bytes;
    own->allocation_bytes = registration->own.allocation_bytes;
    own->offset = registration->own.offset;
    registration->socket.name().copy(own->socket, sizeof(own->socket) - 1);
    std::copy_n(registration->socket.secret().begin(), 2, own->secret);
  } else {
    own = Propagate(registration);
  }
  COTUNE_TRY(const auto offers, meeting_.Exchange(ShownPhase(number), own, deadline_ns));
  auto mapped = MapCallers(*registration, offers, data, deadline_ns);
  if (!mapped) own = Propagate(mapped);
  COTUNE_RETURN_IF_ERROR(meeting_.Exchange(MappedPhase(number), own, deadline_ns));
  if (auto added = registered_.Add(mapped->begin, rank_, bytes); !added) return added;
  mappings_.emplace(data, std::move(mapped->mappings));
  return {};
}

Result<Group::MappedCallers> Group::MapCallers(const Registration& registration,
                                               const std::vector<MemoryOffer>& offers, void* data,
                                               int64_t deadline_ns) const {
  const auto left_ms = [&] { return MillisecondsUntil(deadline_ns, host_.now_ns(host_.context)); };
  for (int peer = 0; peer < world_size_; ++peer) {
    const MemoryOffer& offer = offers[static_cast<size_t>(peer)];
    if (offer.bytes != offers[static_cast<size_t>(rank_)].bytes) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  fmt::format("group rank {} registers {} bytes, group rank {} registers {}", rank_,
                              offers[static_cast<size_t>(rank_)].bytes, peer, offer.bytes));
    }
  }
  // To every peer, also behind one that cannot be reached: the others wait for it.
  Result<void> all_sent;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) continue;
    const MemoryOffer& offer = offers[static_cast<size_t>(peer)];
    const DescriptorLabel label{rank_, {offer.secret[0], offer.secret[1]}};
    auto sent =
        registration.socket.Send(offer.socket, label, registration.own.descriptor.get(), left_ms());
    if (!sent) all_sent = sent;
  }
  COTUNE_RETURN_IF_ERROR(all_sent);
  MappedCallers mapped;
  mapped.begin[static_cast<size_t>(rank_)] = static_cast<unsigned char*>(data);
  for (int left = world_size_ - 1; left > 0;) {
    COTUNE_TRY(auto received, registration.socket.Receive(left_ms()));
    const auto peer = static_cast<size_t>(received.sender);
    const bool is_new = received.sender >= 0 && received.sender < world_size_ &&
                        received.sender != rank_ && mapped.begin[peer] == nullptr;
    if (!is_new) continue;
    COTUNE_TRY(auto mapping,
               PeerMapping::Map(gpu_, received.descriptor, offers[peer].allocation_bytes));
    mapped.begin[peer] = mapping.data() + offers[peer].offset;
    mapped.mappings.push_back(std::move(mapping));
    --left;
  }
  return mapped;
}

void Group::UnregisterMemory(void* data) {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  registered_.Remove(data);
  mappings_.erase(data);
}

}  // namespace cotune::cuda
