"""Failures of cotune as Python exceptions: one class for each result of the C API.

Every text is one line: what (where): likely cause; next step.
"""

from cotune.constants import Result


class CotuneError(RuntimeError):
    """A call of cotune failed.

    Attributes:
      result: the result of the C API.
      text: the message, also str() of the exception.
      rank: the first rank of the job that is at fault; None if none is known. Only errors of making
        and splitting groups and of parsing programs have it; the text of every other error names the ranks.
    """

    result = Result.ERROR_INTERNAL

    def __init__(self, text: str, rank: int | None = None):
        super().__init__(text)
        self.text = text
        self.rank = rank

    def __reduce__(self):
        return type(self), (self.text, self.rank)


class InternalError(CotuneError):
    """An invariant of cotune itself is broken."""


class UsageError(CotuneError, ValueError):
    """An argument, an option or a setting is wrong. The call has done nothing."""

    result = Result.ERROR_USAGE


class MachineError(CotuneError):
    """A file, memory, a permission or a backend is missing on this machine (COTUNE_ERROR_ENVIRONMENT)."""

    result = Result.ERROR_ENVIRONMENT


class WrongResultError(CotuneError):
    """A choice computed wrong values."""

    result = Result.ERROR_WRONG_RESULT


class RankLostError(CotuneError):
    """A rank died, stopped or came late. The group is stopped."""

    result = Result.ERROR_RANK_LOST


class DeadlineError(CotuneError, TimeoutError):
    """Time ran out and no rank is known to be at fault. The group is stopped."""

    result = Result.ERROR_DEADLINE


class DatabaseError(CotuneError):
    """A tuned database is corrupt, foreign, newer or in use."""

    result = Result.ERROR_DATABASE


class PluginError(CotuneError):
    """A plugin that was named cannot be loaded."""

    result = Result.ERROR_PLUGIN


class AbortedError(CotuneError):
    """A rank has aborted the job (Group.abort). The group is stopped."""

    result = Result.ERROR_ABORTED


class UnsupportedError(CotuneError):
    """No backend can run the call."""

    result = Result.ERROR_UNSUPPORTED


class CallInterruptedError(CotuneError):
    """A rank ended a tune by Ctrl-C, or by its progress function (COTUNE_ERROR_INTERRUPTED).

    The group can be used, with the table that it had.
    """

    result = Result.ERROR_INTERRUPTED


class DisagreementError(CotuneError):
    """The ranks differ in nodes, settings or choices. The group can be used, with the table that it had."""

    result = Result.ERROR_DISAGREEMENT


_CLASSES: dict[int, type[CotuneError]] = {
    each.result: each
    for each in (
        InternalError, UsageError, MachineError, WrongResultError, RankLostError, DeadlineError,
        DatabaseError, PluginError, AbortedError, UnsupportedError, CallInterruptedError,
        DisagreementError,
    )
}  # fmt: skip


def error_of(result: int, text: str, rank: int | None = None) -> CotuneError:
    """Returns the exception for a result of the C API other than success."""
    if result in _CLASSES:
        return _CLASSES[result](text, rank)
    return CotuneError(f"{text} (result {result} of a newer libcotune)", rank)


def usage_error(what: str, where: str, cause: str = "", next_step: str = "") -> UsageError:
    """Returns the error for a mistake that Python finds, with a text in the form of libcotune's own."""
    text = f"{what} ({where})"
    if cause:
        text += f": {cause}"
    if next_step:
        text += f"; {next_step}"
    return UsageError(text)
