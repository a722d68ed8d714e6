#!/usr/bin/env bash
# Runs //bazel:parallel_main_sample as its three processes, and breaks one of them in several ways.
set -u
export COTUNE_TEST_PROCESSES=3 TEST_TMPDIR="${TEST_TMPDIR:-/tmp}"
sample=bazel/parallel_main_sample
failures=0

expect() { # NAME STATUS PATTERN COUNT: so many lines of what the sample prints match
  local name=$1 status=$2 pattern=$3 count=$4 output actual
  output=$(BREAK="$name" "$sample" 2>&1)
  actual=$?
  if [[ $actual -ne $status || $(grep -cE "$pattern" <<< "$output") -ne $count ]]; then
    printf 'FAILED %s: status %s\n%s\n' "$name" "$actual" "$output"
    failures=$((failures + 1))
  fi
}

expect nothing 0 '\[       OK \] Sample\.(A|B|C)' 3
expect expectation 1 '^part 1 of the test failed' 1
expect signal 1 '^part 1 of the test failed' 1
expect early_exit 1 'failed: status 0, it ended in the middle of a case' 1
expect expectation 1 '\[       OK \] Sample\.(A|C)' 2

# A test that hangs shows its output when the time is up.
exec 3< <(BREAK=hang exec "$sample" 2>&1; )
hanging=$!
while ! { [[ -n "$(pgrep -P "$hanging")" ]] && [[ -e "$TEST_TMPDIR/hangs" ]]; }; do read -rt 0.1 <> <(:) || true; done
kill -TERM "$hanging"
grep -q 'RUN .* Sample.B' <&3 || { echo "FAILED hang: the log lacks the case that hangs"; failures=$((failures + 1)); }
exit $((failures > 0))
