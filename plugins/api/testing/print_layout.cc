// Writes the golden layout anew: bazel run //plugins/api:print_layout >
// plugins/api/abi_layout_v1.golden; with the argument "draft" that of the drafts.
#include <cstdio>
#include <string>

#include "plugins/api/testing/layout.h"

int main(int argc, char** argv) {
  const bool is_draft = argc > 1 && std::string(argv[1]) == "draft";
  const std::string text = is_draft ? cotune::DraftLayoutText() : cotune::AbiLayoutText();
  return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
}
