// What happens in one simulated tune: it follows from a seed.
#ifndef COTUNE_TESTS_SIMULATED_TUNE_SCHEDULE_H_
#define COTUNE_TESTS_SIMULATED_TUNE_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/problem/program.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/rank_exchange.h"
#include "core/selection/measured_winners.h"
#include "sync/simulated/simulated_job.h"
#include "tests/simulated/simulated_backend.h"

namespace cotune {

// How one rank is given something else than the others.
enum class Difference : uint8_t {
  kNone,
  kProgram,    // another program in a node
  kSizes,      // other rows
  kExtraNode,  // a node that the others do not have, behind all
  kSetting,
  kMode,    // nodes one by one instead of together
  kField,   // another value of a field that must be equal
  kChoice,  // a backend lists another choice
  kFusion,  // other rules of fusion
  kBase,    // another table in force, which nothing compares: this rank votes no
};
inline constexpr int kDifferences = static_cast<int>(Difference::kBase) + 1;
std::string_view Name(Difference difference);

// Of the backends of a tune, in order.
inline constexpr const char* kBackendNames[] = {"alpha", "beta"};

struct TuneNode {
  Program program;
  std::vector<uint64_t> sizes_bytes;
};

// All that one rank is given.
struct TuneOfRank {
  TuningSettings settings;
  AgreedFields fields;
  std::vector<TuneNode> nodes;
  std::vector<std::vector<SimulatedChoice>> backends;
  MeasuredWinners base;
};

struct TuneSchedule {
  uint64_t seed = 0;
  sync::SimulatedJobOptions job;
  // Counted from the moment at which rank 0 proposes its first table.
  std::vector<sync::SimulatedFault> faults_at_agreement;
  bool aligns_ranks = false;  // the devices do
  bool has_jitter = false;    // the calls of choices do
  uint64_t cache_bytes = 0;   // of the devices; 0: calls find nothing in a cache
  TuneOfRank usual;

  Difference difference = Difference::kNone;
  int odd_rank = 0;
  size_t odd_node = 0;  // of a difference in one, from 0
  TuneOfRank odd;       // what that rank is given

  int late_rank = -1;  // -1: none
  size_t late_pass = 0;
  int64_t late_ns = 0;

  const TuneOfRank& Of(int rank) const {
    return difference != Difference::kNone && rank == odd_rank ? odd : usual;
  }
  // Whether devices measure what the scripts of the choices say.
  bool is_exact() const { return aligns_ranks && !has_jitter && !has_faults(); }
  bool has_faults() const { return !job.faults.empty() || !faults_at_agreement.empty(); }
  // The time in which a rank is late, or is not by far.
  bool is_late() const { return late_ns > usual.settings.collective_pre_sync_timeout_ns; }
};

TuneSchedule MakeTuneSchedule(uint64_t seed);

}  // namespace cotune

#endif  // COTUNE_TESTS_SIMULATED_TUNE_SCHEDULE_H_
