// The thread on which the functions of the caller run for one group of ranks.
#ifndef COTUNE_INTEGRATION_CAPI_FUNCTION_WORKER_H_
#define COTUNE_INTEGRATION_CAPI_FUNCTION_WORKER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/status.h"
#include "integration/capi/cotune.h"

namespace cotune::capi {

// A function of the caller with the id of its choice.
struct NamedFunction {
  std::string id;
  cotune_function function{};
};

// The caller's functions to begin and to end the use of functions by a group; both may be NULL.
struct FunctionGroupCalls {
  decltype(cotune_functions::open) open = nullptr;
  decltype(cotune_functions::close) close = nullptr;
  void* context = nullptr;
};

// The sizes of a call's operands on this rank. A rank that is not the root of a broadcast reads
// nothing, and has a buffer to send all the same.
struct FunctionBytes {
  uint64_t read = 0;
  uint64_t send = 0;
  uint64_t recv = 0;
};

// Runs one call at a time. A function gets copies of the operands, so that a call can be given up:
// the function then goes on with memory that nothing else uses, and its thread is left behind.
// Post, Await and RunHere are called by one thread at a time, all others by any.
class FunctionWorker : public std::enable_shared_from_this<FunctionWorker> {
 public:
  // Collective: lets the caller begin. kEnvironment: the caller's open has failed.
  static Result<std::shared_ptr<FunctionWorker>> Open(const FunctionGroupCalls& calls,
                                                      const GroupParameters& parameters);
  FunctionWorker(const FunctionGroupCalls& calls, int32_t rank) : calls_(calls), rank_(rank) {}

  int32_t rank() const { return rank_; }
  // Copies the operands, and lets the thread run the function.
  Status Post(const NamedFunction& function, const cotune_function_call& call,
              const FunctionBytes& bytes);
  // True, with the result in `recv`, when the function has returned; false when until_ns came first
  // (0: one look). An error: the function has failed, or the call was given up.
  Result<bool> Await(int64_t until_ns, void* recv);
  // Runs the function on this thread, with the operands themselves.
  Status RunHere(const NamedFunction& function, const cotune_function_call& call);

  // No call begins or succeeds any more. A function that runs is left alone with its thread, and
  // the caller's close is called.
  void GiveUp();
  // The same, but waits for the thread if it runs nothing.
  void End();
  bool is_given_up() const { return is_given_up_; }
  Status Health();

 private:
  enum class State : uint8_t { kIdle, kPosted, kDone };

  void Work();
  // These three are called under the mutex.
  Status CheckUsable();
  Status StartThread();
  Status Failed(const NamedFunction& function, const std::string& reason);
  void CloseOnce();

  const FunctionGroupCalls calls_;
  const int32_t rank_;
  cotune_function_group* group_ = nullptr;
  std::atomic<bool> is_given_up_ = false;
  std::once_flag is_closed_;

  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable done_;
  std::thread thread_;
  // Everything below is under the mutex; the call and its buffers belong to the thread between
  // kPosted and kDone.
  State state_ = State::kIdle;
  bool is_ending_ = false;
  std::optional<Error> failure_;
  NamedFunction function_;
  cotune_function_call call_{};
  Status outcome_;
  uint64_t recv_bytes_ = 0;
  std::vector<std::byte> send_;
  std::vector<std::byte> recv_;
  // As many bytes of recv_ are as they were poisoned: the last function has its result elsewhere.
  uint64_t poisoned_bytes_ = 0;
};

}  // namespace cotune::capi

#endif  // COTUNE_INTEGRATION_CAPI_FUNCTION_WORKER_H_
