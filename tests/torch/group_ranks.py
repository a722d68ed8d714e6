"""A rank under torchrun that uses several process groups, or whose process groups are not what they seem.

usage: group_ranks.py CASE

Prints one JSON object on every rank: {"rank", "error": what is wrong, or "", "raised": the text of the error that a call
ended with, or "", "explains": the text of cotune.torch.explain(), "groups": the names of the groups that it used}.
CACHES, where it is set, is a folder with a cache of compiled graphs for each rank.
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import signal
import sys
import threading

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if "CACHES" in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{os.environ['CACHES']}/rank{RANK}"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as funcol  # noqa: E402

import cotune.torch  # noqa: E402
from cotune.torch import agreement, compat, group_making, groups, meeting, plain, process_groups, report  # noqa: E402

COLUMNS = 16
# In which a rank that never comes is given up.
SHORT_S = 12


def given(rows: int = 8, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * seed + RANK)
    return torch.randint(-8, 8, (rows, COLUMNS), generator=generator).float()


def summed_in(group):
    def summed(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(funcol.all_reduce(x, "sum", group) + 1)

    return summed


def difference(what: str, function, x: torch.Tensor) -> str:
    """Small integers, whose sums are exact."""
    expected = function(x)
    got = torch.compile(function, fullgraph=True)(x)
    return "" if torch.equal(got, expected) else f"{what}: {got} and not {expected}; "


def sum_of(members: list[int]) -> float:
    return float(sum(rank + 1 for rank in members))


def own_group(*all_members: list[int]) -> tuple:
    """Makes groups, and gives the one that this rank is in with its members."""
    made = [(dist.new_group(members), members) for members in all_members]
    return next((group, members) for group, members in made if RANK in members)


def wrong_by_hand(group_name: str, members: list[int]) -> str:
    got = torch.ops.cotune.all_reduce(torch.full((4, 8), RANK + 1.0), "sum", group_name)[0, 0].item()
    return "" if got == sum_of(members) else f"{got} and not {sum_of(members)} among {members}; "


def plain_sum() -> str:
    return difference("sum", summed_in(dist.group.WORLD), given())


def dry_run() -> str:
    """One process with a group of two that moves nothing; its values mean nothing."""
    torch.compile(summed_in(dist.group.WORLD), fullgraph=True)(given())
    return ""


def uneven_by_chance() -> str:
    """The splits of rank 0 are equal, those of rank 1 are not."""
    splits = [2, 2] if RANK == 0 else [2, 5]

    def exchanged(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_to_all_single(x, splits, splits, dist.group.WORLD) + 1

    return difference("all_to_all", exchanged, given(rows=sum(splits)))


def one_without() -> str:
    """Rank 1 does not use cotune."""
    # No eager run: it would meet rank 1 in the same collective.
    torch.compile(summed_in(dist.group.WORLD), fullgraph=True)(given())
    return "a call went well without a rank"


def late() -> str:
    if RANK == 1:
        dist.group.WORLD.get_group_store().wait(["test/has_warned"])
    elif RANK == 0:
        warn = meeting.log.log

        def note(level: int, *arguments) -> None:
            warn(level, *arguments)
            dist.group.WORLD.get_group_store().clone().set("test/has_warned", b"")

        meeting.log.log = note
    group, x = dist.group.WORLD, given()
    got = torch.compile(summed_in(group), fullgraph=True)(x)
    return "" if torch.equal(got, summed_in(group)(x)) else "wrong values behind a late rank"


def meeting_fails() -> str:
    """What goes wrong on rank 1 while the ranks meet is no error of cotune's."""
    makes, finds = group_making.Group, group_making._host_id

    def no_host() -> str:
        raise PermissionError("no boot_id here")

    def made_in_vain(*arguments, **options):
        makes(*arguments, **options).destroy()
        raise ValueError("it cannot be used")

    errors = []
    for name, other in (("_host_id", no_host), ("Group", made_in_vain)):
        group = dist.new_group(list(range(WORLD)))
        if RANK == 1:
            setattr(group_making, name, other)
        errors.append(difference(name, summed_in(group), given()))
        group_making.Group, group_making._host_id = makes, finds
    return "".join(errors)


def reused_names() -> str:
    """Groups with other members get the names of destroyed ones, whose stores, or all of which, somebody holds."""
    group, members = own_group([0, 1], [2, 3])
    name, held = group.group_name, [process_groups.object_of_group_life(group)]
    error = wrong_by_hand(name, members)
    del group
    begin_anew("second")
    gc.collect()
    if left := groups.entries():
        error += f"held by its store: {left}; "
    group, members = own_group([0, 1], [2, 3])
    held += [group, process_groups.object_of_group_life(group)]
    error += difference("pairs", summed_in(group), given(seed=1))
    begin_anew("third")
    group, members = own_group([0, 2], [1, 3])
    # Ranks 0 and 3 are in the first and in the last group each time.
    if RANK in (0, 3) and group.group_name != name:
        error += f"{group.group_name} is not the reused name {name}; "
    error += difference("other pairs", summed_in(group), given(seed=2))
    error += wrong_by_hand(group.group_name, members)
    return error


def begin_anew(name: str) -> None:
    dist.barrier()
    dist.destroy_process_group()
    torch._dynamo.reset()
    store = dist.FileStore(f"{os.environ['HOME']}/{name}", WORLD)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD)


def two_axes() -> str:
    """Tensor parallel x data parallel, and all ranks together, in one graph."""
    tensor, _ = own_group([0, 1], [2, 3])
    data, _ = own_group([0, 2], [1, 3])
    USED.extend([tensor.group_name, data.group_name, dist.group.WORLD.group_name])

    def step(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(funcol.all_reduce(x, "sum", tensor) + 1)
        share = funcol.reduce_scatter_tensor(hidden, "sum", 0, data) * 2
        whole = funcol.all_gather_tensor(share, 0, data)
        return funcol.all_reduce(whole - x, "sum", dist.group.WORLD) * 0.5

    return difference("step", step, given())


def some_ranks() -> str:
    """Beside a group of all ranks one that rank 3 is not in, both used in turns."""
    three = dist.new_group([0, 1, 2])
    error = difference("all", summed_in(dist.group.WORLD), given())
    first = cotune.torch.group_of(dist.group.WORLD.group_name)
    if RANK != 3:
        error += difference("three", lambda x: funcol.all_reduce(x, "sum", three) * 3, given(seed=1))
        error += wrong_by_hand(three.group_name, [0, 1, 2])
    error += difference("all again", lambda x: funcol.all_reduce(x, "sum", dist.group.WORLD) - 1, given(seed=2))
    if first is None or cotune.torch.group_of(dist.group.WORLD.group_name) is not first:
        error += "the group of all ranks was made twice; "
    return error


def interrupts_a_tune() -> None:
    """Lets Ctrl-C come while a cell of the next tune is measured."""
    measures = report._measures

    def measures_and_interrupts(*told) -> None:
        report._measures = measures
        os.kill(os.getpid(), signal.SIGINT)
        measures(*told)

    report._measures = measures_and_interrupts


def is_interrupted(call) -> bool:
    """True if KeyboardInterrupt ends a call. An operator that has not run raises RuntimeError first."""
    try:
        try:
            call()
        except RuntimeError as failure:
            if "interrupted (Ctrl-C)" not in str(failure):
                raise
        return False
    except KeyboardInterrupt:
        return True


def interrupted() -> str:
    """Ctrl-C comes on all ranks in the first tune. It ends the call, and many calls after it are not interrupted again."""
    interrupts_a_tune()
    function, x = summed_in(dist.group.WORLD), given()
    compiled = torch.compile(function, fullgraph=True)
    if not is_interrupted(lambda: compiled(x)):
        return "the call has returned, and the interrupt may come later, or is lost; "
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return "the handler of the interrupt was not put back; "
    expected = function(x)
    wrong = sum(not torch.equal(compiled(x), expected) for _ in range(600))
    return f"{wrong} calls after the interrupt gave wrong values; " if wrong else ""


def interrupted_within_a_graph() -> str:
    """The tune of an operator that is called by hand within a function that is compiled, and within autograd."""
    interrupts_a_tune()
    name, x = dist.group.WORLD.group_name, given().requires_grad_()
    compiled = torch.compile(summed_in(dist.group.WORLD), fullgraph=True)

    def calls() -> None:
        for _ in range(600):
            torch.ops.cotune.all_reduce(compiled(x), "sum", name).sum().backward()

    if not is_interrupted(calls):
        return "600 calls have returned, and the interrupt is lost; "
    x.grad = None
    compiled(x).sum().backward()
    return "" if x.grad is not None else "there is no gradient after the interrupt; "


def interrupted_plain() -> str:
    """Ctrl-C comes in a program that PyTorch's own collectives run."""
    function, x = summed_in(dist.group.WORLD), given()
    compiled, expected = torch.compile(function, fullgraph=True), function(x)
    runs, results = plain.run_plain, []

    def runs_and_interrupts(*arguments) -> None:
        plain.run_plain = runs
        os.kill(os.getpid(), signal.SIGINT)
        runs(*arguments)
        results.append(arguments[1][0].clone())

    group_making.why_plain, why = lambda *_: "a test wants it", group_making.why_plain
    try:
        results.append(compiled(x))  # This call decides; later ones come to the operator of plain programs.
        plain.run_plain = runs_and_interrupts
        if not is_interrupted(lambda: compiled(x)):
            return "the call has returned, and the interrupt is lost; "
    finally:
        group_making.why_plain = why
    results.append(compiled(x))
    if len(results) != 3:
        return f"{len(results)} calls have run; "
    return "".join(f"{each} and not {expected}; " for each in results if not torch.equal(each.reshape(expected.shape), expected))


def interrupted_on_one_rank() -> str:
    """Ctrl-C comes on rank 0 alone while a cell of the first tune is measured; all ranks run the collective nevertheless."""
    runs, results = agreement.run_program, []

    def runs_and_notes(inputs, outputs, *texts) -> None:
        runs(inputs, outputs, *texts)
        results.append(outputs[0].clone())

    function = summed_in(dist.group.WORLD)
    # If rank 0 left out the first collective, its second call would meet the first one of rank 1, with other values.
    first, second = given(), given(seed=1)
    expected = [function(first), function(second)]
    compiled = torch.compile(function, fullgraph=True)
    agreement.run_program = runs_and_notes
    if RANK == 0:
        interrupts_a_tune()
        if not is_interrupted(lambda: compiled(first)):
            return "the interrupt was lost; "
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return "the handler of the interrupt was not put back; "
    else:
        compiled(first)
    results.append(compiled(second))
    if len(results) != 2:
        return f"the ranks have met {len(results) - 1} times; "
    return "".join(
        "" if torch.equal(got.reshape(wanted.shape), wanted) else f"call {number}: {got} and not {wanted}; "
        for number, (got, wanted) in enumerate(zip(results, expected, strict=True))
    )


def interrupted_in_a_meeting() -> str:
    """Ctrl-C comes on rank 0 while it waits for rank 1, which comes when rank 0 calls again."""
    function, x = summed_in(dist.group.WORLD), given()
    expected = function(x)
    compiled = torch.compile(function, fullgraph=True)
    store = dist.group.WORLD.get_group_store().clone()
    if RANK == 1:
        store.wait(["test/was_interrupted"])
    else:
        share = meeting.Place.share

        def shares_and_interrupts(*arguments, **named):
            meeting.Place.share = share
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
            return share(*arguments, **named)

        meeting.Place.share = shares_and_interrupts
        if not is_interrupted(lambda: compiled(x)):
            return "the interrupt was lost; "
        store.set("test/was_interrupted", b"")
    got = compiled(x)
    return "" if torch.equal(got, expected) else f"after the interrupt: {got} and not {expected}; "


def alone() -> str:
    name = dist.group.WORLD.group_name
    x = torch.ones(4, 3, requires_grad=True)
    torch.ops.cotune.all_reduce(x, "SUM", name).sum().backward()
    error = "" if torch.equal(x.grad, torch.ones(4, 3)) else f"SUM has the gradient {x.grad}; "
    return error + plain_sum() + wrong_by_hand(name, [0])


USED: list[str] = []
CASES = {
    each.__name__: each
    for each in (
        plain_sum, dry_run, uneven_by_chance, one_without, late, meeting_fails, reused_names, two_axes, some_ranks, alone,
        interrupted, interrupted_within_a_graph, interrupted_plain, interrupted_on_one_rank, interrupted_in_a_meeting,
    )
}  # fmt: skip


def main() -> None:
    case = sys.argv[1]
    seconds = SHORT_S if case == "one_without" else 120
    if case == "dry_run":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    else:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
    torch.set_num_threads(1)
    meeting.LATE_S = 1.0 if case in ("one_without", "late", "interrupted_in_a_meeting") else meeting.LATE_S
    if case == "one_without" and RANK == 1 and os.environ["WITHOUT"] == "pytorch":
        compat.OLDEST = (99, 0)
    if not (case == "one_without" and RANK == 1 and os.environ["WITHOUT"] == "enable"):
        tunes = case in ("two_axes", "interrupted", "interrupted_within_a_graph", "interrupted_on_one_rank")
        cotune.torch.enable(tunes=tunes, budget_s=5, tables=case == "two_axes")
    error, raised = "", ""
    try:
        error = CASES[case]()
    except RuntimeError as failure:
        raised = str(failure)
    record = {"rank": RANK, "error": error, "raised": raised, "explains": cotune.torch.explain(), "groups": USED}
    # One write, which the lines of other ranks do not part.
    os.write(1, (json.dumps(record) + "\n").encode())
    if case != "one_without":
        dist.destroy_process_group()
    elif RANK == 1:
        # Its plain collective has failed, and PyTorch now and then aborts a process that ends with such a process group.
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
