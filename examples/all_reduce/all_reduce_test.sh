#!/bin/bash
# The example under cotune's own spawning, under the variables of each launcher, and under mpirun where it is installed.
set -eu
folder=$(mktemp -d /tmp/cotune.XXXXXX)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/plugins"
install -m 755 plugins/host/cotune_host.so "$folder/plugins"
export XDG_RUNTIME_DIR=$folder XDG_CACHE_HOME=$folder HOME=$folder COTUNE_PLUGIN_PATH=$folder/plugins
export COTUNE_COLLECTIVE_PRE_SYNC_TIMEOUT=30s
example=$PWD/examples/all_reduce/all_reduce
cotune=$PWD/cli/cotune

expect() {  # expect NAME TEXT: the output of NAME has this line
  grep -qxF "$2" "$folder/$1" || { echo "$1: no line '$2' in:"; cat "$folder/$1"; exit 1; }
}

# launch NAME COMMAND...: four processes, each with the variables that `variables RANK` prints.
launch() {
  local name=$1 rank pids=()
  shift
  for rank in 0 1 2 3; do
    # shellcheck disable=SC2046
    env $(variables $rank) "$@" > "$folder/$name.$rank" 2>&1 &
    pids+=($!)
  done
  for rank in 0 1 2 3; do
    wait "${pids[$rank]}" || { echo "$name: rank $rank gave $?"; cat "$folder/$name.$rank"; exit 1; }
  done
  mv "$folder/$name.0" "$folder/$name"
  expect "$name" "4 ranks, every element is 10"
}

"$cotune" run --ranks 4 -- "$example" > "$folder/spawned" 2> "$folder/spawned.err" || { cat "$folder/spawned.err"; exit 1; }
expect spawned "4 ranks, every element is 10"
expect spawned "not tuned: the default choice of the first backend that can run it"
[ "$(wc -l < "$folder/spawned")" = 3 ] || { echo "other ranks wrote to standard output"; exit 1; }

variables() { echo "OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=prterun-1@1"; }
launch openmpi "$example"
variables() { echo "RANK=$1 WORLD_SIZE=4 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=4 MASTER_PORT=29500"; }
launch torchrun "$example"
variables() { echo "PMI_RANK=$1 PMI_SIZE=4 MPI_LOCALNRANKS=4"; }
launch hydra "$example"
variables() { echo "SLURM_PROCID=$1 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=4 SLURM_JOB_ID=17 SLURM_STEP_ID=0"; }
launch slurm "$example"

"$cotune" tune --ranks 4 --collective all_reduce --sizes 64K,256K --db "$folder/tuned.tdb" > "$folder/table" 2>&1 ||
  { cat "$folder/table"; exit 1; }
"$cotune" run --ranks 4 -- "$example" "$folder/tuned.tdb" > "$folder/tuned" 2> "$folder/tuned.err" ||
  { cat "$folder/tuned.err"; exit 1; }
expect tuned "4 ranks, every element is 10"
grep -q "^tuned for sizes " "$folder/tuned" || { cat "$folder/tuned"; exit 1; }

if command -v mpirun > /dev/null; then
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --oversubscribe -n 4 "$example" "$folder/tuned.tdb" > "$folder/mpirun" 2>&1 || { cat "$folder/mpirun"; exit 1; }
  expect mpirun "4 ranks, every element is 10"
fi
