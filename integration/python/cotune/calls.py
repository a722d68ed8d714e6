"""Checks that the operands of a collective fit together, because libcotune gets only their addresses and a count."""

import dataclasses

from cotune.buffers import Operand
from cotune.constants import Collective, DType, Reduction
from cotune.errors import usage_error


@dataclasses.dataclass(frozen=True, slots=True)
class CallNames:
    """The names of a collective's function and of its arguments. They are made once, because a call takes only microseconds."""

    function: str
    name: str
    send: str
    recv: str
    op: str


def _names(collective: Collective) -> CallNames:
    name = collective.name.lower()
    return CallNames(f"cotune_{name}", name, f"{name}: send", f"{name}: recv", f"{name}: op")


CALL_NAMES = {collective: _names(collective) for collective in Collective}
# libcotune has no collectives of these types. They are moved as bytes.
_MOVED_AS_BYTES = (DType.I8, DType.F8_E4M3, DType.F8_E5M2)


def check_counts(collective: Collective, send: Operand, recv: Operand, size: int) -> int:
    """Returns the count of the C API for these buffers in a group of `size` ranks. Raises UsageError if they do not fit."""
    name = CALL_NAMES[collective].name
    if send.dtype != recv.dtype or send.is_bool != recv.is_bool:
        raise usage_error(
            f"send has {_name(send)} and recv has {_name(recv)}",
            name,
            "",
            "give both the same type",
        )
    if collective is Collective.ALL_GATHER:
        _check(
            send.count * size, recv, "recv", name, f"{size} ranks send {send.count} elements each"
        )
        return send.count
    if collective is Collective.REDUCE_SCATTER:
        _check(
            recv.count * size,
            send,
            "send",
            name,
            f"{size} ranks receive {recv.count} elements each",
        )
        return recv.count
    _check(send.count, recv, "recv", name, "it has as many elements as send")
    if collective is not Collective.ALL_TO_ALL:
        return send.count
    if send.count % size != 0:
        raise usage_error(
            f"{send.count} elements cannot be divided into {size} equal blocks",
            name,
            "every rank gets one block",
            f"give a multiple of {size}",
        )
    return send.count // size


def elements_dtype(collective: Collective, send: Operand, reduction: Reduction | None) -> DType:
    """Returns the dtype by which libcotune moves or reduces the elements. Raises UsageError if it cannot reduce them."""
    if not collective.reduces:
        return DType.U8 if send.dtype in _MOVED_AS_BYTES else send.dtype
    is_logic = reduction in (Reduction.MIN, Reduction.MAX, Reduction.PRODUCT)
    if send.dtype in _MOVED_AS_BYTES or (send.is_bool and not is_logic):
        raise usage_error(
            f"{_name(send)} has no {Reduction(reduction).name.lower()}",
            collective.name.lower(),
            "8-bit types are only stored and moved; booleans have min (and), max (or) and product",
            "convert the elements to a type that can hold the result",
        )
    return send.dtype


def _check(count: int, buffer: Operand, which: str, name: str, why: str) -> None:
    if buffer.count != count:
        raise usage_error(f"{which} has {buffer.count} elements, and needs {count}", name, why)


def _name(given: Operand) -> str:
    return "bool" if given.is_bool else given.dtype.name.lower()


def check_place(given: Operand, device: int | None, where: str) -> None:
    """Raises UsageError for a buffer outside of the memory of a group on this device."""
    if given.device == device or given.count == 0:
        return
    raise usage_error(
        f"the buffer lies in {_place(given.device)}, and the group is of {_place(device)}",
        where,
        next_step=f"give a buffer in {_place(device)}, or make a group of {_place(given.device)}",
    )


def _place(device: int | None) -> str:
    return "host memory" if device is None else f"the memory of GPU {device}"
