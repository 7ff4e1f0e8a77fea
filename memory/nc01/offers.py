"""Which token of the last window is offered for protection: policies that see only tokens already written.

A policy keeps what it has seen itself. It is a function of the retained tokens, their places on the clock and its own
settings, so a replay without some tokens can be compared with the run that had them. Source: MATH E3 of the NC01 part.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from memory.nc01.checks import NC01Refused

Read = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Window:
    """The tokens since the last boundary: keys (B, w, d_k), values (B, w, d_v), present (B, w), start on the clock."""

    keys: Tensor
    values: Tensor
    present: Tensor
    start: int


@dataclass(frozen=True)
class Offer:
    """One offer a bank: key (B, d_k), value (B, d_v), whether there is one (B,), its place on the clock (B,)."""

    key: Tensor
    value: Tensor
    offered: Tensor
    token: Tensor


class OfferPolicy(ABC):
    """Offers, at each boundary, the token of the window with the highest score; the earliest one of equals.

    `see` takes every stretch after it was written, `offer` ends the window. A hole is never offered.
    """

    remembers = False
    """Whether scores need the keys of earlier windows too."""

    def __init__(self) -> None:
        self.clock = 0
        self._start = 0
        self._window: list[tuple[Tensor, Tensor, Tensor]] = []
        self._past: list[tuple[Tensor, Tensor]] = []

    @abstractmethod
    def scores(self, window: Window, read: Read) -> Tensor:
        """Scores (B, w) of the window's tokens; -inf is never offered. `read` is the bank's read as it now stands."""

    def check(self, banks: int, start: int, stop: int) -> None:
        """Raise NC01Refused unless the policy can serve these banks from clock start to stop; asked before a run."""
        if self.clock != start:
            raise NC01Refused(
                f"the policy has seen {self.clock} tokens, the banks {start}: use the policy of the last run"
            )

    def fresh(self) -> Self:
        """The same policy before its first token."""
        again = copy.copy(self)
        OfferPolicy.__init__(again)
        return again

    def see(self, keys: Tensor, values: Tensor, present: Tensor | None = None) -> None:
        """Take note of written tokens: keys (B, n, d_k), values (B, n, d_v), present (B, n) bool, all without it."""
        present = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device) if present is None else present
        self._window.append((keys, values, present))
        if self.remembers:
            self._past.append((keys, present))
        self.clock += keys.shape[1]

    def offer(self, read: Read) -> Offer:
        """The offers of the window, which ends here."""
        keys, values, present = (torch.cat(parts, 1) for parts in zip(*self._window, strict=True))
        window = Window(keys, values, present, self._start)
        scores = torch.where(present, self.scores(window, read), -torch.inf)
        best = scores.argmax(1)
        at = torch.arange(len(best), device=best.device)
        self._start, self._window = self.clock, []
        return Offer(keys[at, best], values[at, best], scores[at, best] > -torch.inf, window.start + best)

    def seen(self) -> tuple[Tensor, Tensor]:
        """All keys so far (B, n, d_k) and which are present (B, n), for policies that remember."""
        keys, present = (torch.cat(parts, 1) for parts in zip(*self._past, strict=True))
        self._past = [(keys, present)]
        return keys, present


class NoveltyOffers(OfferPolicy):
    """The key with the smallest summed kernel exp(-||a - b||^2 / sigma^2) to all keys seen so far."""

    remembers = True

    def __init__(self, sigma: float) -> None:
        super().__init__()
        if not (np.isfinite(sigma) and sigma > 0):
            raise NC01Refused(f"sigma is {sigma}: the kernel width must be a finite number above 0")
        self.sigma = float(sigma)

    def scores(self, window: Window, read: Read) -> Tensor:
        """Minus the summed kernel."""
        keys, present = self.seen()
        square = window.keys.square().sum(2)[:, :, None] + keys.square().sum(2)[:, None, :]
        distance2 = (square - 2 * window.keys @ keys.mT).clamp_min(0)
        kernel: Tensor = torch.where(present[:, None, :], (-distance2 / self.sigma**2).exp(), 0)
        return -kernel.sum(2)


class EventOffers(OfferPolicy):
    """The latest hour of the window with a threshold event. It uses the label: an upper bound for comparison only."""

    def __init__(self, events: Tensor) -> None:
        super().__init__()
        self.events = torch.as_tensor(events)
        if self.events.ndim != 2 or self.events.dtype != torch.bool:
            raise NC01Refused(
                f"events have shape {tuple(self.events.shape)} and type {self.events.dtype}, expected (B, n) bool"
            )

    def check(self, banks: int, start: int, stop: int) -> None:
        """One mark per token is needed too."""
        super().check(banks, start, stop)
        if len(self.events) != banks or self.events.shape[1] < stop:
            raise NC01Refused(
                f"events are {tuple(self.events.shape)} for {banks} banks of {stop} tokens: give one mark per token"
            )

    def scores(self, window: Window, read: Read) -> Tensor:
        """The place in the window where there is an event."""
        length = window.present.shape[1]
        marks = self.events[:, window.start : window.start + length].to(window.present.device)
        places = torch.arange(length, device=marks.device, dtype=torch.float64)
        return torch.where(marks, places, -torch.inf)


class RandomOffers(OfferPolicy):
    """A uniformly random token of the window: every place on the clock has a priority that depends on the seed alone.

    `streams` names each bank's own sequence (default: its index), so that a bank keeps its draws in any batch.
    """

    def __init__(self, seed: int, streams: Sequence[int] | None = None) -> None:
        super().__init__()
        self.seed, self.streams = seed, None if streams is None else tuple(streams)

    def check(self, banks: int, start: int, stop: int) -> None:
        """One stream per bank is needed too."""
        super().check(banks, start, stop)
        if self.streams is not None and len(self.streams) != banks:
            raise NC01Refused(f"{len(self.streams)} streams for {banks} banks: name one per bank")

    def scores(self, window: Window, read: Read) -> Tensor:
        """The priorities of these places."""
        banks, length = window.present.shape
        streams = range(banks) if self.streams is None else self.streams
        draws = [np.random.default_rng([self.seed, stream, window.start]).random(length) for stream in streams]
        return torch.from_numpy(np.stack(draws)).to(window.present.device)


class ResidualOffers(OfferPolicy):
    """The token that the bank, as it stands at the boundary, reads worst: the largest ||v - B'k||."""

    def scores(self, window: Window, read: Read) -> Tensor:
        """The residual norms."""
        residual: Tensor = torch.linalg.vector_norm(window.values - read(window.keys), dim=2)
        return residual
