"""How often bootstrap intervals cover the truth on rare, skewed rates: a simulation, shown as it comes out.

Patients differ: patient i has a rate drawn from Beta(a, b), one to four stays, and each stay is 1 with that rate. The
truth is a / (a + b). Intervals by patient draw patients with all their stays; intervals by stay draw stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.bootstrap import Interval, Method, mean_bootstrap

Row = dict[str, Any]

PATIENTS = (20, 50, 100)
RATES = {
    "rarer and skewed": (0.02, 0.98),
    "rare and skewed": (0.05, 0.95),
    "rare": (1.0, 19.0),
    "common": (4.0, 4.0),
}  # shapes of the patients' rates
MOST_STAYS = 4
INTERVALS: tuple[tuple[str, Method], ...] = (("patient", "percentile"), ("patient", "bca"), ("stay", "percentile"))
TRIALS = 400
DRAWS = 1_000


def coverage_rows(
    trials: int = TRIALS, draws: int = DRAWS, seed: int = 0, patients: Iterable[int] = PATIENTS
) -> list[Row]:
    """Return one row per rate, number of patients, unit and method: the share of trials whose interval holds the truth.

    A trial without an interval (every draw on one side of the estimate) covers nothing and is counted in `undefined`;
    `width` is the mean width of the others. `nominal` is what the intervals promise.
    """
    rows: list[Row] = []
    for name, (a, b) in RATES.items():
        for number in patients:
            samples = [_sample(np.random.default_rng([seed, number, trial]), number, a, b) for trial in range(trials)]
            for unit, method in INTERVALS:
                found = [
                    mean_bootstrap([values], groups if unit == "patient" else None, draws, seed, method)[0]
                    for values, groups in samples
                ]
                head = {"rate": name, "mean_rate": a / (a + b), "patients": number, "unit": unit, "method": method}
                rows.append(head | _covered(found, a / (a + b)))
    return rows


def _sample(
    rng: np.random.Generator, patients: int, a: float, b: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Values of all stays and the patient of each."""
    stays = rng.integers(1, MOST_STAYS + 1, patients)
    groups = np.repeat(np.arange(patients), stays)
    return (rng.random(len(groups)) < rng.beta(a, b, patients)[groups]).astype(np.float64), groups


def _covered(found: list[Interval], truth: float) -> Row:
    ends = [(one.low, one.high) for one in found if one.low is not None and one.high is not None]
    covered = sum(low <= truth <= high for low, high in ends)
    return {
        "coverage": covered / len(found),
        "undefined": len(found) - len(ends),
        "width": sum(high - low for low, high in ends) / len(ends) if ends else None,
        "nominal": 0.95,
        "trials": len(found),
    }
