"""Files become visible whole or not at all: written beside, flushed to disk, renamed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` in one rename; a reader sees the old bytes or the new ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)
    sync_directory(path.parent)


def write_json(path: Path, document: Any) -> None:
    """Write ``document`` atomically as JSON with sorted keys; NaN and infinity are refused."""
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    write_atomic(path, (text + "\n").encode())


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path beside ``path`` for a library to write; renamed onto ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    try:
        yield beside
        _sync_file(beside)
        beside.replace(path)
        sync_directory(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def publish_directory(generation: Path, target: Path) -> None:
    """Make a finished directory current: flush its files, move a former one aside, rename, drop the former one."""
    for file in sorted(generation.rglob("*")):
        if file.is_file():
            _sync_file(file)
    former = generation.with_name(generation.name + ".former")
    shutil.rmtree(former, ignore_errors=True)
    if target.exists():
        target.rename(former)
    generation.rename(target)
    sync_directory(target.parent)
    shutil.rmtree(former, ignore_errors=True)


def sync_directory(directory: Path) -> None:
    """Flush a directory entry, so that a rename survives a power cut."""
    _sync_file(directory)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
