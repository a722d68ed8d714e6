// The choices that a user forces: each collective with the choice that runs its calls.
#ifndef COTUNE_CORE_PROBLEM_FORCED_CHOICES_H_
#define COTUNE_CORE_PROBLEM_FORCED_CHOICES_H_

#include <map>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/problem/problem.h"

namespace cotune {

class ForcedChoices {
 public:
  // Reads "all_reduce=nccl/auto,all_gather=host/ring?chunk=65536"; "" forces nothing. kUsage: the
  // error names the element that is wrong; whether a backend has the choices is not known here.
  static Result<ForcedChoices> Parse(std::string_view text);

  // Returns the forced choice of the collective; nullptr if there is none.
  const ChoiceId* Find(Collective collective) const;
  bool empty() const { return choices_.empty(); }
  const std::map<Collective, ChoiceId>& choices() const { return choices_; }
  // Parse reads it back. Equal lists have equal texts, whatever the order of their elements was.
  std::string text() const;
  bool operator==(const ForcedChoices&) const = default;

 private:
  std::map<Collective, ChoiceId> choices_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_FORCED_CHOICES_H_
