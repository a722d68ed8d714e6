"""The request and the report of a tune."""

import contextlib
import ctypes
import dataclasses
import operator
import os
import traceback
from collections.abc import Callable, Sequence

from cotune import _structs
from cotune._constant_names import constant
from cotune._interrupt import callback, keeper
from cotune.constants import Collective, DType, Numerics, Reduction
from cotune.errors import usage_error
from cotune.program import Program


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """One thing to tune: a program, or a collective.

    Attributes:
      what: a Program, or a collective ("all_reduce", Collective.ALL_REDUCE).
      dtype, reduction: of a collective; the reduction is ignored if it does not reduce.
      sizes: for a program numbers of rows, from 1 on; for a collective bytes. None: the sizes of the
        tune. Bytes without an element for every rank, such as 0, are left out with a warning.
      in_place: of a collective; true for calls whose result overwrites their operand.
      symmetric: true for buffers in memory that all ranks have registered.
    """

    what: "Program | Collective | str"
    dtype: DType | str = DType.F32
    reduction: Reduction | str = Reduction.SUM
    sizes: Sequence[int] | None = None
    in_place: bool = False
    symmetric: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TuneReport:
    """The result of a tune.

    Attributes:
      measured: the number of cells (a problem at one size) that were measured.
      known: the number of cells that were taken from the database.
      skipped: the number of cells that were not measured, because the budget was used up or because
        the setting force_choice decides them.
      is_tuned: false if a rank missed the window of the tune; every rank keeps its table then.
    """

    measured: int
    known: int
    skipped: int
    is_tuned: bool


@dataclasses.dataclass(frozen=True, slots=True)
class TuneRequest:
    """The arguments of Group.tune, which describes them."""

    nodes: Sequence[Node] | None = None
    collectives: Sequence["Collective | str"] | None = None
    dtypes: Sequence[DType | str] | None = None
    reduction: Reduction | str | None = None
    sizes: Sequence[int] | None = None
    in_place: bool = False
    symmetric: bool = False
    budget_s: float = 0
    database: "str | os.PathLike[str] | None" = None
    numerics: Numerics | str = Numerics.DEFAULT
    progress: Callable[[int, int, str], object] | None = None

    def options(self) -> _structs.TuneOptions:
        """Returns the options for the C API, which keep all data alive that they point to."""
        made = _structs.TuneOptions(
            collectives=_bits(Collective, self.collectives, "collectives"),
            dtypes=_bits(DType, self.dtypes, "dtypes"),
            budget_ns=round(self.budget_s * 1e9),
            is_in_place=int(self.in_place),
            is_symmetric=int(self.symmetric),
            numerics=constant(Numerics, self.numerics, "numerics"),
        )
        if self.reduction is not None:
            made.reduction = constant(Reduction, self.reduction, "reduction")
        if self.database is not None:
            made.database_path = os.fsencode(self.database)
        made.sizes_bytes, made.size_count = _sizes(self.sizes, "sizes")
        made.progress = _progress_function(self.progress)
        if self.nodes is not None:
            nodes = [_node(each, f"node {i + 1}") for i, each in enumerate(self.nodes)]
            made.nodes = (_structs.TuneNode * len(nodes))(*nodes)
            made.node_count = len(nodes)
        return made


def _progress_function(progress: Callable[[int, int, str], object] | None):
    """Returns the progress function for C. It is needed even without `progress`, because Ctrl-C ends the tune in it.

    Ctrl-C is raised after the call of the tune. Other exceptions of `progress` are printed, because none may pass through C.
    """

    @callback
    def on_cell(_, cell: int, cells: int, what: bytes) -> int:
        try:
            if progress is not None:
                progress(cell, cells, what.decode(errors="replace"))
        except KeyboardInterrupt:
            keeper.raise_later()
            return 1
        except BaseException:  # noqa: BLE001
            # Printing may raise as well, for example if standard error is closed.
            with contextlib.suppress(BaseException):
                traceback.print_exc()
        return int(keeper.ends_tune)

    return _structs.PROGRESS_FUNCTION(on_cell)


def _bits(kind, values, where: str) -> int:
    """Returns a bit for each constant; for None 0, which is the default of the C API."""
    if values is None:
        return 0
    if isinstance(values, str) or not values:
        raise usage_error(
            f"{values!r} is no list of {kind.__name__}",
            where,
            next_step="give a list, or leave it out",
        )
    bits = 0
    for value in values:
        bits |= 1 << constant(kind, value, where)
    return bits


def _sizes(sizes: Sequence[int] | None, where: str):
    if sizes is None:
        return None, 0
    next_step = "give a list of whole numbers, [1024, 65536] for 1K and 64K, or leave it out"
    try:
        # A text is a sequence as well, but no list of sizes. operator.index takes numbers of numpy, and no fractions.
        listed = [] if isinstance(sizes, str | bytes) else [operator.index(each) for each in sizes]
    except TypeError:
        listed = []
    if not listed or min(listed) < 0 or max(listed) >= 2**64:
        raise usage_error(f"{sizes!r} is no list of sizes", where, next_step=next_step)
    return (ctypes.c_uint64 * len(listed))(*listed), len(listed)


def _node(node: Node, where: str) -> _structs.TuneNode:
    made = _structs.TuneNode(is_symmetric=int(node.symmetric), is_in_place=int(node.in_place))
    made.sizes, made.size_count = _sizes(node.sizes, where)
    if isinstance(node.what, Program):
        made.program = node.what.handle
        return made
    collective = constant(Collective, node.what, where)
    made.collective = collective
    made.dtype = constant(DType, node.dtype, where)
    made.reduction = constant(Reduction, node.reduction, where) if collective.reduces else 0
    return made
