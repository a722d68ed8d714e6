"""The cases of undeclared_ranks.py and function_ranks.py that run on the CPU and on GPUs, and the results that they must have."""

from __future__ import annotations

import dataclasses
import re

EAGER = ("python/by_library", "python/by_gathering?pieces=1", "python/by_gathering?pieces=3", "python/functions.all_reduce")
COMPILED = ("python/by_library.compiled", "python/by_gathering.compiled?pieces=1", "python/by_gathering.compiled?pieces=3")
RIGHT = EAGER + COMPILED
PATCHED = "python/lazy.compiled?size_asserts=false"
RACED = ("timed", "outpaced", "lost_heat")


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of a script.

    Attributes:
      script: its file.
      argument: the case, as the script names it.
      explains: patterns, each of which explain() must match on each rank.
      raced: choices that must have raced.
      left_out: choices that must not have raced, with patterns of the reason.
      left_out_on_host: the same for functions that are registered on host memory alone. They fail on one rank before their
        collectives, and on a GPU nothing ends the kernels of the other rank.
      has_no_functions: no choice may be a function.
      environment: variables of the ranks.
    """

    script: str
    argument: str
    explains: tuple[str, ...] = ()
    raced: tuple[str, ...] = ()
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    left_out_on_host: dict[str, str] = dataclasses.field(default_factory=dict)
    has_no_functions: bool = False
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


def _undeclared(argument: str, *explains: str) -> Case:
    return Case("undeclared_ranks.py", argument, explains)


_DROPPED = "dropped: rank [01] could not .*"
CASES = {
    "faster": _undeclared(
        "faster",
        *(rf"linear\(x=float32\[{rows}, 16\].*: runs python/once\n" for rows in (4, 5)),
        r"python/repeated\?times=12: [0-9.]+ us",
        "undeclared::linear of layer",
    ),
    "faulty": _undeclared(
        "faulty",
        "python/wrong: dropped: rank 1 could not .*: 1 of 32 values are wrong; element 31 is",
        "python/raises: dropped: rank 1 could not .*: LookupError: no route",
        f"python/writes: {_DROPPED}: it has written to its argument x",
        rf"python/too_long: {_DROPPED}returned torch.float32 of \(8, 8\) on (cpu|cuda:\d+), and the operator",
        f"python/aliases: {_DROPPED}its result shares memory with an argument",
        f"python/reuses: {_DROPPED}its results of two calls share memory",
        f"python/remembers: {_DROPPED} values are wrong",
        r"float32\[4, 16\].*: runs python/once\n",
    ),
    "compiled": _undeclared(
        "compiled",
        *(rf"linear\(x=float32\[{rows}, 16\].*: runs python/lazy\.compiled" for rows in (4, 5)),
        *(rf"{re.escape(each)}: [0-9.]+ us" for each in ("python/lazy", "python/lazy.compiled", PATCHED)),
    ),
    "uncompiled": _undeclared(
        "uncompiled",
        r"float32\[4, 16\].*: runs python/un(even|traceable)[,\n]",
        r"python/uneven\.compiled: not compiled: rank 1: Inductor cannot compile the function: .*graph_break",
        r"python/untraceable\.compiled: not compiled: rank 0: Inductor cannot compile the function: .*time\.sleep",
    ),
    "permutes": _undeclared("permutes", "runs python/permute_once"),
    "transposed": _undeclared(
        "transposed",
        r"float32\[16, 8\] with strides \[1, 16\].*: runs python/once",
        f"python/views: {_DROPPED}RuntimeError: view size is not",
    ),
    "declared_right": Case("function_ranks.py", "right", raced=RIGHT),
    "declared_uncompiled": Case(
        "function_ranks.py",
        "uncompiled",
        raced=("python/uneven", "python/untraceable"),
        left_out={
            "python/uneven.compiled": "rank 1: Inductor cannot compile.*graph_break",
            "python/untraceable.compiled": "rank 0: Inductor cannot compile.*time.sleep",
        },
    ),
    "declared_differs": Case("function_ranks.py", "differs", has_no_functions=True),
    "declared_faulty": Case(
        "function_ranks.py",
        "faulty",
        raced=RIGHT,
        left_out={
            "python/wrong": "rank 1: .*wrong",
            "python/silent": "the function has returned NoneType",
            "python/too_long": "the function has returned 192 elements, and the result of this all_reduce has 96",
        },
        left_out_on_host={
            "python/raises": "rank 1: .*LookupError: no route",
            "python/hangs": "rank 1: .*function python/hangs has not returned",
        },
        environment={"COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT": "3s"},
    ),
}


def errors(name: str, record: dict) -> str:
    """The differences between what a rank has printed and what it must print; "" without any."""
    case, found = CASES[name], [record["error"]] if record["error"] else []
    explained = record["explains"]
    found += [f"explain() does not match {each!r}" for each in case.explains if not re.search(each, explained)]
    if found:
        found.append(f"explain() is: {explained}")
    choices = record.get("choices", {})
    left_out = case.left_out | (case.left_out_on_host if record.get("device") == "cpu" else {})
    for each in (*case.raced, *left_out):
        outcome, reason = choices.get(each, ("missing", "no such choice"))
        is_right = outcome in RACED if each in case.raced else re.search(left_out[each], reason)
        if not is_right:
            found.append(f"{each}: {outcome}, {reason}")
    if case.has_no_functions and choices:
        found.append(f"functions have raced that differ between the ranks: {', '.join(choices)}")
    return "; ".join(found)
