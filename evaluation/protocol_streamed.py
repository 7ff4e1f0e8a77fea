"""The streamed protocol: what a memory that decided hour by hour holds when the stay ends.

Every stay goes through its own support-vector memory. The other policies run beside it and hold, at every hour, at most
as many hours as that memory has active ones. An hour once left is gone for them, so they hold fewer where the memory
took several back at once. Budgets differ from the fixed-context protocol, and the two are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evaluation import published
from evaluation.policies import SUM_DECIMALS, Floats, Hours
from evaluation.selectors import Choice, Seen
from memory.svdd import SVDDMemory

ONLINE = ("density", "least-dense", "recency", "random")
UINT64 = 1 << 64
PRUNE_EVERY = 24  # hours; certified pruning changes no active hour, so it need not follow every one


@dataclass(frozen=True)
class Streamed:
    """Online policies at the capacity of a support-vector memory with C = 1/(nu n0), n0 = `declared_hours`.

    density and least-dense rank an hour by its summed kernel to all hours so far, recency by its hour, random by a draw
    of (seed, stay id), which is reservoir sampling while the capacity stands. Ties go to the earlier hour. No decision
    uses a later hour, the length of the stay or its label.
    """

    name: ClassVar[str] = "streamed"
    policies: ClassVar[tuple[str, ...]] = ("svdd", *ONLINE)
    declared_hours: int
    nu: float = published.NU
    sigma: float = published.SIGMA
    seed: int = published.SEED

    def select(self, seen: Seen, stay_id: int) -> Choice:
        """Return the hours each policy holds when a stay ends."""
        last: dict[str, Hours] = {}
        for held in self.stream(seen.keys, stay_id):
            last = held
        return Choice(last)

    def stream(self, keys: Floats, stay_id: int) -> Iterator[dict[str, Hours]]:
        """Yield the hours each policy holds after each of the n hours."""
        active = active_hours(keys, cap=1.0 / (self.nu * self.declared_hours), sigma=self.sigma)
        luck = np.random.default_rng([self.seed, stay_id % UINT64]).random(len(keys))
        held: dict[str, Hours] = {name: np.empty(0, dtype=np.int64) for name in ONLINE}
        for hour, (support, sums) in enumerate(zip(active, running_sums(keys, self.sigma), strict=True)):
            worth = _worth(sums, luck, hour)
            held = {name: best(np.append(kept, hour), worth[name], len(support)) for name, kept in held.items()}
            yield {"svdd": support} | held


def _worth(sums: Floats, luck: Floats, hour: int) -> Mapping[str, Floats]:
    """What every hour so far is worth to each policy, (hour + 1,); the least worth is left first."""
    return {
        "density": sums,
        "least-dense": -sums,
        "recency": np.arange(hour + 1, dtype=np.float64),
        "random": luck[: hour + 1],
    }


def best(kept: Hours, worth: Floats, capacity: int) -> Hours:
    """Return the `capacity` hours of `kept` (ascending) that are worth most, ascending; ties go to the earlier hour."""
    if len(kept) <= capacity:
        return kept
    return np.sort(kept[np.argsort(-worth[kept], kind="stable")[:capacity]])


def running_sums(keys: Floats, sigma: float) -> Iterator[Floats]:
    """Yield, after each hour t, the summed kernel of every hour so far to all others so far, (t + 1,)."""
    total = np.zeros(len(keys))
    for hour, key in enumerate(keys):
        row = np.exp(-((keys[: hour + 1] - key) ** 2).sum(axis=1) / sigma**2)
        total[:hour] += row[:hour]
        total[hour] = row[:hour].sum()
        yield np.round(total[: hour + 1], SUM_DECIMALS)


def active_hours(keys: Floats, *, cap: float, sigma: float) -> Iterator[Hours]:
    """Yield the active hours (margin and bound) of a pruned memory after each hour; every hour while it collects."""
    memory = SVDDMemory(cap, sigma)
    for hour, key in enumerate(keys):
        memory.admit(key, id=hour)
        if memory.ready and hour % PRUNE_EVERY == 0:
            memory.prune()
        active = [*memory.margin, *memory.bound] if memory.ready else range(hour + 1)
        yield np.array(sorted(active), dtype=np.int64)
