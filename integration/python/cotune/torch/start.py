"""Prepares cotune's operators in this process, once."""

from __future__ import annotations

import functools

from cotune._interrupt import keeper
from cotune.errors import CotuneError
from cotune.torch import agreement, compat, groups, library, operators, plain, report, stand_in
from cotune.torch.log import log


@functools.cache
def fits() -> bool:
    """Returns true if cotune runs with this PyTorch; warns once if it does not."""
    try:
        compat.check_version()
    except compat.Unsupported as failure:
        log.warning("cotune is not used: %s", failure)
        return False
    return True


@functools.cache
def start() -> None:
    """Defines the operators, with their shapes, gradients and layouts.

    If the library that defines them cannot be loaded, Python defines them (stand_in.py), so that this rank compiles the same
    graphs as the others. Its process groups are plain on all ranks then.
    """
    plain.register_plain_operator()
    try:
        library.load()
    except CotuneError as failure:
        # The first run of an operator warns, once for all ranks of its group.
        log.info("programs run by PyTorch's own collectives, on all ranks: %s", failure)
        stand_in.define()
    else:
        keeper.when_kept(library.interrupt_on_return)
        groups.install()
        agreement.install()
        report.install()
    operators.register()
