"""Files of keys and ledger: whole or not there, flushed to disk before anything relies on them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PRIVATE = 0o600
PUBLIC = 0o644


def write_whole(path: Path, content: bytes, mode: int, *, replace: bool) -> None:
    """Write a file beside its place, flush it and move it there; a reader sees all of it or nothing of it.

    Raises FileExistsError for a file that is there unless ``replace`` is set.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            beside.replace(path)
        else:
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(directory: Path) -> None:
    """Remove what a write that was cut short has left."""
    for file in directory.glob(".*.new"):
        file.unlink(missing_ok=True)
