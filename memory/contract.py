"""What every online memory promises: its verbs, its outcomes and its certificates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Path = Literal[
    "reserve", "walk", "repaired", "resolved", "written", "downdate", "normal equations", "refit", "ledger", "replay"
]


class MemoryRefused(ValueError):
    """A request that a memory refuses before it changes anything; the message says what, where, why and what to do."""


class NotReady(MemoryRefused):
    """The memory still collects: the tokens it holds cannot carry the whole mass yet."""


class NotConverged(RuntimeError):
    """No path reached a state that passes its checks; the memory is as it was before the call."""


@dataclass(frozen=True)
class Certificate:
    """Numbers computed from a state alone that bound its distance to the exact solution for the same keys and cap.

    Attributes:
        kkt_residual: largest violation of a stationarity or box condition, in units of the kernel.
        duality_gap: q'(a - z) with z the minimiser of q'z over the feasible set.
        score_bound: the gate score, as evaluated in float64, is right to this everywhere, rho taken to its nearest
            admissible value.
        bound_kind: "A" (square root of the gap) or "B" (linear in the residual).
        mass_error: |sum a - 1|.
        rho_interval: the values of rho that the state's coefficients allow, lower and upper end.
        score_range: spread of the score over the state's keys, against which wide kernels are judged.
        rounding: the part of score_bound that evaluating the score in float64 adds; no part of the state's own error.

    Source: [SVA 3.1] for the problem; weak duality and strong convexity in feature space for the bounds.
    It says nothing about keys the state does not hold, except through the expiries of its cold tokens.
    """

    kkt_residual: float
    duality_gap: float
    score_bound: float
    bound_kind: Literal["A", "B"]
    mass_error: float
    rho_interval: tuple[float, float]
    score_range: float
    rounding: float

    @property
    def relative_bound(self) -> float:
        """The state's own part of `score_bound` against the score's range over the keys where that range is below 1."""
        own = self.score_bound - self.rounding
        return own / min(self.score_range, 1.0) if self.score_range > 0.0 else own


@dataclass(frozen=True)
class Outcome:
    """What one operation did.

    Attributes:
        path: the furthest path that was needed. SVDD: "reserve" (no coefficient moved), "walk", "repaired" or
            "resolved". The other memories: "written" for an admission; "downdate", "normal equations", "refit",
            "ledger" or "replay" for a deletion.
        events: partition changes and moves of the walk.
        reexamined: cold tokens whose condition was evaluated.
        readmitted: cold tokens that came back.
        removed: tokens that left the hot memory.
        certified: whether the state still equals the full-history solution within its certificate.
        score_change, readout_change: largest realised change on probes (pruning only).
        reference: what the state after a deletion is compared with; None where the certificate says it.
        exactness: "bit-identical" to the reference or within a "tolerance" of it; None where the certificate says it.
    """

    path: Path
    events: int = 0
    reexamined: int = 0
    readmitted: int = 0
    removed: int = 0
    certified: bool = True
    score_change: float | None = None
    readout_change: float | None = None
    reference: str | None = None
    exactness: Literal["bit-identical", "tolerance"] | None = None
    _certify: Callable[[], Certificate | None] = field(default=lambda: None, repr=False, compare=False)

    @cached_property
    def certificate(self) -> Certificate | None:
        """Certificate of the state as this operation left it; None while the memory collects."""
        return self._certify()

    @property
    def label(self) -> str:
        """ "certified" or "uncertified"."""
        return "certified" if self.certified else "uncertified"


class Memory(Protocol):
    """An online memory: arrays in, arrays out; reading is pure; a refused operation changes nothing."""

    def delete(self, ids: list[int]) -> Outcome:
        """Make the memory what it would be had the tokens never been given."""
        ...

    def digest(self) -> str:
        """SHA-256 of the state."""
        ...

    def to_state(self) -> dict[str, Any]:
        """The state as arrays, numbers, strings and nested dicts."""
        ...
