"""Measures parts of programs beside torch.compile's kernels for the same operations, in one process on one GPU.

Each is a CUDA graph of calls back to back on the same operands, and they take turns: a time is the median over rounds of
the time of a replay by its calls. torch's is the faster of two modes. The values of each are compared with torch in f32
first. A part overwrites what it overwrites in a job (often the collective's value), so that a residual grows from call
to call; torch's results lie in memory of their own."""

import argparse
import dataclasses
import datetime
import functools
import json
import pathlib
import re
import statistics
import sys

import part_library
import part_platforms
import part_report
import part_workloads

CALLS = 20
ROUNDS = 15
WARM_ROUNDS = 2
# Collectives that need equal shares of the rows.
SHARES = re.compile("reduce_scatter|all_gather|all_to_all")
ROWS = (1, 4, 16, 64, 256, 1024, 2048)
COLUMNS = (8192, 5120, 2880)


@dataclasses.dataclass
class Operands:
    """Of one part: memory for each input and output, by their order, and by name what a user's function takes."""

    inputs: list
    outputs: list
    by_name: dict
    output_names: list[str]
    bytes: int  # read and written


def value_bytes(value: part_library.Value) -> int:
    sizes = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2}
    return value.rows * value.columns * sizes.get(value.dtype, 1)


def operands_of(platform, parts: part_library.Parts, names: part_workloads.Names, part: int) -> Operands:
    slots = parts.collective_slots()
    inputs, by_name = [], {}
    for i, value in enumerate(parts.inputs(part)):
        inputs.append(platform.make(value, seed=i + 1))
        by_name[names.of_input(value.slot, slots)] = inputs[-1]
    outputs, output_names = [], []
    for i, value in enumerate(parts.outputs(part)):
        outputs.append(inputs[value.into] if value.into >= 0 else platform.make(value, seed=100 + i))
        output_names.append(names.of_output(value.slot))
    moved = sum(map(value_bytes, parts.inputs(part))) + sum(map(value_bytes, parts.outputs(part)))
    return Operands(inputs, outputs, by_name, output_names, moved)


def caller(platform, parts: part_library.Parts, part: int, operands: Operands):
    inputs = [platform.address(each) for each in operands.inputs]
    outputs = [platform.address(each) for each in operands.outputs]
    return lambda: parts.launch(part, inputs, outputs, platform.stream_handle())


def wrong_elements(platform, reference, operands: Operands, call) -> int:
    """After one call; the inputs are as before. What the call returns stands for the outputs of its names."""
    saved = [platform.clone(each) for each in operands.inputs]
    expected = reference(getattr(platform, "torch", None), operands.by_name)
    returned = platform.run(call) or {}
    wrong = sum(platform.errors(expected[name], returned.get(name, seen))
                for name, seen in zip(operands.output_names, operands.outputs, strict=True))
    for each, before in zip(operands.inputs, saved, strict=True):
        platform.restore(each, before)
    return wrong


def take_turns(platform, graphs: dict, rounds: int, calls: int = CALLS) -> dict[str, list[float]]:
    """Of each graph, of so many calls, the time of one call in each round."""
    times = {name: [] for name in graphs}
    order = list(graphs)
    for i in range(WARM_ROUNDS + rounds):
        # None is always the first, nor always behind the same other one, whose operands are in the cache.
        order.append(order.pop(0))
        for name in order if i % 2 else order[::-1]:
            time_us = platform.time_us(graphs[name]) / calls
            if i >= WARM_ROUNDS:
                times[name].append(round(time_us, 3))
    return times


def measure(platform, options, workload, text: str, rows: int) -> list[dict]:
    """A result for each part of the program."""
    results = []
    names = part_workloads.names_of(text)
    with part_library.Parts(options.library, options.plugin, text, rows, options.ranks, platform.memory) as parts:
        for part in range(parts.count):
            operands = operands_of(platform, parts, names, part)
            compiled = {mode: functools.partial(function, operands.by_name)
                        for mode, function in platform.compiled(workload.user).items()}
            contenders = {"cotune": caller(platform, parts, part, operands), **compiled}
            wrong = {name: wrong_elements(platform, workload.reference_of(name in compiled), operands, call)
                     for name, call in contenders.items()}
            contenders["copy"] = platform.copy(operands.bytes)
            graphs = {name: platform.capture(call, CALLS) for name, call in contenders.items()}
            us = take_turns(platform, graphs, options.rounds)
            mode = min(compiled, key=lambda name: statistics.median(us[name]))
            results.append({"program": workload.example, "part": part,
                            "rows": max(value.rows for value in parts.outputs(part)),
                            "columns": max(value.columns for value in parts.outputs(part)),
                            "bytes": operands.bytes, "wrong": wrong["cotune"],
                            "compiled_wrong": max(wrong[name] for name in compiled), "compiled_mode": mode,
                            "us": {"cotune": us["cotune"], "compiled": us[mode], "copy": us["copy"]}})
    return results


def line(result: dict) -> str:
    us = part_report.medians(result)
    note = f"  {result['wrong']} elements are wrong" if result["wrong"] else ""
    if result["compiled_wrong"]:
        note += f"  {result['compiled_wrong']} elements of torch are wrong"
    return (f"{result['program']:<20} {result['rows']:>5} {result['columns']:>7} "
            f"{us['cotune']:>9.2f} {us['compiled']:>9.2f} "
            f"{us['cotune'] / us['compiled']:>6.2f} {part_report.spread_percent(result):>8.1f} {us['copy']:>8.2f} "
            f"{result['bytes'] / us['cotune'] / 1e3:>7.0f}{note}")


HEADING = (f"{'program':<20} {'rows':>5} {'columns':>7} {'cotune us':>9} {'torch us':>9} {'ratio':>6} {'spread %':>8} "
           f"{'copy us':>8} {'GB/s':>7}")


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def positives(text: str) -> list[int]:
    return [positive(each) for each in text.split(",")]


def parse(arguments: list[str]) -> argparse.Namespace:
    here = pathlib.Path(__file__).resolve().parent
    root = here.parent.parent
    parser = argparse.ArgumentParser(prog="benchmarks/gpu/parts", description=__doc__)
    parser.add_argument("--programs", default=",".join(each.example for each in part_workloads.PART_WORKLOADS))
    parser.add_argument("--rows", type=positives, default=",".join(map(str, ROWS)), help="rows of a part [%(default)s]")
    parser.add_argument("--columns", type=positives, default=",".join(map(str, COLUMNS)), help="widths [%(default)s]")
    parser.add_argument("--rounds", type=positive, default=ROUNDS)
    parser.add_argument("--ranks", type=positive, default=2, help="ranks of the programs: a share of rows is R / ranks")
    parser.add_argument("--library", default=str(here / "libparts.so"))
    parser.add_argument("--plugin", default=str(root / "lib/cotune/plugins/cotune_cuda.so"))
    parser.add_argument("--examples", default=str(root / "examples/programs"))
    parser.add_argument("--out", type=pathlib.Path, help="JSON, written anew after each result")
    options = parser.parse_args(arguments)
    known = {each.example: each for each in part_workloads.PART_WORKLOADS}
    unknown = [name for name in options.programs.split(",") if name not in known]
    if unknown:
        parser.error(f"unknown program {', '.join(unknown)}; known are {', '.join(known)}")
    options.workloads = [known[name] for name in options.programs.split(",")]
    return options


def rows_of_program(workload, example: str, rows: int, ranks: int) -> int:
    """R, so that the part has so many rows; more where the ranks' shares have to be equal."""
    if workload.has_share:
        return rows * ranks
    return -(-rows // ranks) * ranks if SHARES.search(example) else rows


def run(platform, options) -> int:
    content = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **platform.about(),
               "calls": CALLS, "results": []}
    print(HEADING)
    for workload in options.workloads:
        example = workload.source(pathlib.Path(options.examples))
        for columns in options.columns if workload.has_rows else options.columns[:1]:
            wanted = options.rows if workload.has_rows else [1]
            for rows in dict.fromkeys(rows_of_program(workload, example, each, options.ranks) for each in wanted):
                results = measure(platform, options, workload, workload.text(example, columns), rows)
                for result in results:
                    print(line(result), flush=True)
                content["results"] += results
                if options.out:
                    options.out.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return 1 if any(result["wrong"] or result["compiled_wrong"] for result in content["results"]) else 0


def main(arguments: list[str], platform=part_platforms.Gpu) -> int:
    options = parse(arguments)
    try:
        return run(platform(), options)
    except (RuntimeError, OSError, ImportError) as failure:  # RuntimeError: of torch, and part_library.Failed
        print(f"error: {failure}", file=sys.stderr)
        return 3
