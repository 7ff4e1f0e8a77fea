"""What the support-vector memory accepts: every refusal is raised here, before anything changes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from memory.contract import Array, Ids, MemoryRefused

_LARGEST = 1e150  # squared distances stay finite


def positive(name: str, number: float) -> float:
    """A number above 0 whose square is a normal float64, as a float."""
    if not isinstance(number, int | float | np.integer | np.floating) or abs(number) >= _LARGEST:
        raise MemoryRefused(f"{name} is no number between 0 and {_LARGEST:g}")
    if not (math.isfinite(number) and 1.0 / _LARGEST < number < _LARGEST):
        raise MemoryRefused(f"{name} is {number!r}: it must lie above 0, between {1.0 / _LARGEST:g} and {_LARGEST:g}")
    return float(number)


def numbers(what: str, given: Any, ndmin: int = 0) -> Array:
    """A fresh float64 array; what cannot be one is refused without being quoted."""
    try:
        if np.iscomplexobj(given):
            raise TypeError
        return np.array(given, dtype=np.float64, order="C", ndmin=ndmin)
    except (TypeError, ValueError):
        raise MemoryRefused(f"{what} are not an array of real numbers: give float64 rows of equal width") from None


def _listed(ids: Any) -> list[Any]:
    try:
        return list(ids)
    except TypeError:
        raise MemoryRefused("ids are not a sequence of integers: list one id per token") from None


def key_rows(keys: Any, width: int | None) -> Array:
    """A fresh (n, d) float64 copy of finite keys; -0.0 becomes 0.0, so that both are one location."""
    array = numbers("keys", keys, ndmin=2)
    if array.ndim != 2 or array.shape[1] == 0:
        raise MemoryRefused(f"keys have shape {np.shape(keys)}, expected (n, d) with d >= 1")
    if width is not None and array.shape[1] != width:
        raise MemoryRefused(f"keys have width {array.shape[1]}, this memory holds width {width}: keep one width")
    if not (np.abs(array) < _LARGEST).all():
        raise MemoryRefused(f"keys hold a number that is not finite or not below {_LARGEST:g}: remove or fill it first")
    array += 0.0
    return array


def token_ids(ids: Iterable[Any] | None, count: int, known: set[int]) -> Ids:
    """Ids of `count` new tokens as int64; without any, the integers above the largest known one."""
    if ids is None:
        first = max(known, default=-1) + 1
        if first + count > 2**63:
            raise MemoryRefused("no id above the largest held is a 64-bit integer: name the new tokens yourself")
        return np.arange(first, first + count, dtype=np.int64)
    listed = [as_id(token) for token in _listed(ids)]
    if len(listed) != count:
        raise MemoryRefused(f"{len(listed)} ids for {count} keys: give one id per key")
    if len(set(listed)) != count or not known.isdisjoint(listed):
        raise MemoryRefused("an id is given twice or already held: an id names one token; delete it first")
    return np.array(listed, dtype=np.int64)


def as_id(token: Any) -> int:
    """A token id as a 64-bit integer."""
    if isinstance(token, bool) or not isinstance(token, int | np.integer) or not -(2**63) <= int(token) < 2**63:
        raise MemoryRefused("an id is not a 64-bit integer: use one integer per token")
    return int(token)


def leaving_ids(ids: Iterable[Any], known: set[int]) -> list[int]:
    """Ids to delete as distinct known integers."""
    listed = [as_id(token) for token in _listed(ids)]
    if len(set(listed)) != len(listed):
        raise MemoryRefused("an id is listed twice for deletion: list each once")
    unknown = sum(token not in known for token in listed)
    if unknown:
        raise MemoryRefused(f"{unknown} of {len(listed)} ids are not held by this memory: nothing was deleted")
    return listed


def carries(tokens: int, cap: float) -> bool:
    """Whether the caps of `tokens` tokens can carry the whole mass."""
    return tokens * cap >= 1.0 - 1e-12


def inequality(tokens: int, cap: float) -> str:
    """Why they cannot, with the numbers."""
    return f"n * C = {tokens} * {cap:.6g} = {tokens * cap:.6g} < 1, so the caps cannot carry the mass"
