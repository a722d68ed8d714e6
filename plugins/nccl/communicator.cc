#include "plugins/nccl/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

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
  // NCCL also writes it in the background until the communicator is there, or was aborted.
  const auto place = std::make_shared<NcclComm>(nullptr);
  const NcclResult begun =
      nccl_->CommInitRankConfig(place.get(), member.world_size, id, member.rank, &config);
  const NcclComm made = *place;
  auto done = nccl_.Check(begun, kCall, made);
  comm_.store(made, std::memory_order_release);
  if (done) done = Await(made, kCall, deadline_ns);
  if (!done) Abort(place);
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
  // NCCL writes it in the background until the parent no longer is in progress, or was aborted.
  const auto place = std::make_shared<NcclComm>(nullptr);
  auto done = nccl_.Check(nccl_->CommSplit(parent.get(), 0, member.rank, place.get(), &config),
                          kCall, parent.get());
  if (done) done = parent.Await(parent.get(), kCall, deadline_ns);
  if (!done && !parent.Abort(place)) return done;
  comm_.store(*place, std::memory_order_release);
  if (done && get() == nullptr) done = Fail(COTUNE_INTERNAL, "ncclCommSplit gave no communicator");
  if (!done) Abort();
  return done;
}

void Communicator::Stop() {
  StopWaiting();
  const NcclComm comm = get();
  if (comm != nullptr && nccl_->CommRevoke != nullptr) nccl_->CommRevoke(comm, 0);
}

CommunicatorAbort Communicator::StartAbort(std::shared_ptr<void> kept) {
  const NcclComm comm = comm_.exchange(nullptr, std::memory_order_acq_rel);
  return {nccl_->CommAbort, comm, context_, std::move(kept)};
}

bool Communicator::Abort(std::shared_ptr<void> kept) {
  return StartAbort(std::move(kept)).Await(std::chrono::steady_clock::now() + kAbortReturns);
}

Result<void> Communicator::AsyncError() const {
  const NcclComm comm = get();
  if (comm == nullptr) return {};
  NcclResult state = kNcclSuccess;
  auto done = nccl_.Check(nccl_->CommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
  if (!done) return done;
  return nccl_.Check(state, "an operation", comm);
}

bool Communicator::Destroy(int64_t deadline_ns) {
  const NcclComm comm = get();
  if (comm == nullptr) return true;
  auto done = nccl_.Check(nccl_->CommFinalize(comm), "ncclCommFinalize", comm);
  if (done) done = Await(comm, "ncclCommFinalize", deadline_ns);
  if (done) done = nccl_.Check(nccl_->CommDestroy(comm), "ncclCommDestroy", comm);
  if (!done) return false;
  comm_.store(nullptr, std::memory_order_release);
  return true;
}

}  // namespace cotune::nccl
