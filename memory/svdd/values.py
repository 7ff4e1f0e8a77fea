"""The values (readout targets) of a memory's tokens, by id."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memory.contract import Array, Ids, MemoryRefused
from memory.svdd.checks import numbers


class Values:
    """Rows of values by token id; a token without a value reads as NaN."""

    def __init__(self) -> None:
        self.width: int | None = None
        self._rows: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def checked(self, values: Array | None, count: int) -> Array | None:
        """Values as a finite (count, d_v) array of the memory's width; raises MemoryRefused otherwise."""
        if values is None:
            return None
        array = numbers("values", values)
        array = array.reshape(count, -1) if array.ndim < 2 and array.size % max(count, 1) == 0 else array
        if array.ndim != 2 or len(array) != count:
            raise MemoryRefused(f"values have shape {array.shape}, expected ({count}, d_v): give one row per key")
        if self.width is not None and array.shape[1] != self.width:
            raise MemoryRefused(
                f"values have width {array.shape[1]}, this memory holds width {self.width}: keep one width"
            )
        if not np.isfinite(array).all():
            raise MemoryRefused("values hold a number that is not finite: remove or fill it first")
        return array

    def put(self, ids: Iterable[int], values: Array | None) -> None:
        """Remember checked values for ids."""
        if values is not None:
            self.width = values.shape[1]
            self._rows.update(zip(ids, values.copy(), strict=True))

    def drop(self, ids: Iterable[int]) -> None:
        """Forget the values of ids; ids without one are passed over."""
        for token in ids:
            self._rows.pop(token, None)

    def matrix(self, ids: Ids) -> Array | None:
        """Rows for ids (n, d_v), NaN where a token has none; None when nothing was ever given."""
        if self.width is None:
            return None
        out = np.full((len(ids), self.width), np.nan)
        for row, token in enumerate(ids.tolist()):
            if token in self._rows:
                out[row] = self._rows[token]
        return out
