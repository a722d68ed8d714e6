// The settings of a tune as plain data. integration/settings reads it from file, environment and
// flags.
#ifndef COTUNE_CORE_PROBLEM_TUNING_SETTINGS_H_
#define COTUNE_CORE_PROBLEM_TUNING_SETTINGS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/problem/forced_choices.h"
#include "core/problem/problem.h"

namespace cotune {

// Whether the bits of results may depend on what is chosen; docs/decisions/0020-numerics.md.
enum class NumericsRule : uint8_t {
  kAny = 1,
  kSame = 2,  // choices of one numerics class race, and programs round every value to its dtype
};
std::string_view Name(NumericsRule rule);  // "any", "same"

// The kinds of fusion, as bits of a set.
enum class FusionType : uint8_t {
  kEpilogue = 1,       // operations after a collective run inside of it
  kPrologue = 2,       // operations before it do
  kCrossSubgraph = 4,  // several collectives are joined, or one is written as others
};
inline constexpr uint8_t kAllFusionTypes = 7;

// Words and bits of the kinds, in the order of their bits.
inline constexpr std::array<std::pair<std::string_view, FusionType>, 3> kFusionTypeNames{
    {{"epilogue", FusionType::kEpilogue},
     {"prologue", FusionType::kPrologue},
     {"cross_subgraph", FusionType::kCrossSubgraph}}};
// The words of a set of FusionType: "epilogue,prologue"; "none" for the empty set.
std::string FusionTypesText(uint8_t types, std::string_view separator = ",");

// Which forms of programs race beside the one that runs every collective by itself. The rules
// decide which forms are tried; the meaning of a choice's id does not depend on them.
struct FusionRules {
  bool enabled = true;
  uint8_t types = kAllFusionTypes;   // a set of FusionType
  bool benchmarks_epilogues = true;  // false: epilogues are left out, whatever `types` has
  bool is_recursive = true;          // false: a collective absorbs one operation at most
  int32_t max_depth = 4;             // operations that a collective absorbs on one side, at most
  // A fused or rewritten form wins only if the fastest unfused one takes more than this many times
  // as long.
  double speedup_threshold = 1.02;
  // Only choices race that can run while other ranks have other programs around the same
  // collectives. No setting of the user: whoever tunes for such ranks asks for it.
  bool only_agreeable = false;

  bool Takes(FusionType type) const {
    if (!enabled || (type == FusionType::kEpilogue && !benchmarks_epilogues)) return false;
    return (types & static_cast<uint8_t>(type)) != 0;
  }
  int32_t depth_max() const { return is_recursive ? max_depth : 1; }
  // The rules as far as they differ from the defaults, for the measuring mode of a measurement:
  // "off", "epilogue+prologue depth=2", "all threshold=1.1". "" if they decide as the defaults do.
  std::string DifferencesText() const;
  bool operator==(const FusionRules&) const = default;
};

// Equal on all ranks, precompile_threads excepted: a tune compares AgreedValues() before it makes
// anything.
struct TuningSettings {
  // Names of the original design.
  int64_t collective_autotune_timeout_ns =
      30'000'000'000;  // one launch of one choice; past it the choice is dropped
  int32_t collective_benchmark_nruns = 50;  // most rounds of one cell
  int64_t collective_pre_sync_timeout_ns =
      1'000'000'000;                            // window of the pre-sync, from the first arrival
  bool enable_collective_multitemplate = true;  // true: deferred (V2); false: immediate (V1)
  std::vector<uint64_t>
      collective_multi_kernel_hints_bytes;  // sizes for nodes whose size is dynamic
  int32_t precompile_threads = 0;           // 0: the ranks of a host share its processors

  // cotune's own.
  int64_t warm_timeout_ns =
      300'000'000'000;     // every rank has compiled and created its groups by then
  int64_t budget_ns = 0;   // measuring stops when it is used up; 0: none
  int32_t min_rounds = 8;  // of a choice that is not dropped; 8 is the least for a 99 % interval
  double noise_percent = 2.0;  // inside it the backend's default wins
  bool keep_unsteady = false;  // believe times that vary much or were taken on busy processors
  // Choices that were far slower than the winner at the sizes around one do not race at it.
  bool neighbour_pruning = true;
  NumericsRule numerics = NumericsRule::kAny;
  FusionRules fusion{};
  // Calls of these collectives run these choices, whatever was measured.
  ForcedChoices force{};
  // Calls are repeated until one sample takes this long; 0: kDefaultSampleNs.
  int64_t sample_ns = 0;

  // The clock and the start of a sample are exact to about 1 us. Longer samples hold more calls but
  // no fewer interruptions, so that more short ones show as much in the same time.
  static constexpr int64_t kDefaultSampleNs = 200'000;
  int64_t SampleNs() const { return sample_ns > 0 ? sample_ns : kDefaultSampleNs; }

  // Names and values as text, in a fixed order.
  std::vector<std::pair<std::string, std::string>> AgreedValues() const;
};

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_TUNING_SETTINGS_H_
