"""Ranking and calibration measures against scikit-learn, closed forms and draw-by-draw resampling."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score, roc_auc_score

from evaluation.errors import EvaluationError
from evaluation.prediction import auroc, auroc_bootstrap
from evaluation.prediction.measures import (
    average_precision,
    bootstrap_scores,
    brier,
    calibration,
    patients_needed,
    reliability,
)


def tied(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    return y, np.round(rng.normal(size=n) + y, 1), rng.integers(0, 4, n), rng.integers(0, 25, n)


@pytest.mark.parametrize("seed", range(5))
def test_weighted_measures_equal_scikit_learn_with_ties(seed: int) -> None:
    y, score, weight, _ = tied(seed)
    assert auroc(y, score, weight) == pytest.approx(roc_auc_score(y, score, sample_weight=weight), abs=1e-12)
    assert auroc(y, score) == pytest.approx(roc_auc_score(y, score), abs=1e-12)
    wanted = average_precision_score(y, score, sample_weight=weight)
    assert average_precision(y, score, weight) == pytest.approx(wanted, abs=1e-12)


def test_all_ties_are_a_half_and_one_class_is_not_defined() -> None:
    assert auroc([0, 1, 1], [2, 2, 2]) == 0.5
    assert auroc([1, 1], [0.1, 0.2]) is None
    assert auroc([], []) is None
    assert average_precision([0, 0], [0.1, 0.2]) is None
    assert auroc([0, 1], [0, 1], [1, 0]) is None


def test_every_draw_of_patients_equals_scikit_learn_on_the_drawn_rows() -> None:
    y, score, _, groups = tied(7)
    draws, names = 60, np.unique(groups)
    generator = np.random.default_rng(3)
    wanted = []
    for _ in range(draws):
        drawn = names[generator.integers(0, len(names), len(names))]
        rows = np.concatenate([np.flatnonzero(groups == name) for name in drawn])
        wanted.append(roc_auc_score(y[rows], score[rows]))
    interval = auroc_bootstrap(y, score, groups, draws, seed=3)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(wanted, [0.025, 0.975])), abs=1e-12)
    assert interval.mean == pytest.approx(roc_auc_score(y, score))
    assert (interval.groups, interval.skipped) == (len(names), 0)


def test_one_class_draws_are_skipped_and_counted() -> None:
    y, groups = np.array([1, 0, 0, 0]), np.array([0, 1, 2, 3])
    interval = auroc_bootstrap(y, [0.9, 0.1, 0.95, 0.2], groups, 400, seed=0)
    generator = np.random.default_rng(0)
    drawn = [set(generator.integers(0, 4, 4)) for _ in range(400)]
    assert interval.skipped == sum(0 not in groups_drawn or groups_drawn == {0} for groups_drawn in drawn)
    assert interval.low is not None


def test_one_patient_has_an_estimate_and_no_interval() -> None:
    interval = auroc_bootstrap([0, 1], [0.1, 0.9], [5, 5], 100, 0)
    assert (interval.mean, interval.low, interval.high, interval.groups) == (1.0, None, None, 1)


def test_a_paired_difference_uses_the_same_draws() -> None:
    y, score, _, groups = tied(9)
    alone, pairs = bootstrap_scores(y, [score, score, -score], groups, 50, 0)
    same, opposite = pairs[0, 1], pairs[0, 2]
    assert (same.mean, same.low, same.high) == (0.0, 0.0, 0.0)
    assert opposite.mean == pytest.approx(2 * alone[0].mean - 1)


def test_calibration_finds_the_intercept_and_slope_that_made_the_outcomes() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=60_000)
    y = rng.random(odds.size) < expit(0.5 + 0.7 * odds)
    found = calibration(y, expit(odds))
    assert found.slope == pytest.approx(0.7, abs=0.03)
    assert expit(odds + found.intercept).mean() == pytest.approx(y.mean(), abs=1e-9)
    perfect = calibration(rng.random(odds.size) < expit(odds), expit(odds))
    assert perfect == pytest.approx((0.0, 1.0), abs=0.03)


def test_calibration_is_for_probabilities_and_two_classes() -> None:
    assert calibration([0, 1], [-1.0, 2.0]) == (None, None)
    assert calibration([1, 1], [0.5, 0.6]) == (None, None)
    constant = calibration([0, 1, 1, 1], [0.5] * 4)
    assert constant.slope is None
    assert constant.intercept == pytest.approx(logit(0.75))
    assert brier([0, 1], [3.0, 0.1]) is None
    assert brier([0, 1], [0.0, 0.5]) == 0.125


def test_the_reliability_curve_counts_every_row_once() -> None:
    rng = np.random.default_rng(1)
    given = np.round(rng.random(500), 2)
    y = (rng.random(500) < given).astype(int)
    curve = reliability(y, given)
    assert len(curve) == 10
    assert sum(row["rows"] for row in curve) == 500
    assert sum(row["positives"] for row in curve) == y.sum()
    assert [row["predicted"] for row in curve] == sorted(row["predicted"] for row in curve)
    assert reliability([0, 1], [0.3, 0.3])[0]["rows"] == 2


def test_patients_needed_follow_the_root_n_rule() -> None:
    y, score, _, groups = tied(4)
    interval = auroc_bootstrap(y, score, groups, 200, 0)
    needed = patients_needed(interval)
    assert needed is not None
    half = (interval.high - interval.low) / 2 * np.sqrt(interval.groups / needed)
    assert half == pytest.approx(0.02, rel=0.01)
    assert patients_needed(auroc_bootstrap([1], [0.1], [0], 10, 0)) is None
    assert patients_needed(auroc_bootstrap(y, np.zeros_like(score), groups, 50, 0)) is None


def test_two_thousand_draws_of_two_hundred_thousand_rows_stay_under_thirty_seconds() -> None:
    rng = np.random.default_rng(0)
    y, score = rng.random(200_000) < 0.2, rng.normal(size=200_000)
    began = time.process_time()
    auroc_bootstrap(y, score, np.repeat(np.arange(1000), 200), 50, 0)
    assert (time.process_time() - began) * 40 < 30


@pytest.mark.parametrize(
    ("y", "score", "weight"),
    [([0, 2], [0.1, 0.2], None), ([0, 1], [0.1, np.nan], None), ([0, 1], [0.1], None), ([0, 1], [0, 1], [1, -1])],
)
def test_rows_that_are_no_outcome_or_no_number_are_refused(y: list, score: list, weight: list | None) -> None:
    with pytest.raises(EvaluationError, match=r"^prediction: \d"):
        auroc(y, score, weight)
