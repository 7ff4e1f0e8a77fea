"""Deletion from banks: deterministic replay of the retained tokens, deleted ones as holes on the clock.

A bank stores no tokens and every write depends on the ones before, so nothing can be taken out of the matrix. The
reference is the bank that was given the same stream with holes: a hole keeps its index, does not decay the matrix,
cannot be offered, and neither cadence nor expiry shifts. Ending a protection early is not deletion: its read stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from memory.nc01.bank import Decision, NC01Bank, Run
from memory.nc01.checks import NC01Refused
from memory.nc01.limits import Path
from memory.nc01.offers import OfferPolicy


@dataclass(frozen=True)
class Stream:
    """All tokens since clock 0: k (B, T, d_k), v (B, T, d_v), alpha, beta and present (B, T)."""

    k: Tensor
    v: Tensor
    alpha: Tensor
    beta: Tensor
    present: Tensor | None = None

    def here(self) -> Tensor:
        """Which tokens are no holes: (B, T)."""
        return torch.ones(self.alpha.shape, dtype=torch.bool) if self.present is None else self.present.clone().cpu()


@dataclass(frozen=True)
class Replay:
    """Banks without the deleted tokens, and what a receipt may say about them.

    Attributes:
        bank: the replayed banks; the ones that were given are as they were.
        changed: decisions, before and after, that differ; the rest came out as before.
        reference, path, exactness: what the banks equal, along which path of arithmetic, and how exactly.
    """

    bank: NC01Bank
    changed: tuple[tuple[Decision, Decision], ...]
    path: Path
    reference: Literal["replay of the retained tokens, deleted tokens as holes on the clock"] = (
        "replay of the retained tokens, deleted tokens as holes on the clock"
    )
    exactness: Literal["bit-identical on the same build, device and path"] = (
        "bit-identical on the same build, device and path"
    )


def delete_by_replay(
    bank: NC01Bank,
    stream: Stream,
    deleted: Sequence[Sequence[int]],
    policy: OfferPolicy | None = None,
    *,
    path: Path = "segment",
) -> Replay:
    """The banks as if the tokens at the places `deleted` (one list a bank) had never been given. [NC01; MATH C]

    The stream must be the one that the banks were given in one run with this policy and path: it is replayed as it was
    first, and refused unless every digest agrees. Refused too: a place off the clock, twice, or already a hole.
    It says nothing about outputs already emitted or about statistics that were computed with the deleted tokens.
    """
    here = stream.here()
    retained = _without(here, deleted, bank.clock)
    before = bank.empty()
    first = _run(before, stream, here, policy, path)
    differing = sum(a != b for a, b in zip(before.digest(), bank.digest(), strict=True))
    if differing:
        raise NC01Refused(
            f"the stream does not reproduce {differing} of {bank.banks} banks: give their tokens, policy and path"
        )
    after = bank.empty()
    second = _run(after, stream, retained, policy, path)
    pairs = zip(first.decisions, second.decisions, strict=True)
    return Replay(after, tuple((old, new) for old, new in pairs if old != new), path)


def _run(bank: NC01Bank, stream: Stream, here: Tensor, policy: OfferPolicy | None, path: Path) -> Run:
    fresh = None if policy is None else policy.fresh()
    return bank.run(stream.k, stream.v, stream.alpha, stream.beta, fresh, present=here.to(bank.device), path=path)


def _without(here: Tensor, deleted: Sequence[Sequence[int]], clock: int) -> Tensor:
    """The mask of the retained tokens."""
    banks, length = here.shape
    if len(deleted) != banks or length != clock:
        raise NC01Refused(
            f"{len(deleted)} lists of places and {length} tokens for {banks} banks at clock {clock}: "
            "give one list a bank and all tokens"
        )
    retained = here.clone()
    for line, places in enumerate(deleted):
        wrong = sum(not _held(here[line], place) for place in places)
        if wrong or len(set(places)) != len(places):
            raise NC01Refused(
                f"{wrong} of {len(places)} places hold no token, or a place is named twice: name each held token once"
            )
        retained[line, list(places)] = False
    return retained


def _held(here: Tensor, place: Any) -> bool:
    whole = isinstance(place, int) and not isinstance(place, bool)
    return whole and 0 <= place < len(here) and bool(here[place])
