"""The kinds of artefact a run may hold: a closed world, in which any other file is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flows.run.layout import RunLayout

_BUCKET = r"bucket=\d{2,3}"
# Kind of store, and the form of the paths inside the run that belong to it.
STORES = {
    "cohort": r"cohort/(stays\.parquet|(attrition|coverage|statistics)\.json)",
    "tokens": rf"cohort/hourly/{_BUCKET}/part\.parquet",
    "retained": rf"retained/{_BUCKET}\.parquet",
    "counts": rf"counts/[a-z0-9_-]+/{_BUCKET}\.parquet",
    "results": r"results/[a-z0-9_-]+\.json",
    "report": r"report\.html",
    "features": r"memories/[a-z0-9_-]+\.safetensors",
    "svdd": rf"memories/svdd/{_BUCKET}\.safetensors",
    "vla": rf"memories/vla/{_BUCKET}\.safetensors",
    "nc01": rf"memories/nc01/{_BUCKET}\.safetensors",
    "wards": r"memories/wards/ward=\d{2,3}\.safetensors",
    "manifest": r"manifest\.json|state\.json|\.lock",
    "receipts": r"receipts/[a-z0-9-]+\.json",
    "unpublished": r"\.generation/.*",
}
MEMORIES = ("svdd", "vla", "nc01", "wards")


def store_kinds(memories: Iterable[str]) -> frozenset[str]:
    """The kinds of artefact that a study with these memories may leave."""
    held = set(memories)
    return frozenset(kind for kind in STORES if kind not in MEMORIES or kind in held or (kind == "wards" and held))


def store_kind(name: str) -> str | None:
    """The kind of store that a path inside a run belongs to, None for an unknown one."""
    return next((kind for kind, form in STORES.items() if re.fullmatch(form, name)), None)


def unknown_files(layout: RunLayout, kinds: Iterable[str]) -> list[str]:
    """Paths inside a run that belong to none of these kinds, sorted; links and special files are unknown too."""
    allowed = set(kinds)
    found = []
    for path in sorted(layout.root.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        name = path.relative_to(layout.root).as_posix()
        if path.is_symlink() or not path.is_file() or store_kind(name) not in allowed:
            found.append(name)
    return found
