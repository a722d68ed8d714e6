#include "plugins/nccl/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace cotune::nccl {
namespace {

constexpr int64_t kShortestNapNs = 50'000;
constexpr int64_t kLongestNapNs = 2'000'000;

}  // namespace

NcclConfig Communicator::ConfigOf(Mode mode) const {
  NcclConfig config;
  config.version = static_cast<unsigned int>(nccl_.version());
  config.blocking = mode == Mode::kDirect ? 1 : 0;
  return config;
}

Result<void> Communicator::Await(NcclComm comm, const char* call, int64_t deadline_ns) const {
  int64_t nap_ns = kShortestNapNs;
  while (true) {
    NcclResult state = kNcclSuccess;
    auto done = nccl_.Check(nccl_->CommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
    if (!done) return done;
    if (state != kNcclInProgress) return nccl_.Check(state, call, comm);
    if (is_stopping_.load(std::memory_order_acquire)) {
      return Fail(COTUNE_ABORTED, fmt::format("the group was ended during {}", call));
    }
    const int64_t left_ns = deadline_ns - host_.now_ns(host_.context);
    if (left_ns <= 0) {
      return Fail(COTUNE_DEADLINE_EXCEEDED,
                  fmt::format("{} was not complete by the deadline: a rank is slow, stopped, or "
                              "cannot be reached",
                              call));
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(nap_ns, left_ns)));
    nap_ns = std::min(2 * nap_ns, kLongestNapNs);
  }
}

Result<void> Communicator::Create(const NcclUniqueId& id, const Member& member,
                                  int64_t deadline_ns) {
  constexpr char kCall[] = "ncclCommInitRankConfig";
  NcclConfig config = ConfigOf(Mode::kDeferred);
  NcclComm made = nullptr;
  auto done = nccl_.Check(
      nccl_->CommInitRankConfig(&made, member.world_size, id, member.rank, &config), kCall, made);
  comm_.store(made, std::memory_order_release);
  if (done) done = Await(made, kCall, deadline_ns);
  if (!done) Abort();
  return done;
}

Result<void> Communicator::CreateFrom(Communicator& parent, const Member& member,
                                      int64_t deadline_ns) {
  constexpr char kCall[] = "ncclCommSplit";
  NcclConfig config = ConfigOf(Mode::kDirect);
  // Shared resources would also share the parent's mode and fate.
  config.split_share = 0;
  if (parent.get() == nullptr) {
    return Fail(COTUNE_ABORTED, "the group was ended before ncclCommSplit");
  }
  // Written in the background until the parent no longer is in progress, or was aborted.
  NcclComm made = nullptr;
  auto done = nccl_.Check(nccl_->CommSplit(parent.get(), 0, member.rank, &made, &config), kCall,
                          parent.get());
  if (done) done = parent.Await(parent.get(), kCall, deadline_ns);
  if (!done) parent.Abort();
  comm_.store(made, std::memory_order_release);
  if (done && made == nullptr) done = Fail(COTUNE_INTERNAL, "ncclCommSplit gave no communicator");
  if (!done) Abort();
  return done;
}

void Communicator::Stop() {
  StopWaiting();
  const NcclComm comm = get();
  if (comm != nullptr && nccl_->CommRevoke != nullptr) nccl_->CommRevoke(comm, 0);
}

void Communicator::Abort() {
  const NcclComm comm = comm_.exchange(nullptr, std::memory_order_acq_rel);
  if (comm != nullptr) nccl_->CommAbort(comm);
}

Result<void> Communicator::AsyncError() const {
  const NcclComm comm = get();
  if (comm == nullptr) return {};
  NcclResult state = kNcclSuccess;
  auto done = nccl_.Check(nccl_->CommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
  if (!done) return done;
  return nccl_.Check(state, "an operation", comm);
}

void Communicator::Destroy(int64_t deadline_ns) {
  const NcclComm comm = get();
  if (comm == nullptr) return;
  auto done = nccl_.Check(nccl_->CommFinalize(comm), "ncclCommFinalize", comm);
  if (done) done = Await(comm, "ncclCommFinalize", deadline_ns);
  if (done) done = nccl_.Check(nccl_->CommDestroy(comm), "ncclCommDestroy", comm);
  if (!done) {
    Abort();
    return;
  }
  comm_.store(nullptr, std::memory_order_release);
}

}  // namespace cotune::nccl
