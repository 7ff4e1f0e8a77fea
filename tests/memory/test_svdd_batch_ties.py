"""Dependent points, exact ties and empty margins in lock-step: everything stays on the walk."""

from __future__ import annotations

import numpy as np
import pytest
from lockstep import assert_same
from streams import lattice, near_duplicates

from memory.svdd import SVDDMemory
from memory.svdd.batch import SVDDBatch, walk

WALKED = {"reserve", "walk"}


def corners_of_a_24_gon(rng, count):
    angle = 2 * np.pi * rng.integers(0, 24, size=count) / 24
    return np.column_stack([np.cos(angle), np.sin(angle)])


def closest_of_copies(rng, count):
    """Copies that the kernel can hardly tell apart, and some that it cannot."""
    noise = 10.0 ** rng.uniform(-10, -6)
    return near_duplicates(rng, clusters=count // 6, noise=noise, channels=3)[rng.permutation(count // 6 * 6)]


def walked(keys, C, sigma):
    """A batch and single memories that admit keys (B, n, d) and delete on the way; every step must stay on the walk."""
    batch = SVDDBatch(C, sigma, len(keys))
    singles = [SVDDMemory(c, s) for c, s in zip(batch._C, batch._sigma, strict=True)]
    for hour in range(keys.shape[1]):
        assert set(batch.admit(keys[:, hour]).path) <= WALKED
        for single, rows in zip(singles, keys, strict=True):
            single.admit(rows[hour])
        if hour % 4 == 3 and hour > 24:
            assert set(batch.delete([[hour - 12]] * len(keys)).path) <= WALKED
            for single in singles:
                single.delete([hour - 12])
    return batch, singles


@pytest.mark.parametrize("sigma", [30.0, 100.0, 300.0])
def test_dependent_points_are_exchanged_along_the_null_direction(sigma):
    keys = np.stack([corners_of_a_24_gon(np.random.default_rng(seed), 60) for seed in range(8)])
    assert_same(*walked(keys, 1 / np.array([12.5, 14.4, 10.0, 8.0] * 2), sigma), keys)


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_keys_closer_than_the_kernel_can_tell_stay_on_the_walk(sigma):
    keys = np.stack([closest_of_copies(np.random.default_rng(seed), 48) for seed in range(8)])
    assert_same(*walked(keys, 1 / np.array([8.0, 12.5, 14.4, 5.3] * 2), sigma), keys)


def test_ties_on_a_lattice_stay_on_the_walk():
    keys = np.stack([lattice(np.random.default_rng(seed), 60) for seed in range(15)])
    tokens, sigma = np.array([3, 5, 7.5, 10, 20.5] * 3), np.array([0.5, 1.0, 3.0] * 5)
    assert_same(*walked(keys, 1 / tokens, sigma), keys)


def test_no_point_comes_back_at_the_position_at_which_it_left(monkeypatch):
    choose, joined = walk._choose, 0

    def watched(work, entry, walks):
        nonlocal joined
        move, rates, nothing = choose(work, entry, walks)
        joins = walks & (move.kind == walk.POINT_JOINS)
        left_here = work.left_at.gather(1, move.point[:, None])[:, 0] == work.stamp
        assert not bool((joins & left_here & (move.step <= nothing)).any())
        joined += int(joins.sum())
        return move, rates, nothing

    monkeypatch.setattr(walk, "_choose", watched)
    keys = np.stack([corners_of_a_24_gon(np.random.default_rng(seed), 60) for seed in range(6) for _ in range(5)])
    batch = SVDDBatch(1 / np.array([1.0, 8.0, 10.0, 12.0, 14.4] * 6), 30.0, 30)
    for hour in range(60):
        batch.admit(keys[:, hour])
        if hour > 30:
            batch.delete([[hour - 20]] * 30)
    assert joined > 1000


def test_memories_with_and_without_a_margin_walk_side_by_side():
    """With a wide kernel and an integer 1/C the solution is often a set of keys at the cap: rho ends an interval."""
    keys = np.stack([np.random.default_rng(seed).normal(size=(40, 6)) for seed in range(6)])
    C = 1 / np.array([9.0, 14.4, 10.0, 6.5, 12.0, 8.0])
    batch, singles = SVDDBatch(C, 150.0, 6), [SVDDMemory(cap, 150.0) for cap in C]
    mixed = 0
    for hour in range(40):
        batch.admit(keys[:, hour])
        for single, rows in zip(singles, keys, strict=True):
            single.admit(rows[hour])
        emptied = [not single.margin for single in singles if single.ready]
        mixed += any(emptied) and not all(emptied)
        assert [not batch.memory(i).margin for i, single in enumerate(singles) if single.ready] == emptied
        np.testing.assert_allclose(
            batch.rho, [single.rho if single.ready else np.nan for single in singles], atol=1e-14
        )
    assert mixed > 5
