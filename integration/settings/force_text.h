// The text of the setting force_choice, split by who reads its elements.
#ifndef COTUNE_INTEGRATION_SETTINGS_FORCE_TEXT_H_
#define COTUNE_INTEGRATION_SETTINGS_FORCE_TEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace cotune {

// "lib::op=python/ring" names a custom operator of PyTorch. cotune.torch alone reads such elements,
// and programs without PyTorch share the settings file and the variable with it.
struct ForceText {
  std::string collectives;  // the elements that name collectives, as ForcedChoices reads them
  std::vector<std::pair<std::string, std::string>> operators;  // name and choice, sorted by name

  // "lib::op=python/ring,lib::other=body"
  std::string OperatorsText() const;
};

// "" is an empty list. kUsage: an element is empty, an operator has no choice or stands twice, or
// its name has nothing on one side of "::", or a blank; the error names the element. Elements that
// name collectives are not read here.
Result<ForceText> SplitForce(std::string_view text);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_SETTINGS_FORCE_TEXT_H_
