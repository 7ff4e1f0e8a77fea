"""Watches every protected read of protected-read banks after every token, in float64 on the stored numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from evaluation.campaigns.nc01_streams import Stream
from memory.nc01 import NC01Bank, RandomOffers
from memory.nc01.limits import RETENTION


@dataclass
class Watch:
    """Largest distances of protected reads and norms of each bank (B,), and what the boundaries decided."""

    retentions: torch.Tensor
    drifts: torch.Tensor
    norms: torch.Tensor
    admission: float = 0.0
    violations: int = 0
    reads: int = 0
    admitted: int = 0
    gram: int = 0
    refused_else: int = 0

    @classmethod
    def of(cls, banks: int) -> Watch:
        """Nothing seen yet."""
        blank = torch.zeros(banks, dtype=torch.float64)
        return cls(blank, blank, blank)

    @property
    def retention(self) -> float:
        """The largest distance of a protected read from its value."""
        return float(self.retentions.max())

    @property
    def drift(self) -> float:
        """The largest distance of a protected read from its pin."""
        return float(self.drifts.max())

    @property
    def norm(self) -> float:
        """The largest norm of a matrix."""
        return float(self.norms.max())

    def record(self) -> dict[str, Any]:
        """Flat record of the whole batch."""
        counts = {name: getattr(self, name) for name in ("violations", "reads", "admitted", "gram", "refused_else")}
        largest = {"retention": self.retention, "admission": self.admission, "drift": self.drift, "norm": self.norm}
        return largest | counts


@dataclass(frozen=True)
class _Register:
    """Addresses (B, m, d_k), targets and pins (B, m, d_v), padded with zeros; `active` (B, m)."""

    addresses: torch.Tensor
    targets: torch.Tensor
    pins: torch.Tensor
    active: torch.Tensor


def watched_run(bank: NC01Bank, stream: Stream, policy: RandomOffers) -> Watch:
    """Write the stream token by token with boundaries; the register is looked up after each boundary only."""
    watch, register = Watch.of(bank.banks), _register(bank)
    for place in range(stream[2].shape[1]):
        k, v, alpha, beta = (array[:, place : place + 1] for array in stream)
        before = bank.expiries() if (place + 1) % bank.configuration["cadence"] == 0 else None
        done = bank.run(k, v, alpha, beta, policy, path="sequential")
        if before is None:
            _look(watch, bank, register)
            continue
        watch.admitted += sum(each.outcome is None for each in done.decisions)
        watch.gram += sum(each.outcome == "gram" for each in done.decisions)
        watch.refused_else += sum(each.outcome not in (None, "gram", "none") for each in done.decisions)
        register = _register(bank)
        _look(watch, bank, register)
        _look_at_new(watch, bank, [each.bank for each in done.decisions if each.outcome is None])
    return watch


def _register(bank: NC01Bank) -> _Register:
    slots = bank.configuration["slots"]
    padded = [
        torch.from_numpy(np.stack([np.pad(part, ((0, slots - len(part)), (0, 0))) for part in parts]))
        for parts in (bank.addresses(), bank.targets(), bank.pins())
    ]
    counts = torch.tensor([len(part) for part in bank.addresses()])
    return _Register(padded[0], padded[1], padded[2], torch.arange(slots) < counts[:, None])


def _look(watch: Watch, bank: NC01Bank, register: _Register) -> None:
    physical = bank.physical().double()
    reads, none = register.addresses @ physical, torch.zeros((), dtype=torch.float64)
    miss, drift = (
        torch.where(register.active, torch.linalg.vector_norm(reads - there, dim=2), none)
        for there in (register.targets, register.pins)
    )
    watch.norms = torch.maximum(watch.norms, torch.linalg.vector_norm(physical, dim=(1, 2)))
    watch.retentions = torch.maximum(watch.retentions, miss.amax(1))
    watch.drifts = torch.maximum(watch.drifts, drift.amax(1))
    watch.reads += int(register.active.sum())
    watch.violations += int((miss > RETENTION).sum())


def _look_at_new(watch: Watch, bank: NC01Bank, banks: list[int]) -> None:
    """The distance of each new read from its value; the newest protection is the last one listed."""
    physical = bank.physical().double().numpy()
    addresses, targets = bank.addresses(), bank.targets()
    for at in banks:
        miss = float(np.linalg.norm(addresses[at][-1] @ physical[at] - targets[at][-1]))
        watch.admission = max(watch.admission, miss)
