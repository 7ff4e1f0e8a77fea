"""Gradients of an exact support-vector solution: an implicit vector-Jacobian product at the partition it ended with.

The solution comes from the maintained path in float64; nothing is unrolled and there is no second solve. Source: [SVA
App. A].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from memory.contract import MemoryRefused
from memory.svdd.memory import SVDDMemory

_SMALLEST_DENOMINATOR = 1e-290


class Solution(NamedTuple):
    """Coefficients (n,) and the multiplier of the mass, both differentiable in the keys."""

    alpha: Tensor
    rho: Tensor


def solve(keys: Tensor, C: float, sigma: float) -> Solution:
    """The support-vector solution of keys (n, d), float64 on the CPU, differentiable in them.

    Raises MemoryRefused for another dtype or device and as `SVDDMemory.fit` does. Where a key changes its side
    (margin, bound, reserve) the solution has a kink: the derivative is that of the side it is on. Exact copies move as
    one key. With an empty margin the coefficients have no derivative and rho has that of its upper end.
    """
    if keys.dtype != torch.float64 or keys.device.type != "cpu" or keys.ndim != 2:
        raise MemoryRefused(
            f"keys of {keys.ndim} dimensions, {keys.dtype} on {keys.device.type}: give (n, d) float64 on the CPU"
        )
    alpha, rho = _Solve.apply(gaussian(keys, keys, sigma), keys.detach(), C, sigma)  # type: ignore[no-untyped-call]
    return Solution(alpha, rho)


def score(queries: Tensor, keys: Tensor, solution: Solution, sigma: float) -> Tensor:
    """The gate score 2 sum a_i kappa(q, x_i) - rho of queries (q, d): (q,). Source: [SVA 3.1]."""
    return 2 * gaussian(queries, keys, sigma) @ solution.alpha - solution.rho


def read(queries: Tensor, keys: Tensor, values: Tensor, solution: Solution, sigma: float) -> Tensor:
    """The readout of queries (q, d) over values (n, d_v): (q, d_v), NaN where the denominator underflows."""
    weight = gaussian(queries, keys, sigma) * solution.alpha
    total = weight.sum(1, keepdim=True)
    return torch.where(total > _SMALLEST_DENOMINATOR, weight @ values / total, torch.nan)


def gaussian(left: Tensor, right: Tensor, sigma: float | Tensor) -> Tensor:
    """exp(-||a - b||^2 / sigma^2) over leading batch dimensions: (..., n, d) and (..., m, d) give (..., n, m)."""
    gap = left.unsqueeze(-2) - right.unsqueeze(-3)
    return (-gap.square().sum(-1) / sigma**2).exp()


class _Places(NamedTuple):
    """Distinct keys of a solution by one of their copies, with their mass, on the margin or at the cap."""

    first: NDArray[np.int64]  # (u,) position of one copy
    member: NDArray[np.int64]  # (n,) place of every key
    copies: NDArray[np.int64]  # (u,)
    mass: NDArray[np.float64]  # (u,)
    margin: NDArray[np.int64]  # places
    bound: NDArray[np.int64]


class _Solve(torch.autograd.Function):
    """Kernel (n, n) -> alpha (n,), rho; the keys are given for the solver and take no gradient of their own."""

    @staticmethod
    def forward(ctx: Any, kernel: Tensor, keys: Tensor, C: float, sigma: float) -> tuple[Tensor, Tensor]:
        memory = SVDDMemory(C, sigma).fit(keys.numpy())
        ctx.places = _places(keys.numpy(), memory)
        ctx.save_for_backward(kernel)
        return torch.from_numpy(np.asarray(memory.alpha)), torch.tensor(memory.rho, dtype=torch.float64)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, alpha_bar: Tensor, rho_bar: Tensor) -> tuple[Tensor, None, None, None]:
        (kernel,) = ctx.saved_tensors
        pull = _pull_margin if len(ctx.places.margin) else _pull_empty_margin
        return torch.from_numpy(pull(ctx.places, kernel.numpy(), alpha_bar.numpy(), float(rho_bar))), None, None, None


def _places(keys: NDArray[np.float64], memory: SVDDMemory) -> _Places:
    _, first, member, copies = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    side = np.zeros(len(keys), np.int64)
    side[memory.margin], side[memory.bound] = 1, 2
    mass = memory.alpha[first] * copies
    return _Places(first, member.ravel(), copies, mass, *(np.flatnonzero(side[first] == kind) for kind in (1, 2)))


def _pull_margin(
    places: _Places, kernel: NDArray[np.float64], alpha_bar: NDArray[np.float64], rho_bar: float
) -> NDArray[np.float64]:
    """d/dK with w = M^-1 [rho_bar; a_bar]: w_i on K_ii, -2 w_i a_j on K_ij for j on the margin or at the cap."""
    rows, active = places.first[places.margin], np.concatenate([places.margin, places.bound])
    per_place = np.bincount(places.member, weights=alpha_bar, minlength=len(places.first)) / places.copies
    system = np.zeros((len(rows) + 1, len(rows) + 1))
    system[0, 1:] = system[1:, 0] = 1.0
    system[1:, 1:] = 2.0 * kernel[np.ix_(rows, rows)]
    pulled = np.linalg.solve(system, np.concatenate([[rho_bar], per_place[places.margin]]))[1:]
    gradient = np.zeros_like(kernel)
    gradient[np.ix_(rows, places.first[active])] = -2.0 * np.outer(pulled, places.mass[active])
    gradient[rows, rows] += pulled
    return gradient


def _pull_empty_margin(
    places: _Places, kernel: NDArray[np.float64], alpha_bar: NDArray[np.float64], rho_bar: float
) -> NDArray[np.float64]:
    """rho is K_ii - 2 (K a)_i at the key at the cap where that is least; the coefficients stand still."""
    del alpha_bar
    rows = places.first[places.bound]
    level = kernel[rows, rows] - 2.0 * kernel[np.ix_(rows, rows)] @ places.mass[places.bound]
    at = rows[int(np.argmin(level))]
    gradient = np.zeros_like(kernel)
    gradient[at, rows] = -2.0 * rho_bar * places.mass[places.bound]
    gradient[at, at] += rho_bar
    return gradient
