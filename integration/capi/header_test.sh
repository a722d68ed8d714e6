#!/bin/bash
# cotune.h compiles by itself as every standard from C99 to C++20, and beside the plugin ABI's header.
set -eu
header=$PWD/integration/capi/cotune.h
abi=$PWD/plugins/api/cotune_backend_v1.h
flags="-Wall -Wextra -pedantic -Werror -fsyntax-only"
compiled=0
check() {  # check COMPILER LANGUAGE STANDARD
  printf '#include "%s"\n' "$header" | $1 -std="$3" $flags -x "$2" - || { echo "alone: $1 $3"; exit 1; }
  printf '#include "%s"\n#include "%s"\n' "$abi" "$header" | $1 -std="$3" $flags -x "$2" - ||
    { echo "beside the ABI: $1 $3"; exit 1; }
  compiled=$((compiled + 1))
}
for compiler in gcc clang; do
  command -v $compiler > /dev/null || continue
  for standard in c99 c11 c17; do check $compiler c $standard; done
done
for compiler in g++ clang++; do
  command -v $compiler > /dev/null || continue
  for standard in c++14 c++17 c++20; do check $compiler c++ $standard; done
done
[ "$compiled" -ge 6 ] || { echo "only $compiled compilations"; exit 1; }
