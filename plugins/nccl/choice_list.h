// Which ways there are to run a problem through NCCL: names, limits and a rough price of each.
#ifndef COTUNE_PLUGINS_NCCL_CHOICE_LIST_H_
#define COTUNE_PLUGINS_NCCL_CHOICE_LIST_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/nccl/nccl_tuner.h"
#include "plugins/nccl/sdk_names.h"

namespace cotune::nccl {

// The features that this NCCL lacks in this process; equal on ranks with the same NCCL and
// environment.
struct MissingFeatures {
  std::string tuner = "";    // why no algorithm can be forced, "" when it can
  std::string windows = "";  // why no buffer can be registered, "" when it can
};

// How a call is made.
struct CallMethod {
  bool uses_windows = false;               // by the communicator that knows the registered buffers
  std::optional<ForcedDecision> decision;  // none: NCCL decides

  bool operator==(const CallMethod&) const = default;
};

struct Choice {
  std::string name;         // "ring?proto=ll128&channels=16"
  std::string reason = "";  // not empty: refused, and why
  double cost_us = -1;
  bool is_default = false;
  std::string numerics = "";  // as in the ABI
  CallMethod method = {};
};

// All choices of the problem in a fixed order, refused ones included; "auto" is the default.
// Numbers of channels that NCCL would cut down to the number before are left out. Pure.
std::vector<Choice> ListChoices(const Problem& problem, const MissingFeatures& missing);

// COTUNE_INVALID_ARGUMENT when the name is not a choice of this problem, COTUNE_UNSUPPORTED with
// the reason when it is refused. Pure.
Result<CallMethod> MethodOf(const Problem& problem, const MissingFeatures& missing,
                            std::string_view choice_name);

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_CHOICE_LIST_H_
