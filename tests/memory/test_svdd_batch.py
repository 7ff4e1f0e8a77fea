"""Memories in lock-step against SVDDMemory: equal within the sum of both certificates in every regime and operation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lockstep import assert_same
from streams import CAP, SIGMA, STREAMS

from evaluation.audit.regimes import REGIMES
from memory.svdd import SVDDMemory
from memory.svdd.batch import SVDDBatch

INVENTED = sorted(name for name, regime in REGIMES.items() if not regime.needs_vitals)
LONG = ("ill_conditioned", "patient_block", "patient_block_filled")
WAYS = [(name, every) for name in INVENTED for every in ((20,) if name in LONG else (None, 20))]


def batch_of(cases):
    return SVDDBatch(np.array([case.C for case in cases]), np.array([case.sigma for case in cases]), len(cases))


def stream(batch, keys, prune_every=None):
    """Admit ragged streams hour by hour; memories whose stream has ended are masked and their rows hold NaN."""
    lengths = np.array([len(rows) for rows in keys])
    outcomes = []
    for hour in range(lengths.max()):
        rows = np.array([rows[hour] if hour < len(rows) else np.full(rows.shape[1], np.nan) for rows in keys])
        outcomes.append(batch.admit(rows, mask=hour < lengths))
        if prune_every and hour % prune_every == prune_every - 1:
            outcomes.append(batch.prune())
    return outcomes


def singles_like(cases, prune_every=None):
    out = []
    for case in cases:
        memory = SVDDMemory(case.C, case.sigma)
        for first in range(0, len(case.keys), prune_every or len(case.keys)):
            memory.admit_many(case.keys[first : first + (prune_every or len(case.keys))])
            if prune_every and memory.ready:
                memory.prune()
        out.append(memory)
    return out


@pytest.mark.parametrize(("name", "prune_every"), WAYS)
def test_admission_and_deletion_equal_the_single_memory_in_every_regime(name, prune_every):
    trials = 2 if name in LONG else 8
    cases = [REGIMES[name].draw(np.random.default_rng(seed), []) for seed in range(trials)]
    batch, singles = batch_of(cases), singles_like(cases, prune_every)
    outcomes = stream(batch, [case.keys for case in cases], prune_every)
    queries = [case.keys for case in cases]
    assert_same(batch, singles, queries)
    outcomes.append(batch.delete([list(case.removed) for case in cases]))
    for single, case in zip(singles, cases, strict=True):
        single.delete(list(case.removed))
    assert_same(batch, singles, queries)
    assert sum(outcome.resolved for outcome in outcomes) == 0, "the lock-step walk needed the compiled core"


def leaving_now(rng, held, singles):
    """A few ids of most memories, hot and cold, never so many that the rest cannot carry the mass."""
    out = []
    for ids, single in zip(held, singles, strict=True):
        spare = len(ids) - int(np.ceil(1 / CAP)) if single.ready else len(ids) - 1
        count = int(rng.integers(0, min(4, max(spare, 0)) + 1))
        out.append(rng.choice(ids, size=count, replace=False).tolist() if count else [])
    return out


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_any_order_of_masked_admissions_deletions_and_prunings_equals_the_single_memories(name):
    memories, hours = 5, 70
    rng = np.random.default_rng(11)
    keys = np.stack([STREAMS[name](np.random.default_rng(seed), hours) for seed in range(memories)])
    batch, singles = SVDDBatch(CAP, SIGMA, memories), [SVDDMemory(CAP, SIGMA) for _ in range(memories)]
    held = [[] for _ in range(memories)]
    for hour in range(hours):
        mask = rng.random(memories) < 0.8
        batch.admit(keys[:, hour], ids=[hour] * memories, mask=mask)
        for i in mask.nonzero()[0]:
            singles[i].admit(keys[i, hour], id=hour)
            held[i].append(hour)
        if hour % 9 == 8:
            batch.prune()
            for single in singles:
                if single.ready:
                    single.prune()
        if hour % 7 == 6:
            leaving = leaving_now(rng, held, singles)
            batch.delete(leaving)
            for single, part, ids in zip(singles, leaving, held, strict=True):
                single.delete(part)
                ids[:] = [token for token in ids if token not in part]
        if hour % 5 == 4:
            assert_same(batch, singles, keys)
    assert all(single.cold_ids for single in singles) or name in ("lattice", "stuck", "line")


def test_a_batch_of_one_equals_the_single_memory():
    keys = STREAMS["forward_filled"](np.random.default_rng(3), 90)
    batch, single = SVDDBatch(CAP, SIGMA, 1), SVDDMemory(CAP, SIGMA).fit(keys)
    stream(batch, [keys])
    batch.delete([[3, 40, 41]])
    single.delete([3, 40, 41])
    assert_same(batch, [single], [keys])


def test_a_deletion_after_pruning_recalls_cold_keys_when_the_hot_ones_cannot_carry_the_mass():
    memories, hours = 4, 60
    keys = [STREAMS["autocorrelated"](np.random.default_rng(seed), hours) for seed in range(memories)]
    batch = SVDDBatch(CAP, SIGMA, memories)
    stream(batch, keys)
    batch.prune()
    leaving = [batch.memory(i).ids[: hours - 20].tolist()[: len(batch.memory(i).ids) - 6] for i in range(memories)]
    outcome = batch.delete(leaving)
    assert (outcome.readmitted > 0).all()
    for i in range(memories):
        kept = np.delete(keys[i], leaving[i], axis=0)
        fresh, member = SVDDMemory(CAP, SIGMA).fit(kept), batch.memory(i)
        allowed = fresh.certificate().score_bound + member.certificate().score_bound
        assert np.abs(fresh.score(keys[i]) - member.score(keys[i])).max() <= allowed


def test_deleting_below_capacity_collects_again_as_if_the_rest_had_been_given():
    keys = [STREAMS["autocorrelated"](np.random.default_rng(seed), 40) for seed in range(3)]
    batch, single = SVDDBatch(CAP, SIGMA, 3), SVDDMemory(CAP, SIGMA)
    stream(batch, keys)
    batch.prune()
    outcome = batch.delete([[], list(range(30)), []], below_capacity="collect")
    assert batch.ready.tolist() == [True, False, True]
    assert outcome.removed[[0, 2]].tolist() == [0, 0]
    assert np.isnan(batch.score(keys[1][:2])[1]).all()
    single.admit_many(keys[1][30:], ids=range(30, 40))
    assert_same(batch, [batch.memory(0), single, batch.memory(2)], keys)
    more = STREAMS["autocorrelated"](np.random.default_rng(9), 20)
    for hour, key in enumerate(more):
        batch.admit(np.stack([key] * 3), ids=[100 + hour] * 3, mask=np.array([False, True, False]))
    single.admit_many(more, ids=range(100, 120))
    assert_same(batch, [batch.memory(0), single, batch.memory(2)], keys)


def test_deleting_from_a_collecting_memory_forgets_the_token():
    keys = np.random.default_rng(0).normal(size=(2, 20, 3))
    batch = SVDDBatch(CAP, SIGMA, 2)
    for hour in range(8):
        batch.admit(keys[:, hour])
    batch.delete([[2], []])
    for hour in range(8, 20):
        batch.admit(keys[:, hour])
    singles = [SVDDMemory(CAP, SIGMA).fit(np.delete(keys[0], 2, 0), ids=[*range(2), *range(3, 20)])]
    assert_same(batch, [*singles, SVDDMemory(CAP, SIGMA).fit(keys[1])], keys)


def test_scores_of_shared_and_own_queries_equal_those_of_each_memory():
    keys = np.stack([STREAMS["gaussian"](np.random.default_rng(seed), 30) for seed in range(3)])
    batch = SVDDBatch(CAP, np.array([1.0, 2.0, 4.0]), 3)
    assert np.isnan(batch.score(keys[0])).all()
    stream(batch, keys)
    own, shared = batch.score(torch.from_numpy(keys)), batch.score(keys[0])
    for i in range(3):
        np.testing.assert_allclose(own[i], batch.memory(i).score(keys[i]), rtol=0, atol=4e-15)
        np.testing.assert_allclose(shared[i], batch.memory(i).score(keys[0]), rtol=0, atol=4e-15)


def test_values_travel_with_their_tokens_through_pruning_and_deletion():
    keys = np.stack([STREAMS["forward_filled"](np.random.default_rng(seed), 50) for seed in range(3)])
    batch, singles = SVDDBatch(CAP, SIGMA, 3), [SVDDMemory(CAP, SIGMA) for _ in range(3)]
    for hour in range(50):
        batch.admit(keys[:, hour], values=10.0 * keys[:, hour, :2])
        for i, single in enumerate(singles):
            single.admit(keys[i, hour], 10.0 * keys[i, hour, :2])
    batch.prune()
    batch.delete([[49], [0, 1], []])
    for single, part in zip(singles, [[49], [0, 1], []], strict=True):
        single.prune()
        single.delete(part)
    for i, single in enumerate(singles):
        np.testing.assert_allclose(batch.memory(i).read(keys[i]), single.read(keys[i]), rtol=1e-9)


def test_pruning_reports_the_tokens_that_left_and_a_change_of_score_that_is_rounding():
    keys = [STREAMS["autocorrelated"](np.random.default_rng(seed), 60) for seed in range(3)]
    batch = SVDDBatch(CAP, SIGMA, 4)
    for hour in range(60):
        rows = np.stack([*(part[hour] for part in keys), keys[0][hour]])
        batch.admit(rows, mask=np.array([True, True, True, hour < 5]))
    before = batch.locations
    outcome = batch.prune()
    assert (outcome.removed[:3] == before[:3] - batch.locations[:3]).all()
    assert (outcome.removed[:3] > 10).all()
    assert (outcome.score_change[:3] < 1e-12).all()
    assert np.isnan(outcome.score_change[3])
    assert outcome.removed[3] == 0


def test_an_empty_batch_has_nothing_to_prune_delete_or_score():
    batch = SVDDBatch(CAP, SIGMA, 2)
    assert batch.prune().path == ("reserve", "reserve")
    assert batch.delete([[], []]).removed.tolist() == [0, 0]
    assert np.isnan(batch.score(np.zeros((3, 6)))).all()
    assert len(batch.memory(1)) == 0
    batch.admit(np.ones((2, 6)))
    assert batch.tokens.tolist() == [1, 1]
