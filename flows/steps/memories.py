"""The online memories of a study: how each takes in one stay, and what may be counted of it.

Each stay has a memory of its own of every kind. The support-vector memory takes the six standardised vitals as keys;
the matrix memories take random features of five vitals and the hour as keys and all six as values, so that the channel
that events are held out of is never in its own key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from evaluation.retention import CHANNELS, StayTokens
from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.states import read_states, write_states
from flows.settings import Settings
from memory.contract import MemoryRefused
from memory.features import VitalFeatures
from memory.nc01 import ICU, NC01Bank, NoveltyOffers
from memory.svdd import SVDDMemory
from memory.vla import VLAMemory

Floats = np.ndarray[Any, np.dtype[np.float64]]

HELD_OUT = "spo2"  # the channel left out of the keys of the matrix memories where a study names none
_SVDD_COUNTS = ("events", "reexamined", "readmitted")


@dataclass(frozen=True)
class StreamedStay:
    """One memory at the end of one stay: its state, counts that may be added up, measures of which the worst is told.

    `kept` holds the hours that the memory protects, None for one that protects none.
    """

    state: dict[str, Any]
    counts: Mapping[str, int]
    worst: Mapping[str, float] = field(default_factory=dict)
    kept: list[int] | None = None


def capacity(settings: Settings) -> float:
    """The cap C = 1 / (nu * n0) that the declared hours set, known before a stay begins."""
    return 1.0 / (settings.nu * settings.declared_hours)


def selectors(settings: Settings) -> list[int]:
    """Columns of the five channels that make the keys of the matrix memories."""
    out = settings.held_out or HELD_OUT
    return [column for column, channel in enumerate(CHANNELS) if channel != out]


def stream_svdd(stay: StayTokens, vitals: Floats, settings: Settings, features: VitalFeatures | None) -> StreamedStay:
    """Admit a stay's hours in order with certified pruning; values are `vitals` (hours, 6), ids the hours."""
    del features
    memory = SVDDMemory(capacity(settings), settings.sigma)
    took: Counter[str] = Counter()
    for hour, key, value in zip(stay.hours, stay.keys, vitals, strict=True):
        outcome = memory.admit(key, value, int(hour))
        took[f"path_{outcome.path}"] += 1
        took.update({name: getattr(outcome, name) for name in _SVDD_COUNTS})
        if memory.ready:
            took["pruned"] += memory.prune().removed
    active = len(memory.margin) + len(memory.bound) if memory.ready else len(memory)
    counts = {**took, "hot": len(memory.ids), "active": active, "collecting": int(not memory.ready)}
    worst = {"bound": memory.certificate().relative_bound} if memory.ready else {}
    return StreamedStay(memory.to_state(), counts, worst)


def stream_vla(stay: StayTokens, vitals: Floats, settings: Settings, features: VitalFeatures | None) -> StreamedStay:
    """Write a stay's hours into a least-squares memory; with gain "ridge" it keeps the exact integer ledger."""
    del vitals
    drawn = _drawn(features)
    keys, values = _rows(stay, settings, drawn)
    memory = VLAMemory(keys.shape[1], values.shape[1], gain=settings.vla_gain, ledger=settings.vla_gain == "ridge")
    memory.admit_many(keys, values, stay.hours)
    worst = {"retained_error": memory.retained_error()} if settings.vla_gain == "ridge" else {}
    counts = {"written": len(memory), "shortened": drawn.beyond(stay.keys)}
    return StreamedStay(memory.to_state(), counts, worst)


def stream_nc01(stay: StayTokens, vitals: Floats, settings: Settings, features: VitalFeatures | None) -> StreamedStay:
    """Write a stay's hours into a protected-read bank that is offered the most novel hour of every half day."""
    del vitals
    drawn = _drawn(features)
    keys, values = (rows[None] for rows in _rows(stay, settings, drawn))
    bank = NC01Bank(1, keys.shape[2], values.shape[2], ICU["slots"], ICU["cadence"], ICU["horizon"])
    gates = torch.full(keys.shape[:2], settings.nc01_alpha, dtype=torch.float64)
    run = bank.run(keys, values, gates, torch.ones_like(gates), NoveltyOffers(settings.nc01_novelty_width))
    last = bank.clock - bank.clock % ICU["cadence"]
    held = [d.token for d in run.decisions if d.outcome is None and d.clock + ICU["horizon"] > last]
    kept = sorted(int(stay.hours[token]) for token in held if token is not None)
    counts = Counter(f"offer_{decision.outcome or 'admitted'}" for decision in run.decisions)
    counts.update({"written": bank.clock, "protected": len(kept), "shortened": drawn.beyond(stay.keys)})
    worst = {"protected_error": _protected_error(bank)} if kept else {}
    return StreamedStay(bank.to_state(), counts, worst, kept)


MEMORIES: Mapping[str, Callable[[StayTokens, Floats, Settings, VitalFeatures | None], StreamedStay]] = {
    "svdd": stream_svdd,
    "vla": stream_vla,
    "nc01": stream_nc01,
}


def fit_features(layout: RunLayout, settings: Settings) -> None:
    """Draw the features of the matrix memories from training patients and write them, unless they are there."""
    path = features_path(layout)
    if not set(settings.memories) - {"svdd"} or path.exists():
        return
    columns = [f"{channel}_z" for channel in CHANNELS]
    train = pl.scan_parquet(layout.cohort / "stays.parquet").filter(pl.col("split") == "train").select("stay_id")
    hours = pl.scan_parquet(layout.cohort / "hourly" / "*" / "*.parquet").select("stay_id", "hour", *columns)
    rows = hours.join(train, on="stay_id", how="semi").sort("stay_id", "hour").collect()
    keys = rows.select(columns).to_numpy()
    given = (keys[:, selectors(settings)], rows["hour"].to_numpy(), keys)
    try:
        fitted = VitalFeatures.fit(*given, d_k=settings.directions, seed=settings.seed)
    except MemoryRefused as failure:
        raise FlowError(f"features of the matrix memories: {failure}, or choose --memories svdd") from None
    write_states(path, {"features": fitted.to_state()})


def read_features(layout: RunLayout) -> VitalFeatures | None:
    """The features that `fit_features` wrote, None for a study that needs none."""
    path = features_path(layout)
    return VitalFeatures.from_state(read_states(path)["features"]) if path.exists() else None


def features_path(layout: RunLayout) -> Path:
    """Where the features wait to be published."""
    return layout.generation("stream") / "features.safetensors"


def _drawn(features: VitalFeatures | None) -> VitalFeatures:
    if features is None:
        raise FlowError("stream: the features of the matrix memories are not fitted; run the same study again")
    return features


def _rows(stay: StayTokens, settings: Settings, features: VitalFeatures) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys (hours, d_k) and scaled values (hours, 6) of one stay."""
    keys = features.keys(stay.keys[:, selectors(settings)], stay.hours)
    return torch.from_numpy(keys), torch.from_numpy(features.scaled(stay.keys))


def _protected_error(bank: NC01Bank) -> float:
    """The largest distance of a protected read from the value that was offered."""
    read = bank.read(torch.from_numpy(bank.addresses()[0])[None])[0].numpy()
    return float(np.linalg.norm(read - bank.targets()[0], axis=1).max())
