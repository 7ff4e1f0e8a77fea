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
_TOKENS_AT_ONCE = 64
_NUMBERS_AT_ONCE = 2**22


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
    rows, tokens, a, b = *left.shape, right.shape[2]
    total = left.new_zeros((rows, a, b))
    rows_at_once = max(1, _NUMBERS_AT_ONCE // (min(tokens, _TOKENS_AT_ONCE) * a * b or 1))
    for row in range(0, rows, rows_at_once):
        some = slice(row, row + rows_at_once)
        for start in range(0, tokens, _TOKENS_AT_ONCE):
            part, other = (side[some, start : start + _TOKENS_AT_ONCE] for side in (left, right))
            total[some] += (part[:, :, :, None] * other[:, :, None, :]).sum(1)
    return total


def solve(G: Tensor, M: Tensor, lam0: float) -> tuple[Tensor, Tensor]:
    """A = (lam0 I + G)^-1 and S = M A by Cholesky in float64, from integer sums or from float64 ones (R, ., d_k).

    Not finite where lam0 I + G is not positive definite in float64; see `checked`.
    """
    scale = 1.0 if G.is_floating_point() else 2.0 ** (-2 * BITS)
    G, M = G.to(torch.float64) * scale, M.to(torch.float64) * scale
    eye = torch.eye(G.shape[-1], dtype=torch.float64, device=G.device)
    factor = cholesky(G + lam0 * eye)
    solved = cholesky_solve(factor, torch.cat([eye.expand_as(G), M.transpose(-1, -2)], dim=-1))
    A, S = solved[..., : G.shape[-1]], solved[..., G.shape[-1] :].transpose(-1, -2)
    return (A + A.transpose(-1, -2)) / 2.0, S.contiguous()


def checked(solved: Tensor) -> Tensor:
    """A solution that is finite; raises NotConverged otherwise."""
    if not bool(torch.isfinite(solved).all()):
        raise NotConverged("the tokens at this lam0 are singular in float64: take a larger lam0; nothing was changed")
    return solved


def cholesky(matrix: Tensor) -> Tensor:
    """Lower L with L L' = matrix (R, d, d), column by column; not finite where it is not positive definite.

    Element by element, because the bits of LAPACK's factor depend on the number of threads and a digest must not.
    """
    rest, factor = matrix.clone(), torch.zeros_like(matrix)
    for j in range(matrix.shape[-1]):
        column = rest[:, j:, j] / torch.sqrt(rest[:, j : j + 1, j])
        factor[:, j:, j] = column
        rest[:, j + 1 :, j + 1 :] -= column[:, 1:, None] * column[:, None, 1:]
    return factor


def cholesky_solve(factor: Tensor, right: Tensor) -> Tensor:
    """X with L L' X = right (R, d, m), by substitution forward and back."""
    X, d = right.clone(), factor.shape[-1]
    for j in range(d):
        X[:, j] /= factor[:, j, j, None]
        X[:, j + 1 :] -= factor[:, j + 1 :, j, None] * X[:, j, None]
    for j in reversed(range(d)):
        X[:, j] /= factor[:, j, j, None]
        X[:, :j] -= factor[:, j, :j, None] * X[:, j, None]
    return X
