"""Banks of protected reads in lock-step: a bounded matrix memory with reads that later tokens do not move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memory.contract import Array
from memory.digest import state_digest
from memory.nc01 import checks
from memory.nc01.boundary import OUTCOMES, settle
from memory.nc01.checks import NC01Refused
from memory.nc01.limits import Configuration, Guard, Path, Refusal
from memory.nc01.offers import Offer, OfferPolicy
from memory.nc01.register import State
from memory.nc01.state import load, unload
from memory.nc01.transition import Tokens, segment_reads, solve_segment, stepped, writes


@dataclass(frozen=True)
class Decision:
    """What a boundary did with one bank's offer: `token` is its place on the clock, None when nothing was offered."""

    clock: int
    bank: int
    token: int | None
    outcome: Refusal | None


@dataclass(frozen=True)
class Run:
    """Decisions in order of clock and bank, and the reads (B, T, d_v) where queries were given."""

    decisions: tuple[Decision, ...]
    reads: Tensor | None


class NC01Bank:
    """`banks` protected-read memories on one torch device, all on one clock.

    Keys are (B, T, d_k), values (B, T, d_v), gates (B, T), in the bank's dtype. Where `present` (B, T) is false is a
    hole: it keeps its place on the clock and changes nothing. A stretch is checked before its first token; refusals
    raise NC01Refused with every bank as it was. Inside a stretch the host does not wait for the device.

    A protected read stays within 1/32 of its value for `horizon` tokens after its admission, a new one within 1/64, and
    the matrix within Frobenius norm 64. Segment and sequential path agree up to rounding, not bit for bit. It stores no
    tokens: deletion is a replay (`memory.nc01.replay`), and ending a protection deletes nothing. Source: [NC01].
    """

    def __init__(
        self,
        banks: int,
        d_k: int = 128,
        d_v: int = 128,
        slots: int = 8,
        cadence: int = 64,
        horizon: int = 512,
        *,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
        guard: Guard = "sharp",
    ) -> None:
        self.banks = checks.size("banks", banks)
        sizes = {"d_k": d_k, "d_v": d_v, "slots": slots, "cadence": cadence, "horizon": horizon}
        for name, value in sizes.items():
            checks.size(name, value)
        if guard not in get_args(Guard):
            raise NC01Refused(f"guard is {guard!r}: choose one of {', '.join(get_args(Guard))}")
        self.configuration = Configuration(d_k=d_k, d_v=d_v, slots=slots, cadence=cadence, horizon=horizon)
        self.dtype, self.device, self.guard = checks.storage(dtype), checks.place(device), guard
        self.clock = 0
        self._state = State.zeros(banks, d_k, d_v, slots, self.dtype, self.device)

    # ---- tokens ----

    def step(self, k: Any, v: Any, alpha: Any, beta: Any, *, present: Any = None) -> None:
        """Write one token a bank: k (B, d_k), v (B, d_v), alpha, beta and present (B,). Source: [NC01 B3]."""
        tokens, _ = self._accepted(k, v, alpha, beta, present, None)
        self._loop(tokens, None)

    def segment(
        self, k: Any, v: Any, alpha: Any, beta: Any, *, present: Any = None, queries: Any = None
    ) -> Tensor | None:
        """Write T <= cadence tokens a bank in one solve; register fixed, no boundary inside. Source: [NC01 B6].

        k (B, T, d_k), v (B, T, d_v), alpha, beta and present (B, T). With queries (B, T, d_k) it returns the reads
        (B, T, d_v), each after its own token.
        """
        length = _length(k)
        if length > self.configuration["cadence"]:
            raise NC01Refused(
                f"a segment of {length} tokens is longer than the cadence {self.configuration['cadence']}: split it"
            )
        tokens, _ = self._accepted(k, v, alpha, beta, present, length)
        return self._segment(tokens, self._queries(queries, length))

    def boundary(self, r: Any = None, v: Any = None) -> list[Refusal | None]:
        """End the protections that are due, then admit at most one offer a bank: r (B, d_k), v (B, d_v), or lists of B
        entries with None where a bank has no offer.

        Returns, for each bank, None (admitted), "none" (nothing offered) or why not: "invalid", "full", "gram", "norm"
        or "verify"; a refused bank keeps its arrays. Offers must be tokens already written; the admission protects the
        next `horizon` tokens. Source: [NC01 B5].
        """
        widths = (self.configuration["d_k"], self.configuration["d_v"])
        keys, values, offered = checks.offers(r, v, self.banks, widths, self.device)
        return [OUTCOMES[code] for code in self._boundary(keys, values, offered).tolist()]

    def run(
        self,
        k: Any,
        v: Any,
        alpha: Any,
        beta: Any,
        policy: OfferPolicy | None = None,
        *,
        present: Any = None,
        queries: Any = None,
        path: Path = "segment",
    ) -> Run:
        """Write a stream of any length, with a boundary whenever the clock reaches a multiple of the cadence.

        Shapes as for `segment`. The policy chooses the offers; it goes along from call to call and must have seen what
        the banks have seen. All tokens are checked before the first one is written.
        """
        length = _length(k)
        tokens, here = self._accepted(k, v, alpha, beta, present, length)
        asked = self._queries(queries, length)
        if path not in get_args(Path):
            raise NC01Refused(f"path is {path!r}: choose one of {', '.join(get_args(Path))}")
        if policy is not None:
            policy.check(self.banks, self.clock, self.clock + length)
        write = self._segment if path == "segment" else self._loop
        decisions: list[Decision] = []
        reads: list[Tensor] = []
        start = 0
        while start < length:
            stop = min(length, start + self.configuration["cadence"] - self.clock % self.configuration["cadence"])
            part = tokens.slice(start, stop)
            out = write(part, None if asked is None else asked[:, start:stop])
            reads += [] if out is None else [out]
            if policy is not None:
                policy.see(part.keys, part.values, None if here is None else here[:, start:stop])
            if self.clock % self.configuration["cadence"] == 0:
                decisions += self._offered(policy)
            start = stop
        return Run(tuple(decisions), torch.cat(reads, 1) if reads else None)

    # ---- what it holds ----

    def read(self, q: Any) -> Tensor:
        """Reads B'q: q (B, d_k) or (B, n, d_k) -> (B, d_v) or (B, n, d_v). Changes nothing."""
        single = torch.as_tensor(q).ndim == 2
        shape = (
            (self.banks, self.configuration["d_k"]) if single else (self.banks, _length(q), self.configuration["d_k"])
        )
        asked = checks.array("q", q, shape, self.dtype, self.device)
        out = self._read(asked[:, None] if single else asked)
        return out[:, 0] if single else out

    def physical(self) -> Tensor:
        """The matrices B = Q Y + X: (B, d_k, d_v)."""
        basis, pinned = self._state.protected()
        return basis @ pinned + self._state.complement

    def addresses(self) -> list[Array]:
        """The protected keys of each bank, (m, d_k), in the order of their admission; pins and targets alike."""
        return self._listed(self._state.addresses.mT)

    def pins(self) -> list[Array]:
        """The reads to which each bank is held, (m, d_v)."""
        return self._listed(self._state.pins)

    def targets(self) -> list[Array]:
        """The values that were offered, (m, d_v)."""
        return self._listed(self._state.targets)

    def expiries(self) -> list[NDArray[np.int64]]:
        """The clock at which each protection ends, (m,)."""
        return [np.array(part, dtype=np.int64) for part in self._listed(self._state.expires)]

    @property
    def bytes_per_bank(self) -> int:
        """Bytes of one bank's arrays."""
        return self._state.bytes_per_bank()

    def digest(self) -> list[str]:
        """SHA-256 of each bank's state; it does not depend on the other banks."""
        state = self.to_state()
        arrays: dict[str, Array] = state.pop("arrays")
        state.pop("banks")
        return [
            state_digest(state | {"arrays": {name: part[bank] for name, part in arrays.items()}})
            for bank in range(self.banks)
        ]

    def to_state(self) -> dict[str, Any]:
        """The state as arrays, numbers and strings; it shares nothing with the banks."""
        head = {"kind": "nc01", "banks": self.banks, "clock": self.clock, "guard": self.guard}
        return head | {"dtype": str(self.dtype), "arrays": unload(self._state)} | {"sizes": dict(self.configuration)}

    @classmethod
    def from_state(cls, state: dict[str, Any], *, device: str | torch.device = "cpu") -> NC01Bank:
        """The banks of a state, bit for bit; refuses one that is not a state of such banks or breaks their limits."""
        head, arrays = load(state)
        bank = cls(head.banks, **head.sizes, dtype=head.dtype, device=device, guard=head.guard)
        bank.clock = head.clock
        bank._state = arrays.to(bank.device)
        return bank

    def empty(self) -> NC01Bank:
        """Banks of the same configuration at clock 0."""
        return NC01Bank(self.banks, **self.configuration, dtype=self.dtype, device=self.device, guard=self.guard)

    # ---- inside ----

    def _accepted(
        self, k: Any, v: Any, alpha: Any, beta: Any, present: Any, length: int | None
    ) -> tuple[Tokens, Tensor | None]:
        """Tokens in the domain and which are present; without a length the arrays are one token a bank."""
        lead = (self.banks,) if length is None else (self.banks, length)
        kind, where = self.dtype, self.device
        parts = [
            checks.array("k", k, (*lead, self.configuration["d_k"]), kind, where),
            checks.array("v", v, (*lead, self.configuration["d_v"]), kind, where),
            checks.array("alpha", alpha, lead, kind, where),
            checks.array("beta", beta, lead, kind, where),
        ]
        here = checks.mask("present", present, lead, where)
        if length is None:
            parts, here = [part[:, None] for part in parts], None if here is None else here[:, None]
        return checks.in_domain(Tokens(*parts), here), here

    def _queries(self, queries: Any, length: int) -> Tensor | None:
        if queries is None:
            return None
        shape = (self.banks, length, self.configuration["d_k"])
        return checks.array("queries", queries, shape, self.dtype, self.device)

    def _segment(self, tokens: Tokens, queries: Tensor | None) -> Tensor | None:
        basis, pinned = self._state.protected()
        steps = writes(tokens, basis, pinned, self.guard)
        before = self._state.complement
        segment = solve_segment(before, steps)
        reads = None if queries is None else segment_reads(queries, basis, pinned, before, steps, segment)
        self._state.complement = segment.complement
        self.clock += tokens.length
        return reads

    def _loop(self, tokens: Tokens, queries: Tensor | None) -> Tensor | None:
        basis, pinned = self._state.protected()
        reads = []
        for place in range(tokens.length):
            step = writes(tokens.slice(place, place + 1), basis, pinned, self.guard)
            self._state.complement = stepped(self._state.complement, step)
            if queries is not None:
                reads.append(self._read(queries[:, place : place + 1]))
        self.clock += tokens.length
        return torch.cat(reads, 1) if reads else None

    def _read(self, queries: Tensor) -> Tensor:
        basis, pinned = self._state.protected()
        return (queries @ basis) @ pinned + queries @ self._state.complement

    def _boundary(self, keys: Tensor, values: Tensor, offered: Tensor) -> Tensor:
        limit, horizon = checks.norm_limit(self.dtype), self.configuration["horizon"]
        return settle(self._state, keys, values, offered, clock=self.clock, horizon=horizon, norm_limit=limit)

    def _offered(self, policy: OfferPolicy | None) -> list[Decision]:
        offer = self._no_offer() if policy is None else policy.offer(self._read)
        codes = self._boundary(offer.key.double(), offer.value.double(), offer.offered).tolist()
        places = torch.where(offer.offered, offer.token, -1).tolist()
        return [
            Decision(self.clock, bank, place if place >= 0 else None, OUTCOMES[code])
            for bank, (place, code) in enumerate(zip(places, codes, strict=True))
        ]

    def _no_offer(self) -> Offer:
        widths = (self.configuration["d_k"], self.configuration["d_v"])
        keys, values, offered = checks.offers(None, None, self.banks, widths, self.device)
        return Offer(keys, values, offered, torch.zeros_like(offered, dtype=torch.int64))

    def _listed(self, array: Tensor) -> list[Array]:
        never = torch.iinfo(torch.int64).max
        order = torch.where(self._state.active, self._state.expires, never).argsort(dim=1, stable=True).cpu().numpy()
        count, held = self._state.active.sum(1).tolist(), array.cpu().numpy()
        return [held[bank][order[bank, : count[bank]]] for bank in range(self.banks)]


def _length(array: Any) -> int:
    shape: Sequence[int] = torch.as_tensor(array).shape
    if len(shape) != 3 or shape[1] < 1:
        raise NC01Refused(f"an array has shape {tuple(shape)}, expected (banks, tokens, width) with at least one token")
    return shape[1]
