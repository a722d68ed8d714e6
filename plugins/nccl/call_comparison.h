// The calls of the ranks of a group, compared on the host, for users who ask for it: NCCL itself
// does not notice that ranks make different calls.
#ifndef COTUNE_PLUGINS_NCCL_CALL_COMPARISON_H_
#define COTUNE_PLUGINS_NCCL_CALL_COMPARISON_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/nccl/call_record.h"
#include "plugins/nccl/sdk_names.h"

namespace cotune::nccl {

// The caller of a collective only adds its record to a list. A thread of this object hands the
// records to the peers through the job's store, and compares call n of every peer with call n of
// this rank. A comparison in front of the launch would make every enqueue wait for all ranks, and
// ranks that enqueue at different times, or the calls of two groups in another order, would wait
// for each other for ever.
//
// Every rank hands its records to each peer under a key of its own, and the peer deletes the key
// when it has read it. A rank that hands over a batch of records compares it before it hands over
// the next one, so that the store holds few of them.
class CallComparison {
 public:
  struct Member {
    std::string group;  // its name
    int rank = 0;
    int world_size = 1;
  };
  // `fail` is called at most once, on this object's thread, with the first difference, with the
  // rank that has not made a call by the deadline of this rank's, or with the reason why calls are
  // not compared any more. The host outlives this object.
  CallComparison(const cotune_host_t& host, Member self, std::function<void(const Failure&)> fail);
  // As Stop.
  ~CallComparison() { Stop(); }
  CallComparison(const CallComparison&) = delete;
  CallComparison& operator=(const CallComparison&) = delete;

  // In front of the launch; the first call of the group has number 1. Does not wait. kNever: the
  // call has no deadline. One thread at a time.
  static constexpr int64_t kNever = INT64_MAX;
  void Add(const CallRecord& record, int64_t deadline_ns);
  // The group has failed: ends Await, and nothing more is compared. Any thread.
  void Close();
  // Ends the thread. Leaves the records that peers still have to read, and does not wait for them.
  void Stop();
  // Waits until this many calls are compared, or nothing more will be. Any thread.
  void Await(uint64_t calls, int64_t until_ns);
  // The failure to give where call `number` of this rank is late: it names the rank that has not
  // made that call, or one before it; none where all ranks have made it. Waits for the thread to
  // get as far, which takes it no longer than a look into the store. Any thread.
  std::optional<Failure> MissingCall(uint64_t number, int64_t until_ns);

 private:
  struct OwnCall {
    CallRecord record;
    int64_t deadline_ns = kNever;
    uint64_t number = 0;
  };
  struct Peer {
    int rank = 0;
    uint64_t batches_read = 0;
    std::deque<CallRecord> unread;  // records that came with earlier ones
  };

  void Run();
  // The next own calls that have not been handed to the peers, oldest first; waits for one. Empty:
  // this object goes.
  std::vector<OwnCall> NextBatch();
  Result<void> HandOver(const std::vector<OwnCall>& batch);
  void HandOverTheRest();
  // False: this object goes.
  Result<bool> Compare(const OwnCall& own);
  Result<bool> ReadBatch(Peer& peer, const OwnCall& own);
  Failure Missing(const Peer& peer, const OwnCall& own) const;
  // Returns the failure that `fail` is given when the comparison ends.
  Failure Ended(const Failure& failure) const;

  void WaitFor(std::unique_lock<std::mutex>& lock, int64_t until_ns,
               const std::function<bool()>& done);
  std::string KeyOf(int from, int to, uint64_t batch) const;
  std::string NameOf(int rank) const;
  int64_t NowNs() const { return host_.now_ns(host_.context); }

  const cotune_host_t& host_;
  const Member self_;
  const std::function<void(const Failure&)> fail_;

  // Used by the thread alone.
  std::vector<Peer> peers_;
  uint64_t batches_written_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<OwnCall> pending_;
  uint64_t added_ = 0;
  uint64_t compared_ = 0;
  bool is_over_ = false;                 // this object goes
  bool is_closed_ = false;               // the thread compares no more
  std::string awaited_key_;              // what the thread waits for in the store, or ""
  std::optional<Failure> missing_call_;  // what a peer has not told of a call, until it has
  uint64_t missing_number_ = 0;
  std::thread thread_;
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_CALL_COMPARISON_H_
