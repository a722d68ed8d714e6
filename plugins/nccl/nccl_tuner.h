// How one call gets the algorithm, protocol and channels that were chosen for it: NCCL asks its
// tuner plugin about every collective as it is enqueued, on the thread that enqueues it, and the
// tuner plugin is this library.
#ifndef COTUNE_PLUGINS_NCCL_NCCL_TUNER_H_
#define COTUNE_PLUGINS_NCCL_NCCL_TUNER_H_

#include <cstdint>
#include <optional>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/nccl/nccl_abi.h"

namespace cotune::nccl {

// The decision that a call forces on NCCL.
struct ForcedDecision {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  int channels = 0;  // 0: as many as NCCL takes

  bool operator==(const ForcedDecision&) const = default;
};

// The cells of the cost table as bits, algorithm * kTunerProtocols + protocol.
using AllowedDecisions = uint32_t;

constexpr AllowedDecisions DecisionBit(Algorithm algorithm, Protocol protocol) {
  return AllowedDecisions{1} << (static_cast<int>(algorithm) * kTunerProtocols +
                                 static_cast<int>(protocol));
}

// Answers what NCCL asks of its tuner while this object lives, on the thread that made it. Without
// one the tuner leaves every decision to NCCL, so that communicators of others are not touched.
class TunerScope {
 public:
  // No decision: NCCL's own among tree and ring; the rest needs multicast, or a network.
  explicit TunerScope(const std::optional<ForcedDecision>& decision);
  ~TunerScope();
  TunerScope(const TunerScope&) = delete;
  TunerScope& operator=(const TunerScope&) = delete;

  // NCCL asked at all. It does not for its symmetric kernels, sends and receives, or empty calls.
  bool was_asked() const { return was_asked_; }
  // The decision was among those that NCCL allows, and was taken.
  bool was_followed() const { return was_followed_; }
  // The decisions that NCCL allowed when it asked last.
  AllowedDecisions allowed() const { return allowed_; }

  // Fills in NCCL's table as the tuner interface says. Never fails: NCCL would fail the collective.
  void Decide(float* cost_table, int algorithms, int protocols, int* channels);

 private:
  const std::optional<ForcedDecision> decision_;
  TunerScope* const outer_;
  bool was_asked_ = false;
  bool was_followed_ = false;
  AllowedDecisions allowed_ = 0;
};

// File of the library that holds the tuner: what NCCL_TUNER_PLUGIN has to name.
const char* TunerLibraryPath();

}  // namespace cotune::nccl

// NCCL looks these symbols up in the library, best first; the names are NCCL's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
COTUNE_EXPORT extern const cotune::nccl::TunerV5 ncclTunerPlugin_v5;
COTUNE_EXPORT extern const cotune::nccl::TunerV4 ncclTunerPlugin_v4;
COTUNE_EXPORT extern const cotune::nccl::TunerV3 ncclTunerPlugin_v3;
}
// NOLINTEND(readability-identifier-naming)

#endif  // COTUNE_PLUGINS_NCCL_NCCL_TUNER_H_
