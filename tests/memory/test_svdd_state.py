"""States travel bit for bit, and malformed ones are refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from streams import CAP, SIGMA, STREAMS

from memory.contract import MemoryRefused
from memory.digest import state_digest
from memory.svdd import SVDDMemory


def lived_in(keys, values=None):
    memory = SVDDMemory(CAP, SIGMA)
    memory.admit_many(keys[:60], None if values is None else values[:60])
    memory.prune()
    memory.delete([3, 40])
    memory.admit_many(keys[60:], None if values is None else values[60:], range(60, len(keys)))
    return memory


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_state_scores_and_reads_bit_for_bit(name):
    keys = STREAMS[name](np.random.default_rng(0), 90)
    memory = lived_in(keys, keys)
    again = SVDDMemory.from_state(memory.to_state())
    assert (again.score(keys) == memory.score(keys)).all()
    assert np.array_equal(again.read(keys), memory.read(keys), equal_nan=True)
    assert again.digest() == memory.digest()


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_loaded_memory_goes_on_like_the_one_that_was_saved(name):
    rng = np.random.default_rng(0)
    keys, more = STREAMS[name](rng, 90), STREAMS[name](rng, 30)
    memory = lived_in(keys)
    again = SVDDMemory.from_state(memory.to_state())
    for held in (memory, again):
        held.admit_many(more, ids=range(1000, 1030))
        held.delete([1003, 50])
    allowed = memory.certificate().score_bound + again.certificate().score_bound
    assert np.abs(again.score(more) - memory.score(more)).max() <= allowed < 1e-9


def test_a_collecting_and_an_empty_memory_travel_too():
    empty, collecting = SVDDMemory(CAP, SIGMA), SVDDMemory(CAP, SIGMA)
    collecting.admit_many(np.eye(6), np.eye(6))
    for memory in (empty, collecting):
        again = SVDDMemory.from_state(memory.to_state())
        assert again.digest() == memory.digest()
        assert not again.ready


def test_the_state_refers_to_nothing_in_the_memory():
    memory = SVDDMemory(CAP, SIGMA).fit(np.random.default_rng(0).normal(size=(30, 3)))
    before, state = memory.digest(), memory.to_state()
    state["alpha"][:] = 0.0
    state["keys"][:] = 7.0
    state["cold"]["drift"] = 9.0
    assert memory.digest() == before


def test_the_digest_changes_with_every_field():
    memory = lived_in(np.random.default_rng(0).normal(size=(90, 6)), np.ones((90, 1)))
    digests = {memory.digest()}
    state = memory.to_state()
    for name, value in state.items():
        changed = dict(state)
        if isinstance(value, np.ndarray):
            changed[name] = np.concatenate([value[:-1], value[-1:] + 1])
        elif isinstance(value, dict):
            changed[name] = value | {"drift": value["drift"] + 1}
        elif isinstance(value, str):
            changed[name] = value + "x"
        else:
            changed[name] = value + 1
        digests.add(state_digest(changed))
    assert len(digests) == len(state) + 1


def broken(**change):
    state = SVDDMemory(CAP, SIGMA).fit(np.random.default_rng(0).normal(size=(30, 3))).to_state()
    for name, value in change.items():
        state[name] = value(state) if callable(value) else value
    return state


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"extra": 1},
        {"alpha": lambda s: s["alpha"][:-1]},
        {"ids": lambda s: np.zeros_like(s["ids"])},
        {"location": lambda s: s["location"] + 1},
        {"location": lambda s: np.zeros_like(s["location"])},
        {"keys": lambda s: s["keys"][:, :2]},
        {"keys": lambda s: np.where(s["keys"] == s["keys"][0, 0], np.nan, s["keys"])},
        {"cold": lambda s: s["cold"] | {"ids": s["ids"][:1], "expiry": np.zeros(1), "keys": s["keys"][:1]}},
        {"cold": {}},
        {"width": 3.0},
        {"width": "3"},
        {"values": None},
        {"ids": 7},
        {"solved": 2**40},
        {"operations": 2**80},
    ],
)
def test_a_malformed_state_is_refused(change):
    with pytest.raises(MemoryRefused):
        SVDDMemory.from_state(broken(**change))


def test_something_that_is_no_state_is_refused():
    with pytest.raises(MemoryRefused):
        SVDDMemory.from_state({})


def test_a_memory_is_copied_through_its_state_only():
    memory = SVDDMemory(CAP, SIGMA).fit(np.random.default_rng(0).normal(size=(30, 3)))
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="to_state"):
            duplicate(memory)
