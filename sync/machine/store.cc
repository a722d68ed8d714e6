#include "sync/machine/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sync/wire/failure_text.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

Store::Reply Answer(int rank, uint64_t request, const std::string& value) {
  auto frame = std::make_shared<wire::Frame>();
  frame->mutable_store_reply()->set_request(request);
  frame->mutable_store_reply()->set_value(value);
  return {rank, std::move(frame)};
}

Store::Reply Refuse(int rank, uint64_t request, const Error& error) {
  auto frame = std::make_shared<wire::Frame>();
  frame->mutable_store_reply()->set_request(request);
  *frame->mutable_store_reply()->mutable_failure() = FailureFromError(error);
  return {rank, std::move(frame)};
}

}  // namespace

std::vector<Store::Reply> Store::OnRequest(int rank, const wire::StoreRequest& request,
                                           int64_t now_ns) {
  if (request.key().empty() || request.key().size() > kNameBytesMax) {
    return {Refuse(rank, request.request(),
                   {ErrorCode::kUsage,
                    fmt::format("a key has {} characters, 1 to {} are allowed",
                                request.key().size(), kNameBytesMax),
                    "store",
                    "",
                    "use a shorter key",
                    {}})};
  }
  switch (request.operation()) {
    case wire::STORE_PUT:
      return Put(rank, request);
    case wire::STORE_GET:
      return Get(rank, request, now_ns);
    case wire::STORE_DELETE: {
      const auto found = values_.find(request.key());
      if (found != values_.end()) {
        bytes_ -= found->first.size() + found->second.size();
        values_.erase(found);
      }
      return {Answer(rank, request.request(), "")};
    }
    default:
      return {Refuse(rank, request.request(),
                     {ErrorCode::kInternal,
                      "an unknown store operation came",
                      "store",
                      "two versions of the code",
                      "run the same build on every rank",
                      {}})};
  }
}

std::vector<Store::Reply> Store::Put(int rank, const wire::StoreRequest& request) {
  const auto old = values_.find(request.key());
  const uint64_t freed = old == values_.end() ? 0 : old->first.size() + old->second.size();
  const uint64_t bytes = bytes_ - freed + request.key().size() + request.value().size();
  if (bytes > kStoreBytesMax || (old == values_.end() && values_.size() >= kStoreKeysMax)) {
    return {Refuse(rank, request.request(),
                   {ErrorCode::kEnvironment,
                    fmt::format("the store is full: {} keys, {} bytes", values_.size(), bytes_),
                    "store key " + Quoted(request.key()),
                    "keys are put and never deleted",
                    "delete keys when all ranks have read them",
                    {}})};
  }
  bytes_ = bytes;
  values_[request.key()] = request.value();
  std::vector<Reply> replies = {Answer(rank, request.request(), "")};
  const auto waiters = waiters_.extract(request.key());
  if (waiters.empty()) return replies;
  for (const Waiter& waiter : waiters.mapped()) {
    --waiting_[waiter.rank];
    replies.push_back(Answer(waiter.rank, waiter.request, request.value()));
  }
  return replies;
}

std::vector<Store::Reply> Store::Get(int rank, const wire::StoreRequest& request, int64_t now_ns) {
  const auto found = values_.find(request.key());
  if (found != values_.end()) return {Answer(rank, request.request(), found->second)};
  if (waiting_[rank] >= kStoreWaitersPerRankMax) {
    return {Refuse(rank, request.request(),
                   {ErrorCode::kEnvironment,
                    fmt::format("rank {} waits for {} keys already", rank, waiting_[rank]),
                    "store key " + Quoted(request.key()),
                    "",
                    "wait for fewer keys at once",
                    {}})};
  }
  ++waiting_[rank];
  waiters_[request.key()].push_back(
      {rank, request.request(), AddNs(now_ns, request.deadline_left_ns())});
  return OnTime(now_ns);
}

std::vector<Store::Reply> Store::OnTime(int64_t now_ns) {
  std::vector<Reply> replies;
  for (auto entry = waiters_.begin(); entry != waiters_.end();) {
    std::vector<Waiter>& waiters = entry->second;
    for (const Waiter& waiter : waiters) {
      if (waiter.deadline_ns > now_ns) continue;
      --waiting_[waiter.rank];
      replies.push_back(Refuse(waiter.rank, waiter.request,
                               {ErrorCode::kDeadline,
                                "no rank put the key before the deadline",
                                "store key " + Quoted(entry->first),
                                "the rank that should put it is late or has failed",
                                "see what the other ranks do",
                                {}}));
    }
    std::erase_if(waiters, [&](const Waiter& waiter) { return waiter.deadline_ns <= now_ns; });
    entry = waiters.empty() ? waiters_.erase(entry) : std::next(entry);
  }
  return replies;
}

void Store::OnLeft(int rank) {
  waiting_.erase(rank);
  for (auto entry = waiters_.begin(); entry != waiters_.end();) {
    std::erase_if(entry->second, [&](const Waiter& waiter) { return waiter.rank == rank; });
    entry = entry->second.empty() ? waiters_.erase(entry) : std::next(entry);
  }
}

int64_t Store::next_time_ns() const {
  int64_t next_ns = INT64_MAX;
  for (const auto& [key, waiters] : waiters_) {
    for (const Waiter& waiter : waiters) next_ns = std::min(next_ns, waiter.deadline_ns);
  }
  return next_ns;
}

}  // namespace cotune::sync
