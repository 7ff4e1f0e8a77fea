"""Coverage of bootstrap intervals by simulation, and what the bootstrap costs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from evaluation.bootstrap import paired_bootstrap
from evaluation.bootstrap_coverage import coverage_rows


@pytest.fixture(scope="module")
def rows():
    found = coverage_rows(trials=120, draws=300, patients=(20, 100))
    return {(row["rate"], row["patients"], row["unit"], row["method"]): row for row in found}


def test_common_rates_are_covered_about_as_promised_by_patient(rows):
    assert rows["common", 100, "patient", "percentile"]["coverage"] == pytest.approx(0.95, abs=0.05)


def test_rare_and_skewed_rates_of_few_patients_are_covered_far_less_than_promised(rows):
    row = rows["rare and skewed", 20, "patient", "percentile"]
    assert 0.4 < row["coverage"] < 0.86
    assert rows["rare and skewed", 100, "patient", "percentile"]["coverage"] > row["coverage"]


def test_intervals_by_stay_cover_less_than_those_by_patient_where_patients_differ(rows):
    by_patient, by_stay = (rows["rare and skewed", 100, unit, "percentile"] for unit in ("patient", "stay"))
    assert by_stay["coverage"] < by_patient["coverage"]
    assert by_stay["width"] < by_patient["width"]


def test_same_seed_same_rows():
    assert coverage_rows(trials=5, draws=20, patients=(20,)) == coverage_rows(trials=5, draws=20, patients=(20,))


def test_ten_thousand_draws_of_a_thousand_patients_take_a_fraction_of_a_second():
    values = np.random.default_rng(0).random(1_000)
    spent = []
    for _ in range(3):
        start = time.process_time()
        paired_bootstrap(values, np.zeros(1_000), np.arange(1_000))
        spent.append(time.process_time() - start)
    assert min(spent) < 0.75  # about a quarter of a second where nothing else runs
