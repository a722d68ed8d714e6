#!/usr/bin/env bash
# Bazel 4's own Python rule wants a `python` that Debian does not have.
exec python3 -B -m unittest -v tests/layering/layering_test.py
