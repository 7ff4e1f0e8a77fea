"""The arithmetic of VLA, batched over leading dimensions: one write, its Jacobian, one removal [VLA; MATH A2, A3, A7].

A (d_k, d_k) is the penalty inverse (lam0 I + sum u u')^-1 and S (d_v, d_k) the memory.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Gain = Literal["ridge", "unit"]


def write(A: Tensor, S: Tensor, key: Tensor, value: Tensor, penalty: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
    """One token with any penalty vector u: A <- A - zz zz'/(1 + u'zz), zz = A u; S <- S + (v - S k) a', a = A k.

    key and penalty are (d_k,), value (d_v,). Gain "unit" divides a by its norm; "ridge" needs u = k. This is the step
    as MATH A2 states it; the memories use `write_along`, which equals it where u is a multiple of k.
    """
    z = A @ penalty
    z = z / torch.sqrt(1.0 + penalty @ z)
    A = A - torch.outer(z, z)
    direction = A @ key
    if gain == "unit":
        direction = direction / torch.linalg.vector_norm(direction)
    return A, S + torch.outer(value - S @ key, direction)


def write_along(stack: Tensor, key: Tensor, value: Tensor, scale: float, gain: Gain) -> None:
    """One token a memory with u = scale * k, in place on stack = [A; S] (R, d_k + d_v, d_k).

    Then A_new k is a multiple of z = A k, so that both updates are one outer product with w = z * scale / sqrt(1 + h),
    h = scale^2 k'A k. That product is w w' on A: symmetric bit for bit, so no re-symmetrisation is needed [MATH A6].
    """
    d_k = key.shape[-1]
    image = (stack * key[:, None, :]).sum(-1)
    z, residual = image[:, :d_k], value - image[:, d_k:]
    grown = torch.sqrt(1.0 + scale**2 * (key * z).sum(-1, keepdim=True))
    w = z * (scale / grown)
    # The direction of the write is z / grown^2 (ridge, scale 1) or z / ||z|| (unit): a multiple of w.
    size = 1.0 / grown if gain == "ridge" else 1.0 / torch.sqrt((w * w).sum(-1, keepdim=True))
    stack.addcmul_(torch.cat([-w, residual * size], dim=1)[:, :, None], w[:, None, :])


def remove(A: Tensor, S: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, float]:
    """A ridge memory without one of its tokens, and the leverage h = k'A k of that token [MATH A7].

    A' = A + z z'/(1 - h), S' = S - (v - S k) z'/(1 - h) with z = A k. Meaningless where 1 - h is of the order of
    rounding: the caller must look at the leverage.
    """
    z = (A * key).sum(-1)
    left = 1.0 - float((key * z).sum())
    residual = value - (S * key).sum(-1)
    return A + torch.outer(z, z) / left, S - torch.outer(residual, z) / left, 1.0 - left


def alignment(A: Tensor, key: Tensor) -> float:
    """c = a . k with a = A k / ||A k||: the share of a unit-gain write that lands on its own key, 0 < c <= 1."""
    direction = A @ key
    return float(direction @ key / torch.linalg.vector_norm(direction))


def jacobian_singular_values(c: float) -> tuple[float, float]:
    """The two singular values of a unit-gain step's Jacobian I - k a' that differ from 1; the larger is its norm.

    sqrt((3 - 2c +- sqrt(5 - 4c)) / 2) [MATH A3]: the norm is 1 only where a = k, and up to 1.62.
    """
    root = math.sqrt(5.0 - 4.0 * c)
    return math.sqrt((3.0 - 2.0 * c + root) / 2.0), math.sqrt(max(3.0 - 2.0 * c - root, 0.0) / 2.0)
