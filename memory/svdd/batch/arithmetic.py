"""Sums and selections whose bits depend neither on the padding nor on the rest of the batch.

Every operation of the lock-step memory is elementwise, a minimum, or one of the sums here, which add in an order fixed
by slot: padding with zeros, another batch, another thread count or another compaction gives the same bits on one kind
of processor.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ordered_sum(x: Tensor) -> Tensor:
    """Sum over the last axis by halving: trailing zeros change no bit. (..., n) gives (...)."""
    width = x.shape[-1]
    if width == 0:
        return torch.zeros(x.shape[:-1], dtype=x.dtype, device=x.device)
    while width > 1:
        half = 1 << ((width - 1).bit_length() - 1)
        head = x[..., :half].clone()
        head[..., : width - half] += x[..., half:width]
        x, width = head, half
    return x[..., 0]


def first_true(mask: Tensor, count: int) -> Tensor:
    """Indices of the first `count` true entries of a (n,) mask; no transfer to the host."""
    return torch.argsort(mask.logical_not().to(torch.int8), stable=True)[:count]


def pick(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b]] for x (B, n) and index (B,): (B,)."""
    return x.gather(1, index[:, None])[:, 0]
