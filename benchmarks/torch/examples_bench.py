"""The command benchmarks/torch/run: the PyTorch examples on the ranks of this machine, and its JSON."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import machine  # noqa: E402
import never_slower  # noqa: E402  (beside this file)

DONE, FAILED, USAGE, NOT_HERE = 0, 1, 2, 3
DESCRIPTION = """Times examples/tp_linear.py and examples/llama_block.py, eagerly, by torch.compile, and by torch.compile with
cotune (which tunes first), for 1 to 64 tokens, on CUDA also as CUDA graphs; and what an operator costs beside the bare C
call. Needs python3 with torch 2.11 or newer."""
EXIT_CODES = """exit codes: 0 all measured, all values right, and with --never-slower no model slower than by torch.compile; 1 not; 2 usage;
3 no GPU, or no torch"""


def environment(work: str, options: argparse.Namespace) -> dict[str, str]:
    return os.environ | {
        "COTUNE_LIBRARY": str(options.library.absolute()),
        "COTUNE_DATABASE": f"{work}/tuned.tdb",
        "PYTHONPATH": str(options.package.absolute()),
        "TORCHINDUCTOR_CACHE_DIR": f"{work}/inductor",
        "OMP_NUM_THREADS": "1",
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/torch/run", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tokens", default="1,2,4,8,16,32,64", help="[%(default)s]")
    parser.add_argument("--width", type=int, help="of the models [8192 on CUDA, 1024 on the CPU]")
    parser.add_argument("--rounds", type=int, default=15, help="[%(default)s]")
    parser.add_argument("--runs", type=int, default=1, help="each in new processes, with a new database [%(default)s]")
    parser.add_argument("--never-slower", action="store_true", help="fail if a model is slower with cotune, by its 99 %% interval")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the JSON that report.py reads")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "lib/libcotune.so.0", help=argparse.SUPPRESS)
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / "python", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("torch") is None:
        print(f"benchmarks/torch/run: this Python ({sys.executable}) has no torch; run it by one that has torch 2.11 or newer", file=sys.stderr)
        return NOT_HERE
    gpus = machine.gpus() if options.device == "cuda" else []
    if options.device == "cuda" and len(gpus) < options.ranks:
        print(f"benchmarks/torch/run: {options.ranks} ranks, {len(gpus)} GPUs; each needs one; --device cpu needs none", file=sys.stderr)
        return NOT_HERE
    width = options.width or (8192 if options.device == "cuda" else 1024)
    command = [
        sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}",
        str(HERE / "example_ranks.py"), "--device", options.device, "--tokens", options.tokens, "--width", str(width),
        "--rounds", str(options.rounds),
    ]  # fmt: skip
    run = {
        "date": datetime.date.today().isoformat(), "ranks": options.ranks, "device": options.device, "width": width,
        "gpus": gpus, "processor": machine.processor(), "packages": machine.packages(), "cells": [],
    }  # fmt: skip
    exit_codes = [_run(number, command, options, run) for number in range(options.runs)]
    found = never_slower.judged(run["cells"])
    for each in found:
        print(each, flush=True)
    is_slower = options.never_slower and (not found or any(each.is_slower for each in found))
    return FAILED if any(exit_codes) or not run["cells"] or is_slower else DONE


def _run(number: int, command: list[str], options: argparse.Namespace, run: dict) -> int:
    """Adds the cells of one run to `run`. Returns the exit code of the ranks."""
    with tempfile.TemporaryDirectory(prefix="cotune_torch.") as work:
        ranks = subprocess.Popen(command, env=environment(work, options), stdout=subprocess.PIPE, text=True)
        for line in ranks.stdout:
            if not line.startswith("{"):
                continue
            cell = json.loads(line) | {"run": number}
            run["cells"].append(cell)
            print(f"{cell['model']} {cell['tokens']} {cell['way']}: {statistics.median(cell['us']):.1f} us", flush=True)
            # Complete at any time: a run that is ended before has what it measured.
            options.out.write_text(json.dumps(run, indent=1) + "\n")
        return ranks.wait()
