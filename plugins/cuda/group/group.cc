#include "plugins/cuda/group/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "plugins/cuda/group/kernel_failure.h"

namespace cotune::cuda {

using sdk::Fail;
using sdk::Failure;
using sdk::Result;

namespace {

// How long the kernels of a group that goes may take to leave, after they were told to.
constexpr int64_t kKernelsEndNs = 5'000'000'000;

}  // namespace

Group::Group(const cotune_host_t& host, const cotune_group_params_t& params, const Gpu& gpu,
             PeerMemory& memory, const ChoiceLimits& limits)
    : host_(host),
      gpu_(gpu),
      memory_(memory),
      limits_(limits),
      name_(params.name),
      rank_(params.rank),
      world_size_(params.world_size),
      job_ranks_(params.job_ranks, params.job_ranks + params.world_size),
      meeting_(host, params, "cuda"),
      graphs_(std::make_unique<gpu::GraphUses>()) {}

Result<std::unique_ptr<Group>> Group::Join(const cotune_host_t& host,
                                           const cotune_group_params_t& params, const Gpu& gpu,
                                           PeerMemory& memory, const ChoiceLimits& limits) {
  const gpu::CurrentContext current(gpu.driver(), gpu.context());
  std::unique_ptr<Group> group(new Group(host, params, gpu, memory, limits));
  const Result<void> joined = group->Connect(params.deadline_ns);
  // Words that stay in the store do not make the group unusable.
  static_cast<void>(group->meeting_.Part({"arrival", "offer", "ready"}, params.deadline_ns));
  COTUNE_RETURN_IF_ERROR(joined);
  return group;
}

Result<void> Group::Connect(int64_t deadline_ns) {
  // A rank that is here has left the groups that it left before. The arenas of those serve again.
  COTUNE_RETURN_IF_ERROR(
      meeting_.Exchange("arrival", Result<MemoryOffer>(MemoryOffer{}), deadline_ns));
  // Kernels of a group before this one that was aborted may still be on their way out; after the
  // offers no rank has any left, and arenas can be filled.
  Result<MemoryOffer> own = OfferArena(deadline_ns);
  COTUNE_TRY(const auto offers, meeting_.Exchange("offer", own, deadline_ns));
  for (const MemoryOffer& offer : offers) {
    limits_.has_pdl = limits_.has_pdl && offer.has_pdl != 0;
  }
  auto mapped = MapPeers(offers);
  if (mapped) mapped = FillArena(deadline_ns);
  is_connected_ = mapped.has_value();
  if (!mapped) own = Propagate(mapped);
  COTUNE_RETURN_IF_ERROR(meeting_.Exchange("ready", own, deadline_ns));
  return {};
}

// When the GPU does not come to an end, its kernels may still use whatever this group has, and the
// driver would wait for them in every call that frees memory: all of it is left to the process.
Group::~Group() {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  bool has_ended = true;
  if (words_ != nullptr) {
    Abort();
    has_ended = EndKernels() && Leave();
  }
  GroupRemains remains;
  remains.arena = {arena_, kArenaBytes, rank_, world_size_, is_connected_};
  remains.host_words = words_;
  for (auto& [data, mappings] : mappings_) {
    std::move(mappings.begin(), mappings.end(), std::back_inserter(remains.mappings));
  }
  remains.graphs = std::move(graphs_);
  has_ended ? memory_.GiveBack(std::move(remains)) : memory_.Abandon(std::move(remains));
}

template <typename Enqueue>
Result<void> Group::RunAlone(int64_t deadline_ns, const Enqueue& enqueue) const {
  const gpu::CudaDriver& driver = gpu_.driver();
  gpu::CuStream stream = nullptr;
  COTUNE_RETURN_IF_ERROR(
      gpu_.Check(driver->StreamCreate(&stream, gpu::kCuStreamNonBlocking), "cuStreamCreate"));
  Result<void> done = enqueue(stream);
  if (done) done = gpu_.AwaitStream(stream, host_, deadline_ns);
  driver->StreamDestroy(stream);
  return done;
}

// The words follow all that this rank's kernels have written, because none of those runs any
// more: a peer that sees this rank's word may use its arena for something else. A replay that comes
// later finds the poison.
bool Group::Leave() {
  if (!is_connected_) return true;
  const gpu::CudaDriver& driver = gpu_.driver();
  words_->poison = MakePoison(kAborted, rank_, rank_);
  const auto own = static_cast<unsigned long long>(rank_) * sizeof(unsigned int);
  const auto left = RunAlone(
      host_.now_ns(host_.context) + kKernelsEndNs, [&](gpu::CuStream stream) -> Result<void> {
        COTUNE_RETURN_IF_ERROR(
            gpu_.Check(driver->CopyToDeviceAsync(arena_ + offsetof(ArenaControl, poison),
                                                 &words_->poison, sizeof(words_->poison), stream),
                       "cuMemcpyHtoDAsync"));
        const gpu::CuDevicePointer word = arena_ + kDeparturesBegin + own;
        COTUNE_RETURN_IF_ERROR(gpu_.Check(
            driver->SetBytesAsync(word, 1, sizeof(unsigned int), stream), "cuMemsetD8Async"));
        for (int peer = 0; peer < world_size_; ++peer) {
          if (peer == rank_) continue;
          const auto arena = reinterpret_cast<gpu::CuDevicePointer>(arguments_.arena[peer]);
          COTUNE_RETURN_IF_ERROR(
              gpu_.Check(driver->CopyOnDeviceAsync(arena + kDeparturesBegin + own, word,
                                                   sizeof(unsigned int), stream),
                         "cuMemcpyDtoDAsync"));
        }
        return {};
      });
  // In a context that has failed nothing runs any more, and nobody uses its memory again.
  return left || left.error().status != COTUNE_DEADLINE_EXCEEDED;
}

bool Group::HaveLeft(const Arena& arena, int64_t deadline_ns) {
  const auto read = RunAlone(deadline_ns, [&](gpu::CuStream stream) {
    return gpu_.Check(
        gpu_.driver()->CopyToHostAsync(words_->departed, arena.data + kDeparturesBegin,
                                       sizeof(words_->departed), stream),
        "cuMemcpyDtoHAsync");
  });
  if (!read) return false;
  for (int peer = 0; peer < arena.world_size; ++peer) {
    if (peer != arena.rank && words_->departed[peer] == 0) return false;
  }
  return true;
}

bool Group::EndKernels() {
  // After a wait in vain nothing is known of any kernel, and another wait would only take time.
  if (gpu_.IsStuck()) return false;
  const auto idle = gpu_.AwaitIdle(host_, host_.now_ns(host_.context) + kKernelsEndNs);
  // In a context that has failed no kernel runs any more.
  if (idle || idle.error().status != COTUNE_DEADLINE_EXCEEDED) return true;
  if (host_.log == nullptr) return false;
  const std::string text = fmt::format(
      "GPU {} still works {} s after group '{}' was aborted: a kernel of another library may "
      "wait for a rank that is gone. The {} MiB of the group, and what other groups free from here "
      "on, stay allocated until the process ends",
      gpu_.ordinal(), kKernelsEndNs / 1'000'000'000, name_, kArenaBytes >> 20);
  constexpr int32_t kWarning = 2;
  host_.log(host_.context, kWarning, text.c_str());
  return false;
}

Result<void> Group::AllocateHostWords() {
  void* words = nullptr;
  const gpu::CudaDriver& driver = gpu_.driver();
  auto done =
      gpu_.Check(driver->HostAllocate(&words, sizeof(HostWords),
                                      gpu::kCuHostAllocDeviceMap | gpu::kCuHostAllocPortable),
                 "cuMemHostAlloc");
  if (!done) return done;
  std::memset(words, 0, sizeof(HostWords));
  words_ = static_cast<HostWords*>(words);
  gpu::CuDevicePointer on_device = 0;
  done =
      gpu_.Check(driver->HostGetDevicePointer(&on_device, words, 0), "cuMemHostGetDevicePointer");
  if (!done) return done;
  auto* mapped = reinterpret_cast<HostWords*>(on_device);
  arguments_.failure = &mapped->failure;
  arguments_.abort = &mapped->abort;
  return {};
}

Result<MemoryOffer> Group::OfferArena(int64_t deadline_ns) {
  // A group that has gone has waited for its kernels. Only where there are others of this process
  // may there be any; what else runs on the GPU need not end.
  if (memory_.HasTaken()) {
    COTUNE_RETURN_IF_ERROR(gpu_.AwaitIdle(host_, deadline_ns));
  }
  COTUNE_RETURN_IF_ERROR(AllocateHostWords());
  for (auto& side_stream : side_streams_) {
    COTUNE_TRY(auto made, SideStream::Make(gpu_));
    side_stream = std::move(made);
  }
  auto arena =
      memory_.Take(kArenaBytes, [&](const Arena& free) { return HaveLeft(free, deadline_ns); });
  if (!arena) {
    return Fail(arena.error().status,
                fmt::format("a group takes {} MiB on the GPU of each rank: {}", kArenaBytes >> 20,
                            arena.error().message),
                arena.error().native_code);
  }
  arena_ = *arena;
  auto offer = memory_.OfferOf(arena_, kArenaBytes);
  if (offer) offer->has_pdl = limits_.has_pdl ? 1 : 0;
  return offer;
}

Result<void> Group::MapPeers(const std::vector<MemoryOffer>& offers) {
  arguments_.rank = rank_;
  arguments_.world_size = world_size_;
  for (int peer = 0; peer < world_size_; ++peer) {
    gpu::CuDevicePointer pointer = arena_;
    if (peer != rank_) {
      const auto mapped = memory_.Map(offers[static_cast<size_t>(peer)]);
      if (!mapped) {
        return Fail(mapped.error().status,
                    fmt::format("rank {} of the group: {}", peer, mapped.error().message),
                    mapped.error().native_code);
      }
      pointer = *mapped;
    }
    arguments_.arena[peer] = reinterpret_cast<unsigned char*>(pointer);
  }
  return {};
}

Result<void> Group::FillArena(int64_t deadline_ns) {
  const gpu::CudaDriver& driver = gpu_.driver();
  return RunAlone(deadline_ns, [&](gpu::CuStream stream) -> Result<void> {
    COTUNE_RETURN_IF_ERROR(
        gpu_.Check(driver->SetBytesAsync(arena_, 0, kArenaBytes, stream), "cuMemsetD8Async"));
    for (const ByteRange& range : kSentinelRanges) {
      COTUNE_RETURN_IF_ERROR(gpu_.Check(
          driver->SetBytesAsync(arena_ + range.begin, 0xFF, range.end - range.begin, stream),
          "cuMemsetD8Async"));
    }
    return {};
  });
}

bool Group::HasFailed() const {
  const volatile unsigned int* is_set = &words_->failure.is_set;
  return *is_set != 0 || is_aborted_.load(std::memory_order_acquire);
}

std::optional<Failure> Group::Health() const {
  FailureRecord record{};
  if (*static_cast<const volatile unsigned int*>(&words_->failure.is_set) != 0) {
    std::atomic_thread_fence(std::memory_order_acquire);
    record = words_->failure;  // never written again
  } else if (is_aborted_.load(std::memory_order_acquire)) {
    record.poison = MakePoison(kAborted, rank_, rank_);
  } else {
    return std::nullopt;
  }
  return FailureOf(record, rank_, world_size_, limits_);
}

void Group::Abort() {
  is_aborted_.store(true, std::memory_order_release);
  volatile unsigned int* value = &words_->abort.value;
  *value = 1;
}

}  // namespace cotune::cuda
