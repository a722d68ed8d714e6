// One rank that was started as a process of its own.
#ifndef COTUNE_INTEGRATION_RANK_PROCESS_H_
#define COTUNE_INTEGRATION_RANK_PROCESS_H_

#include <sys/types.h>

#include <string>

#include "integration/rank_log.h"

namespace cotune {

struct RankProcess {
  int rank = 0;
  pid_t pid = -1;      // of the process, and of the process group that it leads
  int output_fd = -1;  // of ranks other than 0; -1 when closed
  LineSplitter lines;
  int error_fd = -1;  // likewise, where errors are collected
  std::string partial_error;
  bool has_told_error = false;
  bool has_joined = false;  // as it has said
  bool has_said_done = false;
  bool running = true;
  bool stopped = false;
  // The end, once it does not run any more. It stays a zombie until all have ended, so that its
  // number stays that of its process group, and of nothing else.
  int exit_code = 0;
  int end_signal = 0;          // 0: it ended by itself
  bool was_killed = false;     // by this process
  bool failed_itself = false;  // badly, before others were ended for it
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_RANK_PROCESS_H_
