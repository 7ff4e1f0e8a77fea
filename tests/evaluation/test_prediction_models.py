"""Rows of the causal protocol on invented patients: nothing leaks, test patients train nothing, noise is worth 0.5."""

from __future__ import annotations

import dataclasses
from typing import get_args

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from evaluation.errors import EvaluationError
from evaluation.prediction.hours import Split, StayHours
from evaluation.prediction.models import ROWS, predictions, sides
from evaluation.prediction.tables import table
from evaluation.prediction.training import Schedule

LIMITS = {"hr": (40.0, 130.0), "sbp": (90.0, None), "rr": (6.0, 30.0), "spo2": (90.0, None), "temp": (35.0, 38.5)}
BRIEF = Schedule(steps=6, batch=8, rate=2e-3, check_every=3, patience=2)


def stays(seed: int, count: int, n: int = 24, signal: bool = False) -> list[StayHours]:
    """Patients with noise for vitals; with `signal` the heart rate rises before and in the hours with events."""
    rng, found = np.random.default_rng(seed), []
    for patient in range(count):
        crossed = np.repeat(rng.random((n // 4, 5)) < 0.06, 4, axis=0)
        keys = rng.normal(size=(n, 6))
        if signal:
            keys[:, 0] += 3 * np.roll(crossed.any(axis=1), -2)
        split: Split = get_args(Split)[(0, 0, 0, 1, 2)[patient % 5]]
        values = keys * 5 + np.array([85, 120, 70, 17, 96, 37])
        flags = np.ones((n, 6), bool)
        found.append(StayHours(patient, patient, split, np.arange(n), values, keys, flags, np.zeros((n, 6)), crossed))
    return found


def memoryless(count: int) -> list[StayHours]:
    """Noise with independent events; lengths without memory, so that the hour does not tell how near the end is."""
    found = []
    for stay in stays(0, count, n=200):
        rng = np.random.default_rng(stay.patient)
        noise = dataclasses.replace(stay, crossed=rng.random((200, 5)) < 0.02)
        found.append(noise.until(int(rng.geometric(1 / 20))))
    return found


def test_noise_is_worth_a_half_on_two_thousand_patients() -> None:
    parts = sides(memoryless(2000), LIMITS)
    found = predictions(parts, ["current margin", "logistic regression", "gru"], 1, BRIEF)
    worth = {name: roc_auc_score(parts["test"].truth, score) for name, (score,) in found.items()}
    assert all(abs(value - 0.5) < 0.02 for value in worth.values()), worth


def test_a_signal_is_found() -> None:
    parts = sides(stays(1, 150, signal=True), LIMITS)
    found = predictions(parts, ["logistic regression", "gradient boosting"], 1)
    assert min(roc_auc_score(parts["test"].truth, score) for (score,) in found.values()) > 0.65


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_row_is_the_same_again_and_no_test_patient_moves_another(name: str) -> None:
    given = stays(2, 40)
    last = max(stay.patient for stay in given if stay.split == "test")
    fewer = [stay for stay in given if stay.patient != last]
    one, two = sides(given, LIMITS), sides(fewer, LIMITS)
    kept = one["test"].patient != last
    ((first,), (again,), (without,)) = (predictions(part, [name], 1, BRIEF)[name] for part in (one, one, two))
    assert np.array_equal(first, again)
    assert len(without) < len(first) == len(one["test"].truth)
    assert np.array_equal(first[kept], without)


def test_a_patient_in_two_splits_is_refused() -> None:
    given = stays(3, 20)
    crossing = [*given, dataclasses.replace(given[0], stay_id=99, split="test")]
    with pytest.raises(EvaluationError, match="a patient is in two splits"):
        sides(crossing, LIMITS)


def test_an_empty_split_and_a_split_of_one_class_are_refused() -> None:
    given = stays(4, 20)
    with pytest.raises(EvaluationError, match="no stays in split validation"):
        sides([stay for stay in given if stay.split != "validation"], LIMITS)
    calm = [dataclasses.replace(s, crossed=s.crossed & (s.split != "test")) for s in given]
    with pytest.raises(EvaluationError, match="hours of split test are all of one class"):
        sides(calm, LIMITS)


def test_a_table_row_holds_scikit_learns_measures_and_the_difference_has_its_sign() -> None:
    rng = np.random.default_rng(5)
    truth, patient = rng.random(400) < 0.3, np.repeat(np.arange(40), 10)
    good, noise = [truth + rng.normal(size=400) for _ in range(2)], [rng.random(400)]
    for order in (("noise", "good"), ("good", "noise")):
        scores = {name: {"good": good, "noise": noise}[name] for name in order}
        rows = {row["model"]: row for row in table(truth, patient, scores, "noise", 200)}
        wanted = np.mean([roc_auc_score(truth, score) for score in good])
        assert rows["good"]["auroc"] == pytest.approx(wanted)
        assert rows["good"]["brier"] is rows["good"]["calibration_slope"] is None
        assert rows["noise"]["brier"] == pytest.approx(np.mean((noise[0] - truth) ** 2))
        estimate, low, high = rows["good"]["less noise"]
        assert 0 < low < estimate < high
        assert rows["noise"]["less noise"] is None
        assert estimate == pytest.approx(roc_auc_score(truth, good[0]) - roc_auc_score(truth, noise[0]))
