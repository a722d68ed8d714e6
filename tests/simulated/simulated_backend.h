// A backend and a device of one simulated rank: choices really move data, by way of meetings of the
// ranks, and take the time that their scripts say.
#ifndef COTUNE_TESTS_SIMULATED_SIMULATED_BACKEND_H_
#define COTUNE_TESTS_SIMULATED_SIMULATED_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/device.h"
#include "tests/simulated/simulated_ranks.h"

namespace cotune {

// How a choice breaks, on one rank.
enum class Defect : uint8_t {
  kNone,
  kRefused,     // it cannot be prepared
  kFails,       // its launches do, and those of its peers with them
  kFailsAlone,  // its launches do, at their end
  kHangs,       // that rank never comes to its launches
  kWrong,       // one element
};
inline constexpr int kDefects = static_cast<int>(Defect::kWrong) + 1;
std::string_view Name(Defect defect);

// One choice, as all ranks know it.
struct SimulatedChoice {
  std::string name;
  bool is_default = false;
  bool prepare_is_collective = false;
  int64_t prepare_ns = 0;
  int64_t base_ns = 0;  // of a call
  int64_t ns_per_byte = 0;
  int jitter_percent = 0;  // by which a call may take longer, on each rank for itself
  // It runs regions with so many local operations; 0: collectives alone. They take fused_base_ns
  // instead of base_ns, and operation_ns for each of these operations.
  size_t operations_max = 0;
  int64_t fused_base_ns = 0;
  int64_t operation_ns = 0;
  Defect defect = Defect::kNone;
  int defect_rank = 0;
  int right_calls = 0;                          // before the defect shows
  std::optional<Collective> defect_collective;  // nullopt: any
  std::optional<bool> defect_in_regions;        // nullopt: in regions and in collectives alone

  bool IsDefectiveFor(Collective collective, bool is_region) const {
    return defect != Defect::kNone && defect_collective.value_or(collective) == collective &&
           defect_in_regions.value_or(is_region) == is_region;
  }
};

// Runs collectives, alone and in regions. `seed` is that of the jitter.
class SimulatedBackend final : public Backend {
 public:
  SimulatedBackend(SimulatedRank& rank, std::string name, std::vector<SimulatedChoice> choices,
                   uint64_t seed)
      : rank_(rank), name_(std::move(name)), choices_(std::move(choices)), random_(seed) {}
  const std::string& name() const override { return name_; }
  const std::string& version() const override { return version_; }
  ChoiceList ListChoices(const Program& program, const Problem& problem) const override;
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override;

  SimulatedRank& rank() { return rank_; }
  const std::vector<SimulatedChoice>& choices() const { return choices_; }
  uint64_t NextRandom() { return random_(); }
  // How often this was launched before, by the plans of all groups.
  int CountLaunch(const std::string& launch) { return launches_[launch]++; }

 private:
  SimulatedRank& rank_;
  const std::string name_;
  const std::string version_ = "1";
  const std::vector<SimulatedChoice> choices_;
  std::mt19937_64 random_;
  std::map<std::string, int> launches_;
};

// Host memory. One that aligns the ranks counts only the time that its own calls take; another one
// also that in which they wait for those of other ranks.
std::unique_ptr<Device> MakeSimulatedDevice(SimulatedRank& rank, bool aligns_ranks,
                                            uint64_t cache_bytes);

}  // namespace cotune

#endif  // COTUNE_TESTS_SIMULATED_SIMULATED_BACKEND_H_
