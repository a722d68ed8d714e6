"""A rank under torchrun (or started by hand) in which something goes wrong.

usage: fault_ranks.py CASE

Prints one JSON object on every rank: {"rank", "error": what differs from the eager values, or "", "raised": the text of the
error that a call ended with, or "", "explains": the text of cotune.torch.explain()}.
OTHER_LIBRARY, where it is set, is libcotune for rank 1; NAMED_DATABASE is the database that enable names.
"""

from __future__ import annotations

import json
import os
import signal
import sys

RANK = int(os.environ["RANK"])
if RANK == 1 and "OTHER_LIBRARY" in os.environ:
    os.environ["COTUNE_LIBRARY"] = os.environ["OTHER_LIBRARY"]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as funcol  # noqa: E402

import cotune.torch  # noqa: E402
from cotune.torch import compat  # noqa: E402
from cotune.torch.collective_key import key_of  # noqa: E402
from cotune.torch.program_text import Node  # noqa: E402

COLUMNS = 16


def given(rows: int = 8, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * seed + RANK)
    return torch.randint(-8, 8, (rows, COLUMNS), generator=generator).to(dtype)


def summed(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(funcol.all_reduce(x, "sum", dist.group.WORLD) + 1)


def difference(function, *inputs: torch.Tensor, compiled=None) -> str:
    """Small integers, whose sums are exact: other values may be off by what PyTorch's compiled functions are."""
    expected = function(*inputs)
    got = (compiled or torch.compile(function, fullgraph=True))(*inputs)
    is_right = got.dtype == expected.dtype and torch.allclose(got, expected, rtol=1e-6, atol=1e-6)
    return "" if is_right else f"{function.__name__}: {got} and not {expected}"


def healthy() -> str:
    return difference(summed, given())


def two_graphs() -> str:
    return difference(summed, given()) + difference(lambda x: summed(x) - 3, given(seed=1))


def plain_error() -> str:
    """A call that PyTorch's own collectives refuse ends with their reason."""
    error = healthy()
    try:
        torch.ops.cotune.all_to_all(torch.ones(3), dist.group.WORLD.group_name)
    except RuntimeError as failure:
        text = str(failure)
        is_right = "3 rows are no multiple of 2 ranks" in text and "import cotune.torch" not in text
        return error + ("" if is_right else text)
    return error + "3 rows went well on 2 ranks"


def refused_dtypes() -> str:
    """Each is named, and so are those that the collective takes."""
    ops, name, world = torch.ops.cotune, dist.group.WORLD.group_name, dist.get_world_size()
    calls = {
        "all_reduce does not take complex64": lambda: ops.all_reduce(given(dtype=torch.complex64), "sum", name),
        "all_gather does not take int16": lambda: ops.all_gather(given(dtype=torch.int16), world, name),
        "all_reduce does not take int8": lambda: ops.all_reduce(given(dtype=torch.int8), "sum", name),
        "all_gather does not take float8_e4m3fn": lambda: ops.all_gather(given(dtype=torch.float8_e4m3fn), world, name),
        "input 1 of a program is complex64": lambda: ops.program([given(dtype=torch.complex64)], [], "", name, ""),
    }
    errors = []
    for wanted, call in calls.items():
        try:
            call()
            errors.append(f"no error: {wanted}")
        except RuntimeError as failure:
            text = str(failure)
            errors.append("" if wanted in text and "float32, float64" in text else f"{text}, and not {wanted}")
    return "; ".join(each for each in errors if each)


def another_graph() -> str:
    """Rank 1 has one operation more, and the same collective."""

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return summed(x) * 2

    again = difference(summed, given(seed=1)) if RANK != 1 else difference(doubled, given(seed=1))
    # Behind it a graph that is the same everywhere.
    return again + difference(lambda x: summed(x) - 3, given(seed=2))


def other_sizes() -> str:
    """What differs is no operand of the collective."""

    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", dist.group.WORLD).sum() + y.sum()

    def repeated(x: torch.Tensor) -> torch.Tensor:
        first = summed(x)
        return funcol.all_reduce(first.reshape(-1, 4 if RANK == 1 else 8), "sum", dist.group.WORLD) * 2

    return difference(scaled, given(), given(rows=2 + RANK)) + difference(repeated, given(seed=1))


def late() -> str:
    """Rank 1 compiles only when rank 0 waits for it in its first run."""
    compiled = torch.compile(summed, fullgraph=True)
    if RANK == 1:
        dist.group.WORLD.get_group_store().wait([word_of(0, given())])
    return difference(lambda x: x, given()[:0]) or late_values(compiled)


def late_values(compiled) -> str:
    got = compiled(given())
    expected = summed(given())
    return "" if torch.equal(got, expected) else "wrong values behind a late rank"


def dies() -> str:
    """The victim is killed while the others wait for it in a call."""
    compiled = torch.compile(summed, fullgraph=True)
    error = late_values(compiled)
    victim = int(os.environ["VICTIM"])
    waiters = [rank for rank in range(dist.get_world_size()) if rank != victim]
    store = dist.group.WORLD.get_group_store()
    if RANK == victim:
        store.wait([f"test/in_call/{rank}" for rank in waiters])
        os.kill(os.getpid(), signal.SIGKILL)
    store.set(f"test/in_call/{RANK}", b"")
    for _ in range(3):  # a call that ended well before the death
        compiled(given())
    return error + "three calls went well without a rank"


def word_of(rank: int, x: torch.Tensor) -> str:
    """The key of the store under which a rank gives its word when it meets for the sum of x."""
    key = key_of(Node("all_reduce", (0,), reduction="sum"), "f32", x.numel(), dist.get_world_size())
    members = "-".join(str(each) for each in range(dist.get_world_size()))
    return f"cotune/host/{members}/key/{key.name}/0/{rank}"


def dies_before_a_meeting() -> str:
    """The victim is killed while the others wait for it where the ranks meet for another size."""
    compiled = torch.compile(summed, fullgraph=True, dynamic=False)
    error = late_values(compiled)
    victim, x = int(os.environ["VICTIM"]), given(rows=16)
    if RANK == victim:
        waiters = [rank for rank in range(dist.get_world_size()) if rank != victim]
        dist.group.WORLD.get_group_store().wait([word_of(rank, x) for rank in waiters])
        os.kill(os.getpid(), signal.SIGKILL)
    compiled(x)
    return error + "a call went well without a rank"


def unfit() -> str:
    """cotune does not fit this PyTorch, on any rank: nothing is enabled."""
    return difference(summed, given())


def loads_data() -> str:
    class Numbers(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.full((COLUMNS,), float(index))

    compiled = torch.compile(summed, fullgraph=True)
    errors = [late_values(compiled)]
    for _ in range(2):  # workers begin and end while the group is in use
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
            right = torch.relu(dist.get_world_size() * batch + 1)
            errors.append("" if torch.equal(compiled(batch), right) else "wrong values beside data loaders")
    return "".join(errors)


def inputs() -> str:
    """What no program has, beside what one has."""
    world, group = dist.get_world_size(), dist.group.WORLD

    def of_complex(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", group) * 2

    def of_bool(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_gather_tensor(x, 0, group).float() * 2

    def of_sine(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(funcol.all_reduce(x, "sum", group) * 0.5) + 1

    def uneven(x: torch.Tensor) -> torch.Tensor:
        splits = [2, 6] if RANK == 0 else [6, 2]
        arriving = [2, 6] if RANK == 0 else [6, 2]
        return funcol.all_to_all_single(x, arriving, splits, group) * 2

    def in_columns(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x.t(), "sum", group) + 1

    strided = given(rows=16, seed=4)[::2, 3:11]
    transposed = given(rows=COLUMNS, seed=5).t()
    errors = [
        difference(of_complex, torch.complex(given(), given(seed=1))),
        difference(of_bool, given() > 0),
        difference(of_sine, given(seed=2)),
        difference(in_columns, given(seed=3)),
        difference(summed, strided),
        difference(summed, transposed),
        difference(summed, given(rows=0)),
        difference(summed, given(dtype=torch.int64)),
    ]
    if world == 2:
        errors.append(difference(uneven, given(seed=6)))
    return "; ".join(each for each in errors if each)


CASES = {
    each.__name__: each
    for each in (
        healthy, two_graphs, plain_error, refused_dtypes, another_graph, other_sizes, late, dies, unfit, loads_data, inputs,
        dies_before_a_meeting,
    )
}  # fmt: skip


def main() -> None:
    case = sys.argv[1]
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    if case == "unfit":
        compat.OLDEST = (99, 0)
    named = os.environ.get("NAMED_DATABASE")
    cotune.torch.enable(tables=False, **({"database": named} if named else {}))
    error, raised = "", ""
    try:
        error = CASES[case]()
    except RuntimeError as failure:
        raised = str(failure)
    record = {"rank": RANK, "error": error, "raised": raised, "explains": cotune.torch.explain()}
    # One write, which the lines of other ranks do not part.
    os.write(1, (json.dumps(record) + "\n").encode())
    if os.environ.get("DESTROYS", "1") == "1" and not case.startswith("dies"):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
