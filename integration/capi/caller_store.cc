#include "integration/capi/caller_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/clock.h"
#include "fmt/format.h"
#include "integration/capi/read_options.h"
#include "sync/socket/signal_mask.h"

namespace cotune::capi {
namespace {

constexpr size_t kValueBytesMax = 4096;
constexpr size_t kJobIdBytesMax = 200;
// How much longer than its timeout a function of the program may take.
constexpr int64_t kGraceNs = 2'000'000'000;

// One call, shared with the thread that makes it, which may outlive everything else.
struct StoreCall {
  cotune_store store{};
  std::string key;
  std::string value;  // to put, or what get has written
  uint64_t size = 0;  // of the value that is in the store, as get has written it
  int64_t timeout_ns = 0;
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<cotune_result> result;  // under the mutex
};

class CallerStore final : public sync::RendezvousStore {
 public:
  CallerStore(const cotune_store& store, std::string key) : store_(store), key_(std::move(key)) {}

  std::string name() const override { return "store key " + key_; }

  Status Put(std::string_view value, int64_t deadline_ns) override {
    if (value.size() > kValueBytesMax) {
      return Fail(ErrorCode::kUsage,
                  fmt::format("the address of rank 0 has {} bytes", value.size()), name(), "",
                  "use a shorter socket_path or job_id");
    }
    const auto call = NewCall(deadline_ns);
    call->value = value;
    return Run("put", call, [](StoreCall& self) {
      return self.store.put(self.store.context, self.key.c_str(), self.value.data(),
                            self.value.size(), self.timeout_ns);
    });
  }

  Result<std::optional<std::string>> Get(int64_t deadline_ns) override {
    const auto call = NewCall(deadline_ns);
    call->value.resize(kValueBytesMax);
    Status got = Run("get", call, [](StoreCall& self) {
      return self.store.get(self.store.context, self.key.c_str(), self.value.data(),
                            self.value.size(), &self.size, self.timeout_ns);
    });
    if (!got && !is_stuck_ && got.error().code == ErrorCode::kDeadline) return std::nullopt;
    if (!got) return tl::make_unexpected(std::move(got.error()));
    // A longer value is none of cotune's: its beginning is for the message.
    call->value.resize(std::min<uint64_t>(call->size, kValueBytesMax));
    return std::move(call->value);
  }

  Status Delete(int64_t deadline_ns) override {
    return Run("erase", NewCall(deadline_ns), [](StoreCall& self) {
      return self.store.erase(self.store.context, self.key.c_str(), self.timeout_ns);
    });
  }

 private:
  std::shared_ptr<StoreCall> NewCall(int64_t deadline_ns) const {
    auto call = std::make_shared<StoreCall>();
    call->store = store_;
    call->key = key_;
    call->timeout_ns = std::max<int64_t>(deadline_ns - clock_.now_ns(), 0);
    return call;
  }

  Status Run(const char* function, const std::shared_ptr<StoreCall>& call,
             cotune_result (*body)(StoreCall&)) {
    // The thread of a call that was given up may still be in the store, which takes one at a time.
    if (is_stuck_) return Stuck(function);
    {
      const sync::SignalsBlocked signals_go_to_other_threads;
      std::thread([call, body] {
        cotune_result result = COTUNE_ERROR_INTERNAL;
        try {
          result = body(*call);
        } catch (...) {
          // A store that throws against the rules has failed.
        }
        const std::lock_guard lock(call->mutex);
        call->result = result;
        call->ended.notify_one();
      }).detach();
    }
    std::unique_lock lock(call->mutex);
    // The clock of the condition variable has an end, too.
    constexpr int64_t kYearsNs = int64_t{1} << 60;
    const std::chrono::nanoseconds limit(std::min(call->timeout_ns, kYearsNs) + kGraceNs);
    is_stuck_ = !call->ended.wait_for(lock, limit, [&] { return call->result.has_value(); });
    if (is_stuck_) return Stuck(function);
    const cotune_result result = *call->result;
    if (result == COTUNE_SUCCESS) return {};
    const bool is_late = result == COTUNE_ERROR_DEADLINE;
    return Fail(is_late ? ErrorCode::kDeadline : ErrorCode::kEnvironment,
                fmt::format("{} of the caller's store gives {}", function, result), name(),
                is_late ? "the store did not do it in time" : "the store has failed",
                "see whether the store runs and this rank reaches it");
  }

  Status Stuck(const char* function) const {
    return Fail(ErrorCode::kDeadline,
                fmt::format("{} of the caller's store does not return", function), name(),
                "the store does not keep to the timeout that it is given",
                "let the function return COTUNE_ERROR_DEADLINE after timeout_ns");
  }

  const cotune_store store_;
  const std::string key_;
  const MonotonicClock clock_;
  bool is_stuck_ = false;
};

}  // namespace

Result<std::shared_ptr<sync::RendezvousStore>> MakeCallerStore(const cotune_store& given,
                                                               const std::string& job_id) {
  COTUNE_TRY(const cotune_store store, ReadOptions(&given, "cotune_store"));
  if (store.put == nullptr || store.get == nullptr || store.erase == nullptr) {
    return Fail(ErrorCode::kUsage, "put, get or erase is NULL", "cotune_store", "",
                "give all three functions");
  }
  if (job_id.size() > kJobIdBytesMax) {
    return Fail(ErrorCode::kUsage, fmt::format("job_id has {} characters", job_id.size()),
                "cotune_group_options", "", fmt::format("use at most {}", kJobIdBytesMax));
  }
  return std::make_shared<CallerStore>(store, "cotune/rendezvous/" + job_id);
}

}  // namespace cotune::capi
