"""Files and directories for their owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from flows.run.publish import sync_directory

OTHERS = 0o077


def open_to_others(path: Path) -> bool:
    """Whether anybody but its owner may read, write or enter a file or directory."""
    return bool(path.stat().st_mode & OTHERS)


def write_private(path: Path, content: bytes, *, replace: bool) -> None:
    """Write a file with mode 0600, whole or not at all, and flush it to disk.

    Where ``replace`` is False an existing file stays as it is and FileExistsError is raised, whoever wrote it first.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            beside.replace(path)
        else:
            os.link(beside, path)
        sync_directory(path.parent)
    finally:
        beside.unlink(missing_ok=True)
