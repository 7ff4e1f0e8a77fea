"""The untrained two-layer model in which the published state norms of VLA and linear attention arise [VLA; MATH A4].

d_model 128, four heads of 32, feed-forward 256, every weight and embedding N(0, 0.02^2), zero biases, learned
positions, 128 uniformly random token ids, layer norm before each part, keys and queries elu + 1, no training. All seeds
go through it together: tensors are (seeds, T, width).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from memory.vla.recurrence import jacobian_singular_values

WIDTH, HEADS, FEED, VOCABULARY, LAYERS, SPREAD = 128, 4, 256, 128, 2, 0.02
HEAD = WIDTH // HEADS
LAM0 = 0.1
NUDGE, NUDGE_EVERY = 1e-3, 20
LEAST_WEIGHT = 1e-6


@dataclass
class Trace:
    """What the last layer did: final norms of S (seeds,), of A after token 1 and at the end, Jacobian norms."""

    norm: Tensor
    penalty_first: list[float]
    penalty_last: list[float]
    jacobian: float
    formula_gap: float


def trace(kind: str, tokens: int, seeds: int, seed: int, nudge: bool = False) -> Trace:
    """Run `seeds` models over `tokens` random ids with layers of "linear" attention or "vla"."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return SPREAD * torch.randn((seeds, *shape), generator=generator, dtype=torch.float64)

    ids = torch.randint(VOCABULARY, (seeds, tokens), generator=generator)
    x = torch.gather(drawn(VOCABULARY, WIDTH), 1, ids[..., None].expand(-1, -1, WIDTH)) + drawn(tokens, WIDTH)
    out = Trace(torch.zeros(seeds), [], [], 1.0, 0.0)
    for _ in range(LAYERS):
        normed = functional.layer_norm(x, (WIDTH,))
        projected = [normed @ drawn(WIDTH, WIDTH) for _ in range(4)]
        heads = [part.view(seeds, tokens, HEADS, HEAD).transpose(1, 2) for part in projected]
        read = _linear(heads, out) if kind == "linear" else _vla(heads, out, nudge)
        x = x + read.transpose(1, 2).flatten(2) @ drawn(WIDTH, WIDTH)
        inner = functional.gelu(functional.layer_norm(x, (WIDTH,)) @ drawn(WIDTH, FEED))
        x = x + inner @ drawn(FEED, WIDTH)
    return out


def features(raw: Tensor) -> Tensor:
    """elu + 1."""
    return functional.elu(raw) + 1


def _linear(heads: list[Tensor], out: Trace) -> Tensor:
    """S += v f(k)', read S f(q) / z'f(q), all positions at once; heads are (seeds, heads, T, 32)."""
    q, k, v = features(heads[0]), features(heads[1]), heads[2]
    weights = (q @ k.mT).tril()
    out.norm = torch.linalg.matrix_norm(v.mT @ k).mean(1)
    return (weights @ v) / weights.sum(-1, keepdim=True)


def _vla(heads: list[Tensor], out: Trace, nudge: bool) -> Tensor:
    """The published recurrence (A2, gain "unit", quotient read) with u = normalise(W_u k) / sqrt(d)."""
    q, k, v = features(heads[0]), features(heads[1]), heads[2]
    penalty = functional.normalize(heads[3], dim=-1) / math.sqrt(HEAD)
    keys = functional.normalize(k, dim=-1)
    eye = torch.eye(HEAD, dtype=k.dtype)
    A = (eye / LAM0).expand(*k.shape[:2], HEAD, HEAD).clone()
    S, z, reads = torch.zeros_like(A), torch.zeros_like(k[:, :, 0]), []
    for t in range(k.shape[2]):
        u, key = penalty[:, :, t], keys[:, :, t]
        image = _at(A, u)
        A = A - image[..., :, None] * image[..., None, :] / (1 + (u * image).sum(-1))[..., None, None]
        if nudge and (t + 1) % NUDGE_EVERY == 0:
            A = A + NUDGE * eye
        direction = functional.normalize(_at(A, key), dim=-1)
        S = S + (v[:, :, t] - _at(S, key))[..., :, None] * direction[..., None, :]
        z = z + k[:, :, t]
        weight = (z * q[:, :, t]).sum(-1, keepdim=True).clamp_min(LEAST_WEIGHT)
        reads.append(_at(S, q[:, :, t]) / weight)
        _note_jacobian(out, key, direction)
        if t == 0:
            out.penalty_first.append(float(torch.linalg.matrix_norm(A).mean()))
    out.penalty_last.append(float(torch.linalg.matrix_norm(A).mean()))
    out.norm = torch.linalg.matrix_norm(S).mean(1)
    return torch.stack(reads, 2)


def _at(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]


def _note_jacobian(out: Trace, key: Tensor, direction: Tensor) -> None:
    """The largest norm of I - k a' over heads by its closed form, and that form's gap to a singular value solver."""
    c = float((key * direction).sum(-1).min())
    norm = jacobian_singular_values(min(c, 1.0))[0]
    if norm <= out.jacobian:
        return
    worst = (key * direction).sum(-1).flatten().argmin()
    k, a = key.flatten(0, 1)[worst], direction.flatten(0, 1)[worst]
    solved = float(torch.linalg.matrix_norm(torch.eye(HEAD, dtype=k.dtype) - torch.outer(k, a), ord=2))
    out.jacobian, out.formula_gap = norm, max(out.formula_gap, abs(norm - solved))
