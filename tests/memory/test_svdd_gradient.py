"""The implicit vector-Jacobian product of an exact solution against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.contract import MemoryRefused
from memory.svdd import SVDDMemory
from memory.svdd.gradient import Solution, read, score, solve

SIGMA = 2.0


def keys_of(seed: int, n: int = 14, d: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).requires_grad_()


@pytest.mark.parametrize("cap", [0.12, 0.2, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_coefficients_and_rho_have_the_derivative_of_finite_differences(cap: float, seed: int) -> None:
    keys = keys_of(seed)
    memory = SVDDMemory(cap, SIGMA).fit(keys.detach().numpy())
    assert memory.margin, "the case must have a margin"
    assert torch.autograd.gradcheck(lambda k: tuple(solve(k, cap, SIGMA)), (keys,), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", [3, 4])
def test_score_and_readout_have_the_derivative_of_finite_differences(seed: int) -> None:
    keys, queries, values = keys_of(seed), keys_of(seed + 100, 3), keys_of(seed + 200, 14, 2)

    def through(k: torch.Tensor, q: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        solution = solve(k, 0.15, SIGMA)
        return score(q, k, solution, SIGMA), read(q, k, v, solution, SIGMA)

    assert torch.autograd.gradcheck(through, (keys, queries, values), eps=1e-6, atol=1e-6)


def test_with_an_empty_margin_rho_moves_and_coefficients_stand_still() -> None:
    shell = np.random.default_rng(5).normal(size=(6, 4))
    shell = 3.0 * shell / np.linalg.norm(shell, axis=1, keepdims=True)
    points = torch.from_numpy(np.vstack([shell, 0.1 * np.random.default_rng(6).normal(size=(5, 4))])).requires_grad_()
    memory = SVDDMemory(1 / 6, 8.0).fit(points.detach().numpy())
    assert not memory.margin
    solution = solve(points, 1 / 6, 8.0)
    assert torch.equal(torch.autograd.grad(solution.alpha.sum(), points, retain_graph=True)[0], torch.zeros(11, 4))
    assert torch.autograd.gradcheck(lambda k: solve(k, 1 / 6, 8.0).rho, (points,), eps=1e-6, atol=1e-6)


def test_copies_of_a_key_move_as_one() -> None:
    single = keys_of(7, 9)
    copies = [0, 0, 0, 1, 1, *range(2, 9)]

    def doubled(k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        solution = solve(k[copies], 0.14, SIGMA)
        return solution.alpha, solution.rho

    memory = SVDDMemory(0.14, SIGMA).fit(single.detach().numpy()[copies])
    assert set(memory.margin) & {0, 1, 2, 3, 4}, "a copied key must be on the margin"
    assert torch.autograd.gradcheck(doubled, (single,), eps=1e-6, atol=1e-6)


def test_forward_values_are_those_of_the_memory() -> None:
    keys, queries = keys_of(8), keys_of(9, 5).detach()
    memory = SVDDMemory(0.12, SIGMA).fit(keys.detach().numpy(), values=np.arange(14.0)[:, None])
    solution = solve(keys, 0.12, SIGMA)
    assert np.array_equal(solution.alpha.detach().numpy(), memory.alpha)
    np.testing.assert_allclose(
        score(queries, keys, solution, SIGMA).detach().numpy(), memory.score(queries.numpy()), atol=1e-12
    )
    values = torch.arange(14.0, dtype=torch.float64)[:, None]
    np.testing.assert_allclose(
        read(queries, keys, values, solution, SIGMA).detach().numpy(), memory.read(queries.numpy()), atol=1e-12
    )


def test_a_query_out_of_reach_has_no_readout() -> None:
    solution = Solution(torch.ones(2, dtype=torch.float64) / 2, torch.zeros((), dtype=torch.float64))
    keys = torch.zeros(2, 1, dtype=torch.float64)
    far = torch.full((1, 1), 100.0, dtype=torch.float64)
    assert read(far, keys, torch.ones(2, 1, dtype=torch.float64), solution, 1.0).isnan().all()


@pytest.mark.parametrize("keys", [torch.zeros(3, 2), torch.zeros(3, dtype=torch.float64)])
def test_other_dtypes_and_shapes_are_refused(keys: torch.Tensor) -> None:
    with pytest.raises(MemoryRefused, match="give \\(n, d\\) float64 on the CPU"):
        solve(keys, 0.5, 1.0)
