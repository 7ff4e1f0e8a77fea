"""Negative verification: every file of a run, read with its own reader, holds no deleted patient or stay."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors import safe_open

from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.stores import store_kind, store_kinds, unknown_files
from flows.steps.forget.generation import state_files
from flows.steps.opened import opened_settings
from reports.receipts.state import read_state

# Shorter numbers occur as hours and counts; they count in columns of ids only.
_TELLING = 10**6
_ALONE = re.compile(r"(?<![0-9A-Za-z.,_-])\d{7,19}(?![0-9A-Za-z.,_-])")


@dataclass(frozen=True)
class Gone:
    """Who may not be found: stays, and patients of whom nothing is left."""

    stays: frozenset[int] = field(repr=False)
    subjects: frozenset[int] = field(repr=False)

    @property
    def telling(self) -> set[int]:
        """The ids that are long enough to be told from other numbers."""
        return {number for number in self.stays | self.subjects if abs(number) >= _TELLING}


def refuse_remains(layout: RunLayout, gone: Gone) -> None:
    """Raise FlowError, naming the file and no id, where any file of a run holds a deleted patient or stay.

    Also raises it for a file of an unknown kind and for one that differs from the state manifest.
    """
    kinds = store_kinds(opened_settings(layout).memories)
    if unknown := unknown_files(layout, kinds):
        raise FlowError(f"run {layout.root}: {unknown[0]} is of no kind that this program writes; look at it")
    for file in sorted(path for path in layout.root.rglob("*") if path.is_file()):
        name = file.relative_to(layout.root).as_posix()
        if store_kind(name) not in ("receipts", "unpublished") and _READERS[file.suffix](file, gone):
            raise FlowError(f"run {layout.root}: {name} still holds a deleted patient or stay; please report this line")
    if read_state(layout.state_manifest.read_bytes()).files != state_files(layout):
        raise FlowError(f"run {layout.root}: its files are not those of state.json; run the same command again")


def _in_table(file: Path, gone: Gone) -> bool:
    frame = pl.read_parquet(file, hive_partitioning=False)
    return any(_in_column(frame[name], gone) for name in frame.columns)


def _in_column(column: pl.Series, gone: Gone) -> bool:
    while isinstance(column.dtype, pl.List | pl.Array):
        column = column.explode()
    if column.dtype == pl.String:
        return any(_in_text(text, gone) for text in column.drop_nulls().unique().to_list())
    if not column.dtype.is_integer():
        return False
    wanted = gone.telling
    if column.name == "stay_id":
        wanted |= gone.stays
    if column.name == "subject_id":
        wanted |= gone.subjects
    return bool(np.isin(column.drop_nulls().to_numpy(), sorted(wanted)).any())


def _in_states(file: Path, gone: Gone) -> bool:
    with safe_open(file, framework="numpy") as stored:
        names = list(stored.keys())
        texts = [part for name in names for part in name.split("/")]
        tensors = ((name, stored.get_tensor(name)) for name in names)
        found = any(_in_array(name.split("/")[-1], array, gone) for name, array in tensors)
        scalars = json.loads((stored.metadata() or {}).get("scalars", "{}"))
    texts += [part for name in scalars for part in name.split("/")]
    named = {str(stay) for stay in gone.stays | gone.subjects}
    return found or bool(named & set(texts)) or any(value in gone.telling for value in _numbers(scalars))


def _in_array(name: str, array: np.ndarray[Any, Any], gone: Gone) -> bool:
    wanted: Collection[int] = gone.telling | (gone.stays if name == "stay" else set())
    return array.dtype.kind in "iu" and bool(np.isin(array, sorted(wanted)).any())


def _in_json(file: Path, gone: Gone) -> bool:
    document = json.loads(file.read_text(encoding="utf-8"))
    listed = {value for value in _numbers(document, in_lists=True) if value in gone.telling}
    return bool(listed) or any(_in_text(text, gone) for text in _texts(document))


def _in_page(file: Path, gone: Gone) -> bool:
    return _in_text(file.read_text(encoding="utf-8"), gone)


def _in_text(text: str, gone: Gone) -> bool:
    return any(int(run) in gone.telling for run in _ALONE.findall(text))


def _numbers(document: Any, *, in_lists: bool = False, inside: bool = False) -> Iterator[int]:
    """Integers of a document; only those in lists or named as ids where a count could be one by chance."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _numbers(value, in_lists=in_lists, inside=str(name).endswith("_id"))
    elif isinstance(document, list):
        for value in document:
            yield from _numbers(value, in_lists=in_lists, inside=True)
    elif type(document) is int and (inside or not in_lists):
        yield document


def _texts(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield str(name)
            yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)
    elif isinstance(document, str):
        yield document


def _never(file: Path, gone: Gone) -> bool:
    """A lock file: it must be empty."""
    del gone
    return file.stat().st_size > 0


_READERS: dict[str, Callable[[Path, Gone], bool]] = {
    ".parquet": _in_table,
    ".safetensors": _in_states,
    ".json": _in_json,
    ".html": _in_page,
    "": _never,
}
