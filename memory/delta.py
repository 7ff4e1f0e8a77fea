"""The write rules that VLA is compared with: linear attention, the delta rule and the gated delta rule [MATH E2]."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from memory.streamed import StreamedBatch, StreamedMemory, checks
from memory.streamed.batch import applied


class LinearBatch(StreamedBatch):
    """Linear-attention memories in lock-step: S += v f(k)', z += f(k), read S f(q) / (z . f(q)), f = elu + 1.

    The features are positive, so the read is a weighted mean of the values; an empty memory has no readout (NaN). S and
    z are kept as one array. Source: Katharopoulos et al., ICML 2020.
    """

    FORMAT = "linear attention"

    def __init__(
        self,
        d_k: int,
        d_v: int,
        batch: int | tuple[int, ...],
        *,
        dtype: torch.dtype = torch.float64,
        device: Any = "cpu",
    ) -> None:
        super().__init__(d_k, d_v, batch, dtype, device)

    def _settings(self) -> dict[str, Any]:
        return {}

    def _fresh(self, rows: int) -> dict[str, Tensor]:
        return {"stack": self._like.new_zeros((rows, self.d_v + 1, self.d_k))}

    def _write_keys(self, keys: Tensor) -> Tensor:
        # elu + 1 by exp: torch's elu rounds a number differently by its place in the array, exp does not.
        return torch.where(keys > 0.0, keys + 1.0, torch.exp(keys.clamp(max=0.0)))

    def _write(self, state: dict[str, Tensor], keys: Tensor, values: Tensor) -> None:
        left = torch.cat([values, torch.ones_like(values[:, :1])], dim=1)
        state["stack"].addcmul_(left[:, :, None], keys[:, None, :])

    def _matrix(self) -> Tensor:
        return self._state["stack"][:, : self.d_v]

    def _read(self, queries: Tensor) -> Tensor:
        both = applied(self._state["stack"], self._write_keys(queries))
        weight = both[..., self.d_v :]
        return torch.where(weight > 0.0, both[..., : self.d_v] / weight, torch.nan)


class DeltaBatch(StreamedBatch):
    """Delta-rule memories in lock-step: S <- alpha S, then S += beta (v - S k) k' with k the normalised key; read S q.

    alpha = 1 is the plain delta rule, alpha < 1 the gated one with a constant gate (a zero key does not decay). Source:
    Schlag et al., ICML 2021; Yang et al., ICLR 2025.
    """

    FORMAT = "delta rule"

    def __init__(
        self,
        d_k: int,
        d_v: int,
        batch: int | tuple[int, ...],
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        dtype: torch.dtype = torch.float64,
        device: Any = "cpu",
    ) -> None:
        self.alpha, self.beta = checks.number_in("alpha", alpha, 0.0, 1.0), checks.number_in("beta", beta, 0.0, 1.0)
        super().__init__(d_k, d_v, batch, dtype, device)

    def _settings(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "beta": self.beta}

    def _fresh(self, rows: int) -> dict[str, Tensor]:
        return {"S": self._like.new_zeros((rows, self.d_v, self.d_k))}

    def _write(self, state: dict[str, Tensor], keys: Tensor, values: Tensor) -> None:
        S = state["S"].mul_(self.alpha)
        residual = values - (S * keys[:, None, :]).sum(-1)
        S.addcmul_(residual[:, :, None], keys[:, None, :], value=self.beta)

    def _matrix(self) -> Tensor:
        return self._state["S"]


class LinearMemory(StreamedMemory):
    """One linear-attention memory; see LinearBatch."""

    BATCH: ClassVar[type[StreamedBatch]] = LinearBatch

    def __init__(self, d_k: int, d_v: int, *, dtype: torch.dtype = torch.float64, device: Any = "cpu") -> None:
        self._batch = LinearBatch(d_k, d_v, (), dtype=dtype, device=device)


class DeltaMemory(StreamedMemory):
    """One delta-rule memory, plain or gated; see DeltaBatch."""

    BATCH: ClassVar[type[StreamedBatch]] = DeltaBatch

    def __init__(
        self,
        d_k: int,
        d_v: int,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        dtype: torch.dtype = torch.float64,
        device: Any = "cpu",
    ) -> None:
        self._batch = DeltaBatch(d_k, d_v, (), alpha=alpha, beta=beta, dtype=dtype, device=device)
