"""Exact sums for ridge memories: tokens as integers, so that taking one out leaves no trace in the sums.

A write key and a value are rounded to whole multiples of 2^-20, and G = sum k k', M = sum v k' are kept in int64.
Integer addition is exact and commutes, so the sums after a deletion are bit for bit those of a build that never saw the
tokens, in any order [MATH A7]. The sums of a token carry a factor 2^40.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memory.contract import MemoryRefused, NotConverged

BITS = 20
ONE = 2**BITS
LARGEST_VALUE = 2 ** (63 - 2 * BITS)
_AT_ONCE = 64


def quantised(numbers: Tensor) -> Tensor:
    """Numbers as whole multiples of 2^-20, int64; halves go to the even neighbour. Expects |x| < LARGEST_VALUE."""
    return torch.round(numbers.to(torch.float64) * ONE).to(torch.int64)


def check_range(count: int, largest: int) -> None:
    """Refuse `count` tokens whose largest quantised value is `largest` where a sum could leave int64.

    The rule: n * max(1, max |v|) * 2^40 < 2^63, for example 10^6 tokens with |v| <= 8.
    """
    if count * max(largest, ONE) * ONE >= 2**63:
        raise MemoryRefused(
            f"{count} tokens with values up to {largest / ONE:.3g} could overflow the integer sums: n * max(1, |v|) "
            f"must stay below {LARGEST_VALUE}; scale the values"
        )


def sums(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """G (R, d_k, d_k) and M (R, d_v, d_k) over tokens, quantised keys (R, n, d_k) and values (R, n, d_v)."""
    return outer_sum(keys, keys), outer_sum(values, keys)


def outer_sum(left: Tensor, right: Tensor) -> Tensor:
    """sum_t left_t right_t' for (R, n, a) and (R, n, b): (R, a, b), added in one order whatever the threads."""
    total = left.new_zeros((left.shape[0], left.shape[2], right.shape[2]))
    for start in range(0, left.shape[1], _AT_ONCE):
        part, other = left[:, start : start + _AT_ONCE], right[:, start : start + _AT_ONCE]
        total += (part[:, :, :, None] * other[:, :, None, :]).sum(1)
    return total


def solve(G: Tensor, M: Tensor, lam0: float) -> tuple[Tensor, Tensor]:
    """A = (lam0 I + G)^-1 and S = M A by Cholesky in float64, from integer sums or from float64 ones.

    Raises NotConverged where lam0 I + G is not positive definite in float64.
    """
    scale = 1.0 if G.is_floating_point() else 2.0 ** (-2 * BITS)
    G, M = G.to(torch.float64) * scale, M.to(torch.float64) * scale
    penalty = lam0 * torch.eye(G.shape[-1], dtype=torch.float64, device=G.device)
    factor, failed = torch.linalg.cholesky_ex(G + penalty)
    if bool(failed.any()):
        raise NotConverged("the tokens at this lam0 are singular in float64: take a larger lam0")
    inverse = torch.cholesky_inverse(factor)
    S = torch.cholesky_solve(M.transpose(-1, -2), factor).transpose(-1, -2).contiguous()
    return (inverse + inverse.transpose(-1, -2)) / 2.0, S
