"""Who keeps which hours, against loops over the definition and another solver."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from invented_stays import invented_stay, of_keys
from sklearn.svm import OneClassSVM

from evaluation import policies
from evaluation.policies import kernel_sums
from evaluation.protocol_fixed import FixedContext
from evaluation.selectors import Choice, Seen

STAY = invented_stay(70, seed=4)
SEEN = STAY.label("composite").seen
KEYS = SEEN.keys


def chosen(seen: Seen, **settings: float) -> Choice:
    return FixedContext(**settings).select(seen, 1)


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
    orders = chosen(of_keys(np.array([[9.0], [0.0], [0.1], [-7.0], [0.2]]))).orders
    assert set(orders["density"][:3].tolist()) == {1, 2, 4}
    assert set(orders["least-dense"][:2].tolist()) == {0, 3}


def test_equal_sums_are_ranked_by_hour_though_their_rounding_differs():
    mirrored = np.concatenate([np.linspace(-2.0, -0.3, 9), np.linspace(2.0, 0.3, 9)])[:, None]
    orders = chosen(of_keys(mirrored), sigma=1.0).orders
    for policy in ("density", "least-dense"):
        place = np.argsort(orders[policy])
        assert all(place[hour] < place[hour + 9] for hour in range(9))


@pytest.mark.parametrize("policy", ["density", "least-dense"])
def test_ranked_policies_equal_a_sort_of_the_definition(policy):
    sign, sums = -1 if policy == "density" else 1, naive_sums(KEYS, 3.0)
    order = sorted(range(len(KEYS)), key=lambda i: (sign * round(sums[i], 9), i))
    assert chosen(SEEN).orders[policy].tolist() == order


def test_recency_keeps_the_last_hours_and_random_the_published_draw():
    orders = chosen(SEEN).orders
    assert orders["recency"][:3].tolist() == [69, 68, 67]
    for k in (1, 20, 70):
        published = np.random.RandomState(70).choice(70, k, replace=False)
        assert orders["random"][:k].tolist() == published.tolist()


def test_every_policy_ranks_every_hour_once():
    orders = chosen(SEEN).orders
    assert tuple(orders) == FixedContext.policies
    for policy, order in orders.items():
        assert sorted(order.tolist()) == list(range(70)), policy


@pytest.mark.parametrize("seed", range(6))
def test_support_equals_that_of_another_solver_on_weighted_locations(seed):
    seen = invented_stay(80, seed=seed).label("composite").seen
    locations, member, copies = np.unique(seen.keys, axis=0, return_inverse=True, return_counts=True)
    other = OneClassSVM(kernel="rbf", gamma=1 / 9.0, nu=0.3, tol=1e-10).fit(locations, sample_weight=copies)
    expected = np.flatnonzero(np.isin(member.ravel(), other.support_))
    assert chosen(seen).kept["svdd"].tolist() == expected.tolist()


def test_at_least_the_share_nu_is_support_and_copies_stay_together():
    kept = set(chosen(SEEN).kept["svdd"].tolist())
    assert len(kept) >= 0.3 * len(KEYS)
    for start in range(8, 68, 12):
        assert len({start, start + 1, start + 2} & kept) in (0, 3)


def test_fixed_context_gives_every_policy_the_budget_of_the_support_set():
    kept = chosen(SEEN).kept
    assert tuple(kept) == FixedContext.policies
    assert {len(hours) for hours in kept.values()} == {len(kept["svdd"])}
    assert all((np.diff(hours) > 0).all() for hours in kept.values())


def test_a_stay_of_equal_hours_or_of_one_hour_is_kept_whole():
    for keys in (np.zeros((50, 6)), np.ones((1, 6))):
        assert all(len(hours) == len(keys) for hours in chosen(of_keys(keys)).kept.values())
