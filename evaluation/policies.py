"""Who keeps which hours of a stay: the support set of one whole-stay solve, and the policies compared with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from evaluation import published
from evaluation.errors import EvaluationError
from memory.svdd import SVDDMemory

Floats = NDArray[np.float64]
Hours = NDArray[np.int64]  # positions in the stay's hourly grid, ascending

BLOCK_CELLS = 1 << 21  # kernel entries held at one time, 16 MiB
SUM_DECIMALS = 9  # sums closer than this differ by summation order only and tie


@dataclass(frozen=True)
class View:
    """What a selector may see of one stay: keys (n, d), one row an hour, without the held-out channel."""

    keys: Floats
    sigma: float

    @cached_property
    def sums(self) -> Floats:
        """Summed kernel of every hour to all others, (n,)."""
        return kernel_sums(self.keys, self.sigma)


Policy = Callable[[View, int], Hours]


def kernel_sums(keys: Floats, sigma: float) -> Floats:
    """Return the summed Gaussian kernel exp(-|a - b|^2 / sigma^2) of every key to all other keys, (n,).

    `keys` is (n, d). Sums run over distinct locations weighted by their copies, so that copies of a key tie exactly,
    and in blocks of rows, so that memory does not grow with n^2. Copies of a key count for each other, no hour for
    itself. Rounded to SUM_DECIMALS.
    """
    locations, member, copies = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    step = max(1, BLOCK_CELLS // len(locations))
    sums = [
        (np.exp(-cdist(locations[start : start + step], locations, "sqeuclidean") / sigma**2) * copies).sum(axis=1)
        for start in range(0, len(locations), step)
    ]
    return np.asarray(np.round(np.concatenate(sums) - 1.0, SUM_DECIMALS)[member.ravel()], dtype=np.float64)


def densest(view: View, k: int) -> Hours:
    """Keep the k hours with the greatest summed kernel to all others, ties by hour."""
    return np.sort(np.argsort(-view.sums, kind="stable")[:k])


def least_dense(view: View, k: int) -> Hours:
    """Keep the k hours with the smallest summed kernel to all others, ties by hour."""
    return np.sort(np.argsort(view.sums, kind="stable")[:k])


def latest(view: View, k: int) -> Hours:
    """Keep the last k hours."""
    return np.arange(len(view.keys) - k, len(view.keys), dtype=np.int64)


def at_random(view: View, k: int) -> Hours:
    """Keep k hours drawn without replacement by the generator seeded with the stay's length, as [SVA] published."""
    n = len(view.keys)
    return np.sort(np.random.RandomState(n).choice(n, k, replace=False)).astype(np.int64)


POLICIES: Mapping[str, Policy] = {
    "density": densest,
    "least-dense": least_dense,
    "recency": latest,
    "random": at_random,
}


def select(policy: str, view: View, k: int) -> Hours:
    """Return the k hours that one of POLICIES keeps; raises EvaluationError unless 1 <= k <= n."""
    n = len(view.keys)
    if not 1 <= k <= n:
        raise EvaluationError(f"policy {policy}: a budget of {k} hours for a stay of {n}; give 1 to {n}")
    return POLICIES[policy](view, k)


def support(keys: Floats, *, nu: float, sigma: float, threshold: float) -> Hours:
    """Return the hours whose coefficient exceeds `threshold` in one exact solve over the whole stay [SVA 3.1].

    `keys` is (n, d); the cap is C = 1/(nu n). Copies of a key share its mass equally: they are kept or left together.
    """
    solved = SVDDMemory(1.0 / (nu * len(keys)), sigma).fit(keys)
    ids, alpha = np.asarray(solved.ids, dtype=np.int64), np.asarray(solved.alpha)
    return np.sort(ids[alpha > threshold])


@dataclass(frozen=True)
class FixedContext:
    """The published protocol: every selector sees the whole stay, and all keep as many hours as the support set has.

    It says nothing about a memory that must decide hour by hour.
    """

    name: ClassVar[str] = "fixed-context"
    policies: ClassVar[tuple[str, ...]] = ("svdd", *POLICIES)
    nu: float = published.NU
    sigma: float = published.SIGMA
    threshold: float = published.SUPPORT_THRESHOLD

    def select(self, keys: Floats, stay_id: int) -> dict[str, Hours]:
        """Return the hours each policy keeps of one stay with keys (n, d); the stay's id is not used."""
        kept = support(keys, nu=self.nu, sigma=self.sigma, threshold=self.threshold)
        view = View(keys, self.sigma)
        return {"svdd": kept} | {name: select(name, view, len(kept)) for name in POLICIES}
