"""Turning the graph pass on and off: for all that is compiled, in a block, or for one function.

The pass runs when a function is compiled, which is at its first call. A function that was compiled
before keeps its graph, and what is compiled anew outside of the block (new shapes, a guard that
fails) is compiled without the pass; `torch.compile(function, options=options())` binds the pass to
the function instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cotune.torch import compat, declarations
from cotune.torch.graph_pass import CotunePass
from cotune.torch.settings import Settings

_OPTION = "post_grad_custom_post_pass"
# The user's value of the option of Inductor that keep_order() has turned off, by the name of the option.
_before: dict[str, Any] = {}


def _without_cotune(passes: Any) -> Any:
    """Returns the value of Inductor's option without cotune's pass; None if no pass is left."""
    if isinstance(passes, CotunePass):
        return passes.before
    if isinstance(passes, (list, tuple)):
        left = [each for each in passes if not isinstance(each, CotunePass)]
        if len(left) <= 1:
            return left[0] if left else None
        return type(passes)(left)
    return passes


def _with_cotune(passes: Any, settings: Settings) -> Any:
    """Returns a value of Inductor's option that runs the other passes first, and then cotune's."""
    others = _without_cotune(passes)
    if others is None:
        return CotunePass(settings)
    if not compat.takes_several_passes():
        return CotunePass(settings, before=others)
    listed = list(others) if isinstance(others, (list, tuple)) else [others]
    return [*listed, CotunePass(settings)]


def enable(**options: bool) -> None:
    """Turns the pass on for all functions that are compiled from now on. Options: see Settings.

    A pass that is in Inductor's configuration already runs before it. A second call replaces the settings.
    """
    config = compat.inductor_config()
    setattr(config, _OPTION, _with_cotune(getattr(config, _OPTION), Settings.of(**options)))
    keep_order()


def disable() -> None:
    """Turns the pass off, and leaves other passes as they are."""
    config = compat.inductor_config()
    setattr(config, _OPTION, _without_cotune(getattr(config, _OPTION)))
    _restore_order()


def keep_order() -> None:
    """Lets declared operators reach the pass in the order in which the user calls them, while the pass is on.

    Before the pass runs, Inductor moves each node next to the node that reads it. It spares functional collectives, and
    would move declared operators, so that ranks whose graphs differ would call them in different orders.
    """
    name = compat.locality_option()
    if name and is_enabled() and declarations.kinds():
        config = compat.inductor_config()
        _before.setdefault(name, getattr(config, name))
        setattr(config, name, False)


def _restore_order() -> None:
    """Gives Inductor's option back the value that the user had."""
    for name in list(_before):
        setattr(compat.inductor_config(), name, _before.pop(name))


@contextlib.contextmanager
def enabled(**options: bool) -> Iterator[None]:
    """Turns the pass on in a block, for functions whose first call is in it."""
    config = compat.inductor_config()
    before = getattr(config, _OPTION)
    enable(**options)
    try:
        yield
    finally:
        setattr(config, _OPTION, before)
        # The pass may still be on, by an outer block or enable(), and then needs the order.
        if not is_enabled():
            _restore_order()


def is_enabled() -> bool:
    """Returns true if functions that are compiled now get the pass."""
    passes = getattr(compat.inductor_config(), _OPTION)
    listed = passes if isinstance(passes, (list, tuple)) else (passes,)
    return any(isinstance(each, CotunePass) for each in listed)


def options(**options: bool) -> dict[str, Any]:
    """Options of torch.compile that turn the pass on for one function. Options: see Settings.

    The other options of torch.compile can be added to the dict.
    """
    passes = getattr(compat.inductor_config(), _OPTION)
    found = {_OPTION: _with_cotune(passes, Settings.of(**options))}
    if declarations.kinds() and (name := compat.locality_option()):
        found[name] = False
    return found
