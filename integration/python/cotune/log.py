"""Passes the log lines of a group from C to Python."""

import logging
import sys
import traceback
from collections.abc import Callable

from cotune import _structs
from cotune._interrupt import callback

# A function that takes a level (logging.DEBUG, INFO, WARNING or ERROR) and the line. An object with such
# a method `log` may be given instead: a logging.Logger, or the module logging.
Log = Callable[[int, str], object]

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


class LogAdapter:
    """The C function of a log. It lives as long as the group and those that were split from it."""

    def __init__(self, log: "Log | logging.Logger"):
        log_method = getattr(log, "log", None)
        # The line is an argument and not the format, because it may have a percent sign.
        self._log = log if log_method is None else lambda level, text: log_method(level, "%s", text)
        # The exception of Ctrl-C that came while the log ran in the main thread. It is raised after the call.
        self.interrupt: BaseException | None = None
        self.function = _structs.LOG_FUNCTION(self._on_line)

    @callback
    def _on_line(self, _, severity: int, text: bytes) -> None:
        line = text.decode(errors="replace")
        try:
            self._log(_LEVELS[max(0, min(severity, 3))], line)
        except (KeyboardInterrupt, SystemExit) as interrupt:
            self.interrupt = interrupt
        except BaseException:  # noqa: BLE001  nothing may be raised through C
            print(f"cotune: the log raised an exception at the line: {line}", file=sys.stderr)
            traceback.print_exc()
