"""One VLA memory [VLA; MATH A1-A7]."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from memory.streamed import StreamedBatch, StreamedMemory
from memory.vla.batch import VLABatch
from memory.vla.recurrence import Gain


class VLAMemory(StreamedMemory):
    """A penalised least-squares memory: S (d_v, d_k) read as S q, with the penalty inverse A (d_k, d_k).

    A key is normalised and written as it is: no feature map inside; a zero key writes nothing. Gain "ridge" (u = k,
    lam0 1e-3) is ridge regression, S = M (lam0 I + G)^-1 in any order of the tokens. Gain "unit" (u = scale * k, scale
    1 / sqrt(d_k), lam0 0.1) is the published write along A k / ||A k||: no regression, and order matters. A is
    recomputed in float64 every 1,000 tokens held. `ledger=True` keeps (n, G, M) in int64 at 20 bits and refuses values
    that could overflow them. `nudge` adds that multiple of I to A every 20 tokens as the published code does (1e-3),
    for comparison only: no refresh, no deletion.

    Keys and values are finite arrays of `dtype`, torch or numpy; another floating dtype is refused. Source: [VLA] for
    the recurrence, [MATH A2] for its form here. The published quotient readout is not part of it.
    """

    BATCH: ClassVar[type[StreamedBatch]] = VLABatch
    _batch: VLABatch

    def __init__(
        self,
        d_k: int,
        d_v: int,
        *,
        gain: Gain = "ridge",
        lam0: float | None = None,
        ledger: bool = False,
        scale: float | None = None,
        nudge: float | None = None,
        dtype: torch.dtype = torch.float64,
        device: Any = "cpu",
    ) -> None:
        self._batch = VLABatch(
            d_k, d_v, (), gain=gain, lam0=lam0, ledger=ledger, scale=scale, nudge=nudge, dtype=dtype, device=device
        )

    @property
    def A(self) -> Tensor:
        """A copy of the penalty inverse: (d_k, d_k)."""
        return self._batch.A

    @property
    def sums(self) -> tuple[int, Tensor, Tensor]:
        """Copies of the ledger's n, G (d_k, d_k) and M (d_v, d_k): int64 in units of 2^-40. Refused without ledger."""
        count, G, M = self._batch.sums
        return int(count), G, M

    def retained_error(self) -> float:
        """Frobenius distance of S to a fresh float64 ridge fit of the tokens held; see VLABatch."""
        return float(self._batch.retained_error()[0])
