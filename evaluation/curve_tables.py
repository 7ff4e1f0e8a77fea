"""Retention against the budget, from counts of every stay at several budgets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import polars as pl

from evaluation import published
from evaluation.bootstrap import mean_bootstrap
from evaluation.retention import HELD_OUT

EVENTS = {"all": ("events", "events_kept"), "measured": ("measured", "measured_kept")}


def curve_rows(
    counts: pl.DataFrame,
    *,
    unmeasured: Collection[str] = (),
    draws: int = published.DRAWS,
    seed: int = published.SEED,
) -> list[dict[str, Any]]:
    """Return one row per protocol, channel, kind of event hour, policy and budget.

    `counts` are the curves of `evaluate_stays`, of all buckets. retention is the mean over stays with such an event
    hour, low and high its 95 percent interval over patients, budget the mean share of hours kept, locations the mean
    number of distinct keys among them. A channel without such a stay has no row.
    """
    rows = []
    for (protocol, channel), part in counts.partition_by("protocol", "channel", as_dict=True).items():
        if HELD_OUT.get(str(channel), ("",))[0] in unmeasured:
            continue
        for events in EVENTS:
            rows += _channel_rows(part, {"protocol": protocol, "channel": channel, "events": events}, draws, seed)
    return sorted(rows, key=lambda row: tuple(str(row[name]) for name in ("protocol", "channel", "events", "policy")))


def _channel_rows(part: pl.DataFrame, named: dict[str, Any], draws: int, seed: int) -> list[dict[str, Any]]:
    whole, kept = EVENTS[named["events"]]
    some = part.filter(pl.col(whole) > 0).sort("policy", "share", "stay_id")
    points = some.partition_by("policy", "share", maintain_order=True)
    if not points:
        return []
    first = points[0]
    intervals = mean_bootstrap(
        [(point[kept] / point[whole]).to_numpy() for point in points], first["subject_id"].to_numpy(), draws, seed
    )
    shared = {
        "stays": first.height,
        "patients": first["subject_id"].n_unique(),
        "hours": int(first["hours"].sum()),
        "event_hours": int(first["events"].sum()),
        "measured_event_hours": int(first["measured"].sum()),
    }
    return [
        named
        | {"policy": point["policy"][0], "target_share": point["share"][0]}
        | {"budget": float((point["kept"] / point["hours"]).mean()), "locations": float(point["locations"].mean())}  # type: ignore[arg-type]
        | {"retention": interval.mean, "low": interval.low, "high": interval.high, "retrieval": None}
        | shared
        | {"reason": interval.reason}
        for point, interval in zip(points, intervals, strict=True)
    ]
