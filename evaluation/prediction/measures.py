"""How well scores rank and probabilities fit: weighted, so that a bootstrap draw of patients is a vector of weights.

Every measure is None where it is not defined: one class, no row, for calibration a score that is not a probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from evaluation.bootstrap import LEVEL, Interval
from evaluation.errors import EvaluationError

Floats = NDArray[np.float64]

_EDGE = 1e-12  # probabilities are kept this far from 0 and 1 before their logarithm is taken
_FARTHEST = 50.0  # log-odds between which the calibration intercept is looked for


def auroc(y: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float | None:
    """Return the area under the receiver operating characteristic; ties count half, one class gives None.

    y (n,) holds 0 and 1, score (n,) any finite numbers, weight (n,) numbers of at least 0. Raises EvaluationError.
    """
    return _auroc(*_weighted(y, score, weight))


def average_precision(y: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float | None:
    """Return the area under precision and recall as a step function; no positive gives None."""
    return _average_precision(*_weighted(y, score, weight))


def brier(y: ArrayLike, probability: ArrayLike) -> float | None:
    """Return the mean squared distance of probabilities to outcomes; None without rows."""
    truth, given, _ = _checked(y, probability, None)
    return float(np.mean((given - truth) ** 2)) if truth.size and _are_probabilities(given) else None


class Calibration(NamedTuple):
    """Intercept at slope 1 (calibration in the large) and slope of the outcome's log-odds on the predicted ones."""

    intercept: float | None
    slope: float | None


def calibration(y: ArrayLike, probability: ArrayLike) -> Calibration:
    """Return intercept and slope; both None for one class, a score that is no probability, or a constant one.

    Source: Van Calster et al., J Clin Epidemiol 2016. A slope below 1 says predictions are too extreme.
    """
    truth, given, _ = _checked(y, probability, None)
    if not _are_probabilities(given) or len(np.unique(truth)) < 2:
        return Calibration(None, None)
    odds = logit(np.clip(given, _EDGE, 1 - _EDGE))
    intercept = brentq(lambda shift: float(expit(odds + shift).mean() - truth.mean()), -_FARTHEST, _FARTHEST)
    if np.ptp(odds) == 0:
        return Calibration(float(intercept), None)
    fitted = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(odds[:, None], truth)
    return Calibration(float(intercept), float(fitted.coef_[0, 0]))


def reliability(y: ArrayLike, probability: ArrayLike, bins: int = 10) -> list[dict[str, Any]]:
    """Return the reliability curve in bins of equal size: rows, positives, mean prediction and observed share each.

    Equal predictions share a bin. Empty for a score that is no probability.
    """
    truth, given, _ = _checked(y, probability, None)
    if not truth.size or not _are_probabilities(given):
        return []
    edges = np.unique(np.quantile(given, np.linspace(0, 1, bins + 1)))
    member = np.clip(np.searchsorted(edges, given, side="left") - 1, 0, max(len(edges) - 2, 0))
    return [
        {
            "bin": int(number),
            "rows": int((member == number).sum()),
            "positives": int(truth[member == number].sum()),
            "predicted": float(given[member == number].mean()),
            "observed": float(truth[member == number].mean()),
        }
        for number in np.unique(member)
    ]


def auroc_bootstrap(y: ArrayLike, score: ArrayLike, groups: ArrayLike, draws: int = 2_000, seed: int = 0) -> Interval:
    """Return the AUROC with its 95 percent interval over draws of groups (patients) with all their rows.

    Arguments are (n,). Draws with one class have no AUROC: they are left out and counted in `skipped`. Fewer than two
    groups, two draws or two draws that count: low and high are None. Draws are those of `evaluation.bootstrap`.
    """
    return bootstrap_scores(y, [score], groups, draws, seed)[0][0]


def bootstrap_scores(
    y: ArrayLike, scores: list[ArrayLike], groups: ArrayLike, draws: int, seed: int, measure: str = "auroc"
) -> tuple[list[Interval], dict[tuple[int, int], Interval]]:
    """Return one interval per score, and one per pair (i < j) for score i minus score j, all from the same draws.

    `measure` is "auroc" or "average_precision". A draw with one class is skipped for every score alike.
    """
    rankings = [_Ranking.of(y, score) for score in scores]
    labels = np.asarray(groups)
    if labels.shape != rankings[0].truth.shape:
        raise EvaluationError(f"bootstrap: {labels.size} groups for {rankings[0].truth.size} rows; give one a row")
    names, member = np.unique(labels, return_inverse=True)
    whole = np.ones(len(member))
    estimates = np.array([_nan(ranking.measure(measure, whole)) for ranking in rankings])
    drawn = np.full((len(rankings), draws), np.nan)
    if len(names) >= 2:
        generator = np.random.default_rng(seed)
        for draw in range(draws):
            counts = np.bincount(generator.integers(0, len(names), len(names)), minlength=len(names))
            weight = counts[member.ravel()].astype(np.float64)
            drawn[:, draw] = [_nan(ranking.measure(measure, weight)) for ranking in rankings]
    count = len(names)
    alone = [_interval(e, row, count, draws, seed) for e, row in zip(estimates, drawn, strict=True)]
    pairs = {
        (i, j): _interval(estimates[i] - estimates[j], drawn[i] - drawn[j], count, draws, seed)
        for i in range(len(rankings))
        for j in range(i + 1, len(rankings))
    }
    return alone, pairs


def patients_needed(interval: Interval, half_width: float = 0.02) -> int | None:
    """Return how many patients an interval of +- half_width would need, by the root-n rule.

    None without an interval, and where it has no width: a constant score ranks nobody, however many there are.
    """
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return None
    return int(np.ceil(interval.groups * ((interval.high - interval.low) / 2 / half_width) ** 2))


@dataclass(frozen=True)
class _Ranking:
    """Outcomes in ascending order of a score, with the starts of its ties: sorted once, weighted many times."""

    truth: Floats
    order: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, y: ArrayLike, score: ArrayLike) -> _Ranking:
        truth, given, _ = _checked(y, score, None)
        order = np.argsort(given, kind="stable")
        ranked = given[order]
        return cls(truth, order, np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]])))

    def measure(self, name: str, weight: Floats) -> float | None:
        """The measure under row weights (n,)."""
        sums = self._tied(weight * self.truth), self._tied(weight * (1 - self.truth))
        return _MEASURES[name](*sums)

    def _tied(self, amount: Floats) -> Floats:
        return np.asarray(np.add.reduceat(amount[self.order], self.starts)) if amount.size else amount


def _weighted(y: ArrayLike, score: ArrayLike, weight: ArrayLike | None) -> tuple[Floats, Floats]:
    """Weights of positives and negatives at every distinct score, ascending."""
    truth, given, heavy = _checked(y, score, weight)
    _, place = np.unique(given, return_inverse=True)
    positive = np.bincount(place.ravel(), weights=heavy * truth)
    negative = np.bincount(place.ravel(), weights=heavy * (1 - truth))
    return positive.astype(np.float64), negative.astype(np.float64)


def _auroc(positive: Floats, negative: Floats) -> float | None:
    pairs = positive.sum() * negative.sum()
    if pairs <= 0:
        return None
    below = np.cumsum(negative) - negative / 2
    return float((positive * below).sum() / pairs)


def _average_precision(positive: Floats, negative: Floats) -> float | None:
    total = positive.sum()
    if total <= 0:
        return None
    hits, alarms = np.cumsum(positive[::-1]), np.cumsum((positive + negative)[::-1])
    precision = np.divide(hits, alarms, out=np.zeros_like(hits), where=alarms > 0)
    return float((positive[::-1] * precision).sum() / total)


_MEASURES: dict[str, Callable[[Floats, Floats], float | None]] = {
    "auroc": _auroc,
    "average_precision": _average_precision,
}


def _checked(y: ArrayLike, score: ArrayLike, weight: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
    truth, given = (np.asarray(side, dtype=np.float64) for side in (y, score))
    heavy = np.ones_like(truth) if weight is None else np.asarray(weight, dtype=np.float64)
    if truth.ndim != 1 or not truth.shape == given.shape == heavy.shape:
        raise EvaluationError(
            f"prediction: {truth.size} outcomes, {given.size} scores and {heavy.size} weights; give one of each a row"
        )
    strange = int((~np.isin(truth, (0.0, 1.0)) | ~np.isfinite(given) | ~np.isfinite(heavy) | (heavy < 0)).sum())
    if strange:
        raise EvaluationError(
            f"prediction: {strange} of {truth.size} rows have an outcome other than 0 or 1, a score that is not finite "
            "or a weight below 0; leave them out"
        )
    return truth, given, heavy


def _are_probabilities(given: Floats) -> bool:
    return bool(((given >= 0) & (given <= 1)).all())


def _nan(value: float | None) -> float:
    return np.nan if value is None else value


def _interval(estimate: float, drawn: Floats, groups: int, draws: int, seed: int) -> Interval:
    counted = drawn[np.isfinite(drawn)]
    mean = float(estimate) if np.isfinite(estimate) else None
    skipped = draws - counted.size if groups >= 2 else 0
    if mean is None or counted.size < 2:
        return Interval(mean, None, None, groups, draws, skipped, seed)
    low, high = np.quantile(counted, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(mean, float(low), float(high), groups, draws, skipped, seed)
