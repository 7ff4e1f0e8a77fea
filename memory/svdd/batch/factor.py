"""The margin's difference Gram matrix as V diag(D) V' in lock-step: solve, append, drop, make again.

H_ij = k_ij - k_i,ref - k_ref,j = <phi_i - phi_ref, phi_j - phi_ref> over the margin's members but the reference, which
is slot 0. V (B, M, M) is unit lower triangular with the unit diagonal left out; row and column 0 are zero. Slots at and
beyond the number of members hold V = 0 and D = 1. Nothing here is an inverse: each pivot D is a squared distance to the
affine hull of the members before it [MATH 1.1], and dropping a member is a rank-one update that only adds [Gill, Golub,
Murray, Saunders 1974, C1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from memory.svdd.batch.arithmetic import ordered_sum

ULP2 = 2.0**-51


def forward(V: Tensor, h: Tensor, top: int) -> Tensor:
    """z with V z = h over the first `top` slots: (B, top)."""
    z = h.clone()
    for j in range(1, top - 1):
        z[:, j + 1 :] -= V[:, j + 1 : top, j] * z[:, j : j + 1]
    return z


def backward(V: Tensor, w: Tensor, top: int) -> Tensor:
    """x with V' x = w over the first `top` slots: (B, top)."""
    x = w.clone()
    for i in range(top - 1, 1, -1):
        x[:, 1:i] -= V[:, i, 1:i] * x[:, i : i + 1]
    return x


def response(V: Tensor, D: Tensor, z: Tensor, live: Tensor, top: int) -> Tensor:
    """beta of MATH 1.1: how the members' mass moves per unit of mass given to the key whose forward solve is z."""
    beta = backward(V, -(z / D[:, :top]), top)
    beta[:, 0] = (-1.0 - ordered_sum(beta)) * live[:, 0]
    return beta


def drop(
    V: Tensor, D: Tensor, members: Tensor, m: Tensor, position: Tensor, first: int, top: int
) -> tuple[Tensor, ...]:
    """Take the member at `position` (B,), nowhere below `first`, out of every row: new (V, D, members, m).

    Without the reference itself (position 0) the differences are to member 1, whose row is the first unit vector: every
    other row loses 1 in that column, and from there on both cases are the same removal of one row and column.
    """
    slots = torch.arange(V.shape[1], device=V.device)
    gone = position.clamp_min(1)[:, None]
    below = (slots > gone) & (slots < m[:, None])
    column = V.gather(2, gone[:, None, :].expand(-1, V.shape[1], 1))[:, :, 0]
    v = (column - (position == 0).to(V.dtype)[:, None]) * below
    V, D = _absorb(V.clone(), D.clone(), v, D.gather(1, gone)[:, 0], first, top)
    return _close_gap(V, D, members, m - 1, position, slots)


def _absorb(V: Tensor, D: Tensor, v: Tensor, weight: Tensor, first: int, top: int) -> tuple[Tensor, Tensor]:
    """V D V' + weight v v' with v zero where nothing changes; a zero entry leaves its step exactly as it was.

    A column becomes the weighted mean of what it was and of v: where its pivot was tiny it is replaced, not corrected,
    so that large entries of a nearly dependent column leave no rounding behind [Fletcher and Powell 1974].
    """
    for j in range(max(first, 1) + 1, top):
        entry, old = v[:, j], D[:, j]
        weighted = weight * entry
        new = old + weighted * entry
        ratio = old / new
        weight = weight * ratio
        D[:, j] = new
        if j + 1 < top:
            rest, column = v[:, j + 1 : top], V[:, j + 1 : top, j]
            mean = ratio[:, None] * column + (weighted / new)[:, None] * rest
            rest -= entry[:, None] * column
            column.copy_(mean)
    return V, D


def _close_gap(V: Tensor, D: Tensor, members: Tensor, m: Tensor, position: Tensor, slots: Tensor) -> tuple[Tensor, ...]:
    last = V.shape[1] - 1
    row = (slots + (slots >= position.clamp_min(1)[:, None]).long()).clamp_max(last)
    member = (slots + (slots >= position[:, None]).long()).clamp_max(last)
    live = (slots < m[:, None]).to(V.dtype)
    V = V.gather(1, row[:, :, None].expand(-1, -1, last + 1)).gather(2, row[:, None, :].expand(-1, last + 1, -1))
    V = V * live[:, :, None] * live[:, None, :]
    D = D.gather(1, row) * live + (1.0 - live)
    return V, D, members.gather(1, member) * live.long(), m


def factorise(H: Tensor, m: Tensor, least: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """V, D and the members left out because their pivot is at most `least` (B,): from H (B, M, M), slot 0 the
    reference.
    """
    size = H.shape[1]
    V, D = torch.zeros_like(H), torch.ones(H.shape[:2], dtype=H.dtype, device=H.device)
    aside = torch.zeros(H.shape[:2], dtype=torch.bool, device=H.device)
    H = H.clone()
    for j in range(1, size):
        live = j < m
        aside[:, j] = live & (H[:, j, j] <= least)
        D[:, j] = torch.where(live & ~aside[:, j], H[:, j, j], 1.0)
        kept = (live & ~aside[:, j]).to(H.dtype)[:, None]
        column = H[:, j + 1 :, j] / D[:, j : j + 1] * kept
        V[:, j + 1 :, j] = column
        H[:, j + 1 :, j + 1 :] -= column[:, :, None] * (column * D[:, j : j + 1])[:, None, :]
    return V, D, aside
