"""The walk stays on its path where charted vitals make it hard: dependence, ties, an empty margin, the first solve.

Each test asks for the path as well as for the state: a solve from scratch would hide a broken walk.
"""

from __future__ import annotations

import numpy as np
import pytest
from streams import CAP, SIGMA, forward_filled, lattice, near_duplicates

from evaluation.oracle_svdd import deviation, solve
from memory.svdd import SVDDMemory

WALKED = {"reserve", "walk"}


def assert_right(memory, keys):
    truth = solve(keys, memory.C, memory.sigma)
    assert deviation(truth.exact_score(keys), memory.score(keys)).max() <= memory.certificate().score_bound


def admit_walking(memory, keys):
    paths = [memory.admit(key).path for key in keys]
    assert set(paths) <= WALKED, f"{sum(path not in WALKED for path in paths)} of {len(paths)} admissions left the walk"


@pytest.mark.parametrize("noise", [1e-4, 1e-6, 1e-8, 1e-10, 1e-12])
def test_a_dependent_entrant_trades_places_along_the_null_direction(noise):
    rng = np.random.default_rng(1)
    keys = np.repeat(rng.normal(size=(5, 3)), 6, axis=0) + noise * rng.normal(size=(30, 3))
    memory = SVDDMemory(1 / 8.5, 2.0)
    admit_walking(memory, keys[rng.permutation(30)])
    assert_right(memory, memory._location_keys())


def test_keys_on_a_circle_under_a_wide_kernel_are_dependent_and_stay_on_the_walk():
    angle = 2 * np.pi * np.arange(24) / 24
    keys = np.column_stack([np.cos(angle), np.sin(angle)])[np.random.default_rng(0).permutation(24)]
    memory = SVDDMemory(1 / 7.5, 10.0)
    admit_walking(memory, keys)
    assert_right(memory, keys)


@pytest.mark.parametrize("tokens", [7.5, 14.4, 20.25])
def test_the_first_solve_releases_frozen_keys_one_at_a_time(tokens):
    rng = np.random.default_rng(2)
    for _ in range(20):
        keys = rng.normal(size=(int(np.ceil(tokens)), 4))
        memory = SVDDMemory(1 / tokens, 2.0)
        admit_walking(memory, keys)
        assert_right(memory, keys)


@pytest.mark.parametrize("tokens", [1, 2, 6, 12])
def test_an_empty_margin_is_left_in_both_directions(tokens):
    rng = np.random.default_rng(3)
    for _ in range(10):
        keys = rng.normal(size=(tokens + 6, 6))
        memory = SVDDMemory(1 / tokens, 60.0)
        admit_walking(memory, keys)
        assert_right(memory, keys)
        for token in range(6):
            assert memory.delete([token]).path in WALKED
            assert_right(memory, keys[token + 1 :])
        assert memory.margin == []
        assert memory.alpha == pytest.approx(1 / tokens, rel=1e-15)


def test_rho_is_the_upper_end_where_the_margin_is_empty():
    keys = np.array([[0.0], [1.0], [3.0]])
    memory = SVDDMemory(1 / 3, 2.0).fit(keys)
    kernel = np.exp(-((keys - keys.T) ** 2) / 4.0)
    assert memory.rho == pytest.approx((1 - 2 * kernel @ np.full(3, 1 / 3)).min(), abs=1e-15)
    assert memory.certificate().rho_interval == (-np.inf, pytest.approx(memory.rho))


def corners_of_a_24_gon(rng, count):
    angle = 2 * np.pi * rng.integers(0, 24, size=count) / 24
    return np.column_stack([np.cos(angle), np.sin(angle)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sigma", [100.0, 300.0])
def test_a_dependent_point_that_joins_on_the_way_is_exchanged_too(seed, sigma):
    """Corners of a polygon under a wide kernel: more of them reach g = 0 together than the kernel can tell apart."""
    rng = np.random.default_rng(seed)
    keys = corners_of_a_24_gon(rng, 60)
    for tokens in (12.5, 14.4):
        memory = SVDDMemory(1 / tokens, sigma)
        for hour, key in enumerate(keys):
            assert memory.admit(key).path in WALKED
            if hour % 4 == 3 and hour > 20:
                assert memory.delete([hour - 12]).path in WALKED


@pytest.mark.parametrize("seed", range(15))
def test_ties_on_a_lattice_stay_on_the_walk(seed):
    rng = np.random.default_rng(seed)
    memory = SVDDMemory(1 / [3, 5, 7.5, 10, 20.5][seed % 5], [0.5, 1.0, 3.0][seed % 3])
    keys = lattice(rng, 80)
    admit_walking(memory, keys)
    assert_right(memory, keys)


@pytest.mark.parametrize("seed", range(6))
def test_no_point_comes_back_at_the_position_at_which_it_left(seed):
    keys = corners_of_a_24_gon(np.random.default_rng(seed), 60)
    for tokens in (1.0, 8.0, 10.0, 12.0, 14.4):
        memory = SVDDMemory(1 / tokens, 30.0)
        for hour, key in enumerate(keys):
            memory.admit(key)
            if hour > 30:
                memory.delete([hour - 20])
        assert memory._core.returns == 0


@pytest.mark.parametrize("seed", range(12))
def test_frozen_keys_take_no_part_in_the_first_solve(seed):
    rng = np.random.default_rng(seed)
    for keys in (lattice(rng, 21), rng.normal(size=(21, 3)), near_duplicates(rng, 7, 3, 0.02, 3)):
        for sigma in (0.5, 1.0):
            memory = SVDDMemory(1 / 20.5, sigma)
            admit_walking(memory, keys)
            assert_right(memory, keys)


def test_a_walk_takes_few_events_even_where_everything_ties():
    corners = np.array([[x, y, z] for x in (0.0, 1.0) for y in (0.0, 1.0) for z in (0.0, 1.0)])
    memory = SVDDMemory(1 / 5.5, 1.0)
    for _ in range(6):
        for corner in corners:
            assert memory.admit(corner).events <= 3 * len(corners)


def test_a_cap_that_is_one_over_an_integer_but_for_rounding_is_that_fraction():
    keys = np.random.default_rng(0).normal(size=(49, 2))
    for off in (-1e-14, 1e-14):
        memory = SVDDMemory((1 / 49) * (1 + off), 2.0).fit(keys)
        assert memory.margin == []
        assert memory.rho == SVDDMemory(1 / 49, 2.0).fit(keys).rho


def test_a_stuck_stretch_costs_ids_not_locations():
    rng = np.random.default_rng(4)
    keys = np.vstack([forward_filled(rng, 200), np.repeat(rng.normal(size=(1, 6)), 500, axis=0)])
    memory = SVDDMemory(CAP, SIGMA)
    admit_walking(memory, keys)
    memory.prune()
    assert memory.locations < 80
    assert_right(memory, keys)


def test_deleting_copies_walks_the_mass_down_to_the_smaller_cap():
    rng = np.random.default_rng(5)
    places = rng.normal(size=(6, 4))
    order = rng.permutation(np.repeat(np.arange(6), 5))
    memory = SVDDMemory(1 / 9.5, 2.0).fit(places[order])
    held = list(range(30))
    for token in rng.permutation(30)[:18].tolist():
        assert memory.delete([token]).path in WALKED
        held.remove(token)
        assert_right(memory, places[order][held])


@pytest.mark.parametrize("sigma", [1e-3, 0.05, 50.0, 1e3, 1e5])
def test_very_narrow_and_very_wide_kernels_stay_on_the_walk(sigma):
    rng = np.random.default_rng(6)
    keys = rng.normal(size=(40, 6))
    memory = SVDDMemory(1 / 14.4, sigma)
    admit_walking(memory, keys)
    assert memory.alpha == pytest.approx(solve(keys, memory.C, sigma).alpha, abs=1e-11)
