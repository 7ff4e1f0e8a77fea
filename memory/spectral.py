"""Spectral retention: which directions of a diagonal spectrum to keep, and an attention layer that can be cut to them.

Source: [SVDA] Arampatzakis, Sevetlidis and Pavlidis, TMLR 2026.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from memory.contract import MemoryRefused

_LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Retained:
    """The directions kept, ascending, and the share of the energy they hold; None where there is no energy."""

    indices: NDArray[np.int64]
    fraction: float | None


def retained_directions(sigma: Any, rho: float) -> Retained:
    """The fewest directions whose energies hold at least the share `rho` of the whole.

    sigma (d,) finite, signs allowed; 0 < rho <= 1. Energies are (sigma_i / max |sigma|)^2, kept in falling order, ties
    by lower index. rho = 1 keeps exactly the coordinates other than 0, however small; an all-zero spectrum keeps none
    and has no share. Anything else keeps at least one. Raises MemoryRefused for an empty or not finite spectrum and a
    rho outside its range. Source: [SVDA]; MATH D. It says nothing about the accuracy of what is built on the spectrum.
    """
    spectrum = np.array(sigma, dtype=np.float64)
    if spectrum.ndim != 1 or not spectrum.size or not np.isfinite(spectrum).all():
        raise MemoryRefused(f"sigma has shape {spectrum.shape}: it must be one row of finite numbers, at least one")
    if not 0 < rho <= 1:
        raise MemoryRefused(f"rho is {rho!r}: it must be above 0 and at most 1")
    largest = np.abs(spectrum).max()
    if largest == 0:
        return Retained(np.empty(0, dtype=np.int64), None)
    energy = (spectrum / largest) ** 2
    order = np.argsort(-energy, kind="stable")
    held = np.cumsum(energy[order])
    # Rounding may leave the running sum just below the whole: rho = 1 is decided by the coordinates themselves.
    count = np.count_nonzero(spectrum) if rho == 1 else int(np.searchsorted(held, rho * held[-1])) + 1
    kept = np.sort(order[:count]).astype(np.int64)
    return Retained(kept, 1.0 if rho == 1 else float(energy[kept].sum() / energy.sum()))


def unit_rows(rows: Tensor) -> Tensor:
    """Rows over their norm in their full width (..., d); a zero row stays zero."""
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / length.clamp_min(_LEAST_NORM)


def masked_scores(queries: Tensor, keys: Tensor, sigma: Tensor, kept: NDArray[np.int64]) -> Tensor:
    """Scores (q sigma) k' / sqrt(d) with sigma set to 0 outside `kept`: queries (..., n, d), keys (..., m, d)."""
    mask = torch.zeros_like(sigma)
    mask[..., torch.from_numpy(kept)] = 1
    return (queries * (sigma * mask)) @ keys.mT / math.sqrt(queries.shape[-1])


def selected_scores(queries: Tensor, keys: Tensor, sigma: Tensor, kept: NDArray[np.int64]) -> Tensor:
    """The same scores from the kept columns alone: same rows, same division by the root of the full width.

    Rows made unit again in the kept columns, or a division by the root of their number, would be another operator.
    """
    at = torch.from_numpy(kept)
    return (queries[..., at] * sigma[..., at]) @ keys[..., at].mT / math.sqrt(queries.shape[-1])


class SpectralAttention(nn.Module):
    """Softmax attention whose scores pass a learned diagonal spectrum, a head each; can be cut to its energy.

    Input and output are (B, T, d_model). Rows of queries and keys are unit in the full width of their head, scores are
    (q sigma_h) k' / sqrt(width); `causal` hides later tokens from earlier ones. Source: [SVDA]. It makes no statement
    about outputs before and after a cut beyond the bounds of [SVDA]: a score moves by at most the largest discarded
    |sigma| / sqrt(width).
    """

    def __init__(self, d_model: int, heads: int = 2, *, causal: bool = True) -> None:
        super().__init__()
        if d_model < 1 or heads < 1 or d_model % heads:
            raise MemoryRefused(f"d_model {d_model} and {heads} heads: heads must divide d_model, both at least 1")
        self.heads, self.width, self.causal = heads, d_model // heads, causal
        self.query, self.key, self.value = (nn.Linear(d_model, d_model, bias=False) for _ in range(3))
        # Unit rows leave scores within 1 / sqrt(width): a spectrum of the width's order lets the softmax be sharp.
        self.sigma = nn.Parameter(torch.full((heads, self.width), float(self.width)))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model); causal, the output at t is a function of tokens up to t."""
        queries, keys, values = self.rows(tokens)
        scores = (queries * self.sigma.unsqueeze(1)) @ keys.mT / math.sqrt(self.width)
        return joined([_softmax(scores, self.causal) @ values], self.out)

    def rows(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Unit queries, unit keys and values of every head: three of (B, heads, T, width)."""
        parts = [
            layer(tokens).view(*tokens.shape[:2], self.heads, self.width).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        return unit_rows(parts[0]), unit_rows(parts[1]), parts[2]

    def kept(self, rho: float) -> list[NDArray[np.int64]]:
        """The directions that each head keeps at the share `rho` of its energy."""
        return [retained_directions(head.detach().double().cpu().numpy(), rho).indices for head in self.sigma]

    def masked(self, rho: float) -> SpectralAttention:
        """A copy with the discarded entries of the spectrum at 0: the reference that `pruned` equals."""
        again = SpectralAttention(self.heads * self.width, self.heads, causal=self.causal).to(self.sigma)
        again.load_state_dict(self.state_dict())
        for head, kept in enumerate(self.kept(rho)):
            discarded = np.setdiff1d(np.arange(self.width), kept)
            again.sigma.data[head, torch.from_numpy(discarded)] = 0
        return again

    def pruned(self, rho: float) -> PrunedAttention:
        """The layer whose scores use, in each head, only the fewest directions with the share `rho` of its energy."""
        return PrunedAttention(self, self.kept(rho))


class PrunedAttention(nn.Module):
    """A spectral attention layer cut to some directions of each head; heads may keep different numbers, or none.

    It saves multiplications of the scores and floats of the key cache, (kept / width) of both, and the discarded
    entries of the spectrum. It does not save the projections: a row is unit in its full width, so that its norm needs
    the discarded columns too. A head that keeps nothing attends to all tokens that it may see alike.
    """

    def __init__(self, whole: SpectralAttention, kept: list[NDArray[np.int64]]) -> None:
        super().__init__()
        self.whole = whole
        self.kept = [torch.from_numpy(indices) for indices in kept]
        spectra = (head[at].detach().clone() for head, at in zip(whole.sigma, self.kept, strict=True))
        self.spectra = nn.ParameterList(spectra)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model), equal to `SpectralAttention.masked` up to rounding."""
        queries, keys, values = self.whole.rows(tokens)
        read = []
        for head, (at, sigma) in enumerate(zip(self.kept, self.spectra, strict=True)):
            left, right = queries[:, head, :, at] * sigma, keys[:, head, :, at]
            scores = left @ right.mT / math.sqrt(self.whole.width)
            read.append((_softmax(scores, self.whole.causal) @ values[:, head]).unsqueeze(1))
        return joined(read, self.whole.out)

    @property
    def parameters_in_use(self) -> int:
        """Numbers that the forward pass reads: the projections and the kept entries of the spectra."""
        projections = (self.whole.query, self.whole.key, self.whole.value, self.whole.out)
        return sum(p.numel() for layer in projections for p in layer.parameters()) + self.cached_floats

    @property
    def cached_floats(self) -> int:
        """Floats of one token's keys, all heads together."""
        return sum(len(at) for at in self.kept)


def joined(read: list[Tensor], out: nn.Module) -> Tensor:
    """Reads of heads, (B, some heads, T, width) each, side by side and through the output layer."""
    output: Tensor = out(torch.cat(read, 1).transpose(1, 2).flatten(2))
    return output


def _softmax(scores: Tensor, causal: bool) -> Tensor:
    if not causal:
        return scores.softmax(-1)
    length = scores.shape[-1]
    later = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)
