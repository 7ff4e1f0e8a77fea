"""Bootstrap intervals against numpy's and scipy's own."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.stats import bootstrap as scipy_bootstrap

from evaluation import bootstrap
from evaluation.bootstrap import Interval, mean_bootstrap, paired_bootstrap
from evaluation.errors import EvaluationError


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    patient = rng.integers(0, 40, 90)
    skewed = rng.exponential(1.0, 90) + 0.5 * (patient % 3)
    return skewed, rng.normal(0.3, 1.0, 90), patient


def test_stay_level_draws_are_the_published_ones_whatever_the_block_size(sample, monkeypatch):
    a, b, _ = sample
    means = np.random.default_rng(0).choice(a - b, (10_000, len(a))).mean(axis=1)
    for cells in (1 << 21, 7 * len(a)):
        monkeypatch.setattr(bootstrap, "BLOCK_CELLS", cells)
        got = paired_bootstrap(a, b)
        assert (got.low, got.high) == tuple(np.percentile(means, [2.5, 97.5]))
        assert got.mean == pytest.approx(np.mean(a - b), abs=1e-15)
        assert (got.groups, got.draws, got.skipped, got.seed, got.reason) == (90, 10_000, 0, 0, None)


def _scipy(difference: np.ndarray, patient: np.ndarray, method: str) -> tuple[float, float]:
    """Patients as the sampled unit of scipy: one (sum, count) pair each, statistic = sum of sums / sum of counts."""
    names = np.unique(patient)
    sums = np.array([difference[patient == name].sum() for name in names])
    sizes = np.array([(patient == name).sum() for name in names])
    found = scipy_bootstrap(
        (sums, sizes),
        lambda s, n, axis=-1: s.sum(axis=axis) / n.sum(axis=axis),
        paired=True,
        n_resamples=40_000,
        method=method,
        rng=np.random.default_rng(5),
    )
    return found.confidence_interval.low, found.confidence_interval.high


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_patient_level_interval_agrees_with_scipy_on_the_ratio_of_sums(sample, method):
    a, b, patient = sample
    got = paired_bootstrap(a, b, patient, draws=40_000, seed=3, method=method)
    assert (got.low, got.high) == pytest.approx(_scipy(a - b, patient, method), abs=0.008)
    assert got.groups == len(np.unique(patient))
    assert got.mean == pytest.approx(np.mean(a - b))


def test_bca_differs_from_percentile_on_skewed_values(sample):
    a, b, patient = sample
    percentile, bca = (paired_bootstrap(a**3, 0 * b, patient, method=name) for name in ("percentile", "bca"))
    assert bca.low > percentile.low + 0.01
    assert bca.high > percentile.high + 0.01


def test_a_patient_is_drawn_with_all_stays():
    values, patient = np.repeat([0.0, 1.0], [1, 9]), np.repeat(["p", "q"], [1, 9])
    got = paired_bootstrap(values, np.zeros(10), patient, draws=2_000)
    assert (got.mean, got.low, got.high, got.groups) == (0.9, 0.0, 1.0, 2)
    assert paired_bootstrap(values, np.zeros(10), draws=2_000).low > 0.5


def test_order_of_stays_and_names_of_patients_only_permute_draws(sample):
    a, b, patient = sample
    order = np.random.default_rng(2).permutation(len(a))
    plain, shuffled = paired_bootstrap(a, b, patient), paired_bootstrap(a[order], b[order], patient[order])
    assert (plain.low, plain.high) == pytest.approx((shuffled.low, shuffled.high), abs=1e-12)
    assert paired_bootstrap(a, b, patient, seed=1).low != plain.low


def test_columns_share_their_draws(sample):
    a, b, patient = sample
    first, second = mean_bootstrap(np.stack([a, b]), patient)
    assert first == mean_bootstrap(a[None], patient)[0]
    assert second == mean_bootstrap(b[None], patient)[0]


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_equal_differences_give_an_interval_of_one_point(method):
    got = paired_bootstrap(np.full(5, 2.5), np.full(5, 2.0), method=method)
    assert (got.mean, got.low, got.high) == (0.5, 0.5, 0.5)


def test_one_patient_one_draw_or_no_stay_has_no_interval_and_says_why():
    one = paired_bootstrap([1.0, 0.0], [0.0, 0.0], [7, 7])
    assert one == Interval(0.5, None, None, 1, 10_000, 0, 0)
    assert one.reason == "fewer than two groups to resample"
    assert paired_bootstrap([1.0, 0.0], [0.0, 0.0], draws=1).reason == "fewer than two draws"
    empty = paired_bootstrap([], [])
    assert (empty.mean, empty.low, empty.groups, empty.reason) == (None, None, 0, "no stay")


def test_bca_with_every_draw_on_one_side_is_not_defined():
    got = next(
        found
        for seed in range(50)
        if (found := paired_bootstrap([1.0, 2.0, 4.0], [0.0] * 3, draws=2, seed=seed, method="bca")).low is None
    )
    assert got.mean == pytest.approx(7 / 3)
    assert got.reason == "every draw lies on one side of the estimate"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [1.0]), "2 values against 1"),
        (([1.0, np.nan], [0.0, 0.0]), "1 of 2 values are not finite"),
        (([1.0, 2.0], [0.0, 0.0], [1]), "1 groups for 2 values"),
        (([1.0, 2.0], [0.0, 0.0], None, 10, 0, "basic"), "unknown method"),
    ],
)
def test_unusable_input_is_refused_in_one_line(arguments, message):
    with pytest.raises(EvaluationError, match=message) as refusal:
        paired_bootstrap(*arguments)
    assert "\n" not in str(refusal.value)


def test_memory_is_bounded_by_the_block_not_by_the_draws():
    values = np.random.default_rng(0).normal(size=5_000)
    tracemalloc.start()
    paired_bootstrap(values, np.zeros(5_000), draws=4_000)  # 160 MB of indices if drawn at once
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80e6
