"""The command line: `icu-memory`."""

from __future__ import annotations

from collections.abc import Sequence

from flows.cli import (  # each registers its commands
    audit,
    bench,
    campaign,
    delete,
    doctor,
    export,
    keys,
    predict,
    receipt,
    report,
    request,
    simulate,
    study,
    verify,
)
from flows.cli.app import app

__all__ = [
    "app",
    "audit",
    "bench",
    "campaign",
    "delete",
    "doctor",
    "export",
    "keys",
    "main",
    "predict",
    "receipt",
    "report",
    "request",
    "simulate",
    "study",
    "verify",
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 usage, 3 cannot decide, 4 partly done.

    ``argv`` excludes the program's name; None takes it from the process.  Never raises for bad input.
    """
    try:
        result = app(args=None if argv is None else list(argv), prog_name="icu-memory", standalone_mode=True)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return result if isinstance(result, int) else 0
