"""Invented hourly keys with the two habits of charted vitals: hours resemble their neighbours, and values are held.

Standard deviations are of the order of 1, as standardised vitals have. Nothing here imitates a particular patient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PERSISTENCE = 0.9  # autocorrelation of one hour with the next
CHART_RATE = 0.25  # chance that a channel is charted anew in an hour


def autocorrelated(rng: np.random.Generator, hours: int, channels: int = 6) -> Floats:
    """Return a stationary AR(1) walk of unit variance: (hours, channels)."""
    keys = np.empty((hours, channels))
    keys[0] = rng.normal(size=channels)
    for hour in range(1, hours):
        keys[hour] = PERSISTENCE * keys[hour - 1] + np.sqrt(1 - PERSISTENCE**2) * rng.normal(size=channels)
    return keys


def forward_filled(rng: np.random.Generator, hours: int, channels: int = 6, rate: float = CHART_RATE) -> Floats:
    """Return the walk as charting shows it: each channel holds its last value until charted anew: (hours, channels).

    Channels are charted independently, so some hours repeat all channels (exact duplicates) and most repeat several.
    """
    keys = autocorrelated(rng, hours, channels)
    charted = rng.random((hours, channels)) < rate
    charted[0] = True
    last = np.maximum.accumulate(np.where(charted, np.arange(hours)[:, None], 0), axis=0)
    return np.take_along_axis(keys, last, axis=0)
