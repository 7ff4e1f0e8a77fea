"""Support-vector memories that train: batched approximate solves and the layer that stands on them.

An approximation in single precision for gradients by the thousand. It supplies no deletion statement: keys that were
trained are frozen and given to `SVDDMemory` for that. Source: [SVA App. B].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from memory.contract import MemoryRefused
from memory.svdd.gradient import gaussian

RIDGE = 1e-3
SOLVER_STEPS = 40
BISECTIONS = 26
POWER_STEPS = 12
_AT_LIMIT = 1e-3  # of C: nearer than this to 0 or C counts as there
_SMALLEST_DENOMINATOR = 1e-20


class BatchSolution(NamedTuple):
    """Coefficients (..., n), zero outside the mask, and the multiplier of the mass (...,)."""

    alpha: Tensor
    rho: Tensor


def project_capped(point: Tensor, C: float, mask: Tensor) -> Tensor:
    """The nearest point of {0 <= a <= C, sum a = 1} to each row of `point` (..., n), by bisection on the shift.

    Entries where `mask` (..., n) is false are 0. Every row needs C times its number of true entries to reach 1.
    """
    low = torch.where(mask, point, torch.inf).amin(-1, keepdim=True) - C
    outside = torch.where(mask, point, -torch.inf)  # ends at 0 whatever the shift
    high = outside.amax(-1, keepdim=True)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        heavy = (outside - middle).clamp(0, C).sum(-1, keepdim=True) > 1
        low, high = torch.where(heavy, middle, low), torch.where(heavy, high, middle)
    projected = (outside - (low + high) / 2).clamp(0, C)
    return projected / projected.sum(-1, keepdim=True)


def solve_batch(kernel: Tensor, C: float, mask: Tensor, *, steps: int = SOLVER_STEPS) -> BatchSolution:
    """Support-vector solutions of kernels (..., n, n) over the keys where `mask` (..., n) is true, differentiable.

    FISTA without gradient finds who is on the margin and who at the cap; the margin systems, packed and with ridge
    1e-3, are then solved with gradient. Every row needs n C >= 1 among its true entries; MemoryRefused otherwise.
    """
    count = int(mask.sum(-1).min())
    if count * C < 1 - 1e-9:
        raise MemoryRefused(f"n*C = {count * C:.6g} < 1 in a row of the batch: give it at least ceil(1/C) keys")
    with torch.no_grad():
        rough = _fista(kernel, C, mask, steps)
    return _ridged_margin(kernel, rough, C)


def _fista(kernel: Tensor, C: float, mask: Tensor, steps: int) -> Tensor:
    """Accelerated projected gradient with step 1 / (2 lambda_max)."""
    masked = torch.where(mask.unsqueeze(-1) & mask.unsqueeze(-2), kernel, 0.0)
    diagonal = masked.diagonal(dim1=-2, dim2=-1)
    step = 1 / (2 * _largest_eigenvalue(masked)).unsqueeze(-1)
    here = ahead = project_capped(torch.zeros_like(diagonal), C, mask)
    pace = 1.0
    for _ in range(steps):
        gradient = 2 * (masked @ ahead.unsqueeze(-1)).squeeze(-1) - diagonal
        there = project_capped(ahead - step * gradient, C, mask)
        faster = (1 + math.sqrt(1 + 4 * pace * pace)) / 2
        ahead = there + (pace - 1) / faster * (there - here)
        here, pace = there, faster
    return here


def _largest_eigenvalue(kernel: Tensor) -> Tensor:
    """By power iteration from the ones, (...,); entries of the kernel are not negative, so that start is not lost."""
    vector = torch.ones_like(kernel[..., 0])
    for _ in range(POWER_STEPS):
        image = (kernel @ vector.unsqueeze(-1)).squeeze(-1)
        vector = image / image.norm(dim=-1, keepdim=True)
    largest: Tensor = 1.05 * (kernel @ vector.unsqueeze(-1)).squeeze(-1).norm(dim=-1)
    return largest


def _ridged_margin(kernel: Tensor, rough: Tensor, C: float) -> BatchSolution:
    """Solve [[0, 1'], [1, 2 K_SS + ridge]] [rho; a_S] = [1 - |E| C; diag K - 2 C K_SE 1], margins packed in front."""
    near = _AT_LIMIT * C
    bound = rough >= C - near
    margin = (rough > near) & ~bound
    widest = max(1, int(margin.sum(-1).max()))
    order = margin.to(torch.int8).argsort(dim=-1, descending=True, stable=True)[..., :widest]
    present = margin.gather(-1, order)
    pinned = torch.where(bound, C, 0.0).to(kernel.dtype)
    linear = kernel.diagonal(dim1=-2, dim2=-1) - 2 * (kernel @ pinned.unsqueeze(-1)).squeeze(-1)
    system, right = _bordered(kernel, order, present, linear, 1 - pinned.sum(-1))
    solved = torch.linalg.solve(system, right.unsqueeze(-1)).squeeze(-1)
    inside = torch.where(present, solved[..., 1:], 0.0)
    alpha = pinned.scatter(-1, order, torch.where(present, inside, pinned.gather(-1, order)))
    level = kernel.diagonal(dim1=-2, dim2=-1) - 2 * (kernel @ alpha.unsqueeze(-1)).squeeze(-1)
    upper = torch.where(bound, level, torch.inf).amin(-1)
    return BatchSolution(alpha, torch.where(present.any(-1), solved[..., 0], upper))


def _bordered(kernel: Tensor, order: Tensor, present: Tensor, linear: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """The packed systems (..., s + 1, s + 1) and right sides (..., s + 1); absent rows stand alone at 0.

    Without any margin the border's corner is 1, so that the system has a solution, which nobody reads.
    """
    width = order.shape[-1]
    rows = kernel.gather(-2, order.unsqueeze(-1).expand(*order.shape, kernel.shape[-1]))
    block = rows.gather(-1, order.unsqueeze(-2).expand(*order.shape[:-1], width, width))
    both = present.unsqueeze(-1) & present.unsqueeze(-2)
    alone = torch.eye(width, dtype=kernel.dtype, device=kernel.device)
    inner = torch.where(both, 2 * block, 0.0) + alone * torch.where(present, RIDGE, 1.0).unsqueeze(-1).to(kernel.dtype)
    border = present.to(kernel.dtype)
    corner = (~present.any(-1, keepdim=True)).to(kernel.dtype)
    top = torch.cat([corner, border], -1).unsqueeze(-2)
    system = torch.cat([top, torch.cat([border.unsqueeze(-1), inner], -1)], -2)
    right = torch.cat([mass.unsqueeze(-1), torch.where(present, linear.gather(-1, order), 0.0)], -1)
    return system, right


@dataclass(frozen=True)
class FrozenKeys:
    """Trained keys of one sequence and head with what they were trained under: keys (n, d_head), C, sigma."""

    keys: Tensor
    C: float
    sigma: float


class SupportVectorAttention(nn.Module):
    """Causal attention over a support-vector memory of the past, refreshed every `chunk` tokens, and a local window.

    Input and output are (B, T, d_model). Heads have keys of d_model / heads dimensions and a kernel of learned width. A
    query in chunk c reads the memory of all tokens before the chunk, which keeps at most the support of `nu` times
    `declared` tokens, and a softmax over the last `window` tokens, itself included; a learned gate that sees the token
    and the memory's score of the query mixes the two. Below ceil(1/C) + 2 keys the memory is ungated: the kernel
    readout over all of them. No output depends on a later token. Source: [SVA App. B]. It supplies no deletion
    statement.
    """

    def __init__(
        self, d_model: int, heads: int = 2, *, nu: float = 0.3, declared: int = 56, chunk: int = 14, window: int = 8
    ) -> None:
        super().__init__()
        if d_model % heads or min(d_model, heads, declared, chunk, window) < 1 or not 0 < nu <= 1:
            raise MemoryRefused(
                f"d_model {d_model}, heads {heads}, nu {nu}, declared {declared}, chunk {chunk}, window {window}: "
                "give sizes of at least 1, heads that divide d_model, and 0 < nu <= 1"
            )
        self.heads, self.chunk, self.window = heads, chunk, window
        self.C = 1 / (nu * declared) if nu * declared > 1 else 1.0
        self.warm_up = math.ceil(1 / self.C) + 2
        self.project = nn.Linear(d_model, 3 * d_model, bias=False)
        self.gate = nn.Linear(d_model, heads)
        self.surprise = nn.Parameter(torch.ones(heads))
        self.log_sigma = nn.Parameter(torch.full((heads,), math.log(2.0)))
        self.out = nn.Linear(d_model, d_model)
        self.active_tokens = 0.0

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        batch, length, width = tokens.shape
        queries, keys, values = self._split(tokens)
        local = self._local(queries, keys, values)
        starts = range(self.chunk, length, self.chunk)
        mixed = [local[:, :, : self.chunk]]
        if starts:
            mixed += self._remembered(tokens, queries, keys, values, local, starts)
        joined = torch.cat(mixed, 2).transpose(1, 2).reshape(batch, length, width)
        output: Tensor = self.out(joined)
        return output

    def matched_window(self) -> int:
        """The window of a softmax layer with as much state: mean active tokens of the last forward, plus ours."""
        return round(self.active_tokens) + self.window

    @torch.no_grad()
    def frozen_keys(self, tokens: Tensor) -> list[FrozenKeys]:
        """The keys of one sequence (T, d_model), a head each, float64: for a maintained memory and its audit."""
        _, keys, _ = self._split(tokens.unsqueeze(0))
        widths = self.log_sigma.exp().tolist()
        return [FrozenKeys(head.double(), self.C, width) for head, width in zip(keys[0], widths, strict=True)]

    def _split(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (B, heads, T, d_head); keys and queries share the root of the dimension's scale."""
        batch, length, _ = tokens.shape
        parts = self.project(tokens).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return parts[0], parts[1], parts[2]

    def _local(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Softmax attention over the last `window` tokens, the query's own included."""
        at = torch.arange(queries.shape[2], device=queries.device)
        age = at.unsqueeze(1) - at.unsqueeze(0)
        allowed = (age >= 0) & (age < self.window)
        return nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=allowed)

    def _remembered(
        self, tokens: Tensor, queries: Tensor, keys: Tensor, values: Tensor, local: Tensor, starts: range
    ) -> list[Tensor]:
        """What every chunk after the first mixes: one solve a chunk, all chunks, heads and sequences in one batch."""
        sigma = self.log_sigma.exp().view(1, -1, 1, 1)
        among, asked = gaussian(keys, keys, sigma), gaussian(queries, keys, sigma)
        alpha, rho = self._prefixes(among, starts)
        mixed = []
        for number, start in enumerate(starts):
            chunk = slice(start, min(start + self.chunk, tokens.shape[1]))
            weight = asked[:, :, chunk] * alpha[number].unsqueeze(2)
            total = weight.sum(-1, keepdim=True)
            memory = weight @ values / total.clamp_min(_SMALLEST_DENOMINATOR)
            known = 2 * total.squeeze(-1) - rho[number].unsqueeze(-1)
            lean = self.gate(tokens[:, chunk]).transpose(1, 2) + self.surprise.view(1, -1, 1) * known
            share = torch.sigmoid(lean).unsqueeze(-1)
            mixed.append(share * memory + (1 - share) * local[:, :, chunk])
        return mixed

    def _prefixes(self, among: Tensor, starts: range) -> tuple[Tensor, Tensor]:
        """Coefficients (chunks, B, heads, T) and multipliers (chunks, B, heads) of the memory before each chunk."""
        length, at = among.shape[-1], torch.arange(among.shape[-1], device=among.device)
        before = torch.stack([at < start for start in starts])
        sizes = before.sum(1, keepdim=True)
        plain = before.to(among.dtype) / sizes
        alpha = plain.view(-1, 1, 1, length).expand(-1, *among.shape[:2], -1).contiguous()
        rho = torch.zeros(alpha.shape[:-1], dtype=among.dtype, device=among.device)
        gated = [number for number, start in enumerate(starts) if start >= self.warm_up]
        if gated:
            mask = before[gated].view(-1, 1, 1, length).expand(-1, *among.shape[:2], -1)
            solved = solve_batch(among.expand(len(gated), *among.shape), self.C, mask)
            alpha, rho = torch.cat([alpha[: gated[0]], solved.alpha]), torch.cat([rho[: gated[0]], solved.rho])
        with torch.no_grad():
            self.active_tokens = float((alpha > _AT_LIMIT * self.C).sum(-1).float().mean())
        return alpha, rho
