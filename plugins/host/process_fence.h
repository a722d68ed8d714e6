// A memory fence that one thread makes for all threads of the processes that have agreed to it.
//
// A rank that stores its progress and then looks for sleepers, and a sleeper that announces itself
// and then looks at the progress, must not both miss the other. With a fence in each of them the
// store costs a way of a cache line between processors, in every call. Here the sleeper, who has
// time, makes both fences (membarrier of Linux 4.16 and later).
#ifndef COTUNE_PLUGINS_HOST_PROCESS_FENCE_H_
#define COTUNE_PLUGINS_HOST_PROCESS_FENCE_H_

namespace cotune::host {

// From now on FenceProcesses of any process fences the threads of this one. False: the system does
// not offer it. Any thread, any number of times.
bool JoinProcessFences();

// When it returns, every running thread of every process that has joined has passed a full fence
// since the call. Any thread; some microseconds.
void FenceProcesses();

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_PROCESS_FENCE_H_
