"""Token streams of the protected-read campaign, in batches of banks, and their audit against the domain.

The source names its seven regimes and publishes no generator; these are ours, scaled so that the largest norm is near
the published one: in fp32 the drift of a protected read grows with the norm. Every array is drawn in float64 and
rounded to the storage type, so both precisions see the same stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memory.nc01.checks import norm_limit
from memory.nc01.limits import ALPHA_MAX

Floats = NDArray[np.float64]
Stream = tuple[Tensor, Tensor, Tensor, Tensor]
WIDTH = 128
INSIDE = 1 - 1e-7  # fp32 rounding of a unit key must not leave the domain
REGIMES = ("free", "correlated", "conflict", "saturated", "forgetting", "codec", "gram threshold")


def unit(rows: Floats) -> Floats:
    """Rows of norm 1."""
    normed: Floats = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return normed


def directions(rng: np.random.Generator, *shape: int) -> Floats:
    """Uniformly random unit vectors (*shape, WIDTH)."""
    return unit(rng.standard_normal((*shape, WIDTH)))


def regimes(length: int, seeds: int, seed: int, dtype: torch.dtype) -> Stream:
    """Seven regimes x seeds as banks: k and v (B, T, 128), alpha and beta (B, T)."""
    parts = [
        _regime(name, length, np.random.default_rng([seed, draw, number]))
        for number, name in enumerate(REGIMES)
        for draw in range(seeds)
    ]
    return _typed([np.stack(part) for part in zip(*parts, strict=True)], dtype)


def _regime(name: str, length: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    k, v = directions(rng, length), directions(rng, length)
    alpha, beta = np.full(length, 0.998), rng.uniform(0.2, 1.0, length)
    if name in ("correlated", "gram threshold"):
        alpha = np.full(length, 0.9965)
    if name == "correlated":
        k = k + 1.5 * directions(rng)
    elif name == "conflict":
        k = directions(rng, 12)[rng.integers(12, size=length)]
    elif name == "saturated":
        v, alpha = 1.3 * v, np.full(length, ALPHA_MAX)
    elif name == "forgetting":
        alpha = rng.uniform(0.0, ALPHA_MAX, length)
    elif name == "codec":
        v = torch.from_numpy(v).to(torch.bfloat16).double().numpy()
        k = rotated(directions(rng, 8)[rng.integers(8, size=length)])
    elif name == "gram threshold":
        share = rng.uniform(0.70, 0.80, length)[:, None]
        k = np.sqrt(share) * directions(rng) + np.sqrt(1 - share) * k
    return unit(k) * INSIDE, v, alpha, beta


def rotated(keys: Floats) -> Floats:
    """Rotary position embedding of keys (T, d): halves turned by t / 10000^(i / (d / 2))."""
    half = keys.shape[1] // 2
    angle = np.arange(len(keys))[:, None] / 10000 ** (np.arange(half) / half)
    a, b = keys[:, :half], keys[:, half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], 1)


def stressed(banks: int, length: int, seed: int, dtype: torch.dtype) -> Stream:
    """Streams that press the norm against its limit: a third of the values of norm 1 to 10^4, the largest gate."""
    rng = np.random.default_rng([seed, 101])
    large = rng.random((banks, length, 1)) < 1 / 3
    size = np.where(large, 10 ** rng.uniform(0, 4, (banks, length, 1)), 1.0)
    k, v = directions(rng, banks, length) * INSIDE, directions(rng, banks, length) * size
    alpha = np.where(rng.random((banks, length)) < 0.9, ALPHA_MAX, rng.uniform(0, ALPHA_MAX, (banks, length)))
    return _typed([k, v, alpha, rng.uniform(size=(banks, length))], dtype)


def plain(rng: np.random.Generator, banks: int, length: int, dtype: torch.dtype) -> Stream:
    """Unit keys and values, gates near 1."""
    k, v = (rng.standard_normal((banks, length, WIDTH), dtype=np.float32) for _ in range(2))
    k, v = (part / np.linalg.norm(part, axis=-1, keepdims=True) for part in (k, v))
    return _typed([k * (1 - 1e-6), v, np.full((banks, length), 0.999), rng.uniform(0.2, 1.0, (banks, length))], dtype)


def out_of_domain(stream: Stream) -> int:
    """Tokens outside the domain of a bank, counted here rather than by the bank's own refusal."""
    k, v, alpha, beta = stream
    finite = k.isfinite().all(-1) & v.isfinite().all(-1) & alpha.isfinite() & beta.isfinite()
    norm = torch.linalg.vector_norm(k.double(), dim=-1)
    sound = finite & (norm <= norm_limit(k.dtype)) & (alpha >= 0) & (alpha <= ALPHA_MAX) & (beta >= 0) & (beta <= 1)
    return int((~sound).sum())


def _typed(parts: list[Any], dtype: torch.dtype) -> Stream:
    k, v, alpha, beta = (torch.from_numpy(part).to(dtype) for part in parts)
    return k, v, alpha, beta
