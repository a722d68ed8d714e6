// Errors that several ranks have are told once.
#ifndef COTUNE_INTEGRATION_ERROR_COLLECTOR_H_
#define COTUNE_INTEGRATION_ERROR_COLLECTOR_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "integration/rank_process.h"
#include "integration/spawn.h"

namespace cotune {

class ErrorCollector {
 public:
  ErrorCollector(const SpawnRequest& request, const Clock& clock)
      : request_(request), clock_(clock) {}

  // Takes some of what the rank has written to its pipe; closes the pipe at its end. False when
  // there is nothing now.
  bool Read(RankProcess& rank);
  // All of it; the rank writes no more.
  void ReadToTheEnd(RankProcess& rank);

  // When Tell is due; 0: nothing waits.
  int64_t due_ns() const { return waiting_.empty() ? 0 : due_ns_; }
  void Tell();

 private:
  void Add(RankProcess& rank, const std::string& text);

  const SpawnRequest& request_;
  const Clock& clock_;
  int64_t due_ns_ = 0;
  std::vector<std::pair<std::string, std::vector<int>>> waiting_;  // text, ranks that said it
  std::vector<std::string> told_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_ERROR_COLLECTOR_H_
