// Writes the golden layout anew: bazel run //plugins/api:print_layout >
// plugins/api/abi_layout_v1.golden
#include <cstdio>

#include "plugins/api/testing/layout.h"

int main() { return std::fputs(cotune::AbiLayoutText().c_str(), stdout) < 0 ? 1 : 0; }
