"""Finds graphs that may fail on operands that are made for a race: small floating-point numbers, and zeros for integers.

Some operations fail for some values: an assertion, an index out of bounds, a division of integers by zero. They raise an error,
and on a GPU an assertion ends the process. A graph with such operations may run on made operands only if these are certain to
be valid. An index is valid if it is an integer operand itself, because 0 is a valid index, or if it depends on no operand.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

# Operators that fail for some values, or whose amount of work depends on values, by the names of their packets.
_REJECTING = frozenset(
    """_assert_async _assert_scalar _functional_assert_async _functional_assert_scalar _local_scalar_dense item is_nonzero equal
    sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range _functional_sym_constrain_range_for_size
    masked_select masked_scatter masked_scatter_ nonzero nonzero_static bincount histc repeat_interleave unique_dim _unique2
    unique_consecutive multinomial cholesky cholesky_inverse cholesky_solve linalg_cholesky_ex linalg_inv_ex linalg_solve_ex
    _linalg_solve_ex _linalg_eigh _linalg_det _linalg_slogdet _linalg_svd linalg_eig linalg_lstsq linalg_lu linalg_lu_factor_ex
    linalg_ldl_factor_ex linalg_qr lu_unpack inverse _ctc_loss _cudnn_ctc_loss nll_loss_forward nll_loss2d_forward
    multi_margin_loss multilabel_margin_loss_forward binary_cross_entropy segment_reduce _embedding_bag
    _embedding_bag_forward_only""".split()
)
# Operators that read or write at indices, with the places of the indices among their arguments.
_INDICES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("index", "_unsafe_index", "index_put", "index_put_", "_unsafe_index_put", "embedding", "take", "put"), (1,)),
    **dict.fromkeys(("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"), (2,)),
    **dict.fromkeys(("gather", "index_select", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill"), (2,)),
    **dict.fromkeys(("index_reduce", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce"), (2,)),
    "embedding_dense_backward": (1,),
}
# Integer forms of these divide by their second argument.
_DIVIDING = frozenset({"div", "remainder", "fmod", "floor_divide", "true_divide", "div_", "remainder_", "fmod_"})
# Operators of whose result each element is an element of the first operand, perhaps of another type.
_KEEPING = frozenset(
    """view _unsafe_view reshape unsqueeze squeeze expand permute transpose t clone slice select alias contiguous flatten unfold
    as_strided _to_copy convert_element_type lift_fresh_copy repeat split split_with_sizes unbind""".split()
)


def why_not(graph: fx.Graph) -> str:
    """Returns why a graph may not run on operands that are made for it; "" if it may."""
    depends: set[fx.Node] = set()  # nodes whose values depend on operands
    zeros: set[fx.Node] = set()  # nodes of these whose values are zeros if the integer operands are
    for node in graph.nodes:
        if node.op == "placeholder":
            depends.add(node)
            if not _is_floating(node):
                zeros.add(node)
            continue
        if node.op != "call_function" or depends.isdisjoint(node.all_input_nodes):
            continue
        reason = _why_not_of(node, depends, zeros)
        if reason:
            return reason
        depends.add(node)
        if _keeps_values(node) and _first_nodes(node.args[:1]) <= zeros:
            zeros.add(node)
    return ""


def _why_not_of(node: fx.Node, depends: set[fx.Node], zeros: set[fx.Node]) -> str:
    name = _packet_name(node)
    if name in _REJECTING:
        return f"{node.target} depends on values, and may fail on operands that are made for a race"
    for place in _INDICES.get(name, ()):
        computed = _first_nodes(node.args[place : place + 1]) & depends - zeros
        # An index may also be a mask, and the size of the result the number of its true elements.
        masks = {each for each in _first_nodes(node.args[place : place + 1]) if _dtype_of(each) in (torch.bool, torch.uint8)}
        if computed or masks & depends:
            return f"{node.target} reads or writes at indices that the graph computes from its operands"
    if name in _DIVIDING and not _is_floating(node) and _first_nodes(node.args[1:2]) & depends:
        return f"{node.target} divides integers by values that operands decide"
    return ""


def _packet_name(node: fx.Node) -> str:
    packet: Any = getattr(node.target, "overloadpacket", None)
    return getattr(packet, "__name__", "")


def _keeps_values(node: fx.Node) -> bool:
    return node.target is operator.getitem or _packet_name(node) in _KEEPING


def _first_nodes(arguments: Any) -> set[fx.Node]:
    """Returns the nodes in arguments, including those in lists."""
    found: set[fx.Node] = set()
    add: Callable[[fx.Node], Any] = found.add
    fx.node.map_arg(arguments, add)
    return found


def _dtype_of(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _is_floating(node: fx.Node) -> bool:
    dtype = _dtype_of(node)
    return dtype is not None and (dtype.is_floating_point or dtype.is_complex)
