#include "plugins/fake/operation.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "plugins/fake/reduction.h"
#include "plugins/sdk/failure.h"

namespace cotune::fake {
namespace {

using sdk::Fail;

constexpr uint64_t kChunkBytesMax = 64 * 1024;  // the most that the store takes
// How late an abort is noticed by a rank that waits.
constexpr int64_t kSliceNs = 5'000'000;

// Elements of a result that this rank has.
uint64_t ResultElements(const cotune_problem_t& problem) {
  const bool is_gathered =
      problem.collective == COTUNE_ALL_GATHER || problem.collective == COTUNE_ALL_TO_ALL;
  return is_gathered ? problem.count * static_cast<uint64_t>(problem.world_size) : problem.count;
}

// Fetches one value until a time; false when it is not there yet.
Result<bool> Fetch(const GroupState& group, const std::string& key, int32_t from, std::byte* to,
                   uint64_t bytes, int64_t until_ns) {
  uint64_t size = 0;
  const cotune_status_t status =
      group.host->store_get(group.host->context, key.c_str(), to, bytes, &size, until_ns);
  if (status == COTUNE_DEADLINE_EXCEEDED) return false;
  if (status != COTUNE_OK || size != bytes) {
    return Fail(status == COTUNE_OK ? COTUNE_INTERNAL : status,
                fmt::format("the store gave status {} and {} bytes for {} of rank {}, wanted {}",
                            status, size, key, group.job_ranks[from], bytes));
  }
  group.host->store_delete(group.host->context, key.c_str());
  return true;
}

Result<void> Put(const GroupState& group, const std::string& key, const std::byte* data,
                 uint64_t bytes) {
  const cotune_status_t status =
      group.host->store_put(group.host->context, key.c_str(), data, bytes);
  if (status == COTUNE_OK) return {};
  return Fail(status, fmt::format("the store gave status {} for putting {}", status, key));
}

std::string AbortKey(const GroupState& group) { return group.name + "/aborted"; }

// Whether a rank of the group said that it aborts.
bool PeerAborted(const GroupState& group) {
  char mark = 0;
  uint64_t size = 0;
  return group.host->store_get(group.host->context, AbortKey(group).c_str(), &mark, sizeof(mark),
                               &size, group.now_ns()) == COTUNE_OK;
}

Failure Late(const GroupState& group, int32_t rank, const std::string& what) {
  return {COTUNE_PEER_FAILED, 0, rank,
          fmt::format("rank {} had not {} at the deadline", group.job_ranks[rank], what)};
}

}  // namespace

Operation::Operation(GroupState& group, const cotune_problem_t& problem,
                     const cotune_launch_t& launch, const Misbehaviour& misbehaviour)
    : group_(group),
      problem_(problem),
      launch_(launch),
      misbehaviour_(misbehaviour),
      number_(++group.operations),
      started_ns_(group.now_ns()),
      block_bytes_(problem.count * ElementBytes(problem.dtype)),
      blocks_(group.job_ranks.size()) {
  if (misbehaviour.hangs) group.is_silent = true;
  for (int32_t rank = 0; rank < group_.world_size(); ++rank) {
    if (IsSource(rank)) blocks_[rank].resize(block_bytes_);
  }
}

Result<bool> Operation::Advance(int64_t until_ns) {
  while (true) {
    if (group_.aborted) return Fail(COTUNE_ABORTED, "the group was aborted");
    const int64_t now_ns = group_.now_ns();
    if (now_ns >= EndNs()) return tl::make_unexpected(PastDeadline());
    COTUNE_RETURN_IF_ERROR(Step(now_ns, std::min(until_ns, EndNs())));
    if (phase_ == Phase::kDone) return true;
    const int64_t after_ns = group_.now_ns();
    if (after_ns >= until_ns && after_ns < EndNs()) return false;
  }
}

Result<void> Operation::Step(int64_t now_ns, int64_t until_ns) {
  if (misbehaviour_.hangs) {
    PauseUntil(group_, until_ns);
    return {};
  }
  switch (phase_) {
    case Phase::kSend:
      return SendChunk();
    case Phase::kReceive:
      return ReceiveChunk(std::min(until_ns, now_ns + kSliceNs));
    case Phase::kFinish:
      return Finish(now_ns, until_ns);
    case Phase::kDone:
      break;
  }
  return {};
}

void Operation::NextPeer() {
  offset_ = 0;
  if (++peer_ < group_.world_size()) return;
  peer_ = 0;
  phase_ = phase_ == Phase::kSend ? Phase::kReceive : Phase::kFinish;
}

Result<void> Operation::SendChunk() {
  if (!IsSource(group_.rank) || offset_ == block_bytes_) {
    NextPeer();
    return {};
  }
  const std::byte* block = BlockFor(peer_);
  if (peer_ == group_.rank) {
    std::memcpy(blocks_[peer_].data(), block, block_bytes_);
    NextPeer();
    return {};
  }
  const uint64_t bytes = ChunkBytes(offset_);
  if (auto put = Put(group_, Key(group_.rank, peer_), block + offset_, bytes); !put) return put;
  offset_ += bytes;
  return {};
}

Result<void> Operation::ReceiveChunk(int64_t until_ns) {
  if (!IsSource(peer_) || peer_ == group_.rank || offset_ == block_bytes_) {
    NextPeer();
    return {};
  }
  const uint64_t bytes = ChunkBytes(offset_);
  COTUNE_TRY(const auto fetched, Fetch(group_, Key(peer_, group_.rank), peer_,
                                       blocks_[peer_].data() + offset_, bytes, until_ns));
  if (fetched) {
    offset_ += bytes;
  } else if (PeerAborted(group_)) {
    return Fail(COTUNE_ABORTED, "the group was aborted by another rank");
  }
  return {};
}

Result<void> Operation::Finish(int64_t now_ns, int64_t until_ns) {
  const int64_t end_ns = started_ns_ + misbehaviour_.least_ns;
  if (now_ns < end_ns) {
    PauseUntil(group_, std::min(until_ns, end_ns));
    return {};
  }
  WriteResult();
  phase_ = Phase::kDone;
  return {};
}

void Operation::WriteResult() {
  auto* to = static_cast<std::byte*>(launch_.recv);
  const uint64_t bytes = ResultElements(problem_) * ElementBytes(problem_.dtype);
  if (problem_.collective == COTUNE_ALL_REDUCE || problem_.collective == COTUNE_REDUCE_SCATTER) {
    Reduce(problem_.dtype, problem_.reduction, problem_.count, blocks_, to);
  } else {
    for (const std::vector<std::byte>& block : blocks_) {
      if (block.empty()) continue;
      std::memcpy(to, block.data(), block.size());
      to += block.size();
    }
  }
  to = static_cast<std::byte*>(launch_.recv);
  // In the highest byte, so that no tolerance hides it.
  if (misbehaviour_.is_wrong && bytes > 0) to[bytes - 1] ^= std::byte{0x41};
  if (misbehaviour_.overruns) to[bytes] ^= std::byte{0xFF};
}

Failure Operation::PastDeadline() const {
  if (misbehaviour_.hangs) return {COTUNE_DEADLINE_EXCEEDED, 0, -1, "scripted: this rank hangs"};
  if (phase_ == Phase::kReceive && IsSource(peer_) && peer_ != group_.rank) {
    return Late(group_, peer_, "sent its data");
  }
  return {COTUNE_DEADLINE_EXCEEDED, 0, -1, "the operation was not complete at its deadline"};
}

int64_t Operation::EndNs() const {
  if (!misbehaviour_.names_late) return launch_.deadline_ns;
  return COTUNE_LATEST_END_NS(started_ns_, launch_.deadline_ns) - COTUNE_LAST_TURN_NS;
}

bool Operation::IsSource(int32_t rank) const {
  return problem_.collective != COTUNE_BROADCAST || rank == problem_.root;
}

const std::byte* Operation::BlockFor(int32_t rank) const {
  const auto* send = static_cast<const std::byte*>(launch_.send);
  const bool has_blocks =
      problem_.collective == COTUNE_REDUCE_SCATTER || problem_.collective == COTUNE_ALL_TO_ALL;
  return has_blocks ? send + static_cast<uint64_t>(rank) * block_bytes_ : send;
}

uint64_t Operation::ChunkBytes(uint64_t offset) const {
  return std::min(block_bytes_ - offset, kChunkBytesMax);
}

std::string Operation::Key(int32_t from, int32_t to) const {
  return fmt::format("{}/{}/{}-{}/{}", group_.name, number_, from, to, offset_);
}

void Abort(GroupState& group) {
  if (group.aborted.exchange(true) || group.is_silent) return;
  const char mark = 1;
  group.host->store_put(group.host->context, AbortKey(group).c_str(), &mark, sizeof(mark));
}

Result<void> Meet(GroupState& group, const std::string& what, int64_t deadline_ns) {
  const uint64_t number = ++group.meetings;
  const auto key = [&](int32_t from, int32_t to) {
    return fmt::format("{}/meet{}/{}-{}", group.name, number, from, to);
  };
  std::byte here{1};
  for (int32_t rank = 0; rank < group.world_size(); ++rank) {
    if (rank == group.rank) continue;
    if (auto put = Put(group, key(group.rank, rank), &here, 1); !put) return put;
  }
  for (int32_t rank = 0; rank < group.world_size(); ++rank) {
    if (rank == group.rank) continue;
    while (true) {
      if (group.aborted) return Fail(COTUNE_ABORTED, "the group was aborted");
      const int64_t until_ns = std::min(deadline_ns, group.now_ns() + kSliceNs);
      COTUNE_TRY(const auto met, Fetch(group, key(rank, group.rank), rank, &here, 1, until_ns));
      if (met) break;
      if (group.now_ns() >= deadline_ns) return tl::make_unexpected(Late(group, rank, what));
    }
  }
  return {};
}

void PauseUntil(const GroupState& group, int64_t until_ns) {
  const int64_t left_ns = std::clamp<int64_t>(until_ns - group.now_ns(), 0, kSliceNs);
  std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
}

}  // namespace cotune::fake
