"""Result tables from per-stay retention counts: rows per policy and kind of event, and paired differences."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation import published
from evaluation.bootstrap import Interval, mean_bootstrap
from evaluation.retention import LABELS, RetentionProtocol

Floats = NDArray[np.float64]
Row = dict[str, Any]

CONTRASTS = (("svdd", "density"), ("svdd", "least-dense"), ("svdd", "recency"), ("ensemble", "svdd"))
EVENTS = {"all": "events", "measured": "measured"}  # kind of event hour -> its column in the counts


@dataclass(frozen=True)
class _Cell:
    """The stays of one channel with an event hour of one kind, by stay id; arrays are (policies, stays)."""

    retention: Floats
    retrieval: Floats
    budget: Floats
    patients: NDArray[np.int64]  # (stays,)
    hours: int
    event_hours: int


def retention_rows(
    scores: pl.DataFrame,
    protocol: RetentionProtocol,
    channels: Sequence[str] = LABELS,
    *,
    unmeasured: Collection[str] = (),
    draws: int = published.DRAWS,
    seed: int = published.SEED,
) -> list[Row]:
    """Return one row per channel, policy and kind of event hour ("all", "measured").

    `scores` are the counts of `evaluate_stays`, of all buckets; `unmeasured` names channels that were never charted.
    retention, retrieval and budget are means over stays with such an event hour; low and high bound retention at 95
    percent, resampling patients with all their stays. What is not defined is None, with the cause under `reason`.
    """
    rows: list[Row] = []
    for channel, events in ((channel, events) for channel in channels for events in EVENTS):
        cell = _cell(scores, protocol, channel, events)
        intervals = mean_bootstrap(cell.retention, cell.patients, draws, seed)
        share = _measured_share(scores, protocol, channel)
        for index, policy in enumerate(protocol.policies):
            row: Row = {"protocol": protocol.name, "channel": channel, "policy": policy, "events": events}
            row |= _counts(cell) | {"measured_share": share} | _means(cell, index, intervals[index])
            rows.append(row | {"reason": _reason(channel, events, unmeasured, intervals[index])})
    return rows


def contrast_rows(
    scores: pl.DataFrame,
    protocol: RetentionProtocol,
    channels: Sequence[str] = LABELS,
    *,
    unmeasured: Collection[str] = (),
    draws: int = published.DRAWS,
    seed: int = published.SEED,
) -> list[Row]:
    """Return the paired differences of retention over all event hours, by stay (as published) and by patient."""
    rows: list[Row] = []
    for channel in channels:
        cell = _cell(scores, protocol, channel, "all")
        by_policy = dict(zip(protocol.policies, cell.retention, strict=True))
        pairs = [pair for pair in CONTRASTS if set(pair) <= set(protocol.policies)]
        differences = np.stack([by_policy[left] - by_policy[right] for left, right in pairs])
        units = {"stay": None, "patient": cell.patients}
        found = {unit: mean_bootstrap(differences, groups, draws, seed) for unit, groups in units.items()}
        for index, (left, right) in enumerate(pairs):
            for unit, intervals in found.items():
                row: Row = {"protocol": protocol.name, "channel": channel, "left": left, "right": right, "unit": unit}
                rows.append(row | _difference(channel, unmeasured, intervals[index]))
    return rows


def _difference(channel: str, unmeasured: Collection[str], found: Interval) -> Row:
    row: Row = {"mean": found.mean, "low": found.low, "high": found.high, "groups": found.groups}
    return row | {"reason": _reason(channel, "all", unmeasured, found)}


def _cell(scores: pl.DataFrame, protocol: RetentionProtocol, channel: str, events: str) -> _Cell:
    column = EVENTS[events]
    kept = scores.filter(
        (pl.col("protocol") == protocol.name) & (pl.col("channel") == channel) & (pl.col(column) > 0)
    ).sort("stay_id")
    by_policy = [kept.filter(pl.col("policy") == policy) for policy in protocol.policies]

    def ratio(part: str, whole: str) -> Floats:
        return np.stack([(frame[part] / frame[whole]).to_numpy() for frame in by_policy]).astype(np.float64)

    stays = by_policy[0]
    return _Cell(
        retention=ratio(f"{column}_kept", column),
        retrieval=ratio(f"{column}_retrieved", column),
        budget=ratio("kept", "hours"),
        patients=stays["subject_id"].to_numpy().astype(np.int64),
        hours=int(stays["hours"].sum()),
        event_hours=int(stays[column].sum()),
    )


def _measured_share(scores: pl.DataFrame, protocol: RetentionProtocol, channel: str) -> float | None:
    """Share of all event hours of the channel that were charted in that hour; None without an event hour."""
    one = scores.filter(
        (pl.col("protocol") == protocol.name)
        & (pl.col("channel") == channel)
        & (pl.col("policy") == protocol.policies[0])
    )
    events = int(one["events"].sum())
    return int(one["measured"].sum()) / events if events else None


def _counts(cell: _Cell) -> Row:
    return {
        "stays": len(cell.patients),
        "patients": len(np.unique(cell.patients)),
        "hours": cell.hours,
        "event_hours": cell.event_hours,
    }


def _means(cell: _Cell, policy: int, interval: Interval) -> Row:
    some = len(cell.patients) > 0
    return {
        "retention": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "retrieval": float(cell.retrieval[policy].mean()) if some else None,
        "budget": float(cell.budget[policy].mean()) if some else None,
    }


def _reason(channel: str, events: str, unmeasured: Collection[str], interval: Interval) -> str | None:
    """Why a row lacks a figure, or None where it lacks none."""
    if interval.mean is not None:
        return interval.reason
    if channel in unmeasured:
        return "channel never measured"
    return "no stay with an event hour" if events == "all" else "no stay with a measured event hour"
