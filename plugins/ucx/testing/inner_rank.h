// One rank of a group below the ABI: a test sees its connections and sends messages of its own.
#ifndef COTUNE_PLUGINS_UCX_TESTING_INNER_RANK_H_
#define COTUNE_PLUGINS_UCX_TESTING_INNER_RANK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/ucx/context.h"
#include "plugins/ucx/group.h"
#include "plugins/ucx/operation.h"

namespace cotune::ucx {

// One thread at a time. The services of `host` outlive this object, and so do the data of a call
// that is running.
class InnerRank {
 public:
  // Joins a group of all ranks of the job, with the name "g".
  InnerRank(const cotune_host_t& host, int rank, int world_size);
  ~InnerRank();
  InnerRank(const InnerRank&) = delete;
  InnerRank& operator=(const InnerRank&) = delete;

  // Empty, or why the group was not made.
  const std::string& wrong() const { return wrong_; }
  Group& group() { return *group_; }
  std::shared_ptr<const Context> context() const { return context_; }

  // Begins a broadcast, in place. Its deadline has passed already if `timeout_ns` is 0.
  void Begin(std::string_view choice, int root, std::vector<uint8_t>& data,
             int64_t timeout_ns = kLongNs);
  // Polls once.
  Advance Poll();
  // Runs the call to its end.
  Advance Finish();
  // The same. Empty, or why it failed.
  std::string FinishText();

 private:
  static constexpr int64_t kLongNs = 60'000'000'000;

  void Join(const cotune_host_t& host, int rank);
  Advance EndIfDone(Advance advance);

  const int world_size_;
  std::string wrong_;
  std::shared_ptr<const Context> context_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Operation> operation_;
  bool is_running_ = false;
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_TESTING_INNER_RANK_H_
