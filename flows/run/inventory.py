"""What a run holds: its published files with sizes and digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flows.run.layout import RunLayout


@dataclass(frozen=True)
class Entry:
    """One published file: its path inside the run, its size in bytes and its SHA-256."""

    name: str
    size: int
    digest: str


def inventory(layout: RunLayout) -> tuple[Entry, ...]:
    """All published files of a run, sorted by name; the manifest and unpublished work are left out."""
    made = (layout.cohort, layout.memories, layout.retained, layout.counts, layout.results, layout.report)
    return entries(layout, (*made, layout.receipts, layout.state_manifest))


def entries(layout: RunLayout, parts: Iterable[Path]) -> tuple[Entry, ...]:
    """The files of some parts of a run, sorted by name."""
    found: list[Path] = []
    for part in parts:
        found.extend([part] if part.is_file() else (file for file in part.rglob("*") if file.is_file()))
    return tuple(
        Entry(file.relative_to(layout.root).as_posix(), file.stat().st_size, file_digest(file))
        for file in sorted(found)
    )


def file_digest(file: Path) -> str:
    """SHA-256 (hex) of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
