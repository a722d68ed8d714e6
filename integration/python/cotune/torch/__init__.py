"""cotune under torch.compile: runs collectives, with the operations around them, by the choice that was measured fastest.

    import cotune.torch

    cotune.torch.enable()                 # before the first call of a compiled model
    model = torch.compile(model)

When a graph is compiled, its functional collectives with the local operations around them become programs. The first
run of a graph tunes all of its programs together, on all ranks of their group; rank 0 prints what won. Later runs
dispatch by size, and the next start finds the results in the tuned database. `explain()` reports how each collective runs,
and why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

try:
    import torch as _torch  # noqa: F401
except ImportError as failure:
    raise ImportError(
        f"cotune.torch needs PyTorch 2.11 to 2.13, and this Python ({sys.executable}) cannot import it ({failure}); "
        "install PyTorch there, or install cotune into the Python that has it",
        name="torch",
    ) from failure

from cotune.torch import (
    activation,
    compat,
    custom_op_autotuning,
    declarations,
    explanation,
    groups,
    job_settings,
    option_values,
    report,
    start,
)
from cotune.torch.activation import disable, is_enabled
from cotune.torch.custom_op_autotuning import CustomOpConfig
from cotune.torch.groups import GroupEntry, TuneSettings, group_of
from cotune.torch.log import log
from cotune.torch.settings import Settings

_TUNE_OPTIONS = {field.name for field in dataclasses.fields(TuneSettings)} - {"settings"} | set(job_settings.ALLOWED)


def _prepare(chosen: dict[str, Any], replaces: bool = False) -> dict[str, Any]:
    """Registers the operators, applies the options of tunes and of tables, and returns the options of the graph pass.

    With `replaces`, options of tunes and of tables that are not given get their defaults. Without it, the options of tunes
    stay as they are if none of them is given, and so does `tables`.
    """
    option_values.check(chosen)
    start.start()
    groups.drop_stale()
    tune = {name: chosen.pop(name) for name in list(chosen) if name in _TUNE_OPTIONS}
    if tune or replaces:
        groups.configure(TuneSettings.of(**tune))
    if "tables" in chosen or replaces:
        report.show_tables(chosen.pop("tables", True))
    return chosen


def enable(**chosen: Any) -> None:
    """Lets all functions that are compiled from now on use cotune. A second call replaces the settings.

    The options have to be equal on all ranks: options of the pass (see Settings); options of tunes (see TuneSettings) and
    settings of cotune (see job_settings.py), which count for groups that no operator has used yet; and tables=False, which
    keeps rank 0 from printing the results of tunes. A pass that is in Inductor's configuration runs before this one.

    With a PyTorch that is too old it warns and changes nothing. Raises TypeError for an unknown option.
    """
    if not start.fits():
        return
    activation.enable(**_prepare(chosen, replaces=True))


@contextlib.contextmanager
def enabled(**chosen: Any) -> Iterator[None]:
    """Does the same as enable() in a block, for functions whose first call is in it."""
    if not start.fits():
        yield
        return
    with activation.enabled(**_prepare(chosen)):
        yield


def options(**chosen: Any) -> dict[str, Any]:
    """Options of torch.compile that let one function use cotune: torch.compile(f, options=options())."""
    return activation.options(**_prepare(chosen)) if start.fits() else {}


def declare_collective(operator: str, *, kind: str, tensor: str, group: str, reduction: str = "sum") -> None:
    """Declares that a custom operator is a collective that cotune may take: declare_collective("lib::op", kind="all_reduce", ...).

    A call of the operator in a graph that is compiled from now on becomes a program, as the functional collective of that
    kind and its wait do; if cotune cannot take it, the operator runs as it is, and explain() has the reason. The
    declaration is a promise: for all values of its other arguments the operator returns what the functional collective
    returns, and does nothing else. Give the same declarations on all ranks, before the first call of a compiled function
    with the operator, and before options(). A second declaration of an operator replaces the first. Inductor's option
    reorder_for_locality is off while cotune is enabled and anything is declared.

    Args:
      operator: the name of the operator, "lib::op", or "lib::op.overload". It returns one new tensor, writes to no argument,
        and has one tensor among its arguments.
      kind: "all_reduce"; "all_gather" or "reduce_scatter", by the first dimension; "all_to_all", of equal shares of the first
        dimension.
      tensor: the argument that is the operand.
      group: the argument that is the name of the process group, a str.
      reduction: of all_reduce and reduce_scatter: "sum", "avg", "product", "min" or "max", or the argument that has one of
        these words.

    With a PyTorch that is too old it warns and changes nothing. Raises TypeError for an operator that is no name, and
    ValueError for an operator that is not registered or cannot be a collective, and for an argument that it does not have.
    """
    if start.fits():
        declarations.declare(operator, kind, tensor, group, reduction)
        activation.keep_order()


def register_custom_op_autotuning(
    custom_op: Any,
    configs: Sequence[Any] | None = None,
    config_generator: Any = None,
    name: str | None = None,
    input_gen_fns: Any = None,
    dispatch_on: Any = None,
    split_points: Any = None,
    min_speedup_threshold: float = 1.0,
    benchmark_with_cudagraphs: bool = False,
) -> None:
    """Lets Python functions race for a custom operator.

    There are two kinds of operators. An operator that is declared (call declare_collective first) is a collective, and its
    functions race with the choices of the backends; the paragraphs below are about this kind. Any other operator runs by its
    own body, or by a function that is faster and has returned the same values as the body on all ranks, on operands of small
    integers. Such a function gets the leading tensors by position, as they are, and must not write to them; it races compiled
    as well. The operator must have an argument group, group_name or process_group, and all ranks call it by compiled functions
    with equal shapes (docs/pytorch.md, Operators that are no collectives).

    The functions are choices like those of the backends, under the name "python": each runs first on data whose right result
    is known; all are measured on all ranks at the same time; the ranks agree on one choice for each size. A function that
    fails, does not return, or gives wrong values on one rank is left out on all of them. The operator itself races, too.
    The functions are choices of every collective of that kind in the process groups of this process. Give the same functions
    on all ranks, before the first call of a compiled function. A second registration of an operator replaces the first.

    A function gets the arguments of the operator: the operand by position, as a tensor of one dimension with all elements in
    row-major order, to which it may write; and the other arguments by their names. The group argument names a process group
    that only functions use, with the same ranks as the operator's. The function returns the result as one tensor of any
    shape, whose elements are those of the operator's result in row-major order. On host memory it runs on a thread of cotune.

    Each function races a second time in compiled form, under the name "python/ring.compiled?chunk_size=65536". All ranks
    compile it by Inductor as one graph, before the tune measures. A function that one rank cannot compile is left out in that
    form on all of them. The option functions_compile_budget_s of enable() bounds the time for it, in seconds; 0 turns it off.

    Args:
      custom_op: what torch.library.custom_op has returned, or an overload such as torch.ops.lib.op.default.
      configs: a list of CustomOpConfig (PyTorch's or cotune's): functions with their parameters. Their config_patches are
        options of Inductor for the compiled form.
      name: is put before the names of the functions among the choices: "python/name.ring?chunk_size=65536".
      input_gen_fns: for an operator that is not declared: functions that make operands like an uninitialized tensor, by the
        names of the arguments. Refused for one that is.
      min_speedup_threshold: for an operator that is not declared: a function has to be faster than the body by more than
        this factor. Refused for one that is.
      config_generator, dispatch_on, split_points, benchmark_with_cudagraphs: PyTorch's function has them; a value other than
        the default is refused with the reason.

    With a PyTorch that is too old it warns and changes nothing. Raises TypeError for a custom_op or a config of another type;
    ValueError for an operator that writes to an argument or does not return one new tensor, for arguments with values that are
    not allowed, for a declared operator if a group of cotune exists, and for another one if its functions have raced.
    """
    if start.fits():
        custom_op_autotuning.register(
            custom_op,
            configs,
            name=name,
            min_speedup_threshold=min_speedup_threshold,
            left_out={
                "config_generator": config_generator,
                "input_gen_fns": input_gen_fns,
                "dispatch_on": dispatch_on,
                "split_points": split_points,
                "benchmark_with_cudagraphs": benchmark_with_cudagraphs,
            },
        )


def explain() -> str:
    """Returns a text that explains how each collective of each graph runs, and whether each process group uses cotune.

    For each program it names the function and the line of its first collective, and for each tuned size the choice that runs,
    its time, its gain against the default choice, and whether this process has measured it or it comes from the database, with
    the day. Only rank 0 of a group knows the day.

    It also lists custom operators with a group argument that nobody has declared (see declare_collective), and the number of
    collectives that this process has made outside of compiled graphs. That number comes from PyTorch's own count of the
    collectives of the process groups that exist, less those that cotune has made. Call it while no program runs in another
    thread.
    """
    return explanation.explain()


def explain_data() -> list[dict[str, Any]]:
    """Returns the same as plain data, without the number of collectives outside of graphs.

    There is one dict for each graph, with the fields of decisions.GraphDecision. `sizes` of each program is a list of dicts
    with the fields of explanation.SizeExplanation.
    """
    return explanation.explain_data()


__all__ = [
    "CustomOpConfig", "GroupEntry", "Settings", "TuneSettings", "compat", "declare_collective", "disable", "enable", "enabled",
    "explain", "explain_data", "group_of", "is_enabled", "log", "options", "register_custom_op_autotuning",
]  # fmt: skip
