"""The batched training path against the exact memory, and the layer's causality, speed and fit."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from memory.contract import MemoryRefused
from memory.svdd import SVDDMemory
from memory.svdd.gradient import gaussian, solve
from memory.svdd.training import RIDGE, SupportVectorAttention, project_capped, solve_batch

CAP = 1 / 9


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def ragged(batch: int = 4, n: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys (batch, n, 4), the last rows with fewer of them."""
    mask = torch.ones(batch, n, dtype=torch.bool)
    mask[1:2, 20:], mask[2:3, 10:] = False, False
    return torch.randn(batch, n, 4), mask


def test_projection_is_the_shift_that_a_root_finder_finds() -> None:
    point, mask = torch.randn(6, 20, dtype=torch.float64), torch.rand(6, 20) > 0.2
    projected = project_capped(point, 0.15, mask)
    for row, kept, found in zip(point.numpy(), mask.numpy(), projected.numpy(), strict=True):
        inside = row[kept]
        shift = brentq(lambda t, x=inside: np.clip(x - t, 0, 0.15).sum() - 1, inside.min() - 1, inside.max())
        np.testing.assert_allclose(found[kept], np.clip(inside - shift, 0, 0.15), atol=1e-6)
        assert (found[~kept] == 0).all()


def test_a_batch_of_prefixes_has_the_coefficients_of_exact_memories_to_the_ridge() -> None:
    keys, mask = ragged()
    batch = solve_batch(gaussian(keys, keys, 2.0), CAP, mask)
    for line in range(len(keys)):
        exact = SVDDMemory(CAP, 2.0).fit(keys[line][mask[line]].double().numpy())
        np.testing.assert_allclose(batch.alpha[line][mask[line]].numpy(), exact.alpha, atol=RIDGE * CAP)
        assert float(batch.rho[line]) == pytest.approx(exact.rho, abs=RIDGE)
        assert (batch.alpha[line][~mask[line]] == 0).all()


def test_gradients_are_those_of_the_exact_solution_to_the_ridge() -> None:
    keys, mask = ragged(1)
    weight = torch.linspace(-1, 1, keys.shape[1], dtype=torch.float64)
    trained, exact = keys.clone().requires_grad_(), keys[0].double().requires_grad_()
    (solve_batch(gaussian(trained, trained, 2.0), CAP, mask).alpha @ weight.float()).sum().backward()
    (solve(exact, CAP, 2.0).alpha @ weight).backward()
    assert exact.grad is not None
    assert trained.grad is not None
    gap = (trained.grad[0].double() - exact.grad).norm() / exact.grad.norm()
    assert float(gap) < 0.02


def test_rows_without_a_margin_take_the_upper_end_of_rho() -> None:
    shell = torch.nn.functional.normalize(torch.randn(1, 6, 4), dim=-1) * 3
    keys = torch.cat([shell, 0.1 * torch.randn(1, 6, 4)], 1)
    batch = solve_batch(gaussian(keys, keys, 8.0), 1 / 6, torch.ones(1, 12, dtype=torch.bool))
    exact = SVDDMemory(1 / 6, 8.0).fit(keys[0].double().numpy())
    assert not exact.margin
    assert float(batch.rho[0]) == pytest.approx(exact.rho, abs=1e-5)


def test_a_row_that_cannot_carry_the_mass_is_refused() -> None:
    keys, mask = ragged()
    mask[3, 5:] = False
    with pytest.raises(MemoryRefused, match="< 1 in a row of the batch"):
        solve_batch(gaussian(keys, keys, 2.0), CAP, mask)


def layer() -> SupportVectorAttention:
    return SupportVectorAttention(16, 2, declared=30, chunk=7, window=5)


@pytest.mark.parametrize("length", [1, 6, 7, 8, 30, 41])
def test_nothing_later_changes_an_output(length: int) -> None:
    module, tokens = layer(), torch.randn(2, length, 16)
    whole = module(tokens)
    for cut in {1, length // 2, length - 1} - {0}:
        changed = torch.cat([tokens[:, :cut], 9 * torch.randn(2, length - cut, 16)], 1)
        torch.testing.assert_close(module(changed)[:, :cut], whole[:, :cut], atol=1e-5, rtol=1e-4)


def test_a_batch_equals_its_members() -> None:
    module, tokens = layer(), torch.randn(3, 30, 16)
    singly = torch.cat([module(tokens[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(module(tokens), singly, atol=1e-5, rtol=1e-4)


def test_every_parameter_takes_a_gradient() -> None:
    module = layer()
    module(torch.randn(2, 30, 16)).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_below_the_warm_up_the_memory_reads_all_keys_alike() -> None:
    module = SupportVectorAttention(16, 2, declared=100, chunk=4, window=1)
    assert module.warm_up == 32
    among = gaussian(torch.randn(1, 2, 12, 8), torch.randn(1, 2, 12, 8), 2.0)
    alpha, _ = module._prefixes(among, range(4, 12, 4))
    torch.testing.assert_close(alpha[0, 0, 0], torch.cat([torch.full((4,), 0.25), torch.zeros(8)]))


def each_prefix_alone(keys: torch.Tensor, warm_up: int, cap: float) -> list[torch.Tensor]:
    """The coefficients before every token, one solve after another."""
    ones = torch.ones(keys.shape[0], 1, dtype=torch.bool)
    prefixes = (keys[:, :stop] for stop in range(warm_up, keys.shape[1]))
    return [solve_batch(gaussian(k, k, 2.0), cap, ones.expand(k.shape[:2])).alpha for k in prefixes]


def test_chunks_are_at_least_five_times_as_fast_as_one_solve_a_prefix() -> None:
    module, keys = SupportVectorAttention(32, 2, nu=0.3, declared=30, chunk=14), torch.randn(8, 56, 16)
    tokens = torch.randn(4, 56, 32)
    module(tokens)
    began = time.process_time()
    module(tokens)
    chunked = time.process_time() - began
    each_prefix_alone(keys[:, :12], module.warm_up, CAP)
    began = time.process_time()
    each_prefix_alone(keys, module.warm_up, CAP)
    assert (time.process_time() - began) / chunked >= 5


def test_the_memory_before_a_chunk_is_the_solve_of_that_prefix_alone() -> None:
    module = SupportVectorAttention(32, 2, nu=0.3, declared=30, chunk=14)
    keys = torch.randn(4, 2, 56, 16)
    module.C = CAP
    alpha, _ = module._prefixes(gaussian(keys, keys, 2.0), range(14, 56, 14))
    for number, start in enumerate(range(14, 56, 14)):
        (alone,) = each_prefix_alone(keys[1, :, : start + 1], start, CAP)
        torch.testing.assert_close(alpha[number, 1, :, :start], alone, atol=1e-4, rtol=1e-3)
        assert (alpha[number, 1, :, start:] == 0).all()


def test_a_student_comes_within_one_percent_of_its_teacher_in_200_steps() -> None:
    torch.manual_seed(1)
    teacher, student = (SupportVectorAttention(32, 2) for _ in range(2))
    tokens = torch.randn(8, 56, 32)
    with torch.no_grad():
        wanted = teacher(tokens)
    optimiser = torch.optim.Adam(student.parameters(), lr=3e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 200)
    errors = []
    for _ in range(200):
        error = (student(tokens) - wanted).square().mean()
        optimiser.zero_grad()
        error.backward()
        optimiser.step()
        schedule.step()
        errors.append(error.item())
    assert errors[-1] <= 0.01 * errors[0]


def test_frozen_keys_are_what_the_maintained_memory_takes() -> None:
    module = layer()
    frozen = module.frozen_keys(torch.randn(40, 16))
    assert len(frozen) == 2
    memory = SVDDMemory(frozen[0].C, frozen[0].sigma).fit(frozen[0].keys.numpy())
    assert memory.certificate().kkt_residual < 1e-12


def test_the_matched_window_counts_active_tokens_and_the_local_ones() -> None:
    module = layer()
    module(torch.randn(2, 41, 16))
    assert module.window < module.matched_window() <= module.window + 35


@pytest.mark.parametrize("sizes", [{"heads": 3}, {"nu": 0.0}, {"chunk": 0}, {"window": 0}])
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, float]) -> None:
    with pytest.raises(MemoryRefused, match="heads that divide d_model"):
        SupportVectorAttention(16, **sizes)
