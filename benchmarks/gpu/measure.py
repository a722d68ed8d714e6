"""One rank of one contender: measures it at every size and writes a line for each as soon as it has it.

Started by `run`, one process a GPU. A figure is the time of one call, from replays of a CUDA graph of several. All ranks
leave a barrier on their GPUs together right before each replay, which is queued behind it by then: neither the skew of
the hosts nor the latency of launches is in it. `run` takes the largest over ranks of each replay, and their median."""

import argparse
import json
import os
import sys

import contenders
import platforms
import problems

REPLAYS = 21
WARM_REPLAYS = 2


def measure(platform, contender: contenders.Contender, problem: problems.Problem, replays: int) -> dict:
    """What this rank saw."""
    buffers = contender.buffers(problem)
    in_place = buffers.send is buffers.recv
    platform.fill(buffers.send)
    if not in_place:
        platform.poison(buffers.recv)
    platform.synchronize()
    platform.meet()

    def enqueue():
        contender.call(problem, buffers)

    enqueue()
    is_right = platform.is_right(problem, buffers.recv)
    if in_place:
        platform.zero(buffers.send)
    else:
        platform.poison(buffers.recv)
    graph = platform.capture(enqueue, problem.calls)
    platform.meet()
    times_us = [platform.time_us(graph) / problem.calls for _ in range(WARM_REPLAYS + replays)][WARM_REPLAYS:]
    if not in_place:
        is_right = is_right and platform.is_right(problem, buffers.recv)
    contender.check()
    return {"contender": contender.name, "collective": problem.collective, "bytes": problem.bytes,
            "count": problem.count, "calls": problem.calls, "right": is_right,
            "times_us": [round(each, 3) for each in times_us]}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contender", choices=contenders.CONTENDERS, required=True)
    parser.add_argument("--collectives", required=True)
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--memory", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--out", required=True, help="file of lines; .RANK is added")
    parser.add_argument("--database", default="")
    parser.add_argument("--library", default="")
    parser.add_argument("--plugins", default="")
    parser.add_argument("--replays", type=int, default=REPLAYS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    rank, ranks = int(os.environ["COTUNE_RANK"]), int(os.environ["COTUNE_WORLD_SIZE"])
    wanted = [problems.problem_of(collective, ranks, int(size))
              for collective in options.collectives.split(",") for size in options.sizes.split(",")]
    options.bytes_max = max(problem.bytes for problem in wanted)
    platform = (platforms.Gpu if options.memory == "cuda" else platforms.Host)(rank, ranks, options.port)
    contender = contenders.CONTENDERS[options.contender](platform, options)
    with open(f"{options.out}.{rank}", "w", encoding="utf-8") as out:
        out.write(json.dumps({"versions": platform.versions()}) + "\n")
        for problem in wanted:
            if not contender.offers(problem):
                continue
            out.write(json.dumps(measure(platform, contender, problem, options.replays)) + "\n")
            out.flush()
    contender.close()
    platform.close()
    return 0


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    # Without what Python and libraries take down at their end: a peer that is gone by then must not matter.
    os._exit(exit_code)
