"""The hours of a stay as prediction sees them, their labels, and which of them count.

A label at hour t speaks of the hours t + 1 to t + 6; everything else here at hour t is known by the end of hour t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation.errors import EvaluationError
from evaluation.retention import CHANNELS, EVENT_CHANNELS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Events = Literal["filled", "measured"]
Split = Literal["train", "validation", "test"]

AHEAD = 6  # hours that a label looks ahead
_MEASURED = [CHANNELS.index(channel) for channel in EVENT_CHANNELS]


@dataclass(frozen=True)
class StayHours:
    """One stay in order of its n hours; channels in CHANNELS order, events in EVENT_CHANNELS order.

    Attributes:
        values, keys (n, 6): vitals in their own units and standardised; measured (n, 6): charted in that hour;
        ages (n, 6): hours since charted; crossed (n, 5): beyond the channel's threshold, charted or filled.
    """

    stay_id: int
    patient: int
    split: Split
    hours: NDArray[np.int64]
    values: Floats
    keys: Floats
    measured: Flags
    ages: Floats
    crossed: Flags

    def events(self, kind: Events) -> Flags:
        """Hours with any event (n,); of kind "measured" only where the vital was charted in that hour."""
        crossed = self.crossed if kind == "filled" else self.crossed & self.measured[:, _MEASURED]
        return np.asarray(crossed.any(axis=1))

    def until(self, stop: int) -> StayHours:
        """The first `stop` hours."""
        parts = ("hours", "values", "keys", "measured", "ages", "crossed")
        return StayHours(self.stay_id, self.patient, self.split, *(getattr(self, part)[:stop] for part in parts))


@dataclass(frozen=True)
class Labels:
    """Whether an event comes within AHEAD hours (n,), and which hours count (n,)."""

    ahead: Flags
    counts: Flags


def label(events: Flags) -> Labels:
    """Label every hour of a stay with events (n,).

    An hour counts when all of its AHEAD hours lie within the stay, or when an event was seen in those that do: a stay
    that ends early is not taken for one without an event. The price: hours that count near the end are all positive,
    so where stays are of like length the hour alone predicts (noise in stays of 24 hours each reaches AUROC 0.56).
    """
    n = len(events)
    seen = np.concatenate([[0], np.cumsum(events)])
    after = np.minimum(np.arange(n) + 1 + AHEAD, n)
    ahead = seen[after] > seen[np.arange(n) + 1]
    whole = np.arange(n) + AHEAD < n
    return Labels(ahead, whole | ahead)


def stays_of(hourly: pl.DataFrame, stays: pl.DataFrame) -> list[StayHours]:
    """The stays of an hourly frame by stay id; `stays` says whose each is and in which split.

    Raises EvaluationError for a stay that `stays` does not hold.
    """
    joined = hourly.join(stays.select("stay_id", "subject_id", "split"), on="stay_id", how="left")
    if lost := joined.filter(pl.col("split").is_null())["stay_id"].n_unique():
        raise EvaluationError(f"hourly tokens: {lost} stays are not in the table of stays; build the cohort again")
    parts = joined.sort("stay_id", "hour").partition_by("stay_id", maintain_order=True)
    return [_stay(part) for part in parts]


def _stay(part: pl.DataFrame) -> StayHours:
    def columns(names: Sequence[str], suffix: str = "") -> NDArray[np.generic]:
        return part.select(f"{name}{suffix}" for name in names).to_numpy()

    return StayHours(
        stay_id=part["stay_id"][0],
        patient=part["subject_id"][0],
        split=part["split"][0],
        hours=part["hour"].to_numpy().astype(np.int64),
        values=columns(CHANNELS).astype(np.float64),
        keys=columns(CHANNELS, "_z").astype(np.float64),
        measured=columns(CHANNELS, "_measured").astype(np.bool_),
        ages=columns(CHANNELS, "_age").astype(np.float64),
        crossed=columns(EVENT_CHANNELS, "_event").astype(np.bool_),
    )
