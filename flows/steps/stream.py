"""The streaming step: every stay hour by hour through a memory of its own, one bucket of patients at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from evaluation.protocol_streamed import Streamed
from evaluation.retention import CHANNELS, StayTokens
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import step_is_done
from flows.run.publish import write_json
from flows.run.states import write_states
from flows.settings import Settings
from flows.steps.evaluate import measure_stays, read_bucket
from flows.steps.opened import opened_manifest
from memory.svdd import SVDDMemory

Floats = np.ndarray[Any, np.dtype[np.float64]]

_COUNTS = ("events", "reexamined", "readmitted")


def streamed(settings: Settings) -> Streamed:
    """The streamed protocol with the study's numbers."""
    return Streamed(settings.declared_hours, nu=settings.nu, sigma=settings.sigma, seed=settings.seed)


def capacity(settings: Settings) -> float:
    """The cap C = 1 / (nu * n0) that the declared hours set, known before a stay begins."""
    return 1.0 / (settings.nu * settings.declared_hours)


def stream_bucket(layout: RunLayout, settings: Settings, bucket: int) -> int:
    """Write one bucket's states, counts, retained sets and tally, unless they are there; returns its stay-hours.

    The tally is written last, so that it stands for the others.
    """
    generation = layout.generation("stream")
    tally_path = generation / f"tally-{bucket_name(bucket)}.json"
    hourly, stays = read_bucket(layout, bucket)
    if step_is_done(layout, opened_manifest(layout), "evaluate") or tally_path.exists():
        return hourly.height
    vitals = values_by_stay(hourly)
    with threadpool_limits(limits=1):
        finished = {str(stay.stay_id): stream_stay(stay, vitals[stay.stay_id], settings) for stay in stays}
    write_states(generation / f"{bucket_name(bucket)}.safetensors", {name: end[0] for name, end in finished.items()})
    measure_stays(layout, settings, stays, streamed(settings), "stream", bucket)
    write_json(tally_path, tally(stays, [end[1] for end in finished.values()]))
    return hourly.height


def values_by_stay(hourly: pl.DataFrame) -> dict[int, Floats]:
    """The vitals of every stay in their own units, (hours, 6) each, by stay id."""
    parts = hourly.sort("stay_id", "hour").partition_by("stay_id", maintain_order=True)
    return {part["stay_id"][0]: part.select(CHANNELS).to_numpy().astype(np.float64) for part in parts}


def stream_stay(stay: StayTokens, vitals: Floats, settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Admit a stay's hours in order with certified pruning; returns the last state and what it took.

    Keys are the standardised vitals, values the vitals (hours, 6), ids the hours since admission to the unit.
    """
    memory = SVDDMemory(capacity(settings), settings.sigma)
    took: Counter[str] = Counter()
    for hour, key, value in zip(stay.hours, stay.keys, vitals, strict=True):
        outcome = memory.admit(key, value, int(hour))
        took[f"path_{outcome.path}"] += 1
        took.update({name: getattr(outcome, name) for name in _COUNTS})
        if memory.ready:
            took["pruned"] += memory.prune().removed
    bound = memory.certificate().relative_bound if memory.ready else None
    active = len(memory.margin) + len(memory.bound) if memory.ready else len(memory)
    facts = {**took, "hot": len(memory.ids), "active": active, "collecting": int(not memory.ready)}
    return memory.to_state(), {"counts": facts, "relative_bound": bound}


def tally(stays: Iterable[StayTokens], ends: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """One bucket's streaming in counts and its worst certified bound."""
    listed, taken = list(stays), list(ends)
    counts: Counter[str] = Counter()
    for end in taken:
        counts.update(end["counts"])
    bounds = [end["relative_bound"] for end in taken if end["relative_bound"] is not None]
    totals = {"stays": len(listed), "tokens": sum(len(stay.hours) for stay in listed)}
    return {**totals, **counts, "patients": len({stay.patient for stay in listed}), "bound": max(bounds, default=None)}


def streaming_row(settings: Settings, tallies: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The buckets' tallies as one flat row; `bound` is relative to the range of the score where that is below 1."""
    counts: Counter[str] = Counter()
    bounds = []
    for one in tallies:
        bounds.append(one["bound"])
        counts.update({name: value for name, value in one.items() if name != "bound"})
    worst = max((bound for bound in bounds if bound is not None), default=None)
    return {
        "memory": "svdd",
        "cap": capacity(settings),
        "declared_hours": settings.declared_hours,
        **counts,
        "bound": worst,
    }
