"""The suppression list: which patients and stays a site may never hold again, as keyed hashes and nothing else."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["subject", "stay"]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Suppression:
    """The marks of all suppressed patients and stays of a site, with the key that makes them.

    A mark is HMAC-SHA256(key, "subject:<id>") or HMAC-SHA256(key, "stay:<id>") (RFC 2104).  Who has the marks without
    the key learns how many there are; who has both and a list of ids can tell which of them are suppressed.
    """

    key: bytes = field(repr=False)
    marks: frozenset[bytes] = field(repr=False)

    def __len__(self) -> int:
        """How many patients and stays are suppressed."""
        return len(self.marks)

    def mark(self, kind: Kind, number: int) -> bytes:
        """The 32 bytes that stand for one patient or stay."""
        return mark(self.key, kind, number)

    def matches(self, subject_ids: Ids, stay_ids: Ids) -> npt.NDArray[np.bool_]:
        """Which rows of two aligned columns (n,) are suppressed, by their patient or by their stay."""
        if not self.marks:
            return np.zeros(len(stay_ids), dtype=np.bool_)
        return self.subjects(subject_ids) | self.stays(stay_ids)

    def subjects(self, subject_ids: Ids) -> npt.NDArray[np.bool_]:
        """Which patients (n,) are suppressed as patients."""
        return self._known("subject", subject_ids)

    def stays(self, stay_ids: Ids) -> npt.NDArray[np.bool_]:
        """Which stays (n,) are suppressed as stays; those of a suppressed patient need not be."""
        return self._known("stay", stay_ids)

    def marks_of(self, subject_ids: Iterable[int] = (), stay_ids: Iterable[int] = ()) -> Iterator[bytes]:
        """The marks of patients and of stays, listed or not."""
        yield from (self.mark("subject", number) for number in subject_ids)
        yield from (self.mark("stay", number) for number in stay_ids)

    def _known(self, kind: Kind, ids: Ids) -> npt.NDArray[np.bool_]:
        distinct, places = np.unique(np.asarray(ids, dtype=np.int64), return_inverse=True)
        known = np.fromiter((self.mark(kind, number) in self.marks for number in distinct.tolist()), dtype=np.bool_)
        return known[places]


def mark(key: bytes, kind: Kind, number: int) -> bytes:
    """HMAC-SHA256 of one id of a kind under a key."""
    return hmac.digest(key, f"{kind}:{number}".encode(), "sha256")
