// Writes the golden layout anew: bazel run //plugins/api:print_layout >
// plugins/api/abi_layout_v1.golden; with the argument "program" that of cotune.program/1.
#include <cstdio>
#include <string>

#include "plugins/api/testing/layout.h"

int main(int argc, char** argv) {
  const bool is_program = argc > 1 && std::string(argv[1]) == "program";
  const std::string text = is_program ? cotune::ProgramLayoutText() : cotune::AbiLayoutText();
  return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
}
