"""VLA memories in lock-step on one torch device [VLA; MATH A1-A7]."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memory import ledger as exact
from memory.contract import Array, Ids, MemoryRefused, Outcome, Path
from memory.streamed import StreamedBatch, checks
from memory.streamed.checks import Rows
from memory.vla.recurrence import Gain, remove, write_along

REFRESH_EVERY = 1_000
NUDGE_EVERY = 20
LEAST_ROOM = 1e-6  # of 1 - leverage: below it a downdate divides by rounding
FRESH_FIT = "a fresh ridge fit of the retained tokens"
ANY_ORDER = "integer sums built from the retained tokens only, in any order"


@dataclass(frozen=True)
class Change:
    """What a deletion makes of a ridge memory: [A; S], and the float64 sums over its first `settled` tokens."""

    path: Path
    stack: Tensor
    sums: dict[str, Tensor]
    settled: int


class VLABatch(StreamedBatch):
    """VLA memories of keys (d_k) and values (d_v) with the options of VLAMemory, in lock-step on one device.

    `batch` is their number, or one number a dimension, such as (stays, heads). A memory's bits do not depend on the
    batch around it. Every refusal raises MemoryRefused before anything changes in any memory. It has run on CPU tensors
    only; admission looks at the tokens, so it waits for the device once a call.
    """

    FORMAT = "vla"

    def __init__(
        self,
        d_k: int,
        d_v: int,
        batch: int | tuple[int, ...],
        *,
        gain: Gain = "ridge",
        lam0: float | None = None,
        ledger: bool = False,
        scale: float | None = None,
        nudge: float | None = None,
        dtype: torch.dtype = torch.float64,
        device: Any = "cpu",
    ) -> None:
        width = checks.dimension("d_k", d_k)
        if gain not in ("ridge", "unit"):
            raise MemoryRefused(f"gain is {gain!r}: it must be 'ridge' or 'unit'")
        ridge = gain == "ridge"
        self.gain: Gain = gain
        self.lam0 = checks.number_in("lam0", (1e-3 if ridge else 0.1) if lam0 is None else lam0, 0.0, math.inf)
        self.scale = checks.number_in("scale", (1.0 if ridge else width**-0.5) if scale is None else scale, 0.0, 1.0)
        self.nudge = None if nudge is None else checks.number_in("nudge", nudge, 0.0, math.inf)
        self.ledger = bool(ledger)
        if ridge and self.scale != 1.0:
            raise MemoryRefused(f"scale is {scale!r} with gain 'ridge', which is ridge regression at scale 1 only")
        if self.ledger and (not ridge or self.nudge is not None):
            raise MemoryRefused("the ledger needs gain 'ridge' without nudge: no other state follows from (n, G, M)")
        self._solved: Tensor | None = None
        super().__init__(d_k, d_v, batch, dtype, device)
        self._largest = np.zeros(self.rows, dtype=np.int64)

    def _settings(self) -> dict[str, Any]:
        return {
            "gain": self.gain,
            "lam0": self.lam0,
            "ledger": self.ledger,
            "scale": self.scale,
            "nudge": self.nudge,
        }

    @property
    def A(self) -> Tensor:
        """A copy of the penalty inverses (lam0 I + sum u u')^-1: (*batch, d_k, d_k)."""
        return self._shaped(self._stack()[:, : self.d_k].clone())

    @property
    def sums(self) -> tuple[Rows, Tensor, Tensor]:
        """Copies of the ledger's (n, G, M): tokens held and int64 sums in units of 2^-40."""
        if not self.ledger:
            raise MemoryRefused("this memory keeps no integer sums: make it with ledger=True")
        return self.count, self._shaped(self._state["G"].clone()), self._shaped(self._state["M"].clone())

    # ---- the state ----

    def _fresh(self, rows: int) -> dict[str, Tensor]:
        d_k, d_v, device = self.d_k, self.d_v, self.device
        if self.ledger:
            G = torch.zeros((rows, d_k, d_k), dtype=torch.int64, device=device)
            return {"G": G, "M": torch.zeros((rows, d_v, d_k), dtype=torch.int64, device=device)}
        stack = torch.zeros((rows, d_k + d_v, d_k), dtype=self.dtype, device=device)
        stack[:, :d_k] = torch.eye(d_k, dtype=self.dtype, device=device) / self.lam0
        # Float64 sums over the first `settled` tokens; the log holds the rest until a refresh or a deletion needs it.
        state = {"stack": stack, "settled": torch.zeros(rows, dtype=torch.int64, device=device)}
        state["G"] = torch.zeros((rows, d_k, d_k), dtype=torch.float64, device=device)
        if self.gain == "ridge":
            state["M"] = torch.zeros((rows, d_v, d_k), dtype=torch.float64, device=device)
        return state

    def _stack(self) -> Tensor:
        """[A; S] of every memory; with the ledger solved from the sums when first asked for after a change."""
        if not self.ledger:
            return self._state["stack"]
        if self._solved is None:
            solved = torch.cat(exact.solve(self._state["G"], self._state["M"], self.lam0), dim=1)
            self._solved = exact.checked(solved).to(self.dtype)
        return self._solved

    def _matrix(self) -> Tensor:
        return self._stack()[:, self.d_k :]

    def _write(self, state: dict[str, Tensor], keys: Tensor, values: Tensor) -> None:
        write_along(state["stack"], keys, values, self.scale, self.gain)

    def _feed(self, rows: Rows, keys: Tensor, values: Tensor, ids: Ids) -> None:
        if not self.ledger:
            super()._feed(rows, keys, values, ids)
            return
        self._log.append(rows, keys, values, ids)
        whole = exact.quantised(values)
        index = torch.as_tensor(rows, device=self.device)
        for name, part in zip(("G", "M"), exact.sums(exact.quantised(keys), whole), strict=True):
            self._state[name][index] += part
        self._largest[rows] = np.maximum(self._largest[rows], _largest(whole))
        self._solved = None

    def _admissible(self, rows: Rows, keys: Tensor, values: Tensor) -> None:
        if not self.ledger:
            return
        if bool((values.abs() >= exact.LARGEST_VALUE).any()):
            raise MemoryRefused(f"a value is not below {exact.LARGEST_VALUE}, the range of the integer sums: scale it")
        largest = np.maximum(self._largest[rows], _largest(exact.quantised(values)))
        for count, value in zip((self._log.count[rows] + keys.shape[1]).tolist(), largest.tolist(), strict=True):
            exact.check_range(count, value)

    # ---- upkeep ----

    def _after(self, rows: Rows, count: Rows) -> None:
        if self.nudge is not None:
            self._nudge(rows[count % NUDGE_EVERY == 0], self.nudge)
            return
        due = count % REFRESH_EVERY == 0
        if due.any():
            self._refresh(rows[due], count[due])

    def _nudge(self, rows: Rows, nudge: float) -> None:
        """The published addition to A: a forgetting term, no correction of drift [MATH A6]."""
        if len(rows):
            index = torch.as_tensor(rows, device=self.device)
            self._state["stack"][index, : self.d_k] += nudge * torch.eye(self.d_k, dtype=self.dtype, device=self.device)

    def _refresh(self, rows: Rows, count: Rows) -> None:
        """Recompute A (and S of ridge, which is M A) in float64 from the sums over the tokens so far."""
        settled = [self._settled(row, tokens) for row, tokens in zip(rows.tolist(), count.tolist(), strict=True)]
        sums = {name: torch.stack([part[name] for part in settled]) for name in settled[0]}
        stack = torch.cat(exact.solve(sums["G"] * self.scale**2, sums.get("M", sums["G"][:, :0]), self.lam0), dim=1)
        # Where lam0 is below the rounding of G the recurrence, which never subtracts from G, is the better of the two.
        sound = torch.isfinite(stack).flatten(1).all(1)
        index = torch.as_tensor(rows, device=self.device)[sound]
        self._state["stack"][index, : stack.shape[1]] = stack[sound].to(self.dtype)
        for row, tokens, part in zip(rows.tolist(), count.tolist(), settled, strict=True):
            self._publish(row, part, tokens)

    def _publish(self, row: int, sums: dict[str, Tensor], settled: int) -> None:
        for name, part in sums.items():
            self._state[name][row] = part
        self._state["settled"][row] = settled

    def _settled(self, row: int, tokens: int) -> dict[str, Tensor]:
        """Float64 sums over a row's first `tokens` tokens, not yet published."""
        start = int(self._state["settled"][row])
        keys, values = (part[None, start:tokens].double() for part in (self._log.keys[row], self._log.values[row]))
        sums = {"G": self._state["G"][row] + exact.outer_sum(keys, keys)[0]}
        if "M" in self._state:
            sums["M"] = self._state["M"][row] + exact.outer_sum(values, keys)[0]
        return sums

    # ---- deletion ----

    def delete(self, ids: Sequence[Iterable[int]]) -> list[Outcome]:
        """Make every memory what it would be without these tokens: one list of ids a memory, empty for nothing.

        All or nothing over the batch. Refused: an id that its memory does not hold, an id twice, a memory with the
        nudge. Gain "unit": deterministic replay, digest for digest a memory that was given the retained tokens. Gain
        "ridge" with the ledger: integer subtraction, digest for digest any build from the retained tokens. "ridge" in
        floats, within `retained_error`: one float64 token with leverage h and 1 - h >= 1e-6 by a downdate; others by
        Cholesky from the float64 sums less theirs, or from the sums of what stays where that is less. NotConverged,
        with nothing changed, where those sums are singular at this lam0. Source: [MATH A7]. The last write of unit gain
        is not undone either: its inverse amplifies by 1 / (1 - c).
        """
        if self.nudge is not None:
            raise MemoryRefused("a memory with the published nudge is for comparison only: it has no exact deletion")
        if self.gain == "unit":
            return super().delete(ids)
        leaving = [list(part) for part in ids]
        stay = self._staying(leaving)
        change = self._delete_exact if self.ledger else self._delete_ridge
        return change(stay, [len(part) for part in leaving])

    def _delete_exact(self, stay: list[Rows], removed: list[int]) -> list[Outcome]:
        for row in np.flatnonzero(removed).tolist():
            places = stay[row]
            keys, values = (exact.quantised(part)[None] for part in self._leaving(row, places))
            for name, part in zip(("G", "M"), exact.sums(keys, values), strict=True):
                self._state[name][row] -= part[0]
            self._log.keep(row, places)
            self._largest[row] = _largest(exact.quantised(self._log.tokens(row)[1])[None])[0]
        self._solved = None
        return [self._outcome("ledger", count, ANY_ORDER) for count in removed]

    def _leaving(self, row: int, stay: Rows) -> tuple[Tensor, Tensor]:
        leaving = torch.as_tensor(np.setdiff1d(np.arange(self._log.count[row]), stay), device=self.device)
        return self._log.keys[row, leaving], self._log.values[row, leaving]

    def _delete_ridge(self, stay: list[Rows], removed: list[int]) -> list[Outcome]:
        """Every row's new state is computed before the first is published."""
        changes = {row: self._without(row, places) for row, places in enumerate(stay) if removed[row] and len(places)}
        self._replay({row: places for row, places in enumerate(stay) if removed[row] and not len(places)})
        for row, change in changes.items():
            self._state["stack"][row] = change.stack.to(self.dtype)
            self._publish(row, change.sums, change.settled)
            self._log.keep(row, stay[row])
        paths = [changes[row].path if row in changes else "replay" for row in range(self.rows)]
        return [
            self._outcome(path, count, FRESH_FIT, exact=path == "replay")
            for path, count in zip(paths, removed, strict=True)
        ]

    def _without(self, row: int, stay: Rows) -> Change:
        """The new state of a ridge memory that keeps the tokens at these places only."""
        keys, values = (part.double() for part in self._leaving(row, stay))
        change = self._downdated(row, stay, keys, values) if len(keys) == 1 and self.dtype == torch.float64 else None
        if change is not None:
            return change
        if len(stay) <= len(keys):  # then summing what stays costs less than subtracting, and leaves no rounding behind
            sums = self._fresh_sums(row, stay)
            return Change("refit", _solved(sums, self.lam0), sums, len(stay))
        sums = _less(self._settled(row, int(self._log.count[row])), keys, values)
        return Change("normal equations", _solved(sums, self.lam0), sums, len(stay))

    def _downdated(self, row: int, stay: Rows, key: Tensor, value: Tensor) -> Change | None:
        """One token less in O(d_k^2 + d_k d_v); None where its leverage is too near 1."""
        stack = self._state["stack"][row]
        A, S, leverage = remove(stack[: self.d_k], stack[self.d_k :], key[0], value[0])
        if not 1.0 - leverage >= LEAST_ROOM:
            return None
        settled = int(self._state["settled"][row])
        sums = {name: self._state[name][row] for name in ("G", "M")}
        if int((stay < settled).sum()) < settled:
            sums, settled = _less(sums, key, value), settled - 1
        return Change("downdate", torch.cat([A, S]), sums, settled)

    def _fresh_sums(self, row: int, places: Rows) -> dict[str, Tensor]:
        index = torch.as_tensor(places, device=self.device)
        keys, values = (part[row, index].double()[None] for part in (self._log.keys, self._log.values))
        return dict(zip(("G", "M"), (part[0] for part in exact.sums(keys, values)), strict=True))

    def retained_error(self) -> Array:
        """Frobenius distance of each S to a fresh float64 ridge fit of its own tokens, measured on this state: (rows,).

        Ridge only. With the ledger it is what rounding tokens to 2^-20 costs. Accurate to the rounding of that fit.
        """
        if self.gain != "ridge":
            raise MemoryRefused("gain 'unit' is no ridge fit: its reference is the replay of the retained tokens")
        S, out = self._matrix(), np.zeros(self.rows)
        for row in range(self.rows):
            sums = self._fresh_sums(row, np.arange(self._log.count[row]))
            fit = _solved(sums, self.lam0)[self.d_k :]
            out[row] = float(torch.linalg.matrix_norm(S[row].double() - fit))
        return out

    # ---- state ----

    def _digested(self, state: dict[str, Any]) -> dict[str, Any]:
        """With the ledger the tokens count as a set: their order is no part of what the sums promise."""
        state = super()._digested(state)
        if self.ledger:
            tokens = np.concatenate([state["keys"], state["values"]], axis=1)
            order = np.lexsort(tokens.T[::-1])
            state |= {"n": len(tokens), "keys": state["keys"][order], "values": state["values"][order]}
        return state

    def _load(self, row: int, state: dict[str, Any]) -> None:
        super()._load(row, state)
        self._solved = None
        if self.ledger:
            keys, values = (exact.quantised(part)[None] for part in self._log.tokens(row))
            self._largest[row] = _largest(values)[0]
            if not all(
                torch.equal(self._state[n][row], s[0]) for n, s in zip("GM", exact.sums(keys, values), strict=True)
            ):
                raise MemoryRefused("the sums of this ledger are not those of its tokens: load a state of to_state")
        elif not 0 <= int(self._state["settled"][row]) <= int(self._log.count[row]):
            raise MemoryRefused("this vla state counts more tokens than it holds: load a state that to_state wrote")


def _largest(values: Tensor) -> Rows:
    """Largest absolute quantised value of each row's tokens (R, n, d_v); 0 without tokens."""
    flat = values.abs().flatten(1)
    return flat.amax(1).cpu().numpy() if flat.shape[1] else np.zeros(len(flat), dtype=np.int64)


def _less(sums: dict[str, Tensor], keys: Tensor, values: Tensor) -> dict[str, Tensor]:
    gone = exact.sums(keys[None], values[None])
    return {"G": sums["G"] - gone[0][0], "M": sums["M"] - gone[1][0]}


def _solved(sums: dict[str, Tensor], lam0: float) -> Tensor:
    """[A; S] of one memory from its float64 sums."""
    A, S = exact.solve(sums["G"][None], sums["M"][None], lam0)
    return exact.checked(torch.cat([A[0], S[0]]))
