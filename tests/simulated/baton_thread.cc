#include "tests/simulated/baton_thread.h"

#include <sched.h>

#include <utility>

#include "core/base/check.h"

namespace cotune {

namespace {

void Acquire(sem_t& semaphore) {
  while (sem_wait(&semaphore) != 0) {  // a signal has interrupted it
  }
}

}  // namespace

BatonThread::BatonThread(std::function<void()> body) : body_(std::move(body)) {
  sem_init(&runs_, 0, 0);
  sem_init(&rests_, 0, 0);
}

BatonThread::~BatonThread() {
  if (thread_.joinable()) {
    COTUNE_CHECK(has_ended_, "the body of a thread has ended before the thread goes");
    thread_.join();
  }
  sem_destroy(&runs_);
  sem_destroy(&rests_);
}

void BatonThread::Resume() {
  if (thread_.joinable()) {
    sem_post(&runs_);
  } else {
    thread_ = std::thread([this] {
      body_();
      has_ended_ = true;
      sem_post(&rests_);
    });
  }
  Acquire(rests_);
}

void BatonThread::GiveBack() {
  sem_post(&rests_);
  Acquire(runs_);
}

void RunOnOneProcessor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace cotune
