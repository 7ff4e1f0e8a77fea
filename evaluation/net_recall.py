"""Net recall: what a memory reads back of an event hour, less what it reads of it without having seen it [MATH E].

Of each stay at most `events` event hours of the held-out vital are asked for, drawn by seed and stay. Each is read 6,
24 and 96 hours later with its own key, which never contains the held-out vital. A read within the tolerance recalls;
the same on the memory that was never given the hour is the ghost. Without it a smooth regressor looks like a memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from evaluation import published
from evaluation import recall_memories as memories
from evaluation.recall_memories import Asked, Floats, Places, Reads
from evaluation.retention import CHANNELS, StayTokens
from memory.features import VitalFeatures

DELAYS = (6, 24, 96)  # hours between an event hour and its read
TOLERANCES = (0.25, 0.5, 1.0)  # of a read, in SD of the held-out vital
RIDGES = (1e-3, 0.1)
CACHES: tuple[memories.CachePolicy, ...] = ("density", "novelty", "recency", "random")
THIRD = "a third of the stay"
OWN = "its own"
UINT64 = 1 << 64

COUNTS_SCHEMA: Mapping[str, Any] = {
    "stay_id": pl.Int64,
    "subject_id": pl.Int64,
    "channel": pl.String,
    "memory": pl.String,
    "size": pl.String,
    "delay": pl.Int64,
    "tolerance": pl.Float64,
    "hours": pl.Int64,
    "event_hours": pl.Int64,
    "measured_event_hours": pl.Int64,
    **{f"{part}{name}": pl.Int64 for part in ("", "measured_") for name in ("asked", "recalled", "ghosts", "kept")},
    "floats": pl.Float64,
}


@dataclass(frozen=True)
class RecallPlan:
    """What is asked of every stay and of which memories.

    `widths` are key widths of VLA; the states of the same number of floats of the other memories follow from them, and
    `directions` is the width at the third-of-the-stay budget. `channel` is held out of every key.
    """

    channel: str = "spo2"
    events: int = 8
    widths: tuple[int, ...] = (32, 64)
    directions: int = 64
    nu: float = published.NU
    sigma: float = published.SIGMA
    declared_hours: int = 48
    alpha: float = 0.995
    novelty_width: float = 0.5
    seed: int = published.SEED

    @property
    def budgets(self) -> tuple[int, ...]:
        """The fixed state sizes, in numbers."""
        return tuple(memories.vla_floats(width) for width in self.widths)

    def matrix_widths(self, memory: str) -> tuple[int, ...]:
        """The key widths at which a matrix memory is measured: one a fixed size, and `directions`."""
        size = SIZES[memory]
        return tuple(sorted({*(memories.width_within(floats, size) for floats in self.budgets), self.directions}))

    def cache_sizes(self) -> tuple[int, ...]:
        """The hours that a cache of each fixed size holds."""
        return tuple(sorted({max(1, floats // memories.TOKEN_FLOATS) for floats in self.budgets}))

    def all_widths(self) -> tuple[int, ...]:
        """Every key width that is needed."""
        return tuple(sorted({width for memory in SIZES for width in self.matrix_widths(memory)}))


SIZES = {
    "vla-ridge": memories.vla_floats,
    "vla-unit": memories.vla_floats,
    "delta": memories.delta_floats,
    "linear": memories.linear_floats,
    "nc01": memories.nc01_floats,
}


def fit_recall_features(keys: Floats, hours: Places, plan: RecallPlan) -> dict[int, VitalFeatures]:
    """Random features of every width from training hours: keys (n, 6) standardised, hours (n,) since admission.

    Refused as by VitalFeatures.fit. Bandwidth and the divisor of values come from these hours alone.
    """
    own = CHANNELS.index(plan.channel)
    selectors = np.delete(keys, own, axis=1)
    return {
        width: VitalFeatures.fit(selectors, hours, keys[:, [own]], d_k=width, seed=plan.seed)
        for width in plan.all_widths()
    }


def recall_counts(stays: Iterable[StayTokens], plan: RecallPlan, features: Mapping[int, VitalFeatures]) -> pl.DataFrame:
    """Counts of asked, recalled and ghost event hours per stay, memory, size, delay and tolerance; COUNTS_SCHEMA.

    A stay without an event hour that lasts 6 hours beyond it has no row: its net recall is not defined.
    """
    rows: list[dict[str, Any]] = []
    for stay in sorted(stays, key=lambda each: each.stay_id):
        asked = ask(stay, plan)
        if len(asked.events):
            rows += _stay_rows(stay, asked, plan, features)
    return pl.DataFrame(rows, COUNTS_SCHEMA)


def ask(stay: StayTokens, plan: RecallPlan) -> Asked:
    """Draw at most `plan.events` event hours of a stay, by seed and stay id, among those read at least once."""
    label, own = stay.label(plan.channel), CHANNELS.index(plan.channel)
    rng = np.random.default_rng([plan.seed, stay.stay_id % UINT64])
    luck = rng.random(len(stay.hours))
    askable = np.flatnonzero(label.events & (stay.hours + min(DELAYS) <= stay.hours[-1]))
    events = np.sort(rng.permutation(askable)[: plan.events])
    due = stay.hours[events, None] + np.array(DELAYS)
    at = np.where(due <= stay.hours[-1], np.searchsorted(stay.hours, due, side="right") - 1, -1)
    z = np.concatenate([label.seen.keys, stay.hours[:, None] / 24.0], axis=1)
    return Asked(z, stay.keys[:, own], events, at, luck)


def measured_reads(
    asked: Asked, plan: RecallPlan, features: Mapping[int, VitalFeatures]
) -> Iterator[tuple[str, str, Reads]]:
    """Every memory's reads of one stay with its name and size."""
    for lam0 in RIDGES:
        for width in plan.matrix_widths("vla-ridge"):
            yield f"vla-ridge {lam0:g}", f"d_k {width}", memories.ridge_reads(asked, features[width], lam0)
    for width in plan.matrix_widths("vla-unit"):
        yield "vla-unit", f"d_k {width}", memories.unit_reads(asked, features[width])
    for width in plan.matrix_widths("delta"):
        yield "delta", f"d_k {width}", memories.delta_reads(asked, features[width])
    for width in plan.matrix_widths("linear"):
        yield "linear", f"d_k {width}", memories.linear_reads(asked, features[width])
    for width in plan.matrix_widths("nc01"):
        yield "nc01", f"d_k {width}", memories.nc01_reads(asked, features[width], plan.alpha, plan.novelty_width)
    cap = 1.0 / (plan.nu * plan.declared_hours)
    for name, reads in memories.svdd_reads(asked, cap, plan.sigma).items():
        yield name, OWN, reads
    sizes = {f"{size} hours": size for size in plan.cache_sizes()} | {THIRD: -(-len(asked.z) // 3)}
    for policy in CACHES:
        for size, capacity in sizes.items():
            yield policy, size, memories.cache_reads(asked, policy, capacity, plan.sigma)


def _stay_rows(
    stay: StayTokens, asked: Asked, plan: RecallPlan, features: Mapping[int, VitalFeatures]
) -> Iterator[dict[str, Any]]:
    label = stay.label(plan.channel)
    whole = {
        "stay_id": stay.stay_id,
        "subject_id": stay.patient,
        "channel": plan.channel,
        "hours": len(stay.hours),
        "event_hours": int(label.events.sum()),
        "measured_event_hours": int(label.measured.sum()),
    }
    charted = label.measured[asked.events]
    for memory, size, reads in measured_reads(asked, plan, features):
        named = whole | {"memory": memory, "size": size, "floats": reads.floats}
        for column, delay in enumerate(DELAYS):
            for tolerance in TOLERANCES:
                counted = _counted(asked, reads, column, tolerance, charted)
                if counted["asked"]:
                    yield named | {"delay": delay, "tolerance": tolerance} | counted


def _counted(asked: Asked, reads: Reads, delay: int, tolerance: float, charted: Any) -> dict[str, int | None]:
    """Counts over the asked event hours and over the charted ones among them; no readout recalls nothing."""
    there, own = asked.at[:, delay] >= 0, asked.values[asked.events]
    near: dict[str, Any] = {
        "asked": there,
        "recalled": there & _within(reads.recalled[:, delay], own, tolerance),
        "ghosts": there & _within(reads.ghost[:, delay], own, tolerance),
        "kept": None if reads.kept is None else there & reads.kept[:, delay],
    }
    parts = {"": np.ones(len(own), dtype=np.bool_), "measured_": charted}
    return {
        f"{part}{name}": None if flags is None else int((flags & mask).sum())
        for part, mask in parts.items()
        for name, flags in near.items()
    }


def _within(read: Floats, value: Floats, tolerance: float) -> Any:
    return np.abs(np.where(np.isnan(read), np.inf, read) - value) <= tolerance
