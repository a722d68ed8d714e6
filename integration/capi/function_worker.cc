#include "integration/capi/function_worker.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <system_error>
#include <utility>

#include "core/base/clock.h"
#include "fmt/format.h"
#include "sync/socket/signal_mask.h"

namespace cotune::capi {
namespace {

constexpr size_t kReasonBytes = 512;
// A function that writes nothing must not leave the right result of an earlier call.
constexpr int kPoison = 0xa5;

// The caller's text as part of an error, which is one line.
std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char each) { return each < ' ' || each == 0x7f; }, ' ');
  return text;
}

bool IsWithin(const std::byte* address, const std::vector<std::byte>& bytes) {
  const std::less<> is_before;
  return !is_before(address, bytes.data()) && is_before(address, bytes.data() + bytes.size());
}

// Runs a call of the caller that gives a reason if it fails. "": it has succeeded.
template <typename Call>
std::string ReasonOf(const Call& call) {
  std::array<char, kReasonBytes> reason{};
  cotune_result result = COTUNE_ERROR_INTERNAL;
  try {
    result = call(reason.data(), reason.size());
  } catch (abi::__forced_unwind&) {
    // The end of the thread, as Python ends threads when its process ends; it must not be stopped.
    throw;
  } catch (const std::exception& thrown) {
    return OneLine(fmt::format("it has thrown {}", thrown.what()));
  } catch (...) {
    return "it has thrown";
  }
  if (result == COTUNE_SUCCESS) return "";
  reason.back() = '\0';
  if (reason.front() == '\0') return fmt::format("it gives {}", result);
  return OneLine(reason.data());
}

std::string Run(const NamedFunction& function, cotune_function_group* group,
                cotune_function_call& call) {
  return ReasonOf([&](char* reason, size_t size) {
    return function.function.run(function.function.context, group, &call, reason, size);
  });
}

}  // namespace

Result<std::shared_ptr<FunctionWorker>> FunctionWorker::Open(const FunctionGroupCalls& calls,
                                                             const GroupParameters& parameters) {
  auto worker = std::make_shared<FunctionWorker>(calls, parameters.rank);
  if (calls.open == nullptr) return worker;
  cotune_function_group_info info{};
  info.struct_size = sizeof(info);
  info.rank = parameters.rank;
  info.world_size = static_cast<int32_t>(parameters.job_ranks.size());
  info.device = parameters.device;
  info.job_ranks = parameters.job_ranks.data();
  info.name = parameters.name.c_str();
  info.deadline_ns = parameters.deadline_ns;
  const std::string reason = ReasonOf([&](char* text, size_t size) {
    return calls.open(calls.context, &info, &worker->group_, text, size);
  });
  if (reason.empty()) return worker;
  return Fail(ErrorCode::kEnvironment, "open of the caller's functions has failed",
              fmt::format("rank {}", parameters.job_ranks[static_cast<size_t>(parameters.rank)]),
              reason);
}

Status FunctionWorker::CheckUsable() {
  if (failure_) return tl::make_unexpected(*failure_);
  if (is_given_up_) {
    return Fail(ErrorCode::kAborted, "the group of the caller's functions was aborted");
  }
  return {};
}

Status FunctionWorker::StartThread() {
  if (thread_.joinable()) return {};
  const sync::SignalsBlocked signals_go_to_other_threads;
  try {
    thread_ = std::thread([self = shared_from_this()] { self->Work(); });
  } catch (const std::system_error& failure) {
    return Fail(ErrorCode::kEnvironment, "no thread for the caller's functions can be started", "",
                failure.what(), "allow the process more threads");
  }
  return {};
}

Status FunctionWorker::Post(const NamedFunction& function, const cotune_function_call& call,
                            const FunctionBytes& bytes) {
  const std::lock_guard lock(mutex_);
  COTUNE_RETURN_IF_ERROR(CheckUsable());
  COTUNE_RETURN_IF_ERROR(StartThread());
  function_ = function;
  call_ = call;
  recv_bytes_ = bytes.recv;
  if (send_.size() < bytes.send) send_.resize(bytes.send);
  if (recv_.size() < bytes.recv) recv_.resize(bytes.recv);
  if (bytes.read > 0) std::memcpy(send_.data(), call.send, bytes.read);
  // Only what this call may write to, as an earlier one may have been much larger.
  if (poisoned_bytes_ < bytes.recv) std::memset(recv_.data(), kPoison, bytes.recv);
  poisoned_bytes_ = 0;
  call_.send = send_.data();
  call_.recv = recv_.data();
  state_ = State::kPosted;
  posted_.notify_one();
  return {};
}

void FunctionWorker::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [&] { return state_ == State::kPosted || is_ending_ || is_given_up_; });
    if (state_ != State::kPosted || is_given_up_) return;
    lock.unlock();
    const std::string reason = Run(function_, group_, call_);
    lock.lock();
    // Nobody waits for a call that was given up, and its group is closed.
    if (is_given_up_) return;
    outcome_ = reason.empty() ? Status() : Failed(function_, reason);
    state_ = State::kDone;
    done_.notify_one();
  }
}

Result<bool> FunctionWorker::Await(int64_t until_ns, void* recv) {
  const MonotonicClock clock;
  // The clock of the condition variable has an end, too.
  constexpr int64_t kYearNs = 365LL * 86'400 * 1'000'000'000;
  const int64_t left_ns = std::clamp<int64_t>(until_ns - clock.now_ns(), 0, kYearNs);
  std::unique_lock lock(mutex_);
  const bool has_ended = done_.wait_for(lock, std::chrono::nanoseconds(left_ns),
                                        [&] { return state_ == State::kDone || is_given_up_; });
  if (!has_ended) return false;
  COTUNE_RETURN_IF_ERROR(CheckUsable());
  state_ = State::kIdle;
  COTUNE_RETURN_IF_ERROR(outcome_);
  const auto* const result = static_cast<const std::byte*>(call_.result);
  const bool is_in_recv = result == nullptr || IsWithin(result, recv_);
  poisoned_bytes_ = is_in_recv ? 0 : recv_bytes_;
  if (recv_bytes_ > 0) std::memcpy(recv, result == nullptr ? recv_.data() : result, recv_bytes_);
  return true;
}

Status FunctionWorker::RunHere(const NamedFunction& function, const cotune_function_call& call) {
  {
    const std::lock_guard lock(mutex_);
    COTUNE_RETURN_IF_ERROR(CheckUsable());
  }
  cotune_function_call own = call;
  const std::string reason = Run(function, group_, own);
  if (reason.empty()) return {};
  const std::lock_guard lock(mutex_);
  return Failed(function, reason);
}

// The ranks may have left the function at different places, so that the group is unusable.
Status FunctionWorker::Failed(const NamedFunction& function, const std::string& reason) {
  failure_ = Error{ErrorCode::kEnvironment,
                   fmt::format("function {} has failed", function.id),
                   "",
                   reason,
                   "",
                   {}};
  return tl::make_unexpected(*failure_);
}

void FunctionWorker::GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    is_given_up_ = true;
    if (thread_.joinable()) thread_.detach();
    posted_.notify_all();
    done_.notify_all();
  }
  CloseOnce();
}

void FunctionWorker::End() {
  std::thread idle;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    // A function that runs ends the group as an abort does.
    if (state_ != State::kPosted && thread_.joinable()) idle = std::move(thread_);
    posted_.notify_all();
  }
  if (idle.joinable()) idle.join();
  GiveUp();
}

Status FunctionWorker::Health() {
  const std::lock_guard lock(mutex_);
  return CheckUsable();
}

void FunctionWorker::CloseOnce() {
  std::call_once(is_closed_, [&] {
    if (calls_.close == nullptr) return;
    try {
      calls_.close(calls_.context, group_);
    } catch (...) {
      // The group is gone for cotune in any case.
    }
  });
}

}  // namespace cotune::capi
