"""What the models that take one row an hour see: window statistics of the stay so far, nothing later.

Windows end with the hour itself. Ages and times since an event are cut at a day: what is older is "long ago", and what
was never measured counts as older still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from evaluation.prediction.hours import Events, StayHours
from evaluation.retention import CHANNELS, EVENT_CHANNELS

Floats = NDArray[np.float64]
Limits = Mapping[str, tuple[float | None, float | None]]  # channel -> threshold below, threshold above

WINDOWS = (6, 24)  # hours
LONG_AGO = 24.0  # hours


def current_margin(stay: StayHours, limits: Limits, spread: Mapping[str, float]) -> Floats:
    """Return how far the worst vital is beyond its threshold right now, in standard deviations: (n,).

    `limits` holds the thresholds of the events, `spread` the standard deviation of each channel over training hours. It
    is below 0 while no threshold is crossed. Nothing is trained.
    """
    distances = []
    for channel in EVENT_CHANNELS:
        value, (low, high) = stay.values[:, CHANNELS.index(channel)], limits[channel]
        distances += [(low - value) / spread[channel]] if low is not None else []
        distances += [(value - high) / spread[channel]] if high is not None else []
    return np.asarray(np.max(distances, axis=0), dtype=np.float64)


def window_features(stay: StayHours, margin: Floats, events: Events) -> Floats:
    """Return one row an hour, (n, 104): see `feature_names`."""
    seen = stay.events(events).astype(np.float64)[:, None]
    stacked = np.column_stack([stay.keys, margin])
    parts = [stay.keys, stay.measured, recency(stay), margin[:, None]]
    parts += [stay.keys - _lagged(stay.keys, lag) for lag in (1, 6)]
    for width in WINDOWS:
        view = _trailing(stacked, width)
        parts += [np.nanmean(view, axis=2), np.nanmin(view, axis=2), np.nanmax(view, axis=2), np.nanstd(view, axis=2)]
        parts += [np.nanmean(_trailing(stay.measured.astype(np.float64), width), axis=2)]
        parts += [np.nansum(_trailing(seen, width), axis=2)]
    clock = (stay.hours / 24.0)[:, None]
    return np.column_stack([*parts, clock, np.log1p(clock), _since(seen[:, 0])])


def feature_names() -> list[str]:
    """Return the names of the columns of `window_features`."""
    margins = (*CHANNELS, "margin")
    names = [*(f"{c} now" for c in CHANNELS), *(f"{c} measured" for c in CHANNELS), *(f"{c} age" for c in CHANNELS)]
    names += ["margin now", *(f"{c} change {lag} h" for lag in (1, 6) for c in CHANNELS)]
    for width in WINDOWS:
        names += [f"{c} {kind} {width} h" for kind in ("mean", "least", "greatest", "SD") for c in margins]
        names += [*(f"{c} measured share {width} h" for c in CHANNELS), f"event hours {width} h"]
    return [*names, "days", "log days", "hours since an event"]


def sequence_inputs(stay: StayHours, *, careful: bool) -> Floats:
    """Return what the sequence models see an hour: the keys (n, 6), and if careful measured flags and ages: (n, 18)."""
    if not careful:
        return stay.keys
    return np.column_stack([stay.keys, stay.measured, recency(stay)])


def recency(stay: StayHours) -> Floats:
    """Return the ages in days, cut at one, 1 too for what was never measured: (n, 6)."""
    return np.nan_to_num(np.minimum(stay.ages, LONG_AGO), nan=LONG_AGO) / LONG_AGO


def standardised(train: Sequence[Floats], rows: Floats) -> Floats:
    """Return rows less the mean and over the standard deviation of training rows; constant columns become 0."""
    stacked = np.concatenate(list(train))
    spread = stacked.std(axis=0)
    return np.where(spread > 0, (rows - stacked.mean(axis=0)) / np.where(spread > 0, spread, 1.0), 0.0)


def _trailing(rows: Floats, width: int) -> Floats:
    """The last `width` rows at every hour, NaN before the stay: (n, columns, width)."""
    padded = np.concatenate([np.full((width - 1, rows.shape[1]), np.nan), rows])
    return sliding_window_view(padded, width, axis=0)


def _lagged(rows: Floats, lag: int) -> Floats:
    """The rows `lag` hours ago, the first row before the stay."""
    return np.concatenate([np.repeat(rows[:1], min(lag, len(rows)), axis=0), rows[:-lag]])


def _since(seen: Floats) -> Floats:
    """Hours since the last event, cut at LONG_AGO."""
    at = np.arange(len(seen), dtype=np.float64)
    last = np.maximum.accumulate(np.where(seen > 0, at, -np.inf))
    return np.minimum(at - last, LONG_AGO)
