#!/usr/bin/env bash
# Runs the Python tests it is given. Bazel 4's own Python rule wants a `python` that Debian does not have.
exec python3 -B -m unittest -v "$@"
