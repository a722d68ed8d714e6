#include "core/base/signal_stack.h"

#include <gtest/gtest.h>

#include <thread>

namespace cotune {
namespace {

stack_t Current() {
  stack_t current{};
  sigaltstack(nullptr, &current);
  return current;
}

bool was_on_it = false;
void NoteStack(int /*number*/) { was_on_it = (Current().ss_flags & SS_ONSTACK) != 0; }

TEST(SignalStackTest, HandlersRunOnItUntilItGoes) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = NoteStack;
  action.sa_flags = SA_ONSTACK;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::thread([] {
    const stack_t old = Current();
    {
      const SignalStack stack;
      const stack_t own = Current();
      EXPECT_NE(own.ss_sp, old.ss_sp);
      raise(SIGUSR1);
      EXPECT_TRUE(was_on_it);
    }
    EXPECT_EQ(Current().ss_sp, old.ss_sp);
    EXPECT_EQ(Current().ss_flags, old.ss_flags);
  }).join();
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace cotune
