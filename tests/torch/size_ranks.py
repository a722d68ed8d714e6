"""A rank under torchrun that runs an MLP of one compiled all_reduce with batches of many sizes.

usage: size_ranks.py BATCHES...

BATCHES are the rows of the calls, "24x3" for three calls of 24 rows. The rows are static until the second size comes,
and dynamic from then on. Prints one JSON object on every rank: {"rank", "error": what differs from the eager values, or
"", "calls": a list of {"rows", "tuned": the row counts of each tune in this call, "measured": of all tunes together,
"known", "meetings": how often the ranks met, "asks": how often this rank asked the store, "python": how often the
operator came to Python, "seconds", "plain_seconds": of the same call by PyTorch, uncompiled}, "plain"}.
OTHER_FROM is the number of the first call from which rank 1 has a graph of its own around the same all_reduce.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

import cotune.torch
from cotune.torch import agreement, meeting, report
from cotune.torch.manifest import parse_manifest

RANK = int(os.environ["RANK"])
WIDTH, HIDDEN = 64, 32
call: dict[str, Any] = {}


def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Each rank has a share of the hidden columns."""
    partial = torch.relu(x @ up) @ down
    return torch.relu(funcol.all_reduce(partial, "sum", dist.group.WORLD) + 1)


def other(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """The same collective in another program."""
    partial = torch.relu(x @ up) @ down
    return torch.relu(funcol.all_reduce(partial, "sum", dist.group.WORLD) + 2) - 3


def listen() -> None:
    """Notes in `call` what the operators of this process do."""
    tell, share, run = report._tell, meeting.Place.share, agreement.run_program
    check = dist.PrefixStore.check

    def note_tune(tune: Any) -> None:
        if tune.phase == report.library.TUNE_HAS_ENDED:
            call["tuned"].append([list(each.rows) for each in parse_manifest(tune.manifest.decode())])
            call["measured"] += tune.report.measured
            call["known"] += tune.report.known
        tell(tune)

    def counted(name: str, function: Any) -> Any:
        def counts(*arguments: Any, **named: Any) -> Any:
            call[name] += 1
            return function(*arguments, **named)

        return counts

    report._tell = note_tune
    meeting.Place.share = counted("meetings", share)
    agreement.run_program = counted("python", run)
    dist.PrefixStore.check = counted("asks", check)


def batches(words: list[str]) -> list[int]:
    found = []
    for word in words:
        rows, _, times = word.partition("x")
        found += [int(rows)] * int(times or "1")
    return found


def main() -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    torch.set_num_threads(1)
    # A tune that leaves sizes out on a loaded machine would measure others than the test names.
    cotune.torch.enable(budget_s=0)
    listen()
    generator = torch.Generator().manual_seed(RANK)
    up, down = (torch.randint(-2, 3, shape, generator=generator).float() for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH)))
    other_from = int(os.environ.get("OTHER_FROM", sys.maxsize)) if RANK == 1 else sys.maxsize
    compiled = {each: torch.compile(each, fullgraph=True) for each in (mlp, other)}
    calls, error = [], ""
    for number, rows in enumerate(batches(sys.argv[1:])):
        function = mlp if number < other_from else other
        x = torch.randint(-2, 3, (rows, WIDTH), generator=torch.Generator().manual_seed(rows)).float()
        call.clear()
        call.update(rows=rows, tuned=[], measured=0, known=0, meetings=0, asks=0, python=0)
        dist.barrier()
        begin_s = time.perf_counter()
        result = compiled[function](x, up, down)
        call["seconds"] = time.perf_counter() - begin_s
        calls.append(dict(call))
        dist.barrier()
        begin_s = time.perf_counter()
        expected = function(x, up, down)
        calls[-1]["plain_seconds"] = time.perf_counter() - begin_s
        # Small integers, whose sums are exact.
        if not torch.equal(result, expected):
            error += f"{rows} rows: {result} and not {expected}; "
    is_plain = any(each.is_plain for each in cotune.torch.groups.entries())
    record = {"rank": RANK, "error": error, "calls": calls, "plain": is_plain}
    os.write(1, (json.dumps(record) + "\n").encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
