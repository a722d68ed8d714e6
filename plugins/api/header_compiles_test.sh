#!/usr/bin/env bash
# The headers compile in every language version that it promises, without a warning, with gcc and (where it is) clang.
set -u
header_dir=plugins/api
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/headerXXXXXX")
trap 'rm -rf "$work"' EXIT
cat > "$work/use.c" << 'SOURCE'
#include "cotune_backend_v1.h"
static cotune_status_t list(const cotune_backend_t* backend, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity, uint32_t* count,
                            cotune_error_t* error) {
  (void)backend; (void)first; (void)stride; (void)capacity; (void)error;
  *count = COTUNE_HAS_FIELD(cotune_problem_t, problem, topology_digest) ? 1u : 0u;
  return COTUNE_OK;
}
COTUNE_EXPORT const cotune_backend_api_t* cotune_backend_query_v1(uint32_t host_abi_minor, cotune_error_t* refusal);
const cotune_backend_api_t* cotune_backend_query_v1(uint32_t host_abi_minor, cotune_error_t* refusal) {
  static cotune_backend_api_t api;
  cotune_backend_query_fn query = &cotune_backend_query_v1;
  (void)host_abi_minor; (void)refusal;
  api.struct_size = (uint32_t)sizeof(api);
  api.list_choices = list;
  return query != 0 ? &api : 0;
}
SOURCE
compiled=0
failed=0
try() {
  local compiler=$1 language=$2 standard=$3
  command -v "$compiler" > /dev/null || return 0
  compiled=$((compiled + 1))
  "$compiler" -x "$language" "-std=$standard" -Wall -Wextra -Wpadded -pedantic -Werror "-I$header_dir" \
    -c "$work/use.c" -o "$work/use.o" &&
    echo '#include "cotune_program_v1.h"
      int plans(const cotune_program_v1_t* programs); int plans(const cotune_program_v1_t* programs) { return programs->launch != 0; }' |
      "$compiler" -x "$language" "-std=$standard" -Wall -Wextra -Wpadded -pedantic -Werror "-I$header_dir" -c - -o "$work/program.o" || { echo "FAILED: $compiler -std=$standard"; failed=1; }
}
for standard in c99 c11 c17; do
  for compiler in gcc clang clang-14; do try "$compiler" c "$standard"; done
done
for standard in c++14 c++17 c++20; do
  for compiler in g++ clang++ clang++-14; do try "$compiler" c++ "$standard"; done
done
includes=$(grep -c '^ *# *include' "$header_dir/cotune_backend_v1.h")
[[ $includes -eq 2 ]] || { echo "FAILED: the header includes more than stddef.h and stdint.h"; failed=1; }
echo "$compiled compilations"
[[ $compiled -ge 6 && $failed -eq 0 ]]
