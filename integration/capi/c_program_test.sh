#!/bin/bash
# Runs c_program with a copy of the host plugin: a plugin counts only as a file that nobody else may write.
set -eu
folder=$(mktemp -d /tmp/cotune.XXXXXX)
trap 'rm -rf "$folder"' EXIT
install -m 755 plugins/host/cotune_host.so "$folder"
XDG_RUNTIME_DIR=$folder COTUNE_TEST_PLUGINS=$folder integration/capi/c_program
