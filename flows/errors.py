"""The refusals of this room: one line each, with the exit code that the command line gives them."""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path


class FlowError(ValueError):
    """One line saying what failed, where, why and what to do; holds no data value.

    ``exit_code`` is what the command line ends with.  The text is safe to store in an orchestrator.
    """

    exit_code = 1


class UsageProblem(FlowError):
    """The command line or the settings cannot be understood."""

    exit_code = 2


class CannotDecide(FlowError):
    """A key, file or version that the answer depends on is missing."""

    exit_code = 3


class PartlyDone(FlowError):
    """Some of the work is finished and kept; the same command does the rest."""

    exit_code = 4


class StepFailed(FlowError):
    """A step met a fault that it does not know; names the exception and the place in the code, never its text."""


class TransientFault(FlowError):
    """A fault of the machine that may pass (a busy or interrupted file system); worth another try."""


ROOMS = ("cohort_sql", "memory", "evaluation", "reports", "flows")

_MAY_PASS = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOLCK})


def is_refusal(failure: BaseException) -> bool:
    """Whether an exception is one of the rooms' own one-line refusals rather than a fault in the code."""
    return isinstance(failure, ValueError) and type(failure).__module__.split(".")[0] in ROOMS


def data_free(failure: Exception, step: str) -> FlowError:
    """A short error that may be logged and stored by an orchestrator, in place of one that may quote a value.

    Refusals keep their text, faults of the operating system their reason; of any other fault only the kind and the
    place in the code are told.
    """
    if isinstance(failure, FlowError):
        return type(failure)(str(failure))
    if is_refusal(failure):
        return FlowError(str(failure))
    if isinstance(failure, OSError):
        kind = TransientFault if failure.errno in _MAY_PASS else StepFailed
        return kind(
            f"{step}: {os.strerror(failure.errno) if failure.errno else 'input or output failed'}; "
            "see to it and run the same command again"
        )
    place = traceback.extract_tb(failure.__traceback__)[-1]
    where = f"{'/'.join(Path(place.filename).parts[-2:])}:{place.lineno}"
    return StepFailed(f"{step}: {type(failure).__name__} at {where}; a fault of the program, please report this line")
