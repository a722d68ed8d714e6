// Runs the schedules of all ranks in one thread, in a random order, on plain arrays, and looks for
// accesses to slots that no wait has put in order.
#ifndef COTUNE_PLUGINS_HOST_TESTING_SCHEDULE_SIMULATION_H_
#define COTUNE_PLUGINS_HOST_TESTING_SCHEDULE_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "plugins/host/schedule.h"

namespace cotune::host {

// One collective of the simulated job: the schedule of every rank.
struct SimulatedCollective {
  std::string name;
  std::vector<Schedule> schedules = {};
  bool in_place = false;
};

// All ranks run the same list of collectives, each at its own pace, on one set of slots that is
// reused from one collective to the next as a real group does. Keeps, for every byte of the slots,
// which accesses of which rank are known to which others (vector clocks): an access that is not
// ordered after a conflicting one is a race, in whatever order the simulation happened to run them.
class ScheduleSimulation {
 public:
  ScheduleSimulation(int world_size, uint64_t slot_bytes, uint64_t seed);

  // Empty when every rank finished with the expected values and without a race; else what and
  // where.
  std::string Run(const std::vector<SimulatedCollective>& collectives);

 private:
  using Clock = std::vector<uint32_t>;

  // The rank that wrote a byte last plus one, 0 while nobody has, and its clock at that moment.
  struct LastWrite {
    uint32_t writer;
    uint32_t written;
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  // Zeros that take no time to make: a simulation uses few of them, and there is one for each seed.
  template <typename T>
  using Zeros = std::unique_ptr<T[], Free>;

  // Whose a tagged line is: the iteration, and the clock of its writer.
  struct LineTag {
    uint64_t iteration = UINT64_MAX;
    Clock clock;
  };

  struct Rank {
    size_t collective = 0;
    uint64_t iteration = 0;  // of the collective
    size_t op = 0;
    uint32_t group_iteration = 0;
    uint32_t arrivals = 0;
    uint64_t progress = 0;  // group iteration * 256 + step, without wrap-around
    Clock clock;
    Clock published;             // the clock when the progress was stored
    std::vector<uint64_t> seen;  // progress of the others that lines have told
    std::vector<std::byte> staging;
    std::vector<std::vector<std::byte>> inputs;  // by collective
    std::vector<std::vector<std::byte>> outputs;
  };

  void Prepare(const std::vector<SimulatedCollective>& collectives);
  bool IsDone(const Rank& rank) const { return rank.collective == collectives_->size(); }
  const Schedule& ScheduleOf(size_t collective, int rank) const;
  // False when the rank has to wait.
  bool Step(int rank);
  bool ExecuteSync(const Op& op, int rank);
  // False when some rank's progress is less than `needed`.
  bool JoinAll(Rank& rank, uint64_t needed);
  void ExecuteData(const Schedule& schedule, const Op& op, int rank);
  void PutLines(const Schedule& schedule, const Op& op, int rank);
  // False when they have not come.
  bool TakeLines(const Schedule& schedule, const Op& op, int rank);
  std::span<LineTag> TagsOf(const Schedule& schedule, const Place& lines, int rank);
  void EndIteration(int rank);
  void Publish(Rank& rank, uint64_t progress);
  std::byte* Locate(const Schedule& schedule, const Place& place, const Op& op, int rank);
  // Also notes a race when that rank is not inside the same collective.
  std::byte* LocatePeerInput(const Schedule& schedule, const Place& place, const Op& op, int rank);
  void NoteAccess(const std::byte* at, uint64_t bytes, int rank, bool writes);
  std::string CompareOutputs() const;

  int world_size_;
  uint64_t slot_bytes_;
  uint64_t stride_bytes_;  // a slot and the payload of the lines
  std::mt19937_64 random_;
  const std::vector<SimulatedCollective>* collectives_ = nullptr;
  std::vector<Rank> ranks_;
  std::vector<std::byte> slots_;
  Zeros<LastWrite> last_writes_;  // by byte of slots_
  // When each rank read a byte last; [byte * world_size_ + rank], because a vector for each byte is
  // most of what an instrumented run does.
  Zeros<uint32_t> last_reads_;
  std::vector<LineTag> tags_;
  uint32_t total_arrivals_ = 0;
  Clock arrived_clock_;
  std::string race_;
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_TESTING_SCHEDULE_SIMULATION_H_
