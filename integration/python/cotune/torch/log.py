"""The log of cotune under PyTorch.

Warnings are shown on rank 0 of each process group; `TORCH_LOGS="+cotune.torch"` shows everything, on all ranks, as it does for
PyTorch's own modules.
"""

import logging
import re

log = logging.getLogger("cotune.torch")
_PREFIX = "cotune: "
# Counts and times: numbers that stand alone. Parameters of choices and ranks are kept, because they make another warning.
_COUNT = re.compile(r"(?<!rank )(?<!ranks )(?<![^\s(])\d+(\.\d+)?(?=[\s,;:)]|$)")
_PROBLEM = re.compile(r"\([^()]*/count\d+\)")


def _with_prefix(record: logging.LogRecord) -> bool:
    """Puts "cotune" before a message if nobody has set up logging: Python prints it without the name of its logger then."""
    if not log.hasHandlers() and isinstance(record.msg, str) and not record.msg.startswith("cotune"):
        record.msg = _PREFIX + record.msg
    return True


log.addFilter(_with_prefix)


class LinesOfGroup:
    """The log of one group of cotune. It shows a warning once, and logs repetitions that differ in numbers alone."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def __call__(self, level: int, text: str) -> None:
        if level == logging.WARNING:
            kind = _COUNT.sub("#", _PROBLEM.sub("", text))
            if kind in self._shown:
                level = logging.INFO
            self._shown.add(kind)
        log.log(level, "%s", text)
