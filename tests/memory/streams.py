"""Key streams for the memory tests, seeded and independent of the evaluation room."""

from __future__ import annotations

import numpy as np

CAP = 1 / (0.3 * 48)
SIGMA = 3.0


def autocorrelated(rng, hours, channels=6, keep=0.9):
    """AR(1) hours of unit variance."""
    out = np.empty((hours, channels))
    out[0] = rng.normal(size=channels)
    for hour in range(1, hours):
        out[hour] = keep * out[hour - 1] + np.sqrt(1 - keep**2) * rng.normal(size=channels)
    return out


def forward_filled(rng, hours, channels=6):
    """AR(1) hours of which each channel is charted now and then and carried forward in between."""
    out = autocorrelated(rng, hours, channels)
    for hour in range(1, hours):
        carried = rng.random(channels) < 0.7
        out[hour, carried] = out[hour - 1, carried]
    return out


def near_duplicates(rng, clusters=4, copies=6, noise=0.02, channels=6):
    return np.repeat(rng.normal(size=(clusters, channels)), copies, axis=0) + noise * rng.normal(
        size=(clusters * copies, channels)
    )


def lattice(rng, count, reach=2, channels=2):
    """Points of a small integer grid: exact copies and exact ties everywhere."""
    return rng.integers(-reach, reach + 1, size=(count, channels)).astype(float)


STREAMS = {
    "gaussian": lambda rng, n: rng.normal(size=(n, 6)),
    "autocorrelated": autocorrelated,
    "forward_filled": forward_filled,
    "near_duplicates": lambda rng, n: near_duplicates(rng, n // 6 + 1)[rng.permutation(6 * (n // 6 + 1))[:n]],
    "lattice": lattice,
    "stuck": lambda rng, n: np.vstack([autocorrelated(rng, n // 2), np.repeat(rng.normal(size=(1, 6)), n - n // 2, 0)]),
    "line": lambda rng, n: np.column_stack([rng.normal(size=n), np.zeros(n)]),
}
