"""What the lock-step memory accepts: every refusal is raised here or before, with nothing changed in any memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memory.contract import Array, MemoryRefused
from memory.svdd.batch.ledger import Ledger
from memory.svdd.checks import as_id


def memories(batch: Any) -> int:
    """A number of memories."""
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise MemoryRefused(f"batch is {batch!r}: it must be a whole number of memories, at least 1")
    return batch


def per_memory(name: str, value: Any, batch: int) -> Array:
    """A number above 0 for every memory: (B,)."""
    array = np.asarray(_on_host(value), dtype=np.float64)
    if array.shape not in ((), (batch,)):
        raise MemoryRefused(f"{name} has shape {array.shape}, expected a number or ({batch},)")
    if not (np.isfinite(array).all() and (array > 0.0).all()):
        raise MemoryRefused(f"{name} must be a finite number above 0 for every memory")
    return np.broadcast_to(array, (batch,)).copy()


def chosen(mask: Any, batch: int) -> list[int]:
    """The memories that a mask (B,) names; all without one."""
    if mask is None:
        return list(range(batch))
    array = np.asarray(_on_host(mask))
    if array.shape != (batch,) or array.dtype != np.bool_:
        raise MemoryRefused(f"mask has shape {array.shape} and type {array.dtype}, expected ({batch},) of bool")
    return [int(b) for b in array.nonzero()[0]]


def key_rows(keys: Any, rows: list[int], batch: int, width: int | None) -> Tensor:
    """A fresh (B, d) float64 copy of keys that are finite in the chosen rows; -0.0 becomes 0.0."""
    array = torch.as_tensor(keys, dtype=torch.float64)
    if array.ndim != 2 or len(array) != batch or array.shape[1] == 0:
        raise MemoryRefused(f"keys have shape {tuple(array.shape)}, expected ({batch}, d) with d >= 1")
    if width is not None and array.shape[1] != width:
        raise MemoryRefused(f"keys have width {array.shape[1]}, this batch holds width {width}: keep one width")
    wrong = int((~torch.isfinite(array[rows])).any(1).sum())
    if wrong:
        raise MemoryRefused(
            f"{wrong} of {len(rows)} keys hold a number that is not finite: remove or fill it, or mask the memory"
        )
    return array + 0.0


def value_rows(values: Any, rows: list[int], ledgers: Sequence[Ledger]) -> Array | None:
    """Values of the chosen rows, finite and of each memory's width: (len(rows), d_v)."""
    if values is None:
        return None
    array = np.asarray(_on_host(values), dtype=np.float64)
    if array.ndim != 2 or len(array) != len(ledgers):
        raise MemoryRefused(f"values have shape {array.shape}, expected ({len(ledgers)}, d_v): give one row per memory")
    for b in rows:
        ledgers[b].values.checked(array[b : b + 1], 1)
    return array[rows]


def token_ids(ids: Sequence[Any] | None, rows: list[int], ledgers: Sequence[Ledger]) -> list[int]:
    """New ids of the chosen memories; without any, one above the largest that each holds."""
    if ids is None:
        return [ledgers[b].next_id for b in rows]
    if len(ids) != len(ledgers):
        raise MemoryRefused(f"{len(ids)} ids for {len(ledgers)} memories: give one id per memory")
    tokens = [as_id(ids[b]) for b in rows]
    held = sum(token in ledgers[b] for b, token in zip(rows, tokens, strict=True))
    if held:
        raise MemoryRefused(
            f"{held} of {len(rows)} ids are already held by their memory: an id names one token; delete it first"
        )
    return tokens


def leaving_ids(ids: Sequence[Iterable[Any]], below_capacity: str, ledgers: Sequence[Ledger]) -> list[list[int]]:
    """Distinct held ids to delete, one list a memory."""
    if below_capacity not in ("refuse", "collect"):
        raise MemoryRefused(f"below_capacity is {below_capacity!r}: choose 'refuse' or 'collect'")
    if len(ids) != len(ledgers):
        raise MemoryRefused(
            f"{len(ids)} lists of ids for {len(ledgers)} memories: give one list per memory, empty for none"
        )
    leaving = [[as_id(token) for token in part] for part in ids]
    if any(len(set(part)) != len(part) for part in leaving):
        raise MemoryRefused("an id is listed twice for deletion from one memory: list each once")
    unknown = sum(token not in ledger for part, ledger in zip(leaving, ledgers, strict=True) for token in part)
    if unknown:
        total = sum(map(len, leaving))
        raise MemoryRefused(f"{unknown} of {total} ids are not held by their memory: nothing was deleted")
    return leaving


def query_rows(queries: Any, batch: int, width: int | None) -> Tensor:
    """Finite float64 queries, (q, d) shared or (B, q, d)."""
    array = torch.as_tensor(queries, dtype=torch.float64)
    d = array.shape[-1] if width is None and array.ndim else width
    if array.ndim not in (2, 3) or array.shape[-1] != d or (array.ndim == 3 and len(array) != batch):
        raise MemoryRefused(f"queries have shape {tuple(array.shape)}, expected (q, {d}) or ({batch}, q, {d})")
    if not bool(torch.isfinite(array).all()):
        raise MemoryRefused("queries hold a number that is not finite: remove or fill it first")
    return array


def _on_host(value: Any) -> Any:
    return value.cpu().numpy() if isinstance(value, Tensor) else value
