"""Certified pruning: the hot state is the full-history solution after every operation."""

from __future__ import annotations

import numpy as np
import pytest
from streams import CAP, SIGMA, STREAMS

from memory.contract import MemoryRefused, NotConverged
from memory.svdd import SVDDMemory


def agree(left, right, queries):
    allowed = left.certificate().score_bound + right.certificate().score_bound
    assert np.abs(left.score(queries) - right.score(queries)).max() <= allowed < 1e-9


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_the_hot_state_equals_the_full_history_after_every_operation(name):
    rng = np.random.default_rng(0)
    keys = STREAMS[name](rng, 150)
    hot, full = SVDDMemory(CAP, SIGMA), SVDDMemory(CAP, SIGMA)
    queries = rng.normal(size=(20, keys.shape[1]))
    for hour, key in enumerate(keys):
        hot.admit(key, id=hour)
        full.admit(key, id=hour)
        if not hot.ready:
            continue
        if hour % 5 == 0:
            hot.prune()
        if hour % 11 == 10:
            leaving = rng.choice(sorted(full.ids.tolist()), size=2, replace=False).tolist()
            hot.delete(leaving)
            full.delete(leaving)
        agree(hot, full, queries)
    assert sorted([*hot.ids.tolist(), *hot.cold_ids]) == sorted(full.ids.tolist())


def test_cold_keys_are_recalled_when_the_hot_ones_cannot_carry_the_mass():
    rng = np.random.default_rng(1)
    keys = rng.normal(size=(60, 3))
    memory = SVDDMemory(1 / 10, 2.0).fit(keys)
    memory.prune()
    hot = memory.ids.tolist()
    leaving = hot[: len(hot) - 4]
    assert (len(hot) - len(leaving)) * memory.C < 1
    outcome = memory.delete(leaving)
    assert outcome.readmitted > 0
    agree(memory, SVDDMemory(1 / 10, 2.0).fit(np.delete(keys, leaving, axis=0)), keys)


def test_cold_and_hot_ids_are_deleted_alike():
    keys = np.random.default_rng(2).normal(size=(80, 3))
    memory = SVDDMemory(1 / 10, 2.0).fit(keys, keys)
    memory.prune()
    leaving = [memory.cold_ids[0], memory.cold_ids[-1], memory.margin[0]]
    memory.delete(leaving)
    assert not set(leaving) & {*memory.ids.tolist(), *memory.cold_ids}
    agree(memory, SVDDMemory(1 / 10, 2.0).fit(np.delete(keys, leaving, axis=0)), keys)


def test_pruning_changes_score_and_readout_by_rounding_only_and_reports_it():
    keys = np.random.default_rng(3).normal(size=(100, 4))
    memory = SVDDMemory(CAP, SIGMA).fit(keys, keys)
    before = memory.score(keys)
    outcome = memory.prune()
    assert outcome.removed == 100 - len(memory.ids) > 0
    assert outcome.score_change < 1e-13
    assert outcome.readout_change < 1e-12
    assert np.abs(memory.score(keys) - before).max() < 1e-13


def test_a_second_prune_moves_nothing():
    memory = SVDDMemory(CAP, SIGMA).fit(np.random.default_rng(3).normal(size=(100, 4)))
    memory.prune()
    assert memory.prune().removed == 0


def test_few_cold_tokens_are_looked_at_per_admission():
    keys = STREAMS["autocorrelated"](np.random.default_rng(0), 700)
    memory, looked_at = SVDDMemory(CAP, SIGMA), 0
    for hour, key in enumerate(keys):
        looked_at += memory.admit(key).reexamined
        if memory.ready and hour % 24 == 0:
            memory.prune()
    assert looked_at / 700 < 40


NET, SUMMED, MINIMUM = 0, 1, 2


def looked_at(rule, hours=400):
    keys = STREAMS["autocorrelated"](np.random.default_rng(0), hours)
    memory, full = SVDDMemory(CAP, SIGMA), SVDDMemory(CAP, SIGMA).fit(keys)
    memory.admit_many(keys[:20])
    memory._core.rule = rule
    total = 0
    for hour, key in enumerate(keys[20:]):
        total += memory.admit(key).reexamined
        if hour % 24 == 0:
            memory.prune()
    agree(memory, full, keys)
    return total


def test_every_drift_rule_is_sound_and_the_net_change_looks_at_the_fewest():
    assert looked_at(NET) < looked_at(MINIMUM) < looked_at(SUMMED)


class ColdStore:
    """Keeps what the memory gives away; can be told to fail."""

    def __init__(self, keys, values):
        self.keys, self.values, self.asked, self.fails = keys, values, 0, None

    def __call__(self, ids):
        if self.fails:
            raise self.fails
        self.asked += len(ids)
        return self.keys[ids], self.values[ids]


def test_an_outside_cold_store_gives_the_same_memory_and_keeps_the_keys():
    rng = np.random.default_rng(4)
    keys = STREAMS["forward_filled"](rng, 200)
    store = ColdStore(keys, keys)
    outside, inside = SVDDMemory(CAP, SIGMA, cold=store), SVDDMemory(CAP, SIGMA)
    for hour, key in enumerate(keys):
        for memory in (outside, inside):
            memory.admit(key, key)
            if memory.ready and hour % 20 == 0:
                memory.prune()
    outside.delete([50, 60, 70])
    inside.delete([50, 60, 70])
    assert store.asked > 0
    assert outside.to_state()["cold"]["keys"].size == 0
    assert (outside.score(keys) == inside.score(keys)).all()
    assert outside.read(keys) == pytest.approx(inside.read(keys), abs=0.0)


def stored(seed=5):
    keys = np.random.default_rng(seed).normal(size=(400, 3))
    store = ColdStore(keys, keys)
    memory = SVDDMemory(1 / 10, 2.0, cold=store).fit(keys[:60], keys[:60])
    memory.prune()
    return memory, store, keys


@pytest.mark.parametrize("failure", [OSError("away"), KeyboardInterrupt(), SystemExit()])
def test_a_deletion_whose_cold_store_fails_changes_nothing_and_can_be_tried_again(failure):
    memory, store, keys = stored()
    leaving, before, store.fails = memory.ids.tolist()[:-4], memory.digest(), failure
    with pytest.raises((NotConverged, KeyboardInterrupt, SystemExit)) as stopped:
        memory.delete(leaving)
    assert isinstance(failure, OSError) or stopped.value is failure
    assert memory.digest() == before
    store.fails = None
    memory.delete(leaving)
    agree(memory, SVDDMemory(1 / 10, 2.0).fit(np.delete(keys[:60], leaving, axis=0)), keys)


def test_an_admission_whose_cold_store_fails_changes_nothing():
    memory, store, keys = stored()
    store.fails, failures = OSError("away"), 0
    for token in range(60, 400):
        before, held = memory.digest(), len(memory)
        try:
            memory.admit(keys[token], keys[token], token)
        except NotConverged:
            failures += 1
            assert (memory.digest(), len(memory), token in memory) == (before, held, False)
    assert failures > 0
    store.fails = None
    missing = [token for token in range(400) if token not in memory]
    memory.admit_many(keys[missing], keys[missing], missing)
    agree(memory, SVDDMemory(1 / 10, 2.0).fit(keys), keys)


def test_a_cold_store_may_not_change_the_memory_that_asks():
    memory, store, keys = stored()
    refused, changes = [], []

    def meddling(ids):
        while changes:
            try:
                changes.pop()()
            except MemoryRefused as refusal:
                refused.append(str(refusal))
        return store(ids)

    for change in (
        lambda: memory.admit(keys[399], keys[399], 399),
        lambda: memory.delete(memory.cold_ids[:1]),
        lambda: memory.fit(keys[:60]),
        memory.prune,
    ):
        changes.append(change)
    memory._cold = meddling
    memory.delete(memory.ids.tolist()[:-4])
    assert len(refused) == 4


@pytest.mark.parametrize("policy", ["density", "oldest"])
def test_pruning_to_a_budget_is_labelled_uncertified_and_exact_for_what_stays(policy):
    keys = np.random.default_rng(6).normal(size=(90, 4))
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    outcome = memory.prune_to(30, policy)
    assert outcome.label == "uncertified"
    assert len(memory) == 30
    assert outcome.removed == 60
    agree(memory, SVDDMemory(CAP, SIGMA).fit(keys[memory.ids]), keys)


def test_oldest_gives_up_reserve_tokens_first_and_then_the_first_to_arrive():
    keys = np.random.default_rng(7).normal(size=(90, 4))
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    active = sorted([*memory.margin, *memory.bound])
    memory.prune_to(len(active) - 3, "oldest")
    assert sorted(memory.ids.tolist()) == active[3:]


def test_a_budget_below_capacity_or_an_unknown_policy_is_refused():
    memory = SVDDMemory(1 / 10, 2.0).fit(np.random.default_rng(8).normal(size=(30, 2)))
    for arguments in ((9, "density"), (20, "newest")):
        with pytest.raises(MemoryRefused):
            memory.prune_to(*arguments)
