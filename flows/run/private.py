"""Files and directories for their owner alone."""

from __future__ import annotations

from pathlib import Path

from reports.receipts.files import PRIVATE, write_whole

OTHERS = 0o077


def open_to_others(path: Path) -> bool:
    """Whether anybody but its owner may read, write or enter a file or directory."""
    return bool(path.stat().st_mode & OTHERS)


def write_private(path: Path, content: bytes, *, replace: bool) -> None:
    """Write a file with mode 0600, whole or not at all, and flush it to disk.

    Where ``replace`` is False an existing file stays as it is and FileExistsError is raised, whoever wrote it first.
    """
    write_whole(path, content, PRIVATE, replace=replace)
