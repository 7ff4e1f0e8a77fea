"""What a memory that writes token by token accepts: every refusal is raised here, before anything changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memory.contract import Ids, MemoryRefused

Rows = NDArray[np.int64]


def dimension(name: str, number: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or int(number) < 1:
        raise MemoryRefused(f"{name} is {number!r}: it must be a whole number, at least 1")
    return int(number)


def batch_shape(batch: Any) -> tuple[int, ...]:
    """The leading batch dimensions: a number of memories, or one number a dimension (stays, heads)."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    return tuple(dimension("batch", part) for part in parts)


def number_in(name: str, number: Any, low: float, high: float) -> float:
    """A finite number with low < number <= high."""
    if isinstance(number, bool) or not isinstance(number, int | float | np.number) or not math.isfinite(number):
        raise MemoryRefused(f"{name} is {number!r}: it must be a finite number")
    if not low < number <= high:
        raise MemoryRefused(f"{name} is {number!r}: it must be above {low:g} and at most {high:g}")
    return float(number)


def float_dtype(dtype: Any) -> torch.dtype:
    """float32 or float64."""
    if dtype not in (torch.float32, torch.float64):
        raise MemoryRefused(f"dtype is {dtype!r}: it must be torch.float32 or torch.float64")
    return dtype  # type: ignore[no-any-return]


def tensor(name: str, given: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """What was given as a tensor of this shape, on the device and of the dtype of `like`.

    Floating arrays of another dtype are refused, not converted: rounding them silently would make the state depend on
    who called. Lists and whole numbers have no dtype to lose and are converted.
    """
    try:
        array = given.detach() if isinstance(given, Tensor) else _from_host(given, like.dtype)
    except (TypeError, ValueError, RuntimeError):
        raise MemoryRefused(f"{name} are no array of numbers: give {shape} as torch or numpy") from None
    if array.dtype.is_complex or (array.dtype.is_floating_point and array.dtype != like.dtype):
        raise MemoryRefused(f"{name} are {array.dtype}, this memory is {like.dtype}: convert them first")
    if tuple(array.shape) != shape:
        raise MemoryRefused(f"{name} have shape {tuple(array.shape)}, expected {shape}")
    return array.to(device=like.device, dtype=like.dtype)


def _from_host(given: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(given, np.ndarray | np.generic):
        return torch.as_tensor(np.asarray(given))
    return torch.tensor(given, dtype=dtype)


def finite(name: str, array: Tensor) -> None:
    """Refuse rows that hold a number that is not finite, with their count."""
    good = torch.isfinite(array)
    if not bool(good.all()):
        wrong = int((~good).any(-1).sum())
        raise MemoryRefused(f"{wrong} {name} hold a number that is not finite: remove or fill it first")


def chosen(mask: Any, shape: tuple[int, ...], rows: int) -> Rows:
    """The memories that a mask of the batch's shape names, flat; all without one."""
    if mask is None:
        return np.arange(rows)
    array = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if array.shape != shape or array.dtype != np.bool_:
        raise MemoryRefused(f"mask has shape {array.shape} and type {array.dtype}, expected {shape} of bool")
    return np.flatnonzero(array)


def integers(ids: Any, shape: tuple[int, ...]) -> Ids:
    """Ids of this shape as 64-bit integers."""
    array = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
    if array.size and (array.dtype.kind not in "iu" or array.max() >= 2**63):
        raise MemoryRefused("an id is not a 64-bit integer: use one integer per token")
    if array.shape != shape:
        raise MemoryRefused(f"ids have shape {array.shape}, expected {shape}: give one id per token")
    return array.astype(np.int64)
