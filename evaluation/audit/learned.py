"""Keys that a support-vector layer has learned: trained once on invented hours, then frozen and audited like others."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from evaluation.audit.streams import Floats, autocorrelated
from memory.svdd.training import SupportVectorAttention

CHANNELS, WIDTH, HEADS = 6, 16, 2
HOURS, BATCH, STEPS, RATE, SEED = 56, 8, 60, 1e-2, 0


def learned_keys(rng: np.random.Generator, hours: int) -> tuple[Floats, float]:
    """Trained keys of one invented stay and the width they were trained under: (hours, WIDTH / HEADS) float64, sigma.

    The layer learns to foretell the next hour; it is trained once a process, from a fixed seed. Source: [SVA App. B].
    """
    embed, layer = _trained()
    with torch.no_grad():
        tokens = embed(torch.from_numpy(autocorrelated(rng, hours, CHANNELS)).float())
    head = layer.frozen_keys(tokens)[int(rng.integers(HEADS))]
    return np.asarray(head.keys.numpy(), dtype=np.float64), head.sigma


@cache
def _trained() -> tuple[nn.Module, SupportVectorAttention]:
    with torch.random.fork_rng(devices=[]), threadpool_limits(limits=1):
        torch.manual_seed(SEED)
        embed, layer = nn.Linear(CHANNELS, WIDTH), SupportVectorAttention(WIDTH, HEADS, declared=HOURS)
        head = nn.Linear(WIDTH, CHANNELS)
        optimiser = torch.optim.Adam([*embed.parameters(), *layer.parameters(), *head.parameters()], lr=RATE)
        rng = np.random.default_rng(SEED)
        for _ in range(STEPS):
            hours = _invented(rng)
            error = (head(layer(embed(hours[:, :-1]))) - hours[:, 1:]).square().mean()
            optimiser.zero_grad()
            error.backward()
            optimiser.step()
    return embed, layer


def _invented(rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.stack([autocorrelated(rng, HOURS + 1, CHANNELS) for _ in range(BATCH)])).float()
