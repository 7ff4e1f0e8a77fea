"""Repair and the solve from scratch, forced: same solution, path named, nothing half done."""

from __future__ import annotations

import numpy as np
import pytest
from streams import CAP, SIGMA, STREAMS

from memory.contract import NotConverged
from memory.svdd import SVDDMemory

REPAIR, RESOLVE, FAIL = 1, 2, 4


def forced(keys, switch):
    memory = SVDDMemory(CAP, SIGMA)
    memory.admit_many(keys[:40])
    memory._core.force = switch
    return memory


def agree(left, right, queries):
    allowed = left.certificate().score_bound + right.certificate().score_bound
    assert np.abs(left.score(queries) - right.score(queries)).max() <= allowed < 1e-9


@pytest.mark.parametrize(("switch", "path"), [(REPAIR, "repaired"), (RESOLVE, "resolved")])
@pytest.mark.parametrize("name", sorted(STREAMS))
def test_each_path_reaches_the_same_solution_and_is_named(name, switch, path):
    keys = STREAMS[name](np.random.default_rng(0), 80)
    memory = forced(keys, switch)
    outcomes = [memory.admit(key) for key in keys[40:]]
    outcomes.append(memory.delete([5, 50, 51]))
    assert {outcome.path for outcome in outcomes} == {path}
    agree(memory, SVDDMemory(CAP, SIGMA).fit(np.delete(keys, [5, 50, 51], axis=0)), keys)


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_when_every_path_fails_the_memory_is_as_it_was(name):
    keys = STREAMS[name](np.random.default_rng(1), 80)
    memory = forced(keys, FAIL)
    before = memory.digest()
    for attempt in (lambda: memory.admit(keys[60] + 0.5), lambda: memory.admit(keys[0]), lambda: memory.delete([0, 1])):
        with pytest.raises(NotConverged):
            attempt()
        assert memory.digest() == before
    memory._core.force = 0
    memory.admit_many(keys[40:])
    agree(memory, SVDDMemory(CAP, SIGMA).fit(keys), keys)


def test_a_first_solve_that_fails_leaves_a_collecting_memory():
    memory = SVDDMemory(1 / 3, 1.0)
    memory.admit_many(np.eye(3)[:2])
    memory._core.force = FAIL
    with pytest.raises(NotConverged):
        memory.admit(np.eye(3)[2])
    assert not memory.ready
    memory._core.force = 0
    memory.admit(np.eye(3)[2])
    assert memory.ready


def test_a_batch_that_fails_half_way_keeps_what_had_arrived():
    """A numerical failure is no refusal: the tokens before it stay, the one that failed and those after it do not."""
    keys = np.random.default_rng(2).normal(size=(20, 3))
    memory = SVDDMemory(1 / 10, 1.0)
    memory.admit_many(keys[:9])
    memory._core.force = FAIL
    with pytest.raises(NotConverged):
        memory.admit_many(keys[9:])
    assert len(memory) == 9


def test_a_disturbed_state_is_repaired_by_the_next_operation():
    keys = STREAMS["gaussian"](np.random.default_rng(3), 80)
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    state = memory.to_state()
    alpha = state["alpha"].copy()
    inside = np.flatnonzero((alpha > 1e-3) & (alpha < CAP - 1e-3))[:2]
    alpha[inside] += [5e-4, -5e-4]
    disturbed = SVDDMemory.from_state(state | {"alpha": alpha}, verify=False)
    disturbed.admit(keys[0] * 3, id=500)
    memory.admit(keys[0] * 3, id=500)
    agree(disturbed, memory, keys)
