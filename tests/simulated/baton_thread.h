// A thread that runs only while it has the baton, so that of it and its owner exactly one runs.
#ifndef COTUNE_TESTS_SIMULATED_BATON_THREAD_H_
#define COTUNE_TESTS_SIMULATED_BATON_THREAD_H_

#include <semaphore.h>

#include <functional>
#include <thread>

namespace cotune {

class BatonThread {
 public:
  // The body begins with the first Resume.
  explicit BatonThread(std::function<void()> body);
  // The body has ended, or has never begun.
  ~BatonThread();
  BatonThread(const BatonThread&) = delete;
  BatonThread& operator=(const BatonThread&) = delete;

  // By the owner: returns when the body has given the baton back or has ended.
  void Resume();
  // By the body: returns when the owner resumes it.
  void GiveBack();
  bool has_ended() const { return has_ended_; }

 private:
  const std::function<void()> body_;
  // Those of the standard library yield the processor several times before they sleep.
  sem_t runs_;
  sem_t rests_;
  bool has_ended_ = false;
  std::thread thread_;
};

// Binds the process to one processor of those that it may use: as only one thread runs at a time,
// others would only make the handing over slower.
void RunOnOneProcessor();

}  // namespace cotune

#endif  // COTUNE_TESTS_SIMULATED_BATON_THREAD_H_
