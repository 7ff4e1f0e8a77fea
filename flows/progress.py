"""Progress on stderr with a rate and the remaining time; aggregates only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TextIO

_PLAIN_EVERY = 5.0
_TERMINAL_EVERY = 0.2

Clock = Callable[[], float]


@dataclass
class Progress:
    """Shows how far one step is: a rewritten line on a terminal, a line every few seconds elsewhere.

    Silent when ``quiet`` and, elsewhere than on a terminal, for steps shorter than the interval.
    """

    quiet: bool = False
    stream: TextIO | None = None
    clock: Clock = time.monotonic
    _began: dict[str, float] = field(default_factory=dict)
    _shown: float = float("-inf")
    _open_line: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def update(self, label: str, done: float, total: float, unit: str) -> None:
        """Report ``done`` of ``total`` units of the step ``label``; may be called from any thread."""
        if self.quiet:
            return
        with self._guard:
            now = self.clock()
            began = self._began.setdefault(label, now)
            out = self.stream or sys.stderr
            terminal = out.isatty()
            if not terminal and self._shown == float("-inf"):
                self._shown = now
            finished = done >= total
            if now - self._shown < (_TERMINAL_EVERY if terminal else _PLAIN_EVERY) and not (finished and terminal):
                return
            self._shown = now
            text = describe(label, done, total, unit, now - began)
            out.write(f"\r\x1b[2K{text}" + ("\n" if finished else "") if terminal else text + "\n")
            out.flush()
            self._open_line = terminal and not finished

    def fraction(self, label: str, share: float) -> None:
        """Report a share between 0 and 1 of the step ``label``."""
        self.update(label, round(100 * share, 1), 100.0, "%")

    def counter(self, label: str, unit: str) -> Callable[[float, float], None]:
        """A function of (done, total) that reports the step ``label`` in ``unit``."""
        return lambda done, total: self.update(label, done, total, unit)

    def close(self) -> None:
        """End an unfinished line, so that what follows starts on its own."""
        if self._open_line:
            (self.stream or sys.stderr).write("\n")
            self._open_line = False


def describe(label: str, done: float, total: float, unit: str, seconds: float) -> str:
    """One line of progress: done of total, rate per second, remaining time.

    >>> describe("evaluate", 500, 2000, "hours", 10.0)
    'evaluate: 500 of 2,000 hours (25 %), 50 hours/s, 30 s left'
    """
    share = done / total if total else 1.0
    amount = f"{done:,.0f} %" if unit == "%" else f"{done:,.0f} of {total:,.0f} {unit} ({share:.0%})".replace("%", " %")
    if seconds <= 0 or done <= 0:
        return f"{label}: {amount}"
    rate = done / seconds
    pace = f"{rate:,.3g} {unit}/s" if rate < 100 else f"{rate:,.0f} {unit}/s"
    return f"{label}: {amount}, {pace}, {_duration((total - done) / rate)} left"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


_SILENT = Progress(quiet=True)
_current: ContextVar[Progress] = ContextVar("progress", default=_SILENT)


def current_progress() -> Progress:
    """The progress of the running command; silent where none was set (a worker, a test)."""
    return _current.get()


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[Progress]:
    """Show the progress of what the block does on stderr, unless quiet."""
    progress = Progress(quiet=quiet)
    token = _current.set(progress)
    try:
        yield progress
    finally:
        progress.close()
        _current.reset(token)
