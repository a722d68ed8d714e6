#!/usr/bin/env python3
"""Measures the compilation and the first call of compiled models with and without cotune, in a tree that `./dev dist DIR --with-tests` wrote.

See --help. first_run_ranks.py is what runs on the ranks; first_run_table.py judges what was measured, and report.py
writes it into docs/performance.md.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

HERE = pathlib.Path(__file__).resolve().parent

import examples_bench  # noqa: E402  (beside this file)
import first_run_table  # noqa: E402
import machine  # noqa: E402  (examples_bench.py puts its folder into the path)

DESCRIPTION = """Times the compilation and the first call of examples/llama_block.py and of stacks of row-parallel linear layers of
different widths, each in new processes with an empty cache of Inductor and an empty tuned database: without cotune, with it
(cold), with one thread that compiles choices, in immediate and in deferred mode, and again with the database of the cold start.
Needs python3 with torch 2.11 or newer."""
EXIT_CODES = """exit codes: 0 all starts measured, all values right; 1 not; 2 usage; 3 no GPU, or no torch"""
# Forms that start one after the other; the second one takes the database of the first.
UNITS = (("without",), ("cold", "database"), ("one_thread",), ("immediate",), ("deferred",))


def in_turn(run: int) -> list[tuple[str, ...]]:
    """The units of one run. Each run begins with another one, so that a drift of the machine hits all forms alike."""
    first = run % len(UNITS)
    return [*UNITS[first:], *UNITS[:first]]


def arguments_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/torch/first_run.py", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--ranks", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="[cuda if there are as many GPUs as ranks, or else cpu]")
    parser.add_argument("--collectives", default="1,3,16", help="of the stacks, each at most 16; none if empty [%(default)s]")
    parser.add_argument("--without-llama", action="store_true", help="leave out examples/llama_block.py")
    parser.add_argument("--tokens", type=int, default=64, help="[%(default)s]")
    parser.add_argument("--runs", type=int, default=8, help="starts of each form; 8 are the fewest that have a 99 %% interval [%(default)s]")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the JSON that report.py reads")
    parser.add_argument("--library", type=pathlib.Path, default=examples_bench.ROOT / "lib/libcotune.so.0", help=argparse.SUPPRESS)
    parser.add_argument("--package", type=pathlib.Path, default=examples_bench.ROOT / "python", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def start(form: str, model: str, collectives: int, work: str, options: argparse.Namespace) -> dict | None:
    """Starts the ranks once, and returns what rank 0 has measured; None if the ranks have failed."""
    command = [
        sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}",
        str(HERE / "first_run_ranks.py"), "--form", form, "--model", model, "--collectives", str(collectives),
        "--device", options.device, "--tokens", str(options.tokens),
    ]  # fmt: skip
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": f"{work}/inductor_{form}",
        "XDG_CACHE_HOME": f"{work}/cache",
        "CUDA_CACHE_PATH": f"{work}/cuda",
    }
    ranks = subprocess.run(
        command, env=examples_bench.environment(work, options) | caches, stdout=subprocess.PIPE, text=True, check=False
    )
    lines = [line for line in ranks.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[0]) if ranks.returncode == 0 and lines else None


def main(arguments: list[str]) -> int:
    options = arguments_of(arguments)
    if importlib.util.find_spec("torch") is None:
        print(f"first_run.py: this Python ({sys.executable}) has no torch; run it by one that has torch 2.11 or newer", file=sys.stderr)
        return examples_bench.NOT_HERE
    gpus = machine.gpus() if options.device != "cpu" else []
    if options.device is None:
        options.device = "cuda" if len(gpus) >= options.ranks else "cpu"
    if options.device == "cuda" and len(gpus) < options.ranks:
        print(f"first_run.py: {options.ranks} ranks, {len(gpus)} GPUs; each needs one; --device cpu needs none", file=sys.stderr)
        return examples_bench.NOT_HERE
    models = [] if options.without_llama else [("llama_block", 2)]
    models += [("stack", int(each)) for each in options.collectives.split(",") if each]
    run = {
        "date": datetime.date.today().isoformat(), "ranks": options.ranks, "device": options.device, "tokens": options.tokens,
        "gpus": gpus if options.device == "cuda" else [], "processor": machine.processor(), "packages": machine.packages(),
        "starts": [],
    }  # fmt: skip
    has_failed = False
    for number in range(options.runs):
        for model, collectives in models:
            for unit in in_turn(number):
                with tempfile.TemporaryDirectory(prefix="cotune_first_run.") as work:
                    for form in unit:
                        found = start(form, model, collectives, work, options)
                        name = f"{model} {collectives} {form}, run {number}"
                        if found is None:
                            has_failed = True
                            print(f"{name}: the ranks have failed", file=sys.stderr, flush=True)
                            break
                        run["starts"].append({"model": model, "collectives": collectives, "form": form, "run": number} | found)
                        print(f"{name}: {found['s']:.2f} s, tunes {found['tune_s']:.3f} s, {found['cells']} cells", flush=True)
                        # Complete at any time: a benchmark that is ended early has what it measured.
                        options.out.write_text(json.dumps(run, indent=1) + "\n")
    print("\n".join(first_run_table.section(run)))
    return examples_bench.FAILED if has_failed or not run["starts"] else examples_bench.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
