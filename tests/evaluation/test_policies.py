"""Who keeps which hours, against loops over the definition and another solver."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from invented_stays import invented_stay
from sklearn.svm import OneClassSVM

from evaluation import policies
from evaluation.errors import EvaluationError
from evaluation.policies import POLICIES, FixedContext, View, kernel_sums, select, support

KEYS = invented_stay(70, seed=4).keys


def naive_sums(keys: np.ndarray, sigma: float) -> list[float]:
    kernel = lambda a, b: np.exp(-((a - b) ** 2).sum() / sigma**2)  # noqa: E731
    return [sum(kernel(x, y) for j, y in enumerate(keys) if j != i) for i, x in enumerate(keys)]


@pytest.mark.parametrize("cells", [1, 1 << 21])
def test_kernel_sums_equal_the_double_loop_whatever_the_block_size(cells, monkeypatch):
    monkeypatch.setattr(policies, "BLOCK_CELLS", cells)
    assert kernel_sums(KEYS, 3.0) == pytest.approx(naive_sums(KEYS, 3.0), abs=2e-9)


def test_copies_of_a_key_have_exactly_one_sum():
    sums = kernel_sums(KEYS, 3.0)
    assert (KEYS[8] == KEYS[10]).all()
    assert sums[8] == sums[9] == sums[10]
    assert kernel_sums(np.zeros((5, 2)), 3.0).tolist() == [4.0] * 5


def test_kernel_sums_need_no_square_matrix():
    keys = np.random.default_rng(0).normal(size=(6_000, 6))
    tracemalloc.start()
    kernel_sums(keys, 3.0)  # 288 MB as one matrix
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80e6


def test_density_keeps_the_crowd_and_its_opposite_the_outliers():
    view = View(np.array([[9.0], [0.0], [0.1], [-7.0], [0.2]]), 3.0)
    assert select("density", view, 3).tolist() == [1, 2, 4]
    assert select("least-dense", view, 2).tolist() == [0, 3]


def test_equal_sums_are_ranked_by_hour_though_their_rounding_differs():
    mirrored = np.concatenate([np.linspace(-2.0, -0.3, 9), np.linspace(2.0, 0.3, 9)])[:, None]
    for k in range(1, 18, 2):  # an odd budget splits a mirrored pair: the earlier hour is the one kept
        for policy in ("density", "least-dense"):
            kept = set(select(policy, View(mirrored, 1.0), k).tolist())
            assert all(hour - 9 in kept for hour in kept if hour >= 9)


@pytest.mark.parametrize("policy", ["density", "least-dense"])
def test_ranked_policies_equal_a_sort_of_the_definition(policy):
    sign, sums = -1 if policy == "density" else 1, naive_sums(KEYS, 3.0)
    order = sorted(range(len(KEYS)), key=lambda i: (sign * round(sums[i], 9), i))
    assert select(policy, View(KEYS, 3.0), 23).tolist() == sorted(order[:23])


def test_recency_keeps_the_last_hours_and_random_the_published_draw():
    view = View(KEYS, 3.0)
    assert select("recency", view, 3).tolist() == [67, 68, 69]
    assert select("random", view, 20).tolist() == sorted(np.random.RandomState(70).choice(70, 20, replace=False))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("k", [1, 33, 70])
def test_every_policy_keeps_exactly_its_budget_of_different_hours(policy, k):
    kept = select(policy, View(KEYS, 3.0), k)
    assert len(np.unique(kept)) == k
    assert (np.diff(kept) > 0).all()


@pytest.mark.parametrize("k", [0, 71])
def test_a_budget_outside_the_stay_is_refused(k):
    with pytest.raises(EvaluationError, match=f"budget of {k} hours for a stay of 70"):
        select("density", View(KEYS, 3.0), k)


@pytest.mark.parametrize("seed", range(6))
def test_support_equals_that_of_another_solver_on_weighted_locations(seed):
    keys = invented_stay(80, seed=seed).keys
    locations, member, copies = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    other = OneClassSVM(kernel="rbf", gamma=1 / 9.0, nu=0.3, tol=1e-10).fit(locations, sample_weight=copies)
    expected = np.flatnonzero(np.isin(member.ravel(), other.support_))
    assert support(keys, nu=0.3, sigma=3.0, threshold=1e-7).tolist() == expected.tolist()


def test_at_least_the_share_nu_is_support_and_copies_stay_together():
    kept = set(support(KEYS, nu=0.3, sigma=3.0, threshold=1e-7).tolist())
    assert len(kept) >= 0.3 * len(KEYS)
    for start in range(8, 68, 12):
        assert len({start, start + 1, start + 2} & kept) in (0, 3)


def test_fixed_context_gives_every_policy_the_budget_of_the_support_set():
    kept = FixedContext().select(KEYS, stay_id=5)
    assert tuple(kept) == FixedContext.policies
    assert {len(hours) for hours in kept.values()} == {len(kept["svdd"])}


def test_a_stay_of_equal_hours_or_of_one_hour_is_kept_whole():
    for keys in (np.zeros((50, 6)), np.ones((1, 6))):
        assert all(len(hours) == len(keys) for hours in FixedContext().select(keys, 1).values())
