"""The integer ledger: exact sums, in any order, with nothing left of a deleted token."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from memory import ledger
from memory.contract import MemoryRefused, NotConverged
from memory.vla import VLAMemory


def drawn(n, d_k=12, d_v=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d_k, generator=g).double(), torch.randn(n, d_v, generator=g).double()


def built(keys, values, order):
    memory = VLAMemory(keys.shape[1], values.shape[1], ledger=True)
    for token in order:
        memory.admit(keys[token], values[token], int(token))
    return memory


def test_after_98_deletions_in_shuffled_order_the_digest_is_that_of_a_build_that_never_saw_them():
    keys, values = drawn(600)
    rng = np.random.default_rng(0)
    memory = built(keys, values, rng.permutation(600))
    gone = rng.permutation(600)[:98]
    for part in np.array_split(gone, 5):
        outcome = memory.delete(part.tolist())
    fresh = built(keys, values, rng.permutation(np.setdiff1d(np.arange(600), gone)))
    assert memory.digest() == fresh.digest()
    assert torch.equal(memory.S, fresh.S)
    assert torch.equal(memory.A, fresh.A)
    assert (outcome.path, outcome.exactness) == ("ledger", "bit-identical")


def test_the_digest_covers_the_sums_and_the_tokens_but_not_their_order():
    keys, values = drawn(40)
    memory, longer = built(keys, values, range(40)), built(keys, values, range(39))
    assert memory.digest() == built(keys, values, reversed(range(40))).digest()
    assert memory.digest() != longer.digest()
    moved = values.clone()
    moved[7, 0] += 2.0**-19
    assert built(keys, moved, range(40)).digest() != memory.digest()


def test_the_sums_are_the_exact_rational_sums_of_the_rounded_tokens():
    keys, values = drawn(30, 3, 1)
    memory = built(keys, values, range(30))
    n, G, M = memory.sums
    whole = ledger.quantised(torch.as_tensor(memory.to_state()["keys"])).tolist()
    targets = [round(Fraction(v) * 2**20) for v in values[:, 0].tolist()]
    assert n == 30
    assert G.tolist() == [[sum(k[i] * k[j] for k in whole) for j in range(3)] for i in range(3)]
    assert M.tolist() == [[sum(v * k[j] for v, k in zip(targets, whole, strict=True)) for j in range(3)]]


def test_rounding_costs_no_more_than_its_grid_explains():
    keys, values = drawn(600)
    exact, floating = built(keys, values, range(600)), VLAMemory(12, 2)
    floating.admit_many(keys, values)
    distance = float((exact.S - floating.S).norm())
    assert 0.0 < distance < 1e-4 * float(floating.S.norm())
    assert exact.retained_error() == pytest.approx(distance, rel=1e-3)


def test_the_solve_agrees_with_numpy():
    keys, values = drawn(50)
    memory = built(keys, values, range(50))
    _, G, M = (np.asarray(part, dtype=np.float64) for part in memory.sums)
    H = G / 2.0**40 + 1e-3 * np.eye(12)
    assert np.allclose(memory.S.numpy(), np.linalg.solve(H, M.T / 2.0**40).T, rtol=1e-12, atol=1e-13)
    assert np.allclose(memory.A.numpy(), np.linalg.inv(H), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("value", [2.0**23, 2.0**22 + 1.0, 1e300])
def test_a_value_that_could_overflow_the_sums_is_refused_and_changes_nothing(value):
    keys, values = drawn(3)
    memory = built(keys, values, [0])
    before = memory.digest()
    with pytest.raises(MemoryRefused, match=r"range|overflow"):
        memory.admit(keys[1], torch.full((2,), value, dtype=torch.float64))
    assert memory.digest() == before


def test_the_range_rule_is_that_of_the_tokens_held():
    keys, values = drawn(3)
    memory = built(keys, values, [])
    big = torch.full((2,), 2.0**22, dtype=torch.float64)
    memory.admit(keys[0], big, 0)
    with pytest.raises(MemoryRefused):
        memory.admit(keys[1], values[1], 1)
    memory.delete([0])
    memory.admit(keys[1], values[1], 1)
    assert memory.digest() == built(keys, values, [1]).digest()


def test_a_million_tokens_of_size_eight_are_in_range_and_no_sum_within_the_rule_overflows():
    ledger.check_range(10**6, 8 * 2**20)
    with pytest.raises(MemoryRefused):
        ledger.check_range(2**20, 8 * 2**20)
    assert (2**20 - 1) * 8 * 2**20 * 2**20 < 2**63


def test_a_ledger_whose_sums_are_not_those_of_its_tokens_is_refused():
    keys, values = drawn(20)
    state = built(keys, values, range(20)).to_state()
    state["G"][0, 0] += 1
    with pytest.raises(MemoryRefused, match="sums"):
        VLAMemory.from_state(state)


def test_sums_do_not_depend_on_how_many_memories_are_added_at_once(monkeypatch):
    g = torch.Generator().manual_seed(1)
    left, right = torch.randn(5, 150, 7, generator=g).double(), torch.randn(5, 150, 3, generator=g).double()
    together = ledger.outer_sum(left, right)
    monkeypatch.setattr(ledger, "_NUMBERS_AT_ONCE", 1)
    assert torch.equal(ledger.outer_sum(left, right), together)
    assert torch.allclose(together, left.transpose(1, 2) @ right, atol=1e-12)


def test_the_factor_and_the_solution_agree_with_lapack_and_a_matrix_that_is_not_definite_is_noticed():
    g = torch.Generator().manual_seed(2)
    left = torch.randn(3, 20, 9, generator=g, dtype=torch.float64)
    G, M = left.transpose(1, 2) @ left, torch.randn(3, 2, 9, generator=g, dtype=torch.float64)
    H = G + 0.1 * torch.eye(9, dtype=torch.float64)
    assert torch.allclose(ledger.cholesky(H), torch.linalg.cholesky(H), rtol=1e-13, atol=1e-14)
    A, S = ledger.solve(G, M, 0.1)
    assert torch.allclose(A, torch.linalg.inv(H), rtol=1e-12, atol=1e-13)
    assert torch.allclose(S, M @ torch.linalg.inv(H), rtol=1e-12, atol=1e-13)
    with pytest.raises(NotConverged):
        ledger.checked(ledger.solve(-G, M, 0.1)[0])
