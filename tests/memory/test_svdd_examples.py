"""The paper's small demonstrations, to all digits shown."""

from __future__ import annotations

import numpy as np
import pytest

from memory.svdd import SVDDMemory

KEYS = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.9]])
VALUES = np.array([[1.0], [2.0], [9.0]])
LATER = np.array([0.0, -10.0])


def three_keys():
    return SVDDMemory(1.0, 5.0).fit(KEYS, VALUES)


def test_the_third_key_is_reserve_and_dropping_it_now_moves_nothing():
    full, pruned = three_keys(), SVDDMemory(1.0, 5.0).fit(KEYS[:2], VALUES[:2])
    query = np.array([[0.25, 0.1]])
    assert full.reserve == [2]
    assert abs(full.score(query) - pruned.score(query)) < 1e-12
    # 4.57099e-9 in the paper, whose solver leaves a coefficient that is not quite 0; an exact one gives less.
    assert abs(full.read(query) - pruned.read(query)) < 4.57099e-9


def test_the_dropped_key_would_have_mattered_later():
    full, pruned = three_keys(), SVDDMemory(1.0, 5.0).fit(KEYS[:2], VALUES[:2])
    for memory, token in ((full, 3), (pruned, 3)):
        memory.admit(LATER, np.array([0.0]), token)
    four = np.vstack([KEYS, LATER])
    assert full.alpha[2] == pytest.approx(0.03327001, abs=5e-9)
    assert np.abs(full.score(four) - pruned.score(four)).max() == pytest.approx(4.07857e-3, abs=5e-9)


def test_certified_pruning_brings_the_dropped_key_back():
    memory = three_keys()
    assert memory.prune().removed == 1
    outcome = memory.admit(LATER, np.array([0.0]), 3)
    assert outcome.readmitted == 1
    assert dict(zip(memory.ids.tolist(), memory.alpha, strict=True))[2] == pytest.approx(0.03327001, abs=5e-9)


def eight_facts():
    keys = 4.0 * np.vstack([np.eye(4), -np.eye(4)])
    values = np.eye(8)
    return SVDDMemory(1.0, 1.0).fit(keys, values), keys, values


def answers(memory, keys, values):
    return np.argmax(memory.read(keys) @ values.T, axis=1)


def test_one_fact_is_deleted_and_the_other_seven_stay_answerable():
    memory, keys, values = eight_facts()
    assert (answers(memory, keys, values) == np.arange(8)).all()
    memory.delete([3])
    others = np.delete(np.arange(8), 3)
    assert (answers(memory, keys[others], values) == others).all()
    assert memory.read(keys[3:4])[0, 3] == 0.0


def test_removing_and_adding_corrects_one_binding():
    memory, keys, values = eight_facts()
    before = memory.read(keys)
    memory.delete([5])
    memory.admit(keys[5], values[0], 5)
    after = memory.read(keys)
    assert np.argmax(after[5]) == 0
    assert np.abs(np.delete(after - before, 5, axis=0)).max() < 1e-6
