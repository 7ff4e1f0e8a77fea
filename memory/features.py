"""Hourly vitals as keys for the matrix memories, and their values [MATH E1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from memory.contract import Array, MemoryRefused

SELECTORS = 5
HOURS_A_DAY = 24.0
MOST_FOR_BANDWIDTH = 1_000
FORMAT = "vital features"


@dataclass(frozen=True)
class VitalFeatures:
    """Fixed random features of an hour: key = normalise(cos(W z + phase)), z = [5 selector channels, hour / 24].

    Attributes:
        weights (d_k, 6), phase (d_k,): drawn once from the seed; weights are Gaussian over the bandwidth.
        bandwidth: median distance between training z.
        largest: largest norm of a training value, the divisor of `scaled`.
        seed: what the draw came from.

    The key never sees the value it selects: a key made from its own value would turn recall into copying. All
    statistics come from the training rows given to `fit`; a deletion that must cover them fits again. Source: Rahimi
    and Recht, NeurIPS 2007.
    """

    weights: Array
    phase: Array
    bandwidth: float
    largest: float
    seed: int

    @classmethod
    def fit(cls, selectors: Any, hours: Any, values: Any, *, d_k: int, seed: int) -> Self:
        """Draw features for training rows: selectors (n, 5) standardised, hours (n,) since admission, values (n, d_v).

        Refused: fewer than two rows, rows that are all alike, values that are all zero, a number that is not finite. At
        most 1,000 rows, spread evenly, enter the median.
        """
        z, v = _inputs(selectors, hours), _rows("values", values)
        if isinstance(d_k, bool) or not isinstance(d_k, int) or d_k < 1:
            raise MemoryRefused(f"d_k is {d_k!r}: it must be a whole number, at least 1")
        if len(v) != len(z):
            raise MemoryRefused(f"{len(v)} values for {len(z)} hours: give one row an hour")
        bandwidth, largest = _median_distance(z), float(np.sqrt((v * v).sum(1)).max(initial=0.0))
        if not (bandwidth > 0.0 and largest > 0.0):
            raise MemoryRefused("the training rows are all alike or have no value but zero: give more training stays")
        rng = np.random.default_rng(seed)
        weights = rng.standard_normal((d_k, SELECTORS + 1)) / bandwidth
        return cls(weights, rng.uniform(0.0, 2.0 * np.pi, d_k), bandwidth, largest, int(seed))

    def keys(self, selectors: Any, hours: Any) -> Array:
        """Keys (n, d_k) of norm 1 for hours (n,) with selectors (n, 5); an hour's key is its own in any company."""
        z = _inputs(selectors, hours)
        angle = np.broadcast_to(self.phase, (len(z), len(self.phase))).copy()
        for column in range(z.shape[1]):  # one column after another: a matrix product rounds by the number of rows
            angle += z[:, column, None] * self.weights[:, column]
        raw = np.cos(angle)
        unit: Array = raw / np.sqrt((raw * raw).sum(1, keepdims=True))
        return unit

    def scaled(self, values: Any) -> Array:
        """Values (n, d_v) over the largest training norm; rows beyond it are shortened to norm 1 (see `beyond`)."""
        v = _rows("values", values) / self.largest
        norm = np.sqrt((v * v).sum(1, keepdims=True))
        # A last-place excess would fall outside the domain of a memory that needs norms of at most 1.
        return np.where(norm > 1.0, v / np.where(norm > 1.0, norm * (1.0 + 2.0**-50), 1.0), v)

    def beyond(self, values: Any) -> int:
        """How many rows are longer than every training value, so that `scaled` shortens them."""
        v = _rows("values", values)
        return int((np.sqrt((v * v).sum(1)) > self.largest).sum())

    def to_state(self) -> dict[str, Any]:
        """The features as arrays and numbers."""
        numbers = {"bandwidth": self.bandwidth, "largest": self.largest, "seed": self.seed}
        return {"format": FORMAT, "weights": self.weights.copy(), "phase": self.phase.copy()} | numbers

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The features that wrote this state."""
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise MemoryRefused("this is no state of vital features: load a state that to_state wrote")
        weights, phase = _rows("weights", state["weights"]), np.array(state["phase"], dtype=np.float64)
        if weights.shape != (*phase.shape, SELECTORS + 1) or not np.isfinite(phase).all():
            raise MemoryRefused("the arrays of these vital features do not fit: load a state that to_state wrote")
        return cls(weights, phase, float(state["bandwidth"]), float(state["largest"]), int(state["seed"]))


def _rows(name: str, given: Any) -> Array:
    array = np.array(given, dtype=np.float64)
    if array.ndim != 2 or not array.shape[1]:
        raise MemoryRefused(f"{name} have shape {array.shape}, expected one row an hour")
    if not np.isfinite(array).all():
        wrong = int((~np.isfinite(array)).any(1).sum())
        raise MemoryRefused(f"{wrong} rows of {name} hold a number that is not finite: fill them first")
    return array


def _inputs(selectors: Any, hours: Any) -> Array:
    channels, clock = _rows("selectors", selectors), np.array(hours, dtype=np.float64)
    if channels.shape[1] != SELECTORS or clock.shape != (len(channels),):
        raise MemoryRefused(
            f"selectors have shape {channels.shape} and hours {clock.shape}, expected (n, {SELECTORS}) and (n,)"
        )
    return np.concatenate([channels, _rows("hours", clock[:, None] / HOURS_A_DAY)], axis=1)


def _median_distance(z: Array) -> float:
    """Median distance between distinct rows, of at most MOST_FOR_BANDWIDTH spread evenly."""
    if len(z) < 2:
        raise MemoryRefused(f"{len(z)} training hours have no spread: give at least two")
    chosen = z[np.unique(np.linspace(0, len(z) - 1, min(len(z), MOST_FOR_BANDWIDTH)).round().astype(np.int64))]
    left, right = np.triu_indices(len(chosen), 1)
    square = np.zeros(len(left))
    for column in chosen.T:
        square += (column[left] - column[right]) ** 2
    return float(np.median(np.sqrt(square)))
