"""One study at a time in one run directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from flows.errors import FlowError
from flows.run.layout import RunLayout


@contextmanager
def run_lock(layout: RunLayout) -> Iterator[None]:
    """Hold the lock of a run; the kernel drops it when the process ends, however it ends.

    Raises FlowError when another process holds it.  Protects one machine only: on a network file system without
    advisory locks two machines are not kept apart.
    """
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FlowError(
                f"run {layout.root}: another command is working in it; wait for it to end or choose another --out"
            ) from None
        yield
    finally:
        os.close(descriptor)
