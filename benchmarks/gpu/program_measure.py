"""One rank: measures a program at every number of rows, in all the ways it can be run, and writes a line for each.

Started by `programs`, one process a GPU. The ways take turns, each a CUDA graph of several calls behind a barrier of the
ranks on their GPUs: a time is that of a replay by its calls. `programs` takes the largest over ranks of each replay. Before,
a graph of one call of each that computes the whole program runs on operands of a known content, and its outputs are
compared with f32."""

import argparse
import functools
import json
import os
import pathlib
import statistics
import sys
import traceback

import cotune_library
import part_bench
import part_library
import part_workloads
import program_cases
import program_contenders
import program_platforms

MODE_ROUNDS = 7


class Libraries:
    """What lives as long as the process."""

    def __init__(self, platform, options, slab_bytes: int):
        self.platform = platform
        memory = cotune_library.MEMORY_CUDA if platform.is_cuda else cotune_library.MEMORY_HOST
        self.group = cotune_library.Group(options.library, memory, options.plugins)
        self.group.load(options.database)
        self.slabs = []
        if not platform.is_cuda:
            return
        import nccl_library

        self.group.set_stream(platform.stream_handle())
        self.communicator = nccl_library.Communicator(platform.rank, platform.ranks, platform.share_bytes)
        addresses = [self.group.allocate(slab_bytes), *(self.communicator.symmetric_memory(slab_bytes) for _ in range(2))]
        self.registered, *self.windows = (program_contenders.Slab(platform, each, slab_bytes) for each in addresses)
        self.symm_mem = program_contenders.SymmMemMemory(platform)
        self.slabs = [self.registered, *self.windows, self.symm_mem]

    def clear(self) -> None:
        """All memory is free for the next case."""
        for slab in self.slabs:
            slab.clear()


def runs_of(libraries: Libraries, case: program_cases.Case, text: str, parts, compiled) -> dict:
    """Every way by its name, in the same order on all ranks."""
    of = program_contenders
    platform, group = libraries.platform, libraries.group
    ours = of.CotuneTransport(platform, group)
    runs = {
        "program": of.ProgramRun(platform, case, text, group, platform),
        "collectives": of.CollectivesRun(platform, case, ours),
        "part": of.PartRun(platform, case, parts, part_workloads.names_of(text)),
        "compiled_part": of.CompiledPartRun(platform, case, compiled),
        "cotune_compiled": of.CompiledRun(platform, case, ours, compiled),
    }
    if not platform.is_cuda:
        return runs
    runs["program_registered"] = of.ProgramRun(platform, case, text, group, libraries.registered)
    plain = of.NcclTransport(platform, libraries.communicator)
    symmetric = of.NcclTransport(platform, libraries.communicator, libraries.windows)
    runs["nccl_compiled"] = of.CompiledRun(platform, case, plain, compiled)
    runs["nccl_symmetric_compiled"] = of.CompiledRun(platform, case, symmetric, compiled)
    for name, in_place in (("symm_mem_one_shot_compiled", False), ("symm_mem_two_shot_compiled", True)):
        transport = of.SymmMemTransport(platform, libraries.symm_mem, in_place)
        if transport.offers(case):
            runs[name] = of.CompiledRun(platform, case, transport, compiled, in_place)
    return runs


def faster_mode(platform, case: program_cases.Case):
    """What torch makes of the user's function, by the mode that is faster on this rank; its name, and the function."""
    compiled = platform.compiled(program_contenders.users_function(platform, case))
    graphs = {}
    for mode, function in compiled.items():
        run = program_contenders.CompiledPartRun(platform, case, function)
        run.fill()
        run.enqueue()
        graphs[mode] = platform.capture(run.enqueue, case.calls)
    times_us = part_bench.take_turns(platform, graphs, MODE_ROUNDS, case.calls)
    mode = min(times_us, key=lambda name: statistics.median(times_us[name]))
    return mode, compiled[mode]


def wrong_elements(platform, run: program_contenders.Run, expected: dict) -> int:
    """After one call in a graph; 0 where it gives back nothing."""
    run.fill()
    run.enqueue()  # what is made by a first call is not captured
    graph = platform.capture(run.enqueue, 1)
    run.fill()
    platform.meet()
    platform.replay(graph)
    platform.synchronize()
    return sum(platform.errors(expected[name], seen) for name, seen in run.outputs.items())


def measure(libraries: Libraries, case: program_cases.Case, text: str, parts, options) -> dict:
    """What this rank saw."""
    platform = libraries.platform
    libraries.clear()
    mode, compiled = faster_mode(platform, case)
    expected = {is_compiled: case.expected(platform, platform.rank, is_compiled) for is_compiled in (False, True)}
    runs = {name: run for name, run in runs_of(libraries, case, text, parts, compiled).items()
            if name not in options.without.split(",")}
    wrong, graphs = {}, {}
    for name, run in runs.items():
        try:
            is_compiled = isinstance(run, program_contenders.CompiledRun | program_contenders.CompiledPartRun)
            wrong[name] = wrong_elements(platform, run, expected[is_compiled])
            run.fill()
            run.settle()
            graphs[name] = platform.capture(run.enqueue, case.calls)
        except RuntimeError as failure:
            raise RuntimeError(f"{name} of {case.workload.example}, {case.rows} rows: {failure}") from failure
    us = part_bench.take_turns(platform, graphs, options.rounds, case.calls)
    libraries.group.check()
    return {"program": case.workload.example, "rows": case.rows,
            "columns": max(shape.columns for shape in case.inputs.values()), "bytes": case.bytes, "calls": case.calls,
            "compiled_mode": mode, "wrong": wrong, "us": us}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="its name in part_workloads")
    parser.add_argument("--file", type=pathlib.Path, required=True, help="its text")
    parser.add_argument("--rows", type=part_bench.positives, required=True)
    parser.add_argument("--rounds", type=part_bench.positive, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--out", required=True, help="file of lines; .RANK is added")
    parser.add_argument("--database", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--parts-library", required=True)
    parser.add_argument("--parts-plugin", required=True)
    parser.add_argument("--plugins", required=True)
    parser.add_argument("--without", default="")
    return parser.parse_args(arguments)


def main(arguments: list[str], platform_of=program_platforms.Gpu, workloads=part_workloads.WORKLOADS) -> int:
    options = parse(arguments)
    platform = platform_of(int(os.environ["COTUNE_RANK"]), int(os.environ["COTUNE_WORLD_SIZE"]), options.port)
    workload = next(each for each in workloads if each.example == options.program)
    text = options.file.read_text(encoding="utf-8")
    parts_of = functools.partial(part_library.Parts, options.parts_library, options.parts_plugin, text, ranks=platform.ranks,
                                 memory=platform.memory, device=platform.device)
    with parts_of(rows=max(options.rows)) as parts:
        slab_bytes = program_contenders.slab_bytes(program_cases.Case(workload, text, max(options.rows), platform.ranks, parts))
    libraries = Libraries(platform, options, slab_bytes)
    with open(f"{options.out}.{platform.rank}", "w", encoding="utf-8") as out:
        out.write(json.dumps({"versions": platform.about()}) + "\n")
        for rows in options.rows:
            with parts_of(rows=rows) as parts:
                case = program_cases.Case(workload, text, rows, platform.ranks, parts)
                out.write(json.dumps(measure(libraries, case, text, parts, options)) + "\n")
            out.flush()
    # A goodbye: a rank that ends without one is a dead rank to those that are still in their last check.
    libraries.group.destroy()
    return 0


def leave(exit_code: int) -> None:
    """Ends the process without what Python and libraries take down: a peer that is gone by then must not matter."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    try:
        leave(main(sys.argv[1:]))
    except BaseException:  # whatever it is, `programs` shows it
        traceback.print_exc()
        leave(1)
