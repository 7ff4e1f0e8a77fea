"""Which event hours a policy keeps: per-stay counts and retained sets, from hourly frames.

Retention is the share of a stay's event hours that are kept. Retrieval is the share of its event hours whose nearest
kept hour, in the keys the selector saw, is an event hour too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from evaluation.errors import EvaluationError
from evaluation.policies import BLOCK_CELLS, Floats, Hours
from evaluation.selectors import Choice, Seen

Flags = NDArray[np.bool_]

CHANNELS = ("hr", "sbp", "dbp", "rr", "spo2", "temp")  # order of the key's coordinates
EVENT_CHANNELS = ("hr", "sbp", "rr", "spo2", "temp")
COMPOSITE = "composite"
BOTH_PRESSURES = "sbp+dbp"
HELD_OUT: Mapping[str, tuple[str, ...]] = {  # label -> channels that no selector sees, the event's own first
    **{name: (name,) for name in EVENT_CHANNELS},
    BOTH_PRESSURES: ("sbp", "dbp"),
}
SHARES = (0.05, 0.10, 0.20, 0.33, 0.50)  # budgets of the curves, of a stay's hours
LABELS = (COMPOSITE, *EVENT_CHANNELS)

SCORES_SCHEMA: Mapping[str, Any] = {
    "protocol": pl.String,
    "stay_id": pl.Int64,
    "subject_id": pl.Int64,
    "channel": pl.String,
    "policy": pl.String,
    "hours": pl.Int64,
    "kept": pl.Int64,
    "events": pl.Int64,
    "events_kept": pl.Int64,
    "events_retrieved": pl.Int64,
    "measured": pl.Int64,
    "measured_kept": pl.Int64,
    "measured_retrieved": pl.Int64,
}
RETAINED_SCHEMA: Mapping[str, Any] = {
    "protocol": pl.String,
    "stay_id": pl.Int64,
    "channel": pl.String,
    "policy": pl.String,
    "hours": pl.List(pl.Int64),
}


CURVES_SCHEMA: Mapping[str, Any] = {
    "protocol": pl.String,
    "stay_id": pl.Int64,
    "subject_id": pl.Int64,
    "channel": pl.String,
    "policy": pl.String,
    "share": pl.Float64,
    "hours": pl.Int64,
    "kept": pl.Int64,
    "locations": pl.Int64,
    "events": pl.Int64,
    "events_kept": pl.Int64,
    "measured": pl.Int64,
    "measured_kept": pl.Int64,
}


class RetentionProtocol(Protocol):
    """A rule by which every policy chooses the hours it keeps of one stay."""

    name: ClassVar[str]
    policies: ClassVar[tuple[str, ...]]

    def select(self, seen: Seen, stay_id: int) -> Choice:
        """Return what every policy keeps of a stay."""


@dataclass(frozen=True)
class StayTokens:
    """The hours of one stay in order; n rows everywhere."""

    stay_id: int
    patient: int
    hours: Hours  # (n,) hours since admission to the unit
    keys: Floats  # (n, 6) standardised vitals, CHANNELS order
    events: Flags  # (n, 5) threshold crossed, EVENT_CHANNELS order
    measured: Flags  # (n, 6) charted in that hour, CHANNELS order
    values: Floats  # (n, 6) vitals in their own units, CHANNELS order

    def label(self, channel: str) -> Label:
        """Return the events of `channel` (or of all, for the composite) and what a selector may see for it."""
        out = HELD_OUT.get(channel, ())
        chosen = out[:1] or EVENT_CHANNELS
        columns = [EVENT_CHANNELS.index(name) for name in chosen]
        events = self.events[:, columns]
        charted = self.measured[:, [CHANNELS.index(name) for name in chosen]]
        left = [index for index, name in enumerate(CHANNELS) if name not in out]
        crossed, measured = (np.asarray(flags.any(axis=1)) for flags in (events, events & charted))
        names = tuple(CHANNELS[index] for index in left)
        seen = Seen(names, self.keys[:, left], self.values[:, left], self.measured[:, left])
        return Label(channel, crossed, measured, seen)


@dataclass(frozen=True)
class Label:
    """What one channel asks of one stay: event hours, those of them that were charted, and what selectors see."""

    channel: str
    events: Flags  # (n,)
    measured: Flags  # (n,)
    seen: Seen  # without the held-out channel


@dataclass(frozen=True)
class RetentionFrames:
    """Counts, retained sets and counts at several budgets, sorted by stay, channel and policy; columns by schema."""

    scores: pl.DataFrame
    retained: pl.DataFrame
    curves: pl.DataFrame


def stays_from_bucket(hourly: pl.DataFrame, stays: pl.DataFrame) -> list[StayTokens]:
    """Return the stays of one hourly frame, by stay id, with their patients looked up in `stays`.

    `hourly` has stay_id, hour and, per channel, <c>, <c>_z and <c>_measured, and <c>_event for the event channels.
    Raises EvaluationError for a missing column, a value that is not finite, or a stay that `stays` does not hold.
    """
    wanted = ["stay_id", "hour", *CHANNELS, *_suffixed(CHANNELS, "z"), *_suffixed(CHANNELS, "measured")]
    wanted += _suffixed(EVENT_CHANNELS, "event")
    if missing := [name for name in wanted if name not in hourly.columns]:
        raise EvaluationError(f"hourly tokens: no column {', '.join(missing)}; build the cohort again")
    joined = hourly.select(wanted).join(stays.select("stay_id", "subject_id"), on="stay_id", how="left")
    if lost := joined.filter(pl.col("subject_id").is_null())["stay_id"].n_unique():
        raise EvaluationError(f"hourly tokens: {lost} stays are not in the table of stays; build the cohort again")
    if bad := joined.filter(~pl.all_horizontal(pl.col(_suffixed(CHANNELS, "z")).is_finite().fill_null(False))).height:
        raise EvaluationError(f"hourly tokens: {bad} hours hold a value that is not finite; build the cohort again")
    parts = joined.sort("stay_id", "hour").partition_by("stay_id", maintain_order=True)
    return [_tokens(part) for part in parts]


def _suffixed(channels: Sequence[str], suffix: str) -> list[str]:
    return [f"{channel}_{suffix}" for channel in channels]


def _tokens(part: pl.DataFrame) -> StayTokens:
    return StayTokens(
        stay_id=part["stay_id"][0],
        patient=part["subject_id"][0],
        hours=part["hour"].to_numpy().astype(np.int64),
        keys=part.select(_suffixed(CHANNELS, "z")).to_numpy().astype(np.float64),
        events=part.select(_suffixed(EVENT_CHANNELS, "event")).to_numpy().astype(np.bool_),
        measured=part.select(_suffixed(CHANNELS, "measured")).to_numpy().astype(np.bool_),
        values=part.select(CHANNELS).to_numpy().astype(np.float64),
    )


def evaluate_stays(
    stays: Iterable[StayTokens], protocol: RetentionProtocol, channels: Sequence[str] = LABELS
) -> RetentionFrames:
    """Score every stay under one protocol, for each of `channels` in which it has an event hour.

    A stay without an event hour in a channel has no row there: its retention is not defined. `curves` holds the
    policies that rank all hours of a stay, at each of SHARES, and one event definition more than `channels`: systolic
    pressure with both pressures held out.
    """
    scores: list[dict[str, Any]] = []
    retained: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    asked = [*channels, *((BOTH_PRESSURES,) if "sbp" in channels else ())]
    for stay in sorted(stays, key=lambda each: each.stay_id):
        for label in (stay.label(channel) for channel in asked):
            if not label.events.any():
                continue
            named = {"protocol": protocol.name, "stay_id": stay.stay_id, "channel": label.channel}
            whose = named | {"subject_id": stay.patient}
            choice = protocol.select(label.seen, stay.stay_id)
            curves += [whose | point for point in curve_points(label, choice.orders)]
            for policy, kept in choice.kept.items() if label.channel in channels else ():
                scores.append(whose | {"policy": policy} | score(label, kept))
                retained.append(named | {"policy": policy, "hours": stay.hours[kept].tolist()})
    return RetentionFrames(
        pl.DataFrame(scores, SCORES_SCHEMA),
        pl.DataFrame(retained, RETAINED_SCHEMA),
        pl.DataFrame(curves, CURVES_SCHEMA),
    )


def curve_points(label: Label, orders: Mapping[str, Hours]) -> list[dict[str, Any]]:
    """Count the event hours that every order keeps at each of SHARES, of all hours rounded up, at least one."""
    n = len(label.events)
    locations = np.unique(label.seen.keys, axis=0, return_inverse=True)[1].ravel()
    sums = {"events": int(label.events.sum()), "measured": int(label.measured.sum()), "hours": n}
    points = []
    for policy, order in orders.items():
        crossed, charted = np.cumsum(label.events[order]), np.cumsum(label.measured[order])
        for share in SHARES:
            k = max(1, math.ceil(share * n - 1e-9))
            kept = {"kept": k, "events_kept": int(crossed[k - 1]), "measured_kept": int(charted[k - 1])}
            held = {"locations": len(np.unique(locations[order[:k]]))}
            points.append({"policy": policy, "share": share} | sums | kept | held)
    return points


def score(label: Label, kept: Hours) -> dict[str, int]:
    """Count the event hours, those kept and those retrieved, over all event hours and over the measured ones.

    `kept` holds ascending positions. A measured event hour is retrieved when its nearest kept hour is an event hour,
    charted or filled.
    """
    held = np.zeros(len(label.events), dtype=np.bool_)
    held[kept] = True
    found = np.zeros(len(label.events), dtype=np.bool_)
    at = np.flatnonzero(label.events)
    found[at] = label.events[nearest_kept(label.seen.keys, at, kept)]
    return {
        "hours": len(held),
        "kept": len(kept),
        "events": len(at),
        "events_kept": int((held & label.events).sum()),
        "events_retrieved": int(found.sum()),
        "measured": int(label.measured.sum()),
        "measured_kept": int((held & label.measured).sum()),
        "measured_retrieved": int((found & label.measured).sum()),
    }


def nearest_kept(keys: Floats, at: Hours, kept: Hours) -> Hours:
    """Return the nearest of the ascending positions `kept` for each position of `at`; ties go to the earliest hour."""
    step = max(1, BLOCK_CELLS // len(kept))
    nearest = [
        cdist(keys[at[start : start + step]], keys[kept], "sqeuclidean").argmin(axis=1)
        for start in range(0, len(at), step)
    ]
    return np.asarray(kept[np.concatenate(nearest)], dtype=np.int64)
