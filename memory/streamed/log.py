"""The tokens that a batch of memories holds, in order of arrival."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memory.contract import Ids, MemoryRefused
from memory.streamed.checks import Rows

Positions = NDArray[np.int64]
_LARGEST_ID = 2**63 - 1


class TokenLog:
    """Write keys (rows, room, d_k), values (rows, room, d_v) and ids of every row's tokens.

    Only the first `count[row]` places of a row are in use; nothing reads the others. Replay and the deletion of single
    tokens need these, so the log is part of a memory's state.
    """

    def __init__(self, rows: int, d_k: int, d_v: int, like: Tensor) -> None:
        self.keys, self.values = like.new_zeros((rows, 0, d_k)), like.new_zeros((rows, 0, d_v))
        self.ids = np.zeros((rows, 0), dtype=np.int64)
        self.count = np.zeros(rows, dtype=np.int64)
        self._last = np.full(rows, -1, dtype=np.int64)

    def held(self, row: int) -> Ids:
        """Ids of a row's tokens in order of arrival."""
        return self.ids[row, : self.count[row]]

    def tokens(self, row: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Write keys and values of a row's tokens from place `start` on: (n, d_k), (n, d_v), not copied."""
        end = int(self.count[row])
        return self.keys[row, start:end], self.values[row, start:end]

    def new_ids(self, rows: Rows, ids: Ids | None, length: int) -> Ids:
        """Ids (R, length) for tokens to come; above the largest one held unless given; refused if already held."""
        if ids is None:
            if (self._last[rows] > _LARGEST_ID - length).any():
                raise MemoryRefused("no id is left above the largest one held: give ids")
            return self._last[rows, None] + 1 + np.arange(length)
        for row, given in zip(rows.tolist(), ids, strict=True):
            twice = length > 1 and len(np.unique(given)) != length
            # An id above all held ones is new, which spares a stream in order the search.
            if twice or (length and given.min() <= self._last[row] and np.isin(given, self.held(row)).any()):
                raise MemoryRefused("an id is given twice or already held: an id names one token; delete it first")
        return ids

    def append(self, rows: Rows, keys: Tensor, values: Tensor, ids: Ids) -> None:
        """Add a block of tokens, keys (R, T, d_k), values (R, T, d_v) and ids (R, T), to the chosen rows."""
        length = ids.shape[1]
        if not len(rows) or not length:
            return
        self._reserve(int(self.count[rows].max()) + length)
        start = int(self.count[rows[0]])
        at: tuple[Any, Any] = (slice(None), slice(start, start + length))
        if len(rows) < len(self.count) or (self.count != start).any():  # a slice is much faster where all go together
            at = (rows[:, None], self.count[rows, None] + np.arange(length))
        self.keys[at], self.values[at] = keys, values
        self.ids[at] = ids
        self.count[rows] += length
        self._last[rows] = np.maximum(self._last[rows], ids.max(1))

    def keep(self, row: int, places: Positions) -> None:
        """Keep only these places of a row, in order."""
        kept, index = len(places), torch.as_tensor(places, device=self.keys.device)
        for part in (self.keys, self.values):
            part[row, :kept] = part[row, index]
            part[row, kept:] = 0.0
        self.ids[row, :kept] = self.ids[row, places]
        self.ids[row, kept:] = 0
        self.count[row] = kept
        self._last[row] = self.ids[row, :kept].max(initial=-1)

    def _reserve(self, room: int) -> None:
        have = self.ids.shape[1]
        if room <= have:
            return
        more = max(room, 2 * have, 16) - have
        self.keys, self.values = (_longer(part, more) for part in (self.keys, self.values))
        self.ids = np.pad(self.ids, ((0, 0), (0, more)))

    def state(self, row: int) -> dict[str, Any]:
        """A row's tokens as numpy arrays."""
        keys, values = (part.cpu().numpy().copy() for part in self.tokens(row))
        return {"ids": self.held(row).copy(), "keys": keys, "values": values}


def _longer(part: Tensor, more: int) -> Tensor:
    return torch.cat([part, part.new_zeros((part.shape[0], more, part.shape[2]))], dim=1)
