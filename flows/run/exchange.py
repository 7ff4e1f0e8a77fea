"""Exchange of two directories: one atomic step of the file system, or two renames that a restart can tell apart."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path

from flows.run.publish import sync_directory

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})


def exchange(left: Path, right: Path) -> None:
    """Swap two directories of one file system and flush both parents.

    Linux does it in one step (renameat2 with RENAME_EXCHANGE).  Where the system lacks that, ``left`` is moved aside
    first; `mend` finishes what a crash between the renames leaves.
    """
    if not _swapped(left, right):
        aside = aside_of(left)
        left.rename(aside)
        right.rename(left)
        aside.rename(right)
    for parent in {left.parent, right.parent}:
        sync_directory(parent)


def mend(left: Path, right: Path) -> None:
    """Finish an exchange in two renames that was cut short; nothing where none was.

    Where ``right`` was removed before it came to its place, ``left`` returns.
    """
    aside = aside_of(left)
    if not aside.exists():
        return
    if not left.exists():
        (right if right.exists() else aside).rename(left)
    if right.exists():
        shutil.rmtree(aside)
    elif aside.exists():
        aside.rename(right)
    sync_directory(left.parent)


def aside_of(directory: Path) -> Path:
    """Where a directory lies between two renames."""
    return directory.with_name(f".{directory.name}.former")


def flush_tree(root: Path) -> None:
    """Flush every file and directory below ``root``, so that an exchange publishes nothing that is not on disk."""
    for path in [*sorted(root.rglob("*")), root]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _swapped(left: Path, right: Path) -> bool:
    """One atomic step; False where this system has none."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    done = renameat2(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE)
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code))
