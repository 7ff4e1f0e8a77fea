"""What memories in lock-step must not do: depend on each other, on padding or on threads, or change on a refusal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from streams import CAP, SIGMA, STREAMS

from memory.contract import MemoryRefused, NotConverged
from memory.svdd import SVDDMemory
from memory.svdd.batch import SVDDBatch

HOURS = 60


def keys_of(count, name="forward_filled", hours=HOURS):
    return np.stack([STREAMS[name](np.random.default_rng(seed), hours) for seed in range(count)])


def exercised(keys, between=lambda batch: None):
    """Admissions, a pruning, deletions and more admissions; `between` is called before every operation."""
    batch = SVDDBatch(CAP, SIGMA, len(keys))
    for hour in range(keys.shape[1]):
        between(batch)
        batch.admit(keys[:, hour])
        if hour == HOURS // 2:
            between(batch)
            batch.prune()
            between(batch)
            batch.delete([[3, hour, 17]] * len(keys))
    return batch


def digests(batch):
    return [batch.memory(i).digest() for i in range(batch.batch)]


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_memory_has_the_same_bits_in_every_batch(name):
    keys = keys_of(5, name)
    together = digests(exercised(keys))
    assert digests(exercised(keys[::-1].copy()))[::-1] == together
    assert digests(exercised(keys[2:3])) == together[2:3]


def test_a_large_batch_and_several_threads_change_no_bit():
    keys = keys_of(150, "autocorrelated", 34)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        together = digests(exercised(keys))
        torch.set_num_threads(1)
        assert digests(exercised(keys[70:75])) == together[70:75]
    finally:
        torch.set_num_threads(threads)


def spoil(batch):
    """Write NaN and nonsense into everything that lies beyond what a memory holds."""
    store = batch._store
    if store is None:
        return
    empty = torch.arange(store.room) >= store.n[:, None]
    spare = torch.arange(store.members.shape[1]) >= store.m[:, None]
    free = store.cold_expiry == torch.inf
    for name in ("a", "cap", "g"):
        getattr(store, name)[empty] = torch.nan
    store.x.masked_fill_(empty[:, None, :], torch.nan)
    store.k.masked_fill_(empty[:, None, :] | empty[:, :, None], torch.nan)
    store.D[spare] = torch.nan
    store.V.masked_fill_(spare[:, None, :] | spare[:, :, None], torch.nan)
    store.cold_x.masked_fill_(free[:, None, :], torch.nan)
    for name in ("mult", "left_at", "serial"):
        getattr(store, name)[empty] = 3
    store.status[empty] = 2
    store.members[spare] = store.room - 1


@pytest.mark.parametrize("name", ["autocorrelated", "forward_filled", "near_duplicates", "lattice"])
def test_nothing_written_into_padding_reaches_a_result(name):
    keys = keys_of(3, name)
    clean, spoilt = exercised(keys), exercised(keys, spoil)
    assert digests(spoilt) == digests(clean)
    before = clean.score(keys)
    spoil(spoilt)
    np.testing.assert_array_equal(spoilt.score(keys), before)
    assert np.isfinite(before).all()


REFUSALS = {
    "unknown id in one memory": lambda batch, row: batch.delete([[1], [2], [999]]),
    "id listed twice": lambda batch, row: batch.delete([[1], [2, 2], []]),
    "too few lists": lambda batch, row: batch.delete([[1]]),
    "unknown word": lambda batch, row: batch.delete([[1], [], []], below_capacity="drop"),
    "rest below capacity": lambda batch, row: batch.delete([[1], list(range(HOURS - 10)), []]),
    "number not finite": lambda batch, row: batch.admit(np.where([[False], [True], [False]], np.nan, row)),
    "other width": lambda batch, row: batch.admit(row[:, :2]),
    "other batch": lambda batch, row: batch.admit(row[:2]),
    "id held by one memory": lambda batch, row: batch.admit(row, ids=[1000, 1000, 5]),
    "no integer": lambda batch, row: batch.admit(row, ids=[1000, 1000, 1.5]),
    "too few ids": lambda batch, row: batch.admit(row, ids=[1000]),
    "mask of integers": lambda batch, row: batch.admit(row, mask=np.array([1, 0, 1])),
    "value not finite": lambda batch, row: batch.admit(row, values=np.full((3, 1), np.inf)),
    "queries of another width": lambda batch, row: batch.score(row[:, :2]),
    "queries not finite": lambda batch, row: batch.score(row * np.nan),
}


@pytest.mark.parametrize("why", sorted(REFUSALS))
def test_a_refusal_leaves_every_memory_as_it_was(why):
    keys = keys_of(3, "autocorrelated")
    batch = exercised(keys)
    before = digests(batch)
    with pytest.raises(MemoryRefused) as refusal:
        REFUSALS[why](batch, keys[:, 0] + 0.5)
    assert "\n" not in str(refusal.value)
    assert digests(batch) == before


@pytest.mark.parametrize(
    ("C", "sigma", "count"),
    [(0.0, 1.0, 2), (0.1, np.inf, 2), (0.1, [1.0, -1.0], 2), ([0.1] * 3, 1.0, 2), (0.1, 1.0, 0), (0.1, 1.0, True)],
)
def test_impossible_caps_widths_and_batches_are_refused(C, sigma, count):
    with pytest.raises(MemoryRefused):
        SVDDBatch(C, sigma, count)


@pytest.mark.parametrize(("switch", "path"), [("repair", "repaired"), ("resolve", "resolved")])
@pytest.mark.parametrize("name", sorted(STREAMS))
def test_each_path_reaches_the_same_solution_and_is_named(name, switch, path):
    keys = keys_of(3, name)
    batch = SVDDBatch(CAP, SIGMA, 3)
    for hour in range(40):
        batch.admit(keys[:, hour])
    batch._force.add(switch)
    outcomes = [batch.admit(keys[:, hour]) for hour in range(40, HOURS)]
    outcomes += [batch.prune(), batch.delete([[5, 50], [6], [7, 8]])]
    assert {step for outcome in outcomes for step in outcome.path} <= {path, "reserve"}
    assert outcomes[-2].path == (path,) * 3
    for i, gone in enumerate([[5, 50], [6], [7, 8]]):
        fresh, member = SVDDMemory(CAP, SIGMA).fit(np.delete(keys[i], gone, axis=0)), batch.memory(i)
        allowed = fresh.certificate().score_bound + member.certificate().score_bound
        assert np.abs(fresh.score(keys[i]) - member.score(keys[i])).max() <= allowed < 1e-9


def test_when_every_path_fails_all_memories_are_as_they_were():
    keys = keys_of(3, "autocorrelated")
    batch = SVDDBatch(CAP, SIGMA, 3)
    for hour in range(40):
        batch.admit(keys[:, hour])
    batch.prune()
    before, scores = digests(batch), batch.score(keys)
    batch._force.add("failure")
    active = [[int(batch.memory(i).margin[0]), batch.memory(i).cold_ids[0]] for i in range(3)]
    for attempt in (lambda: batch.delete(active), batch.prune, lambda: batch.admit(keys[:, 50] * 4.0)):
        with pytest.raises(NotConverged):
            attempt()
        assert digests(batch) == before
    batch._force.clear()
    np.testing.assert_array_equal(batch.score(keys), scores)
    batch.delete(active)
    assert digests(batch) != before


def test_a_memory_taken_out_of_the_batch_lives_its_own_life():
    keys = keys_of(2)
    batch = exercised(keys)
    before = digests(batch)
    own = batch.memory(1)
    own.admit(keys[0, 0] + 3.0)
    own.delete([20])
    assert digests(batch) == before


def test_a_masked_memory_keeps_its_bits():
    keys = keys_of(3)
    batch = exercised(keys)
    before = digests(batch)
    batch.admit(
        np.vstack([keys[0, :1] + 2.0, np.full((1, 6), np.nan), keys[2, :1]]), mask=np.array([True, False, True])
    )
    after = digests(batch)
    assert after[1] == before[1]
    assert after[0] != before[0]
    batch.admit(keys[:, 0], mask=np.zeros(3, dtype=bool))
    assert digests(batch) == after
