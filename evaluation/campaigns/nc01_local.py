"""Single transitions of protected-read banks against independent solutions of their equations [NC01; MATH B3, B7]."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evaluation.campaigns.nc01_streams import INSIDE, WIDTH, directions, plain
from evaluation.campaigns.table import Findings, Row, at_most, judged
from evaluation.published import NC01_PUBLISHED
from memory.nc01 import CP64, NC01Bank, RandomOffers
from memory.nc01.limits import PIN_RADIUS, RHO
from memory.nc01.transition import Tokens, writes

WARM = 5 * 64


def checks(cases: int, seed: int) -> Findings:
    """Protected reads, the variational form, the factored read and the guarded read, over `cases` banks."""
    rng = np.random.default_rng([seed, 104])
    bank = NC01Bank(cases, **CP64)
    bank.run(*plain(rng, cases, WARM, torch.float64), RandomOffers(seed))
    held = _held(bank)
    k, v, alpha, beta = (part[:, 0] for part in plain(rng, cases, 1, torch.float64))
    before = bank.physical()
    bank.step(k, v, alpha, beta)
    after = bank.physical()
    reads = max(float((keys @ matrix - pins).abs().max()) for keys, pins, matrix in _each(held, after))
    variational = _variational(held, before, after, (k, v, alpha, beta))
    factored = float((bank.read(k) - (k[:, None] @ after)[:, 0]).abs().max())
    guarded, active = _guarded(bank, rng)
    where = f"{cases} cases, 128 x 128, float64"
    return Findings(
        [
            judged("protected reads after a step", where, reads, at_most(5e-15)),
            judged("variational form", where, variational, at_most(1e-14), NC01_PUBLISHED["variational"]),
            judged("factored against physical read", where, factored, at_most(5e-15), NC01_PUBLISHED["reader"]),
            judged(
                "read correction under active guard",
                f"{where}, guard active in {active}",
                guarded,
                at_most(1e-13),
                NC01_PUBLISHED["active_guard"],
            ),
            _into_zero(rng),
        ],
        [{"part": "local", "cases": cases, "reads": reads, "variational": variational, "guarded": guarded}],
    )


def _held(bank: NC01Bank) -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.from_numpy(keys), torch.from_numpy(pins))
        for keys, pins in zip(bank.addresses(), bank.pins(), strict=True)
    ]


def _each(held: list[tuple[Tensor, Tensor]], matrices: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    return [(*pair, matrix) for pair, matrix in zip(held, matrices, strict=True)]


def _variational(held: list[tuple[Tensor, Tensor]], before: Tensor, after: Tensor, token: tuple[Tensor, ...]) -> float:
    """Largest gap to the minimiser of ||B - B0||^2 + ||(B - B0)'k||^2 / rho with K'B = U, by its KKT system."""
    worst = 0.0
    for (keys, pins), old, new, k, v, alpha, beta in zip(held, before, after, *token, strict=True):
        m = len(keys)
        start = alpha * (old - beta * torch.outer(k, k @ old)) + beta * torch.outer(k, v)
        system = torch.zeros((WIDTH + m, WIDTH + m), dtype=torch.float64)
        system[:WIDTH, :WIDTH] = torch.eye(WIDTH, dtype=torch.float64) + torch.outer(k, k) / RHO
        system[:WIDTH, WIDTH:], system[WIDTH:, :WIDTH] = keys.T, keys
        right = torch.cat([torch.zeros((WIDTH, WIDTH), dtype=torch.float64), pins - keys @ start])
        change = torch.linalg.solve(system, right)[:WIDTH]
        worst = max(worst, float((start + change - new).abs().max()))
    return worst


def _guarded(bank: NC01Bank, rng: np.random.Generator) -> tuple[float, int]:
    """B+'k = y + alpha (1 - bh tau2) X'p + sigma tau2 b, with values so large that the guard shortens the write.

    The error is relative to the norm of the read, which is near 64 here.
    """
    k = torch.from_numpy(directions(rng, bank.banks)) * INSIDE
    v = torch.from_numpy(directions(rng, bank.banks)) * 1e4
    alpha, beta = torch.full((bank.banks,), 0.99, dtype=torch.float64), torch.ones(bank.banks, dtype=torch.float64)
    basis, pinned = (torch.from_numpy(bank.to_state()["arrays"][name]) for name in ("basis", "pinned"))
    rest = bank.physical() - basis @ pinned
    tokens = Tokens(k[:, None], v[:, None], alpha[:, None], beta[:, None])
    step = writes(tokens, basis, pinned, "sharp")
    p, tau2 = step.directions, step.directions.square().sum(-1, keepdim=True)
    inside = (k[:, None] @ basis) @ pinned
    expected = inside + alpha[:, None, None] * (1 - step.strength[..., None] * tau2) * (p @ rest) + tau2 * step.content
    active = (torch.linalg.vector_norm(step.content, dim=-1) < torch.linalg.vector_norm(v, dim=-1)[:, None] / 2).sum()
    bank.step(k, v, alpha, beta)
    read = bank.read(k)
    gap = torch.linalg.vector_norm(read - expected[:, 0], dim=1) / torch.linalg.vector_norm(read, dim=1)
    return float(gap.max()), int(active)


def _into_zero(rng: np.random.Generator) -> Row:
    bank = NC01Bank(1, **CP64)
    r, v = (torch.from_numpy(directions(rng, 1)) for _ in range(2))
    bank.boundary(r, v)
    miss = float(torch.linalg.vector_norm(bank.read(r) - v))
    where = f"pin radius {PIN_RADIUS}"
    return judged("admission into the zero state less the pin radius", where, abs(miss - PIN_RADIUS), at_most(1e-16))
