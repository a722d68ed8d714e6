#include "plugins/nccl/call_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "plugins/sdk/call_text.h"

namespace cotune::nccl {
namespace {

// 7 KiB in the store for each pair of ranks.
constexpr size_t kBatchCallsMax = 64;
// Stores do not take every deadline.
constexpr int64_t kLongestWaitNs = int64_t{3600} * 1'000'000'000;

}  // namespace

CallComparison::CallComparison(const cotune_host_t& host, Member self,
                               std::function<void(const Failure&)> fail)
    : host_(host), self_(std::move(self)), fail_(std::move(fail)) {
  for (int rank = 0; rank < self_.world_size; ++rank) {
    if (rank != self_.rank) peers_.push_back({rank, 0, {}});
  }
  thread_ = std::thread([this] { Run(); });
}

// A thread that waits for a peer's records is woken by an empty value under the key that it waits
// for, which nobody else reads.
void CallComparison::Stop() {
  std::string key;
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    is_over_ = true;
    key = awaited_key_;
  }
  changed_.notify_all();
  if (!key.empty()) host_.store_put(host_.context, key.c_str(), "", 0);
  thread_.join();
  if (!key.empty()) host_.store_delete(host_.context, key.c_str());
}

std::string CallComparison::KeyOf(int from, int to, uint64_t batch) const {
  return fmt::format("{}/nccl/calls/{}/{}/{}", self_.group, from, to, batch);
}

std::string CallComparison::NameOf(int rank) const {
  return fmt::format("group rank {}{}", rank, rank == self_.rank ? " (this rank)" : "");
}

void CallComparison::Add(const CallRecord& record, int64_t deadline_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    pending_.push_back({record, deadline_ns, ++added_});
  }
  changed_.notify_all();
}

void CallComparison::Await(uint64_t calls, int64_t until_ns) {
  std::unique_lock lock(mutex_);
  WaitFor(lock, until_ns, [&] { return compared_ >= std::min(calls, added_); });
}

void CallComparison::WaitFor(std::unique_lock<std::mutex>& lock, int64_t until_ns,
                             const std::function<bool()>& done) {
  const int64_t left_ns = std::clamp<int64_t>(until_ns - NowNs(), 0, kLongestWaitNs);
  changed_.wait_for(lock, std::chrono::nanoseconds(left_ns),
                    [&] { return is_closed_ || is_over_ || done(); });
}

std::optional<Failure> CallComparison::MissingCall(uint64_t number, int64_t until_ns) {
  std::unique_lock lock(mutex_);
  const auto is_missing = [&] { return missing_call_ && missing_number_ <= number; };
  WaitFor(lock, until_ns, [&] { return is_missing() || compared_ >= number; });
  return is_missing() ? missing_call_ : std::nullopt;
}

void CallComparison::Close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    pending_.clear();
  }
  changed_.notify_all();
}

// A group that has not the lost rank goes on, so that the end of the comparison must be a failure
// of its own: a success would say that the ranks have made the same calls. A group that has it is
// stopped with the name of the rank before the store says anything.
Failure CallComparison::Ended(const Failure& failure) const {
  const bool is_other_loss = failure.status == COTUNE_ABORTED ||
                             (failure.status == COTUNE_PEER_FAILED && failure.failed_rank < 0);
  if (!is_other_loss) return failure;
  return {failure.status, 0, -1,
          fmt::format("the calls of group '{}' are not compared any more, as check_calls asks for: "
                      "a rank of the job is lost, and the job's store with it",
                      self_.group)};
}

void CallComparison::Run() {
  while (true) {
    const std::vector<OwnCall> batch = NextBatch();
    if (batch.empty()) break;
    Result<bool> goes_on = HandOver(batch).map([] { return true; });
    for (const OwnCall& own : batch) {
      if (goes_on && *goes_on) goes_on = Compare(own);
    }
    if (!goes_on) {
      fail_(Ended(goes_on.error()));
      return Close();
    }
    if (!*goes_on) break;
  }
  HandOverTheRest();
  Close();
}

std::vector<CallComparison::OwnCall> CallComparison::NextBatch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_over_ || is_closed_ || !pending_.empty(); });
  if (is_over_ || is_closed_) return {};
  const auto end =
      pending_.begin() + static_cast<std::ptrdiff_t>(std::min(pending_.size(), kBatchCallsMax));
  std::vector<OwnCall> batch(pending_.begin(), end);
  pending_.erase(pending_.begin(), end);
  return batch;
}

Result<void> CallComparison::HandOver(const std::vector<OwnCall>& batch) {
  std::vector<CallRecord> records;
  for (const OwnCall& call : batch) records.push_back(call.record);
  ++batches_written_;
  for (const Peer& peer : peers_) {
    const std::string key = KeyOf(self_.rank, peer.rank, batches_written_);
    const cotune_status_t put = host_.store_put(host_.context, key.c_str(), records.data(),
                                                records.size() * sizeof(CallRecord));
    if (put == COTUNE_OK) continue;
    return Fail(put, fmt::format("cannot tell {} of the calls of this rank (status {}); is the "
                                 "coordinator running?",
                                 NameOf(peer.rank), put));
  }
  return {};
}

// Peers that have yet to make these calls compare them without this rank.
void CallComparison::HandOverTheRest() {
  std::unique_lock lock(mutex_);
  const std::vector<OwnCall> rest(pending_.begin(), pending_.end());
  pending_.clear();
  lock.unlock();
  for (size_t begin = 0; begin < rest.size(); begin += kBatchCallsMax) {
    const size_t end = std::min(rest.size(), begin + kBatchCallsMax);
    const auto at = [&](size_t index) { return rest.begin() + static_cast<std::ptrdiff_t>(index); };
    if (!HandOver({at(begin), at(end)})) return;
  }
}

Result<bool> CallComparison::Compare(const OwnCall& own) {
  for (Peer& peer : peers_) {
    if (peer.unread.empty()) {
      if (auto read = ReadBatch(peer, own); !read || !*read) return read;
    }
    const CallRecord record = peer.unread.front();
    peer.unread.pop_front();
    if (record == own.record) continue;
    return Fail(COTUNE_PEER_FAILED,
                sdk::DifferentCallsText({.peer = NameOf(peer.rank),
                                         .peer_call = CallText(record),
                                         .self = NameOf(self_.rank),
                                         .own_call = CallText(own.record),
                                         .launch = own.number}),
                0, peer.rank);
  }
  {
    const std::lock_guard lock(mutex_);
    compared_ = own.number;
  }
  changed_.notify_all();
  return true;
}

Failure CallComparison::Missing(const Peer& peer, const OwnCall& own) const {
  return {COTUNE_PEER_FAILED, 0, peer.rank,
          fmt::format("{} had not made {} (launch {} of the group) by the deadline of {}: it died, "
                      "stopped, came too late, or runs this call by another backend",
                      NameOf(peer.rank), CallText(own.record), own.number, NameOf(self_.rank))};
}

Result<bool> CallComparison::ReadBatch(Peer& peer, const OwnCall& own) {
  const std::string key = KeyOf(peer.rank, self_.rank, peer.batches_read + 1);
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return false;
    awaited_key_ = key;
    missing_call_ = Missing(peer, own);
    missing_number_ = own.number;
  }
  changed_.notify_all();
  std::vector<CallRecord> records(kBatchCallsMax);
  uint64_t bytes = 0;
  cotune_status_t got = COTUNE_OK;
  do {
    const int64_t deadline_ns = std::min(own.deadline_ns, NowNs() + kLongestWaitNs);
    got = host_.store_get(host_.context, key.c_str(), records.data(),
                          records.size() * sizeof(CallRecord), &bytes, deadline_ns);
  } while (got == COTUNE_DEADLINE_EXCEEDED && NowNs() < own.deadline_ns);
  {
    const std::lock_guard lock(mutex_);
    awaited_key_.clear();
    if (got == COTUNE_OK) missing_call_.reset();
    if (is_over_) return false;
  }
  if (got == COTUNE_DEADLINE_EXCEEDED) return tl::unexpected(Missing(peer, own));
  if (got == COTUNE_OK && (bytes == 0 || bytes % sizeof(CallRecord) != 0)) {
    got = COTUNE_INVALID_ARGUMENT;
  }
  if (got != COTUNE_OK) {
    return Fail(got, fmt::format("cannot read the calls of {} (status {}, {} bytes)",
                                 NameOf(peer.rank), got, bytes));
  }
  host_.store_delete(host_.context, key.c_str());
  ++peer.batches_read;
  records.resize(bytes / sizeof(CallRecord));
  peer.unread.assign(records.begin(), records.end());
  return true;
}

}  // namespace cotune::nccl
