"""The sequence models: one recurrent cell, or one block around a mixer of the past, and a causal logit an hour.

Every model maps inputs (B, T, channels) to logits (B, T); the logit at t is a function of the inputs up to t.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from evaluation.errors import EvaluationError
from memory.svdd.training import SupportVectorAttention

WIDTH, HEADS, CHUNK = 32, 2, 14  # [SVA] next-6-hour experiment
LOCAL = 8  # tokens of the hybrid's local softmax window


class Recurrent(nn.Module):
    """An LSTM or GRU of one layer with a linear logit."""

    def __init__(self, cell: type[nn.LSTM | nn.GRU], channels: int, width: int = WIDTH) -> None:
        super().__init__()
        self.cell = cell(channels, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, channels) -> (B, T)."""
        logit: Tensor = self.head(self.cell(inputs)[0])
        return logit.squeeze(-1)


class Block(nn.Module):
    """Embedding with the hour's place, a pre-norm residual mixer, a pre-norm residual feed-forward part, a logit."""

    def __init__(self, mixer: nn.Module, channels: int, width: int = WIDTH) -> None:
        super().__init__()
        self.embed = nn.Linear(channels + 1, width)
        self.mixer = mixer
        self.before_mixer, self.before_forward, self.before_head = (nn.LayerNorm(width) for _ in range(3))
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, channels) -> (B, T)."""
        place = torch.arange(inputs.shape[1], dtype=inputs.dtype, device=inputs.device).log1p()
        hidden = self.embed(torch.cat([inputs, place.view(1, -1, 1).expand(*inputs.shape[:2], 1)], -1))
        hidden = hidden + self.mixer(self.before_mixer(hidden))
        hidden = hidden + self.feed(self.before_forward(hidden))
        logit: Tensor = self.head(self.before_head(hidden))
        return logit.squeeze(-1)


class _Heads(nn.Module):
    """Queries, keys and values of several heads, and the way back."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def split(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, width) -> three of (B, heads, T, width / heads)."""
        parts = self.project(tokens).view(*tokens.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return parts[0], parts[1], parts[2]

    def join(self, read: Tensor) -> Tensor:
        """(B, heads, T, width / heads) -> (B, T, width)."""
        joined: Tensor = self.out(read.transpose(1, 2).flatten(2))
        return joined


class SoftmaxMixer(_Heads):
    """Causal softmax attention over all of the past, or over the last `window` hours."""

    def __init__(self, window: int | None = None) -> None:
        super().__init__()
        self.window = window

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T, width) -> the same."""
        at = torch.arange(tokens.shape[1], device=tokens.device)
        age = at.unsqueeze(1) - at.unsqueeze(0)
        allowed = (age >= 0) & (age < (self.window or len(at)))
        return self.join(nn.functional.scaled_dot_product_attention(*self.split(tokens), attn_mask=allowed))


class LinearMixer(_Heads):
    """Linear attention with features elu + 1, divided by the features' sum. Source: Katharopoulos et al., ICML 2020."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T, width) -> the same; the quadratic form of the recurrence, equal to it."""
        queries, keys, values = self.split(tokens)
        weight = ((nn.functional.elu(queries) + 1) @ (nn.functional.elu(keys) + 1).mT).tril()
        return self.join(weight @ values / weight.sum(-1, keepdim=True))


class DeltaMixer(_Heads):
    """The delta rule S += beta (v - S k) k' with unit keys and a learned beta, read after the write.

    All writes of a stretch are one unit lower triangular solve: with pseudo-values u, u_t = beta_t (v_t - sum over
    i < t of (k_i . k_t) u_i). Source: Yang et al., NeurIPS 2024.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Linear(WIDTH, HEADS)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T, width) -> the same."""
        queries, keys, values = self.split(tokens)
        keys, queries = (nn.functional.normalize(side, dim=-1) for side in (keys, queries))
        beta = torch.sigmoid(self.rate(tokens)).transpose(1, 2).unsqueeze(-1)
        system = (beta * (keys @ keys.mT)).tril(-1)
        pseudo = torch.linalg.solve_triangular(system, beta * values, upper=False, unitriangular=True)
        return self.join((queries @ keys.mT).tril() @ pseudo)


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "lstm": lambda channels: Recurrent(nn.LSTM, channels),
    "gru": lambda channels: Recurrent(nn.GRU, channels),
    "softmax": lambda channels: Block(SoftmaxMixer(), channels),
    "delta": lambda channels: Block(DeltaMixer(), channels),
    "linear": lambda channels: Block(LinearMixer(), channels),
    "support-vector": lambda channels: Block(SupportVectorAttention(WIDTH, HEADS, chunk=CHUNK, window=LOCAL), channels),
}


def network(name: str, channels: int, *, window: int | None = None) -> nn.Module:
    """Build a model of NETWORKS; with `window`, softmax attention over the last `window` hours.

    Raises EvaluationError for an unknown name.
    """
    if name not in NETWORKS:
        raise EvaluationError(f"prediction: unknown model {name!r}; use one of {', '.join(sorted(NETWORKS))}")
    return Block(SoftmaxMixer(window), channels) if window is not None else NETWORKS[name](channels)
