// Ranks as threads for the tests of the pipeline: an exchange over a mutex, a backend that really
// moves data, and a device whose time is scripted.
#ifndef COTUNE_CORE_TESTING_SCRIPTED_RANKS_H_
#define COTUNE_CORE_TESTING_SCRIPTED_RANKS_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/ranks/rank_exchange.h"

namespace cotune {

// The state that the ranks of one test share. Thread-safe.
class HubForTest {
 public:
  explicit HubForTest(int world_size) : world_size_(world_size) {}
  int world_size() const { return world_size_; }

  // Gathers one value of every rank; every rank calls it in the same order. Empty when the hub was
  // broken.
  std::vector<std::string> Gather(int rank, const std::string& channel, std::string value);
  // Every rank that waits and every later one gets an error.
  void Break(int lost_rank);
  int lost_rank();

  // Counts of what the exchanges of this hub did, by rank 0.
  int pre_syncs = 0;
  // The rank in the job of each rank, for a subgroup. Empty: this is the job.
  std::vector<int> job_ranks;
  // Called by each rank in every step before it waits for the others. Gives the time that the step
  // takes beyond the 1 ms of each, the same on all ranks. Set before the ranks begin.
  std::function<int64_t(int rank, std::string_view step, int64_t deadline_ns)> on_step;
  // Ranks that miss the window of the pre-sync.
  std::set<int> late_ranks;

 private:
  struct Meeting {
    std::map<int, std::string> values;
    std::vector<std::string> released;
    uint64_t generation = 0;
  };
  const int world_size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Meeting> meetings_;
  int lost_rank_ = -1;
};

std::unique_ptr<RankExchange> MakeExchangeForTest(HubForTest& hub, int rank);

// The job's begin on the clock of this rank, as its exchange says it and its device counts from it:
// the clocks of two ranks are days apart.
int64_t JobBeginForTest(int rank);

// One scripted choice.
struct ScriptedChoice {
  std::string name;
  bool is_default = false;
  std::function<int64_t(uint64_t bytes)> cost_ns;
  // Set: it runs collectives with so many local operations around them, too.
  std::function<int64_t(uint64_t bytes, size_t operations)> fused_cost_ns = nullptr;
  int prepare_fails_on_rank = -1;
  std::string prepare_failure = "scripted prepare failure";
  int launch_fails_on_rank = -1;
  std::function<bool()> launch_fails = nullptr;  // asked by each launch of this rank
  int wrong_on_rank = -1;                        // one element
  bool is_reproducible = false;                  // as in Choice
  std::string numerics{};                        // as in Choice
  double cost_us = -1;                           // as in Choice: an estimate
  bool keeps_values_wide = false;                // refuses regions that round every value
  int ulp_on_rank = -1;                          // where an element has the next bits
  int overruns_on_rank = -1;                     // writes one byte behind the receive buffer
  bool keeps_first_buffer = false;               // receives where the plan's first call did
  std::string refused;                           // not empty: a refusal with this reason
  int64_t noise_ns = 0;                          // added as a sawtooth over calls
  int64_t cold_extra_ns = 0;  // added where timed calls go round over copies of the buffers
  int64_t first_calls = 0;    // of each plan, that take so much longer
  int64_t first_extra_ns = 0;
  int late_rank = -1;  // starts so many of its samples with a planned start so much after it
  int64_t late_samples = 0;
  int64_t late_by_ns = 0;
};

// A backend over the hub that runs any collective, and the parts of programs. `choices` may differ
// between ranks to break its contract.
class BackendForTest final : public Backend {
 public:
  BackendForTest(HubForTest& hub, int rank, std::vector<ScriptedChoice> choices,
                 std::string name = "scripted")
      : hub_(hub), rank_(rank), choices_(std::move(choices)), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  const std::string& version() const override { return version_; }
  ChoiceList ListChoices(const Program& program, const Problem& problem) const override;
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override;
  bool has_parts() const override { return says_it_has_parts; }
  // The reference evaluator runs it, and no time passes.
  Result<std::unique_ptr<Plan>> PreparePart(const PartRequest& request,
                                            int64_t deadline_ns) override;

  bool says_it_has_parts = false;
  // Called by each prepare of a choice, on its thread.
  std::function<void()> on_prepare;
  // On this rank, the parts of programs give the next bits in an element of each output that is
  // replicated by dataflow, or of each that is not.
  int part_ulp_on_rank = -1;
  bool part_ulp_is_in_replicated = true;
  int groups_created = 0;
  int plans_prepared = 0;
  mutable std::atomic<int> lists_made = 0;
  std::set<bool> roundings_of_regions;  // GroupShape::rounds_values of all prepared regions
  int register_fails_on_rank = -1;      // memory with its groups, with this code
  ErrorCode register_error = ErrorCode::kUnsupported;
  uint64_t registered_bytes = 0;       // by its groups now
  std::set<const void*> recv_buffers;  // of all calls

 private:
  friend class GroupForTest;
  HubForTest& hub_;
  int rank_;
  std::vector<ScriptedChoice> choices_;
  std::string name_;
  std::string version_ = "1";
};

// A device's description of itself.
struct DeviceScript {
  std::optional<uint64_t> available_bytes{};
  uint64_t cache_bytes = 0;
  int64_t job_begin_ns = 0;            // JobBeginForTest of its rank
  std::vector<DeviceClocks> clocks{};  // read one after the other, then the last again and again
};

// Host memory; a timed span costs what the script of the plan says (of a program: the scripts of
// its collectives), on a clock of its own, and begins when it is told to.
std::unique_ptr<Device> MakeDeviceForTest(const DeviceScript& script = {});

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_SCRIPTED_RANKS_H_
