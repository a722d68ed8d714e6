// Takes the place of pthread_create in tests that are marked single_threaded: the thread sanitizer
// leaves those tests out, so the mark must be true.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t*,
                                                                     const pthread_attr_t*,
                                                                     void* (*)(void*), void*) {
  std::fputs(
      "this test is marked single_threaded in its BUILD file and starts a thread: remove the mark, "
      "so that the thread sanitizer runs it\n",
      stderr);
  std::abort();
}
