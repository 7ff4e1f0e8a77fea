"""Vitals as keys: what a key may depend on, and what it may not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from memory.contract import MemoryRefused
from memory.features import VitalFeatures


def hours(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 5)), np.arange(n, dtype=float), rng.standard_normal((n, 1))


def fitted(d_k=32, seed=7):
    return VitalFeatures.fit(*hours(), d_k=d_k, seed=seed)


@pytest.mark.parametrize("d_k", [32, 64, 128])
def test_keys_are_the_normalised_cosines_of_the_equation(d_k):
    features = fitted(d_k)
    selectors, clock, _ = hours(20, 1)
    z = np.concatenate([selectors, clock[:, None] / 24], axis=1)
    raw = np.cos(z @ features.weights.T + features.phase)
    expected = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    assert features.keys(selectors, clock).shape == (20, d_k)
    assert np.allclose(features.keys(selectors, clock), expected, atol=1e-14)


def test_an_hour_has_the_same_key_bit_for_bit_in_any_company():
    features = fitted()
    selectors, clock, _ = hours(33, 2)
    together = features.keys(selectors, clock)
    alone = [features.keys(selectors[i : i + 1], clock[i : i + 1])[0] for i in range(33)]
    assert np.array_equal(together, np.array(alone))


def test_the_bandwidth_is_the_median_distance_of_the_training_hours():
    selectors, clock, _ = hours()
    z = np.concatenate([selectors, clock[:, None] / 24], axis=1)
    assert fitted().bandwidth == pytest.approx(np.median(pdist(z)), rel=1e-14)


def test_the_draw_follows_the_seed_and_the_training_rows_only():
    assert np.array_equal(fitted().weights, fitted().weights)
    assert not np.array_equal(fitted(seed=7).weights, fitted(seed=8).weights)
    other = VitalFeatures.fit(*hours(seed=3), d_k=32, seed=7)
    assert np.allclose(other.weights * other.bandwidth, fitted().weights * fitted().bandwidth)


def test_training_values_have_norm_at_most_one_and_longer_ones_are_shortened_and_counted():
    selectors, clock, _ = hours()
    values = np.random.default_rng(5).standard_normal((200, 6))
    features = VitalFeatures.fit(selectors, clock, values, d_k=32, seed=0)
    norms = np.linalg.norm(features.scaled(values), axis=1)
    assert norms.max() == pytest.approx(1.0, abs=1e-14)
    assert features.beyond(values) == 0
    longer = values[:3] * np.array([[1.0], [50.0], [70.0]])
    scaled = features.scaled(longer)
    assert features.beyond(longer) == 2
    assert (np.linalg.norm(scaled, axis=1) <= 1.0).all()
    assert np.allclose(scaled[1] / np.linalg.norm(scaled[1]), longer[1] / np.linalg.norm(longer[1]))


def test_features_come_back_from_their_state():
    features = fitted()
    again = VitalFeatures.from_state(features.to_state())
    selectors, clock, values = hours(9, 4)
    assert np.array_equal(again.keys(selectors, clock), features.keys(selectors, clock))
    assert np.array_equal(again.scaled(values), features.scaled(values))


@pytest.mark.parametrize(
    "change",
    [
        lambda s, h, v: (s[:, :4], h, v),
        lambda s, h, v: (s, h[:-1], v),
        lambda s, h, v: (s, h, v[:-1]),
        lambda s, h, v: (s * np.nan, h, v),
        lambda s, h, v: (s, h, v * np.inf),
        lambda s, h, v: (s[:1], h[:1], v[:1]),
        lambda s, h, v: (s * 0, h * 0, v),
        lambda s, h, v: (s, h, v * 0),
    ],
)
def test_training_rows_that_define_no_features_are_refused(change):
    with pytest.raises(MemoryRefused):
        VitalFeatures.fit(*change(*hours()), d_k=32, seed=0)
