"""The published protocol: every selector sees the whole stay, and all keep as many hours as the support set has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evaluation import published
from evaluation.policies import Floats, Hours, kernel_sums
from evaluation.selectors import Choice, Seen, ensemble, farthest_order, herding_order, stride_order
from memory.svdd import SVDDMemory


@dataclass(frozen=True)
class FixedContext:
    """One exact solve over the whole stay [SVA 3.1], and the other policies at the size of its support set.

    It says nothing about a memory that must decide hour by hour. Copies of a key share its mass equally: they are
    support together or not at all. Ties go to the earlier hour.
    """

    name: ClassVar[str] = "fixed-context"
    policies: ClassVar[tuple[str, ...]] = (
        "svdd",
        "density",
        "least-dense",
        "recency",
        "random",
        "ensemble",
        "stride",
        "k-centre",
        "herding",
        "leverage",
        "isolation-forest",
        "outlier-factor",
        "early-warning",
    )
    nu: float = published.NU
    sigma: float = published.SIGMA
    threshold: float = published.SUPPORT_THRESHOLD

    def select(self, seen: Seen, stay_id: int) -> Choice:
        """Return the hours each policy keeps of one stay; the stay's id is not used.

        The order of svdd puts its support first, then the hours that are farthest from the middle of its gate.
        """
        del stay_id
        n = len(seen.keys)
        memory = SVDDMemory(1.0 / (self.nu * n), self.sigma).fit(seen.keys)
        inside = np.asarray(memory.score(seen.keys))
        ids, alpha = np.asarray(memory.ids, dtype=np.int64), np.asarray(memory.alpha)
        support = np.sort(ids[alpha > self.threshold])
        sums = kernel_sums(seen.keys, self.sigma)
        orders = {
            "svdd": _first(np.isin(np.arange(n), support) * (1.0 + np.ptp(inside)) - inside),
            "density": _first(sums),
            "least-dense": _first(-sums),
            "recency": np.arange(n - 1, -1, -1, dtype=np.int64),
            # The published draw: a generator seeded with the stay's length.
            "random": np.random.RandomState(n).permutation(n).astype(np.int64),
            "ensemble": _first(ensemble(seen, inside, self.sigma)),
            "stride": stride_order(n),
            "k-centre": farthest_order(seen.keys),
            "herding": herding_order(seen.keys, self.sigma),
            "leverage": _first(seen.leverage),
            "isolation-forest": _first(seen.forest),
            "outlier-factor": _first(seen.outlier_factor),
            "early-warning": _first(seen.early_warning),
        }
        k = len(support)
        return Choice({name: np.sort(order[:k]) for name, order in orders.items()}, orders)


def _first(worth: Floats) -> Hours:
    """Positions by falling worth, ties by hour."""
    return np.argsort(-worth, kind="stable").astype(np.int64)
