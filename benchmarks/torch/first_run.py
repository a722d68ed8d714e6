#!/usr/bin/env python3
"""Measures the compilation and the first call of compiled models with and without cotune, in a tree that `./dev dist DIR --with-tests` wrote.

See --help. first_run_ranks.py is what runs on the ranks; first_run_table.py judges what was measured, and report.py
writes it into docs/performance/pytorch.md.
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


def units_of(forms: list[str]) -> list[tuple[str, ...]]:
    """The units of these forms, or all if none is named."""
    known = [form for unit in UNITS for form in unit]
    if unknown := [form for form in forms if form not in known]:
        raise ValueError(f"--forms: there is no {unknown[0]}; known: {', '.join(known)}")
    if "database" in forms and "cold" not in forms:
        raise ValueError("--forms: database starts with what cold has tuned; name cold, too")
    chosen = [tuple(form for form in unit if not forms or form in forms) for unit in UNITS]
    return [unit for unit in chosen if unit]


def in_turn(units: list[tuple[str, ...]], run: int) -> list[tuple[str, ...]]:
    """The units of one run. Each run begins with another one, so that a drift of the machine hits all forms alike."""
    first = run % len(units)
    return [*units[first:], *units[:first]]


def with_earlier(run: dict, out: pathlib.Path) -> dict:
    """The run with the starts of an earlier one in the file, which was on the same kind of machine."""
    earlier = json.loads(out.read_text())
    for name in ("ranks", "device", "tokens", "gpus", "processor", "packages"):
        if earlier[name] != run[name]:
            raise ValueError(f"--go-on: {out} has {name} {earlier[name]}, and this run {run[name]}; write another file")
    return run | {"starts": earlier["starts"]}


def arguments_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/torch/first_run.py", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--ranks", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="[cuda if there are as many GPUs as ranks, or else cpu]")
    parser.add_argument("--collectives", default="1,3,16", help="of the stacks, each at most 16; none if empty [%(default)s]")
    parser.add_argument("--without-llama", action="store_true", help="leave out examples/llama_block.py")
    parser.add_argument("--tokens", type=int, default=64, help="[%(default)s]")
    parser.add_argument("--runs", type=int, default=8, help="starts of each form; 8 are the fewest that have a 99 %% interval [%(default)s]")
    parser.add_argument("--forms", default="", help="only these, separated by commas; database follows cold [all]")
    parser.add_argument("--go-on", action="store_true", help="add the runs to those that --out has, of the same kind of machine")
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
        # Inductor otherwise starts a Python that imports torch for each set of vector instructions, once for each empty cache:
        # up to 20 s each on a machine whose disk is slow, which hides what the forms differ by.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
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
    try:
        units = units_of([each for each in options.forms.split(",") if each])
        run = with_earlier(run, options.out) if options.go_on else run
    except (OSError, ValueError) as error:
        print(f"first_run.py: {error}", file=sys.stderr)
        return examples_bench.USAGE
    has_failed = False
    first = 1 + max((each["run"] for each in run["starts"]), default=-1)
    for number in range(first, first + options.runs):
        for model, collectives in models:
            for unit in in_turn(units, number):
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
