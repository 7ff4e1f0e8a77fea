"""Invented stays for the tests of this room."""

from __future__ import annotations

import numpy as np
import polars as pl

from evaluation.retention import CHANNELS, EVENT_CHANNELS, StayTokens
from evaluation.selectors import Seen


def invented_stay(hours: int = 60, *, seed: int = 0, stay_id: int = 1, patient: int = 1) -> StayTokens:
    """A slowly drifting stay with filled stretches (exact copies), events in every channel and charting gaps."""
    rng = np.random.default_rng(seed)
    keys = np.cumsum(rng.normal(0, 0.4, (hours, len(CHANNELS))), axis=0)
    for start in range(8, hours, 12):
        keys[start : start + 3] = keys[start]
    events = np.abs(keys[:, [CHANNELS.index(name) for name in EVENT_CHANNELS]]) > 1.5
    events[0] = True
    return StayTokens(
        stay_id=stay_id,
        patient=patient,
        hours=np.arange(3, hours + 3),
        keys=keys,
        events=events,
        measured=rng.random((hours, len(CHANNELS))) < 0.7,
        values=np.array([85.0, 120.0, 65.0, 18.0, 96.0, 37.0]) + keys * [15.0, 18.0, 10.0, 4.0, 3.0, 0.6],
    )


def of_keys(keys: np.ndarray) -> Seen:
    """What a selector sees of keys (n, d) alone."""
    return Seen(CHANNELS[: keys.shape[1]], keys, keys, np.ones(keys.shape, dtype=np.bool_))


def frames_of(stays: list[StayTokens]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The hourly frame and the table of stays that these stays would come from."""
    parts = [
        pl.DataFrame({"hour": stay.hours})
        .with_columns(pl.lit(stay.stay_id, pl.Int64).alias("stay_id"))
        .with_columns(pl.Series(name, stay.values[:, i]) for i, name in enumerate(CHANNELS))
        .with_columns(pl.Series(f"{name}_z", stay.keys[:, i]) for i, name in enumerate(CHANNELS))
        .with_columns(pl.Series(f"{name}_measured", stay.measured[:, i]) for i, name in enumerate(CHANNELS))
        .with_columns(pl.Series(f"{name}_event", stay.events[:, i]) for i, name in enumerate(EVENT_CHANNELS))
        for stay in stays
    ]
    patients = {"stay_id": [stay.stay_id for stay in stays], "subject_id": [stay.patient for stay in stays]}
    return pl.concat(parts), pl.DataFrame(patients)
