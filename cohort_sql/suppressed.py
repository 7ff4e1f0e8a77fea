"""Stays and patients that a build must treat as if the source had never held them."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Suppressed:
    """Ids of the stays and of the patients that are left out of every table before anything is counted."""

    stays: frozenset[int] = frozenset()
    subjects: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        """Whether there is anything to leave out."""
        return bool(self.stays or self.subjects)

    def by_column(self) -> dict[str, frozenset[int]]:
        """The ids to leave out by the column that holds them, without empty sets."""
        named = {"stay_id": self.stays, "subject_id": self.subjects}
        return {column: ids for column, ids in named.items() if ids}

    def digest(self) -> str:
        """SHA-256 (hex) of the ids, which names scratch files and does not leave the scratch directory."""
        document = {column: sorted(ids) for column, ids in self.by_column().items()}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


NOBODY = Suppressed()


def drop_others(folder: Path) -> None:
    """Remove what lies beside a scratch folder: builds from before a suppression hold what may be held no more."""
    for other in folder.parent.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
