"""How much each hour of a stay is worth keeping, by what a selector sees: the other channels, never the held-out one.

Every function returns one number an hour, (n,), larger for hours to keep first. Windows end with their hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import rankdata
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from evaluation.early_warning import points
from evaluation.policies import SUM_DECIMALS, Floats, Hours, kernel_sums

Flags = NDArray[np.bool_]

WINDOW = 6  # hours
TREES, TREE_SEED = 100, 0
NEIGHBOURS = 20
RIDGE = 0.1  # added to the stay's covariance
LEAST_SPREAD, MOST_SPREADS = 0.25, 6.0  # of the robust scale of a stay
NORMAL_IQR = 1.349  # interquartile range of a standard normal variable

# Weights of the ranks in the ensemble, fixed on training patients of two open recordings (docs/retention.md).
WEIGHTS: Mapping[str, float] = {
    "gate": 1.0,
    "leverage": 1.0,
    "forest": 1.0,
    "density": 0.5,
    "robust_density": 0.5,
    "channel_density": 0.5,
    "robust_channel_density": 0.5,
    "early_warning": 1.25,
}
LOW_DIASTOLIC = 3.0  # weight of a low diastolic pressure where the systolic one is held out


@dataclass(frozen=True)
class Choice:
    """The positions that every policy keeps of a stay, ascending; and, of policies that rank them, all in order."""

    kept: Mapping[str, Hours]
    orders: Mapping[str, Hours] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What a selector may see of one stay: the channels that are not held out, n rows everywhere.

    keys (n, d) standardised on the cohort, values (n, d) in the vitals' own units, measured (n, d) charted in that
    hour, channels their names; ages and the held-out channel are not there.
    """

    channels: tuple[str, ...]
    keys: Floats
    values: Floats
    measured: Flags

    @cached_property
    def spread(self) -> Floats:
        """Standard deviation of every key over the last WINDOW hours: (n, d)."""
        return np.asarray(np.nanstd(_trailing(self.keys), axis=2), dtype=np.float64)

    @cached_property
    def robust(self) -> Floats:
        """Keys less the stay's median, over its interquartile range, bounded: (n, d)."""
        low, middle, high = np.percentile(self.keys, [25, 50, 75], axis=0)
        scale = np.maximum((high - low) / NORMAL_IQR, LEAST_SPREAD)
        return np.asarray(np.clip((self.keys - middle) / scale, -MOST_SPREADS, MOST_SPREADS))

    @cached_property
    def leverage(self) -> Floats:
        """x' (cov + RIDGE I)^-1 x of the centred [key, change, spread, 2 x measured share]."""
        change = np.diff(self.keys, axis=0, prepend=self.keys[:1])
        share = np.nanmean(_trailing(self.measured.astype(np.float64)), axis=2)
        rows = np.hstack([self.keys, change, self.spread, 2 * share])
        centred = rows - rows.mean(axis=0)
        covariance = centred.T @ centred / max(len(rows) - 1, 1) + RIDGE * np.eye(rows.shape[1])
        return np.asarray(np.einsum("ij,ij->i", centred, np.linalg.solve(covariance, centred.T).T))

    @cached_property
    def forest(self) -> Floats:
        """Isolation forest on [key, 1.5 x spread]; larger is easier to isolate."""
        rows = np.hstack([self.keys, 1.5 * self.spread])
        fitted = IsolationForest(n_estimators=TREES, random_state=TREE_SEED).fit(rows)
        return np.asarray(-fitted.score_samples(rows), dtype=np.float64)

    @cached_property
    def outlier_factor(self) -> Floats:
        """Local outlier factor of the distinct keys: among copies its densities would be infinite."""
        distinct, member = np.unique(self.keys, axis=0, return_inverse=True)
        if len(distinct) < 3:
            return np.zeros(len(self.keys))
        fitted = LocalOutlierFactor(n_neighbors=min(NEIGHBOURS, len(distinct) - 1)).fit(distinct)
        return np.asarray(-fitted.negative_outlier_factor_[member.ravel()], dtype=np.float64)

    @cached_property
    def early_warning(self) -> Floats:
        """NEWS2 points of the channels seen; it shares thresholds with the composite event."""
        return points(self.values, self.channels)


def ensemble(seen: Seen, gate_score: Floats, sigma: float) -> Floats:
    """Return the weighted mean of the ranks of what makes an hour unusual: see WEIGHTS.

    `gate_score` is the support-vector score of the hours (lower is farther out), `sigma` its kernel width. No label is
    used, nor anything of another stay but the cohort's standardisation. Where the systolic pressure is held out, the
    diastolic one stands in for it: low ones rank first, with weight LOW_DIASTOLIC.
    """
    worth = {
        "gate": -gate_score,
        "leverage": seen.leverage,
        "forest": seen.forest,
        "density": -kernel_sums(seen.keys, sigma),
        "robust_density": -kernel_sums(seen.robust, 1.0),
        "channel_density": -channel_density(seen.keys),
        "robust_channel_density": -channel_density(seen.robust),
        "early_warning": seen.early_warning,
    }
    total = sum(weight * _ranks(worth[name]) for name, weight in WEIGHTS.items())
    if "dbp" in seen.channels and "sbp" not in seen.channels:
        total = total + LOW_DIASTOLIC * _ranks(-seen.keys[:, seen.channels.index("dbp")])
    return np.asarray(np.round(total, SUM_DECIMALS))


def channel_density(rows: Floats) -> Floats:
    """Return the sum over columns of the log of a Gaussian kernel density of width 1, (n,)."""
    total = np.zeros(len(rows))
    for column in rows.T:
        distinct, member, copies = np.unique(column, return_inverse=True, return_counts=True)
        weight = np.exp(-((distinct[:, None] - distinct[None, :]) ** 2)) @ copies
        total += np.log(weight / len(column))[member.ravel()]
    return np.asarray(np.round(total, SUM_DECIMALS))


def stride_order(n: int) -> Hours:
    """Return the hours so that every prefix is spread evenly: base-2 radical inverse of their place."""
    width = max(int(np.ceil(np.log2(max(n, 2)))), 1)
    reversed_bits = [int(f"{place:0{width}b}"[::-1], 2) for place in range(2**width)]
    return np.array([hour for hour in reversed_bits if hour < n], dtype=np.int64)


def farthest_order(keys: Floats) -> Hours:
    """Return the hours in the order of greedy k-centre: each next one is farthest from all before (Gonzalez 1985)."""
    chosen = [int(np.argmax(((keys - keys.mean(axis=0)) ** 2).sum(axis=1)))]
    nearest = ((keys - keys[chosen[0]]) ** 2).sum(axis=1)
    for _ in range(len(keys) - 1):
        nearest[chosen[-1]] = -1.0
        chosen.append(int(np.argmax(nearest)))
        left = nearest >= 0
        nearest = np.where(left, np.minimum(nearest, ((keys - keys[chosen[-1]]) ** 2).sum(axis=1)), nearest)
    return np.array(chosen, dtype=np.int64)


def herding_order(keys: Floats, sigma: float) -> Hours:
    """Return the hours in the order of kernel herding: the mean of any prefix follows the mean of all (Chen 2010)."""
    among = np.exp(-cdist(keys, keys, "sqeuclidean") / sigma**2)
    mean, taken = among.mean(axis=1), np.zeros(len(keys))
    chosen: list[int] = []
    open_hours = np.ones(len(keys), dtype=np.bool_)
    for step in range(len(keys)):
        gain = np.where(open_hours, np.round(mean - taken / (step + 1), SUM_DECIMALS), -np.inf)
        chosen.append(int(np.argmax(gain)))
        open_hours[chosen[-1]] = False
        taken += among[:, chosen[-1]]
    return np.array(chosen, dtype=np.int64)


def _ranks(worth: Floats) -> Floats:
    """Ranks between 0 and 1, ties averaged."""
    return np.asarray((rankdata(worth) - 1) / max(len(worth) - 1, 1))


def _trailing(rows: Floats) -> Floats:
    """The last WINDOW rows at every hour, NaN before the stay: (n, d, WINDOW)."""
    padded = np.concatenate([np.full((WINDOW - 1, rows.shape[1]), np.nan), rows])
    return sliding_window_view(padded, WINDOW, axis=0)
