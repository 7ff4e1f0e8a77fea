"""Deletion from VLA: what each path promises, against builds that never saw the tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.contract import MemoryRefused, NotConverged
from memory.streamed.batch import unit
from memory.vla import VLABatch, VLAMemory
from memory.vla.recurrence import alignment


def drawn(n, d_k=16, d_v=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d_k, generator=g).double(), torch.randn(n, d_v, generator=g).double()


def built(keys, values, kept=None, **options):
    memory = VLAMemory(keys.shape[1], values.shape[1], **options)
    kept = np.arange(len(keys)) if kept is None else kept
    memory.admit_many(keys[kept], values[kept])
    return memory


def relative(left, right):
    return float((left.S - right.S).norm() / right.S.norm())


@pytest.mark.parametrize("gone", [[0], [1_050], [3, 700, 999, 1_000]])
def test_unit_gain_equals_digest_for_digest_a_memory_given_the_retained_tokens(gone):
    keys, values = drawn(1_100)
    memory = built(keys, values, gain="unit")
    outcome = memory.delete(gone)
    fresh = built(keys, values, np.delete(np.arange(1_100), gone), gain="unit")
    assert memory.digest() == fresh.digest()
    assert torch.equal(memory.S, fresh.S)
    assert (outcome.path, outcome.exactness, outcome.removed) == ("replay", "bit-identical", len(gone))


def test_undoing_a_unit_write_in_the_middle_is_no_deletion():
    keys, values = drawn(200)
    memory, fresh = built(keys, values, gain="unit"), built(keys, values, np.arange(1, 200), gain="unit")
    A, kh = memory.A, unit(keys[0])
    direction = A @ kh / (A @ kh).norm()
    undone = memory.S + torch.outer(memory.S @ kh - values[0], direction) / (1 - alignment(A, kh))
    assert (undone - fresh.S).norm() > (memory.S - fresh.S).norm()


@pytest.mark.parametrize(("lam0", "allowed"), [(0.1, 1e-13), (1e-3, 1e-12), (1e-6, 1e-9)])
def test_one_ridge_token_leaves_by_downdate_close_to_a_fresh_fit(lam0, allowed):
    keys, values = drawn(300)
    memory = built(keys, values, lam0=lam0)
    outcome = memory.delete([17])
    assert (outcome.path, outcome.exactness) == ("downdate", "tolerance")
    fresh = built(keys, values, np.delete(np.arange(300), 17), lam0=lam0)
    assert relative(memory, fresh) < allowed
    assert memory.retained_error() < allowed * float(fresh.S.norm())


@pytest.mark.parametrize(("removed", "path"), [(500, "normal equations"), (1_150, "refit")])
@pytest.mark.parametrize(("lam0", "allowed"), [(0.1, 1e-13), (1e-3, 1e-12), (1e-6, 1e-9)])
def test_many_ridge_tokens_leave_through_the_sums(lam0, allowed, removed, path):
    keys, values = drawn(1_200)
    memory = built(keys, values, lam0=lam0)
    gone = np.random.default_rng(0).permutation(1_200)[:removed]
    outcome = memory.delete(gone.tolist())
    assert (outcome.path, outcome.exactness) == (path, "tolerance")
    assert relative(memory, built(keys, values, np.delete(np.arange(1_200), gone), lam0=lam0)) < allowed


def test_sums_that_are_singular_at_this_lam0_are_not_solved_and_change_nothing():
    """Identical keys: lam0 is far below the rounding of their sum, in the refresh as in the deletion."""
    memory = VLAMemory(6, 1, lam0=1e-17)
    keys = torch.ones(1_100, 6, dtype=torch.float64) * torch.linspace(1.0, 2.0, 6, dtype=torch.float64)
    memory.admit_many(keys, torch.ones(1_100, 1, dtype=torch.float64))
    assert float(memory.read(unit(keys[0]))) == pytest.approx(1.0, abs=1e-6)
    before = memory.digest()
    with pytest.raises(NotConverged):
        memory.delete([0, 1])
    assert memory.digest() == before


def test_a_token_of_leverage_one_is_not_downdated():
    keys, values = drawn(8)
    memory = built(keys, values, lam0=1e-9)
    outcome = memory.delete([3])
    assert outcome.path != "downdate"
    assert relative(memory, built(keys, values, np.delete(np.arange(8), 3), lam0=1e-9)) < 1e-5


def test_ridge_deletions_one_by_one_stay_within_the_measured_error():
    keys, values = drawn(1_010)
    memory = built(keys, values)
    for token in range(0, 400, 7):
        memory.delete([token])
    left = np.delete(np.arange(1_010), np.arange(0, 400, 7))
    distance = float((memory.S - built(keys, values, left).S).norm())
    assert distance < 1e-11
    assert memory.retained_error() == pytest.approx(distance, abs=1e-12)


def test_fp32_ridge_deletes_in_float64():
    keys, values = (part.float() for part in drawn(300))
    memory = built(keys, values, dtype=torch.float32)
    assert memory.delete([5]).path == "normal equations"
    assert relative(memory, built(keys, values, np.delete(np.arange(300), 5), dtype=torch.float32)) < 1e-4
    assert memory.retained_error() < 1e-6 * float(memory.S.norm())


@pytest.mark.parametrize("options", [{}, {"gain": "unit"}, {"ledger": True}])
def test_deleting_everything_leaves_a_fresh_memory(options):
    keys, values = drawn(30)
    memory = built(keys, values, **options)
    memory.delete(range(30))
    assert memory.digest() == VLAMemory(16, 3, **options).digest()
    assert torch.equal(memory.S, torch.zeros(3, 16, dtype=torch.float64))


@pytest.mark.parametrize("options", [{}, {"gain": "unit"}, {"ledger": True}])
def test_a_then_b_is_b_then_a_is_both(options):
    keys, values = drawn(60)
    orders = [[[1, 2], [30]], [[30], [1, 2]], [[1, 30, 2]]]
    memories = [built(keys, values, **options) for _ in orders]
    for memory, order in zip(memories, orders, strict=True):
        for part in order:
            memory.delete(part)
    assert max(relative(memory, memories[0]) for memory in memories) < 1e-12
    if options:
        assert len({memory.digest() for memory in memories}) == 1


@pytest.mark.parametrize("options", [{}, {"gain": "unit"}, {"ledger": True}])
def test_deletion_in_a_batch_touches_only_its_memory_and_equals_the_single_one(options):
    parts = [drawn(50, seed=seed) for seed in range(3)]
    batch = VLABatch(16, 3, 3, **options)
    batch.admit_many(torch.stack([k for k, _ in parts]), torch.stack([v for _, v in parts]))
    before = batch.digest()
    outcomes = batch.delete([[], [4, 9], [1, 2, 3]])
    after = batch.digest()
    assert before[0] == after[0]
    assert [outcome.removed for outcome in outcomes] == [0, 2, 3]
    for row, gone in ((1, [4, 9]), (2, [1, 2, 3])):
        single = built(*parts[row], **options)
        single.delete(gone)
        assert after[row] == single.digest()


def test_a_batch_deletes_all_or_nothing():
    batch = VLABatch(16, 3, 2)
    keys, values = drawn(2)
    batch.admit(keys, values)
    before = batch.digest()
    with pytest.raises(MemoryRefused):
        batch.delete([[0], [7]])
    assert batch.digest() == before


def test_a_nudged_memory_makes_no_deletion_statement():
    keys, values = drawn(30)
    memory = built(keys, values, gain="unit", nudge=1e-3)
    with pytest.raises(MemoryRefused, match="comparison"):
        memory.delete([0])


@pytest.mark.parametrize(
    "options",
    [
        {"gain": "other"},
        {"lam0": 0.0},
        {"lam0": float("nan")},
        {"scale": 0.5},
        {"gain": "unit", "ledger": True},
        {"ledger": True, "nudge": 1e-3},
        {"dtype": torch.float16},
    ],
)
def test_a_configuration_that_means_nothing_is_refused(options):
    with pytest.raises(MemoryRefused):
        VLAMemory(4, 2, **options)


def test_a_state_of_another_configuration_or_with_a_changed_number_is_refused():
    keys, values = drawn(20)
    state = built(keys, values).to_state()
    changed = [
        state | {"settings": state["settings"] | {"d_k": 8}},
        state | {"settings": state["settings"] | {"dtype": "float32"}},
        state | {"settings": state["settings"] | {"gain": "unit"}},
        state | {"settings": state["settings"] | {"unknown": 1}},
        state | {"stack": state["stack"] * np.nan},
        state | {"settled": np.array(21)},
        state | {"ids": np.zeros(20, np.int64)},
        {name: part for name, part in state.items() if name != "G"},
    ]
    for other in changed:
        with pytest.raises(MemoryRefused):
            VLAMemory.from_state(other)
