"""The Gaussian kernel of the memories, and its shifted form that keeps the digits of wide kernels."""

from __future__ import annotations

import numpy as np

from memory.contract import Array


def shifted_kernel(left: Array, right: Array, sigma: float) -> Array:
    """exp(-||a - b||^2 / sigma^2) - 1 for all pairs of rows.

    Shapes: (n, d) and (m, d) give (n, m), in [-1, 0]. Source: [SVA 3.1], shifted because coefficients sum to 1.
    Holds an (n, m, d) intermediate: it is not meant for more rows than fit in memory.
    """
    gap = left[:, None, :] - right[None, :, :]
    return np.asarray(np.expm1(-np.einsum("nmd,nmd->nm", gap, gap) / sigma**2))


def kernel(left: Array, right: Array, sigma: float) -> Array:
    """exp(-||a - b||^2 / sigma^2) for all pairs of rows: (n, d) and (m, d) give (n, m). Source: [SVA 3.1]."""
    gap = left[:, None, :] - right[None, :, :]
    return np.asarray(np.exp(-np.einsum("nmd,nmd->nm", gap, gap) / sigma**2))
