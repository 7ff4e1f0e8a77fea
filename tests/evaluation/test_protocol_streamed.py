"""Online policies: they see only the hours so far, at the capacity of the memory beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from invented_stays import invented_stay, of_keys
from sklearn.svm import OneClassSVM

from evaluation.protocol_streamed import ONLINE, Streamed, active_hours, best, running_sums
from evaluation.retention import CHANNELS, evaluate_stays

KEYS = invented_stay(60, seed=6).keys
STREAMED = Streamed(declared_hours=21)


def as_lists(states: list[dict[str, np.ndarray]]) -> list[dict[str, list[int]]]:
    return [{name: kept.tolist() for name, kept in held.items()} for held in states]


@pytest.mark.parametrize("hour", [3, 11, 40])
def test_values_after_an_hour_change_no_decision_up_to_it(hour):
    permuted = KEYS.copy()
    permuted[hour + 1 :] = np.random.default_rng(0).permutation(KEYS[hour + 1 :])
    plain, other = (as_lists(list(STREAMED.stream(keys, 9))) for keys in (KEYS, permuted))
    assert plain[: hour + 1] == other[: hour + 1]
    assert plain != other


def test_what_is_held_when_a_stay_ends_is_what_was_held_at_that_hour_of_a_longer_one():
    states = as_lists(list(STREAMED.stream(KEYS, 9)))
    for hour in (0, 5, 30, 59):
        assert as_lists([STREAMED.select(of_keys(KEYS[: hour + 1]), 9).kept]) == [states[hour]]


@pytest.mark.parametrize("channel", ["spo2", "sbp"])
def test_the_held_out_channel_changes_no_streamed_selector(channel):
    stay = invented_stay(50, seed=2)
    keys = stay.keys.copy()
    keys[:, CHANNELS.index(channel)] += np.linspace(0, 5, 50)
    plain, changed = (evaluate_stays([each], STREAMED, [channel]) for each in (stay, replace(stay, keys=keys)))
    assert plain.retained.equals(changed.retained)


def test_the_memory_holds_the_support_of_the_hours_so_far():
    cap = 1 / (0.3 * 21)
    for hour, active in enumerate(active_hours(KEYS, cap=cap, sigma=3.0)):
        seen = KEYS[: hour + 1]
        if len(seen) * cap < 1:
            assert active.tolist() == list(range(hour + 1))
            continue
        locations, member, copies = np.unique(seen, axis=0, return_inverse=True, return_counts=True)
        nu = 1 / (len(seen) * cap)
        other = OneClassSVM(kernel="rbf", gamma=1 / 9.0, nu=nu, tol=1e-10).fit(locations, sample_weight=copies)
        assert active.tolist() == np.flatnonzero(np.isin(member.ravel(), other.support_)).tolist()


def test_while_the_caps_just_carry_the_mass_every_hour_is_active():
    active = [hours.tolist() for hours in active_hours(KEYS[:7], cap=1 / 6, sigma=3.0)]
    assert active[:6] == [list(range(hour + 1)) for hour in range(6)]
    assert set(active[6]) <= set(range(7))


def test_running_sums_at_every_hour_equal_the_sums_of_the_hours_so_far():
    for hour, sums in enumerate(running_sums(KEYS, 3.0)):
        squared = ((KEYS[: hour + 1, None] - KEYS[None, : hour + 1]) ** 2).sum(axis=2)
        assert sums == pytest.approx(np.exp(-squared / 9.0).sum(axis=1) - 1, abs=2e-9)


def naive_policy(name: str, capacity: list[int]) -> list[int]:
    """One policy by its words: admit the hour, then leave the least worthy, the later of equals first."""
    luck = np.random.default_rng([0, 9]).random(len(KEYS))
    held: list[int] = []
    for hour, room in enumerate(capacity):
        held.append(hour)
        seen = KEYS[: hour + 1]
        near = [round(float(np.exp(-((seen - key) ** 2).sum(axis=1) / 9.0).sum()) - 1, 9) for key in seen]
        worth = {"density": near, "least-dense": [-x for x in near], "recency": range(hour + 1), "random": luck}[name]
        while len(held) > room:
            held.remove(min(held, key=lambda i: (worth[i], -i)))
    return held


@pytest.mark.parametrize("name", ONLINE)
def test_online_policies_equal_a_loop_over_their_definition(name):
    states = list(STREAMED.stream(KEYS, 9))
    assert states[-1][name].tolist() == naive_policy(name, [len(held["svdd"]) for held in states])


def test_no_policy_holds_more_than_the_memory_or_takes_an_hour_back():
    before = {name: set() for name in ONLINE}
    for hour, held in enumerate(STREAMED.stream(KEYS, 9)):
        for name in ONLINE:
            now = set(held[name].tolist())
            assert len(now) <= len(held["svdd"])
            assert now <= before[name] | {hour}
            before[name] = now


def test_random_is_a_uniform_reservoir_at_a_fixed_capacity():
    n, capacity, trials = 40, 10, 2_000
    rng, count = np.random.default_rng(1), np.zeros(n)
    for _ in range(trials):
        luck, kept = rng.random(n), np.empty(0, dtype=np.int64)
        for hour in range(n):
            kept = best(np.append(kept, hour), luck[: hour + 1], capacity)
        count[kept] += 1
    spread = np.sqrt(trials * 0.25 * 0.75)
    assert np.abs(count - trials * capacity / n).max() < 4 * spread


def test_stays_draw_different_random_hours_and_the_same_on_every_run():
    first, again, other = (STREAMED.select(of_keys(KEYS), stay_id).kept["random"].tolist() for stay_id in (9, 9, -10))
    assert first == again
    assert first != other
