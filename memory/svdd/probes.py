"""Probes on which an operation's realised change of score and readout is measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memory.contract import Array


@dataclass(frozen=True)
class Readings:
    """Score (q,) and readout (q, d_v) on the same probes."""

    score: Array
    readout: Array


def probe_points(keys: Array) -> Array:
    """The keys (n, d) and the midpoints of neighbouring rows: (2n - 1, d)."""
    return np.concatenate([keys, (keys[:-1] + keys[1:]) / 2.0])


def largest_change(before: Readings, after: Readings) -> tuple[float, float | None]:
    """Largest absolute change of the score, and of the readout where both sides have one (None if none has)."""
    moved = np.abs(before.readout - after.readout)
    comparable = moved[np.isfinite(moved)]
    return float(np.abs(before.score - after.score).max()), float(comparable.max()) if comparable.size else None
