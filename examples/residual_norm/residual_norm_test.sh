#!/bin/bash
# The example without a table and with one; every program of examples/programs is read and tuned.
set -eu
folder=$(mktemp -d /tmp/cotune.XXXXXX)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/plugins"
install -m 755 plugins/host/cotune_host.so "$folder/plugins"
export XDG_RUNTIME_DIR=$folder XDG_CACHE_HOME=$folder HOME=$folder COTUNE_PLUGIN_PATH=$folder/plugins
export COTUNE_COLLECTIVE_PRE_SYNC_TIMEOUT=30s
example=$PWD/examples/residual_norm/residual_norm
cotune=$PWD/cli/cotune
programs=$PWD/examples/programs

run() {  # run NAME COMMAND...: its output in a file of that name; it succeeds
  local name=$1
  shift
  "$@" > "$folder/$name" 2> "$folder/$name.err" || { echo "$name gave $?"; cat "$folder/$name" "$folder/$name.err"; exit 1; }
}
expect() {  # expect NAME TEXT: the output of NAME has it
  grep -qF "$2" "$folder/$1" || { echo "$1: no '$2' in:"; cat "$folder/$1"; exit 1; }
}

for unreadable in "$folder/nope.cotune" "$folder"; do
  if "$example" "$unreadable" 2> "$folder/missing"; then echo "$unreadable was read"; exit 1; fi
  expect missing "residual_norm: $unreadable cannot be read: "
done
run untuned "$cotune" run --ranks 2 -- "$example" "$programs/add_residual_norm.cotune"
expect untuned "131072 elements are right"
expect untuned "not tuned: the default choice"
run tune "$cotune" tune --ranks 2 --program "$programs/add_residual_norm.cotune" --rows 4:64:x4 --db "$folder/tuned.tdb"
expect tune ": all_reduce + add + rms_norm"
expect tune "by its all_reduce sum bf16, 2 ranks, host memory, out of place"
run tuned "$cotune" run --ranks 2 -- "$example" "$programs/add_residual_norm.cotune" "$folder/tuned.tdb"
expect tuned "131072 elements are right"
expect tuned "tuned for sizes"
run again "$cotune" tune --ranks 2 --program "$programs/add_residual_norm.cotune" --rows 4:64:x4 --db "$folder/tuned.tdb"
expect again.err "0 measured, 3 known"
run explain "$cotune" explain --ranks 2 --program "$programs/add_residual_norm.cotune" --rows 16 --db "$folder/tuned.tdb"
expect explain "measured at 256K"
[ "$(ls "$programs"/*.cotune | wc -l)" = 7 ] || { echo "programs are missing"; exit 1; }
for program in "$programs"/*.cotune; do
  run check "$cotune" program check "$program"
  expect check "digest"
  run bench "$cotune" bench --ranks 3 --program "$program" --rows 3
done
if "$cotune" program check "$programs/none.cotune" 2> "$folder/none"; then exit 1; fi
expect none "cannot read the program file"
