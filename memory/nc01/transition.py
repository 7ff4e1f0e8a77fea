"""Token transition, norm guard and segment form with the register fixed, as pure functions [NC01 B3, B4, B6]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from memory.nc01.limits import NOISE, RHO, ROOM, Guard


@dataclass(frozen=True)
class Tokens:
    """A stretch of the stream: keys (B, T, d_k), values (B, T, d_v), gates alpha and beta (B, T)."""

    keys: Tensor
    values: Tensor
    alpha: Tensor
    beta: Tensor

    @property
    def length(self) -> int:
        """Tokens of each bank."""
        return self.keys.shape[1]

    def slice(self, start: int, stop: int) -> Tokens:
        """Tokens start..stop of every bank."""
        at = (slice(None), slice(start, stop))
        return Tokens(self.keys[at], self.values[at], self.alpha[at], self.beta[at])


@dataclass(frozen=True)
class Writes:
    """What a stretch does to the complement: X <- alpha (X - strength p (p'X)) + p w'. Nothing here depends on X.

    Attributes:
        directions: p (B, T, d_k), the keys less their protected part.
        strength: b-hat (B, T). `content`: w (B, T, d_v), the guarded write. `alpha`: (B, T).
    """

    directions: Tensor
    strength: Tensor
    content: Tensor
    alpha: Tensor


def split(keys: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates h (B, T, m) of keys (B, T, d_k) in the protected span and the rest p (B, T, d_k), in two passes.

    In fp32 one pass leaves a key inside the span with a remainder of rounding noise that is not orthogonal to it, and
    each repeat of that key would move a protected read by the same leak.
    """
    inside = keys @ basis
    rest = keys - inside @ basis.mT
    again = rest @ basis
    return inside + again, rest - again @ basis.mT


def write_room(radius: Tensor, alpha: Tensor, strength: Tensor, guard: Guard) -> Tensor:
    """Largest admissible write size given ||X|| <= radius (B, 1), gates alpha (B, T) and strength b-hat tau^2 (B, T).

    "sharp" is the largest room possible without knowing X: only the component of X along the key meets the write.
    "simple" adds the two norms. Source: [NC01 B4].
    """
    if guard == "simple":
        return (1 - alpha) * radius
    eta = 1 - strength
    crossing = ((1 - alpha) * (1 + alpha) * strength * (1 + eta)).clamp_min(0).sqrt()
    return radius * torch.where(eta <= alpha, crossing, 1 - alpha * eta)


def writes(tokens: Tokens, basis: Tensor, pinned: Tensor, guard: Guard) -> Writes:
    """The guarded writes of a stretch, register fixed. Source: [NC01 B3], [NC01 B4]."""
    inside, rest = split(tokens.keys, basis)
    held = inside @ pinned
    alpha, beta = tokens.alpha, tokens.beta
    tau2, pi2 = rest.square().sum(-1), inside.square().sum(-1)
    # A key inside the span leaves rounding noise, which is no direction: with a strength up to 65 it would be written.
    noise = tau2 <= (NOISE * torch.finfo(rest.dtype).eps) ** 2 * (tau2 + pi2)
    rest, tau2 = torch.where(noise[..., None], 0, rest), torch.where(noise, 0, tau2)
    gain = 1 / (tau2 + RHO)
    strength = beta * (1 + pi2 * gain)
    keep = alpha * beta + (1 - alpha + alpha * beta * pi2) * gain
    content = strength[..., None] * tokens.values - keep[..., None] * held
    radius = (ROOM - pinned.square().sum((1, 2))).clamp_min(0).sqrt()[:, None]
    room = write_room(radius, alpha, (strength * tau2).clamp_max(1), guard)
    size = tau2.sqrt() * torch.linalg.vector_norm(content, dim=-1)
    share = torch.where(size > room, room / size, 1)
    return Writes(rest, strength, share[..., None] * content, alpha)


def stepped(complement: Tensor, step: Writes) -> Tensor:
    """X after a stretch of one token: (B, d_k, d_v)."""
    direction, alpha = step.directions, step.alpha[:, :, None]
    change = step.content - alpha * step.strength[:, :, None] * (direction @ complement)
    return torch.baddbmm(alpha * complement, direction.mT, change)


def decays(alpha: Tensor) -> tuple[Tensor, Tensor]:
    """g (B, T), the product of all gates so far, and D (B, T, T), of those after i up to t, 0 above the diagonal.

    Sums of logarithms of the non-zero gates and counts of the zero gates in float64; nothing is divided by g, so a zero
    gate cuts exactly.
    """
    zero = alpha == 0
    logs = torch.where(zero, 1, alpha).double().log().cumsum(1)
    cuts = zero.cumsum(1)
    since_start = torch.where(cuts == 0, logs.exp(), 0)
    reach = (cuts[:, :, None] == cuts[:, None, :]).tril()
    between = torch.where(reach, logs[:, :, None] - logs[:, None, :], -torch.inf).exp()
    return since_start.to(alpha.dtype), between.to(alpha.dtype)


@dataclass(frozen=True)
class Segment:
    """A solved stretch: X after it (B, d_k, d_v), and what reads inside it need.

    `weights`: D (B, T, T); `since_start`: g (B, T); `solved`: z (B, T, d_v) with X_t = g_t X_0 + sum_i D_ti p_i z_i'.
    """

    complement: Tensor
    weights: Tensor
    since_start: Tensor
    solved: Tensor


def solve_segment(complement: Tensor, steps: Writes) -> Segment:
    """The stretch as one unit lower triangular system [NC01 B6]; equal to the loop up to rounding, not bit for bit."""
    p = steps.directions
    since_start, weights = decays(steps.alpha)
    strength = steps.strength[:, :, None]
    system = (strength * weights * (p @ p.mT)).tril(-1)
    right = steps.content - (strength * since_start[:, :, None]) * (p @ complement)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    last = since_start[:, -1, None, None] * complement
    after = torch.baddbmm(last, (p * weights[:, -1, :, None]).mT, solved)
    return Segment(after, weights, since_start, solved)


def segment_reads(
    queries: Tensor, basis: Tensor, pinned: Tensor, before: Tensor, steps: Writes, segment: Segment
) -> Tensor:
    """Reads (B, T, d_v) of queries (B, T, d_k), each after its own token; `before` is X at the segment's start."""
    through = (segment.weights * (queries @ steps.directions.mT)) @ segment.solved
    return (queries @ basis) @ pinned + segment.since_start[:, :, None] * (queries @ before) + through
