// After a call has failed, UCX does not write into its buffers: not while the group lives, not when
// it is destroyed, and not when the sender goes on meanwhile.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 2;
constexpr int kReceiver = 0;
constexpr int kSender = 1;
constexpr uint64_t kBytes = 64 << 20;  // travels in thousands of fragments
constexpr uint8_t kSent = 5;
constexpr uint8_t kCanary = 77;
constexpr int64_t kLongNs = 60 * kSecondNs;
constexpr int64_t kShortNs = 2 * kSecondNs;

enum Event { kStopped, kFailed, kSenderEnded };
// The receiver sets this key in the store when it has a part of the message.
constexpr char kBegun[] = "begun";

// The end of the receiver's call, and the use of the buffer afterwards.
enum class End { kAtTheDeadline, kByAbort };
enum class Reuse { kWrites, kFrees };

struct Case {
  const char* name;
  End end;
  Reuse reuse;
};

// Memory of malloc: AddressSanitizer reports a write after it is freed, and without it such a write
// ends the process, because this much is unmapped at once.
class Buffer {
 public:
  explicit Buffer(uint8_t value) : data_(static_cast<uint8_t*>(std::malloc(kBytes))) {
    Fill(value);
  }
  ~Buffer() { Free(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() { return data_; }
  bool has_begun() const { return data_[0] == kSent; }
  void Fill(uint8_t value) { std::memset(data_, value, kBytes); }
  int64_t CountOthers(uint8_t value) const {
    return static_cast<int64_t>(kBytes) - std::count(data_, data_ + kBytes, value);
  }
  void Free() {
    std::free(data_);
    data_ = nullptr;
  }

 private:
  uint8_t* data_;
};

int warnings = 0;

void CountWarnings(void* /*context*/, int32_t severity, const char* text) {
  constexpr int32_t kWarning = 2;
  std::fprintf(stderr, "[%d] %s\n", severity, text);
  const bool is_of_buffers = std::string_view(text).find("cannot stop") != std::string_view::npos;
  if (severity == kWarning && is_of_buffers) ++warnings;
}

// A broadcast from kSender that was launched.
class Call {
 public:
  Call(const GroupForTest& group, uint8_t* data, int64_t timeout_ns) {
    constexpr cotune_dtype_t kBytesType = {COTUNE_DTYPE_UINT, 8, 1};
    const cotune_problem_t problem = AbiProblem(COTUNE_BROADCAST, kBytesType, COTUNE_REDUCTION_NONE,
                                                kBytes, kRanks, kSender, true);
    status_ = Tested().api->prepare(group.group(), &problem, "chain", 0, &plan_, &error_);
    if (status_ != COTUNE_OK) return;
    const cotune_launch_t launch{.struct_size = sizeof(launch),
                                 .flags = 0,
                                 .send = data,
                                 .recv = data,
                                 .stream = {COTUNE_STREAM_HOST, -1, nullptr},
                                 .deadline_ns = MonotonicNs() + timeout_ns};
    status_ = Tested().api->launch(plan_, &launch, &error_);
    if (status_ == COTUNE_OK) status_ = COTUNE_IN_PROGRESS;
  }
  ~Call() { Tested().api->plan_destroy(plan_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool IsInProgress() const { return status_ == COTUNE_IN_PROGRESS; }
  void Poll() { status_ = Tested().api->progress(plan_, 0, &error_); }
  void Finish() {
    while (IsInProgress()) {
      status_ = Tested().api->progress(plan_, MonotonicNs() + kSecondNs, &error_);
    }
  }
  cotune_status_t status() const { return status_; }
  std::string Text() const { return "status " + std::to_string(status_) + ": " + error_.message; }

 private:
  cotune_plan_t* plan_ = nullptr;
  cotune_status_t status_ = COTUNE_OK;
  cotune_error_t error_ = EmptyError();
};

class LateWritesTest : public testing::TestWithParam<Case> {
 protected:
  // The sender stops itself in the middle of the message.
  std::string Send() {
    Buffer buffer(kSent);
    const GroupForTest group(job_.host(), "g", kSender, AllRanks(kRanks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    Call call(group, buffer.data(), kLongNs);
    while (call.IsInProgress() && !HasReceiverBegun()) call.Poll();
    if (!call.IsInProgress()) return "not stopped in the middle: " + call.Text();
    raise(SIGSTOP);
    call.Finish();
    job_.Post(kSenderEnded);
    return call.status() == COTUNE_OK ? "the whole message was sent" : "";
  }

  // The receiver's call fails while the sender is stopped; then the buffer is the caller's.
  std::string FailAndReuse(const GroupForTest& group, Buffer& buffer) {
    const bool is_aborted = GetParam().end == End::kByAbort;
    Call call(group, buffer.data(), is_aborted ? kLongNs : kShortNs);
    while (call.IsInProgress() && !buffer.has_begun()) call.Poll();
    job_.host().store_put(job_.host().context, kBegun, "", 1);
    job_.Await(kStopped);
    if (is_aborted) Tested().api->group_abort(group.group());
    call.Finish();
    if (call.status() != (is_aborted ? COTUNE_ABORTED : COTUNE_PEER_FAILED)) return call.Text();
    if (GetParam().reuse == Reuse::kFrees) {
      buffer.Free();
    } else {
      buffer.Fill(kCanary);
    }
    return "";
  }

  std::string Receive() {
    cotune_host_t host = job_.host();
    host.log = CountWarnings;
    Buffer buffer(0);
    {
      const GroupForTest group(host, "g", kReceiver, AllRanks(kRanks), MonotonicNs() + kLongNs);
      if (group.status() != COTUNE_OK) return group.error().message;
      std::string wrong = FailAndReuse(group, buffer);
      job_.Post(kFailed);
      if (!wrong.empty()) return wrong;
      job_.Await(kSenderEnded);
    }
    const bool is_there = GetParam().reuse == Reuse::kWrites;
    const int64_t overwritten = is_there ? buffer.CountOthers(kCanary) : 0;
    if (overwritten > 0) return std::to_string(overwritten) + " bytes were overwritten";
    return warnings == 1 ? "" : std::to_string(warnings) + " warnings";
  }

  bool HasReceiverBegun() const {
    char value = 0;
    uint64_t size = 0;
    return job_.host().store_get(job_.host().context, kBegun, &value, sizeof(value), &size, 0) ==
           COTUNE_OK;
  }

  JobForTest job_;
};

TEST_P(LateWritesTest, NothingIsWrittenIntoTheBufferOfAFailedCall) {
  RankProcesses ranks(kRanks, [&](int rank) { return rank == kSender ? Send() : Receive(); });
  siginfo_t state{};
  const auto pid = static_cast<id_t>(ranks.pid(kSender));
  ASSERT_EQ(waitid(P_PID, pid, &state, WSTOPPED | WEXITED | WNOWAIT), 0);
  ASSERT_EQ(state.si_code, CLD_STOPPED) << ranks.Wait(kSender);
  job_.Post(kStopped);
  job_.Await(kFailed);
  ranks.Kill(kSender, SIGCONT);
  EXPECT_EQ(ranks.WaitAll(), "");
}

INSTANTIATE_TEST_SUITE_P(Ends, LateWritesTest,
                         testing::Values(Case{"DeadlineWrites", End::kAtTheDeadline,
                                              Reuse::kWrites},
                                         Case{"DeadlineFrees", End::kAtTheDeadline, Reuse::kFrees},
                                         Case{"AbortWrites", End::kByAbort, Reuse::kWrites},
                                         Case{"AbortFrees", End::kByAbort, Reuse::kFrees}),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace cotune::ucx
