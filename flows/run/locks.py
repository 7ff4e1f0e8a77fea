"""One command at a time in one run directory, one deletion at a time in one site."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.errors import FlowError
from flows.run.layout import RunLayout


@contextmanager
def run_lock(layout: RunLayout) -> Iterator[None]:
    """Hold the lock of a run; the kernel drops it when the process ends, however it ends.

    Raises FlowError when another process holds it.  Protects one machine only: on a network file system without
    advisory locks two machines are not kept apart.
    """
    told = f"run {layout.root}: another command is working in it; wait for it to end or choose another --out"
    with held_lock(layout.lock, told):
        yield


@contextmanager
def site_lock(state: Path) -> Iterator[None]:
    """Hold the lock of a state directory, which one deletion at a time takes before the locks of its runs."""
    told = f"state directory {state}: another deletion is working in it; wait for it to end and run this command again"
    with held_lock(state / ".lock", told):
        yield


@contextmanager
def held_lock(file: Path, told: str) -> Iterator[None]:
    """Hold an exclusive lock on ``file``, made where absent; raises FlowError(``told``) when another process has it.

    A lock taken on a file that was replaced meanwhile (its directory exchanged) guards nothing and is taken again.
    """
    descriptor = _locked(file, told)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(file: Path, told: str) -> int:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_current(descriptor, file):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise FlowError(told) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_current(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
