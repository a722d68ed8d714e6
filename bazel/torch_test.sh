#!/usr/bin/env bash
# Runs the Python tests it is given with the PyTorch of `./dev setup --torch`; without one it says so, and is not run.
python=${VIRTUAL_ENV:-}/bin/python
if ! "$python" -c 'import torch' 2> /dev/null; then
  echo "skipped: there is no PyTorch here; ./dev setup --torch installs it, and ./dev test finds it"
  exit 0
fi
exec "$python" -B -m unittest -v "$@"
