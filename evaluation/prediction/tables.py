"""What test predictions are worth: one row a model, from labels, patients and scores alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evaluation.bootstrap import Interval
from evaluation.prediction.measures import (
    auroc,
    average_precision,
    bootstrap_scores,
    brier,
    calibration,
    patients_needed,
)

Floats = NDArray[np.float64]


def table(
    truth: ArrayLike, patient: ArrayLike, scores: Mapping[str, Sequence[Floats]], reference: str, draws: int
) -> list[dict[str, Any]]:
    """Return one row a model with measures over patient-hours (n,) and differences in AUROC to model `reference`.

    AUROC and AUPRC are means over seeds; the interval over draws of patients, the difference, Brier score and
    calibration are those of the first seed. What is not defined is None: Brier and calibration of a score that is no
    probability, and every ranking of one class.
    """
    names = list(scores)
    alone, pairs = bootstrap_scores(truth, [scores[name][0] for name in names], patient, draws, 0)
    base = names.index(reference)
    rows = []
    for at, name in enumerate(names):
        pair = None if at == base else pairs[min(at, base), max(at, base)]
        difference = None if pair is None else _ends(pair, flipped=at > base)
        rows.append(_row(name, truth, scores[name], alone[at]) | {f"less {reference}": difference})
    return rows


def _row(name: str, truth: ArrayLike, scores: Sequence[Floats], interval: Interval) -> dict[str, Any]:
    ranked = [auroc(truth, score) for score in scores]
    first = scores[0]
    given = bool(np.all((first >= 0) & (first <= 1)))
    fitted = calibration(truth, first)
    return {
        "model": name,
        "seeds": len(scores),
        "auroc": _mean(ranked),
        "auroc_interval": [interval.low, interval.high],
        "auprc": _mean([average_precision(truth, score) for score in scores]),
        "brier": brier(truth, first) if given else None,
        "calibration_intercept": fitted.intercept,
        "calibration_slope": fitted.slope,
        "patients_needed": patients_needed(interval),
    }


def _ends(pair: Interval, *, flipped: bool) -> list[float | None]:
    """Estimate, low and high of the difference; pairs are (earlier less later), so flipped for the later."""
    ends = [pair.mean, pair.low, pair.high]
    if flipped:
        ends = [None if end is None else -end for end in (pair.mean, pair.high, pair.low)]
    return ends


def _mean(found: Sequence[float | None]) -> float | None:
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if len(known) == len(found) else None
