// The job's key-value store, for what backends must tell each other before they can talk.
#ifndef COTUNE_SYNC_MACHINE_STORE_H_
#define COTUNE_SYNC_MACHINE_STORE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sync/wire/wire_forward.h"

namespace cotune::sync {

// Bounded in keys, bytes and waiters (limits.h). A second put of a key replaces its value; deleting
// a key that is not there is no error. Pure.
class Store {
 public:
  struct Reply {
    int rank = 0;
    FramePtr frame;
  };

  // Replies to this request, and to ranks that waited for its key.
  std::vector<Reply> OnRequest(int rank, const wire::StoreRequest& request, int64_t now_ns);
  std::vector<Reply> OnTime(int64_t now_ns);
  void OnLeft(int rank);
  int64_t next_time_ns() const;

 private:
  struct Waiter {
    int rank = 0;
    uint64_t request = 0;
    int64_t deadline_ns = 0;
  };

  std::vector<Reply> Put(int rank, const wire::StoreRequest& request);
  std::vector<Reply> Get(int rank, const wire::StoreRequest& request, int64_t now_ns);

  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<Waiter>> waiters_;  // by key
  std::map<int, uint64_t> waiting_;                     // waiters of a rank
  uint64_t bytes_ = 0;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_STORE_H_
