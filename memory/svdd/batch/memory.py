"""Support-vector memories in lock-step: the operations of SVDDMemory for a whole batch on one torch device, in fp64."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memory.contract import Array, MemoryRefused, NotConverged, Path
from memory.svdd.batch.ledger import Ledger
from memory.svdd.batch.operations import Engine, Report
from memory.svdd.batch.single import solve_alone, state_of
from memory.svdd.batch.store import Store
from memory.svdd.batch.work import Work
from memory.svdd.memory import SVDDMemory

_PATHS: tuple[Path, ...] = ("reserve", "walk", "repaired", "resolved")
Counts = NDArray[np.int64]
Keys = Array | Tensor


@dataclass(frozen=True)
class BatchOutcome:
    """What one operation did, memory by memory.

    Attributes:
        path: as in `Outcome`, one a memory; "resolved" is a memory that SVDDMemory solved because its lock-step walk
            and repair did not pass the check.
        events, reexamined, readmitted, removed: as in `Outcome`, (B,) each.
        score_change: largest realised change of each memory's score on probes (pruning only), (B,), NaN while
        collecting.
    """

    path: tuple[Path, ...]
    events: Counts
    reexamined: Counts
    readmitted: Counts
    removed: Counts
    score_change: Array | None = None

    @property
    def resolved(self) -> int:
        """How many memories left the lock-step for the compiled core."""
        return self.path.count("resolved")


class SVDDBatch:
    """`batch` exact support-vector memories that admit, delete and prune in lock-step.

    C and sigma are scalars or (B,): one cap and kernel width a memory. Keys are (B, d) finite float64, numpy or torch;
    a mask (B,) says which memories take part, the rows of the others are not looked at. All state lies in fp64 tensors
    on `device`; values, which no operation needs, stay on the host. Every refusal raises MemoryRefused before anything
    changes in any memory.

    The states are those of SVDDMemory within the sum of both certificates. A memory's bits do not depend on the batch
    around it, on padding or on threads. Source: [SVA 3.1-3.3], [CP]; MATH 1.3 for pruning. It has run on CPU tensors
    only; it keeps no times and no patients, and one object is not for use from several threads.
    """

    def __init__(
        self, C: float | Array, sigma: float | Array, batch: int, *, device: str | torch.device = "cpu"
    ) -> None:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise MemoryRefused(f"batch is {batch!r}: it must be a whole number of memories, at least 1")
        self._C, self._sigma = _per_memory(C, batch, "C"), _per_memory(sigma, batch, "sigma")
        self.batch, self.device = batch, torch.device(device)
        self._ledgers = [Ledger() for _ in range(batch)]
        self._store: Store | None = None
        self._force: set[str] = set()

    # ---- what it holds ----

    @property
    def ready(self) -> NDArray[np.bool_]:
        """Which memories have a gate: (B,)."""
        return np.zeros(self.batch, bool) if self._store is None else self._store.solved.cpu().numpy().copy()

    @property
    def rho(self) -> Array:
        """The multiplier of each memory's mass: (B,), NaN while it collects."""
        if self._store is None:
            return np.full(self.batch, np.nan)
        return np.where(self.ready, self._store.r.cpu().numpy() - 1.0, np.nan)

    @property
    def tokens(self) -> Counts:
        """Tokens held by each memory, hot and cold: (B,)."""
        return np.array([len(ledger) for ledger in self._ledgers], dtype=np.int64)

    @property
    def locations(self) -> Counts:
        """Distinct hot keys of each memory: (B,)."""
        return np.zeros(self.batch, np.int64) if self._store is None else self._store.n.cpu().numpy().copy()

    # ---- admission ----

    def admit(
        self, keys: Keys, values: Array | None = None, ids: Sequence[int] | None = None, mask: Array | None = None
    ) -> BatchOutcome:
        """Take in one key a memory: keys (B, d), optional values (B, d_v), ids (B,) and mask (B,) bool.

        An id defaults to one above the largest its memory holds. Refused, all memories unchanged: a number that is not
        finite, another width, an id that its memory holds. Source: [SVA 3.2]. Raises NotConverged if no path reaches a
        checked state.
        """
        rows = self._chosen(mask)
        array = self._checked_keys(keys, rows)
        given = self._checked_values(values, rows)
        tokens = self._checked_ids(ids, rows)
        report = self._open(array.shape[1])
        if rows:
            self._arrive(rows, array[rows], tokens, report)
            for line, b in enumerate(rows):
                self._ledgers[b].values.put([tokens[line]], None if given is None else given[line : line + 1])
            self._examine_lapsed(report)
        return self._outcome(report)

    def _arrive(self, rows: list[int], keys: Tensor, tokens: list[int], report: Report) -> None:
        serials = self._engine.admit(torch.tensor(rows, device=self.device), keys, report)
        for b, token, serial in zip(rows, tokens, serials, strict=True):
            self._ledgers[b].arrive(token, serial)

    # ---- cold tokens ----

    def _examine_lapsed(self, report: Report) -> None:
        """Cold tokens whose expiry has passed are looked at again; violators come back, one a memory at a time."""
        while back := self._engine.reexamine(report):
            self._warm(back, report)

    def _warm(self, places: list[tuple[int, int]], report: Report) -> None:
        """Cold tokens (memory, slot), one a memory, are admitted again."""
        store = self._tensors
        rows, slots = (list(part) for part in zip(*places, strict=True))
        at = (torch.tensor(rows, device=self.device), torch.tensor(slots, device=self.device))
        tokens = [self._ledgers[b].warm(slot) for b, slot in places]
        store.cold_expiry[at] = torch.inf
        try:
            self._arrive(rows, store.cold_x[at[0], :, at[1]], tokens, report)
        except NotConverged:
            store.cold_expiry[at] = -torch.inf
            for b, slot, token in zip(rows, slots, tokens, strict=True):
                self._ledgers[b].return_cold(token, slot)
            raise
        report.readmitted[at[0]] += 1

    # ---- deletion ----

    def delete(
        self, ids: Sequence[Iterable[int]], below_capacity: Literal["refuse", "collect"] = "refuse"
    ) -> BatchOutcome:
        """Make every memory the exact solution for the tokens that stay: ids is one list a memory, empty for nothing.

        All or nothing over the whole batch. Refused: an id that its memory does not hold, an id twice and, unless
        below_capacity is "collect", a rest with n * C < 1 in a memory that has a gate. Source: [SVA 3.3]; MATH 1.3 for
        cold tokens.
        """
        leaving = [[int(token) for token in part] for part in ids]
        self._check_leaving(leaving, below_capacity)
        report = self._open(self._store.d if self._store is not None else 1)
        touched = [b for b, part in enumerate(leaving) if part]
        ready = self.ready
        collects = [b for b in touched if not ready[b] or not self._carries(b, len(self._ledgers[b]) - len(leaving[b]))]
        together = [b for b in touched if b not in set(collects)]
        if together:
            self._delete_together(together, leaving, report)
        for b in collects:
            self._delete_alone(b, leaving[b], report)
        return self._outcome(report)

    def _delete_together(self, rows: list[int], leaving: list[list[int]], report: Report) -> None:
        copies = [self._ledgers[b].copies(leaving[b]) for b in rows]
        aside = self._set_cold_aside(rows, leaving)
        try:
            self._recall(rows, [sum(count.values()) for count in copies], report)
            hot = [(b, [self._ledgers[b].hot[t] for t in leaving[b] if t in self._ledgers[b].hot]) for b in rows]
            self._shrink([entry for entry in hot if entry[1]], report)
        except NotConverged:
            self._tensors.cold_expiry[aside] = -torch.inf
            raise
        for b in rows:
            self._ledgers[b].forget(leaving[b])
        self._examine_lapsed(report)

    def _set_cold_aside(self, rows: list[int], leaving: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Cold tokens that are being deleted are neither recalled nor examined."""
        places = [(b, self._ledgers[b].cold[t]) for b in rows for t in leaving[b] if t in self._ledgers[b].cold]
        b, q = torch.tensor(places, dtype=torch.int64, device=self.device).reshape(-1, 2).unbind(1)
        self._tensors.cold_expiry[b, q] = torch.inf
        return b, q

    def _recall(self, rows: list[int], hot_leaving: list[int], report: Report) -> None:
        """Bring cold tokens back by ascending expiry until the hot ones that stay can carry the mass."""
        while True:
            lacking = [
                b
                for b, gone in zip(rows, hot_leaving, strict=True)
                if not self._carries(b, len(self._ledgers[b].hot) - gone)
            ]
            if not lacking:
                return
            slots = self._tensors.cold_expiry[lacking].argmin(1).tolist()
            self._warm(list(zip(lacking, slots, strict=True)), report)

    def _shrink(self, hot: list[tuple[int, list[int]]], report: Report) -> None:
        if not hot:
            return
        rounds = max(len(serials) for _, serials in hot)
        padded = [serials + [-1] * (rounds - len(serials)) for _, serials in hot]
        rows = torch.tensor([b for b, _ in hot], device=self.device)
        self._engine.shrink(rows, torch.tensor(padded, device=self.device), report)
        report.removed[rows] += torch.tensor([len(serials) for _, serials in hot], device=self.device)

    def _delete_alone(self, b: int, leaving: list[int], report: Report) -> None:
        """A memory that collects, or falls back to collecting, has no solution to maintain: SVDDMemory does it."""
        memory = self.memory(b)
        outcome = memory.delete(leaving, below_capacity="collect")
        report.removed[b] += outcome.removed
        report.readmitted[b] += outcome.readmitted
        state = memory.to_state()
        ledger = Ledger()
        ledger.values = self._ledgers[b].values
        ledger.values.drop(leaving)
        self._ledgers[b] = ledger
        self._tensors.clear(b)
        keys = torch.from_numpy(state["keys"][state["location"]]).to(self.device)
        for line, token in enumerate(state["ids"].tolist()):
            self._arrive([b], keys[line : line + 1], [token], report)

    # ---- pruning ----

    def prune(self) -> BatchOutcome:
        """Move the reserve tokens of every ready memory to cold storage, certified: the hot states go on to equal the
        full-history solutions.

        The outcome says by how much each score changed on probes (the hot keys and the midpoints of neighbours).
        Source: [SVA Prop. 1] and MATH 1.3. It bounds work, not stored history.
        """
        report = self._open(self._store.d if self._store is not None else 1)
        rows = self._tensors.solved.nonzero()[:, 0]
        change = np.full(self.batch, np.nan)
        if len(rows):
            probes, real = self._probes(rows)
            before = self._tensors.score(rows, probes)
            self._chill(rows, self._engine.prunable(rows, report), report)
            self._examine_lapsed(report)
            moved = torch.where(real, (self._tensors.score(rows, probes) - before).abs(), 0.0).amax(1)
            change[rows.cpu().numpy()] = moved.cpu().numpy()
        return self._outcome(report, change)

    def _probes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        store = self._tensors
        valid = store.valid(rows)
        keys = torch.where(valid[:, :, None], store.x[rows].mT, 0.0)
        return torch.cat([keys, (keys[:, :-1] + keys[:, 1:]) / 2.0], 1), torch.cat([valid, valid[:, 1:]], 1)

    def _chill(self, rows: Tensor, going: Tensor, report: Report) -> None:
        """Tokens at the chosen locations (p, R) go cold, each with the expiry of its location."""
        store = self._tensors
        expiry = store.expiry(rows, store.g[rows])
        line, slot = going.nonzero().unbind(1)
        serials = store.serial[rows[line], slot].tolist()
        lines, slots, memories = line.tolist(), slot.tolist(), rows.tolist()
        at: dict[int, dict[int, int]] = {}
        for one, place, serial in zip(lines, slots, serials, strict=True):
            at.setdefault(one, {})[serial] = place
        moved = [
            (one, memories[one], places[serial], cold)
            for one, places in at.items()
            for _, serial, cold in self._ledgers[memories[one]].chill(set(places))
        ]
        if moved:
            one, b, place, cold = torch.tensor(moved, device=self.device).unbind(1)
            store.need_cold(int(cold.max()) + 1)
            store.cold_x[b, :, cold] = store.x[b, :, place]
            store.cold_expiry[b, cold] = expiry[one, place]
            report.removed.index_add_(0, b, torch.ones_like(b))
        store.keep_locations(rows, ~going)

    # ---- asking it ----

    def score(self, Q: Keys) -> Array:
        """Gate scores of queries Q (q, d), shared, or (B, q, d): (B, q), NaN for memories that still collect. Pure."""
        queries = torch.as_tensor(Q, dtype=torch.float64).to(self.device)
        width = self._store.d if self._store is not None else queries.shape[-1]
        if (
            queries.ndim not in (2, 3)
            or queries.shape[-1] != width
            or (queries.ndim == 3 and len(queries) != self.batch)
        ):
            raise MemoryRefused(
                f"queries have shape {tuple(queries.shape)}, expected (q, {width}) or ({self.batch}, q, {width})"
            )
        if not bool(torch.isfinite(queries).all()):
            raise MemoryRefused("queries hold a number that is not finite: remove or fill it first")
        queries = queries.expand(self.batch, -1, -1)
        if self._store is None:
            return np.full((self.batch, queries.shape[1]), np.nan)
        scores = self._store.score(torch.arange(self.batch, device=self.device), queries)
        return torch.where(self._store.solved[:, None], scores, torch.nan).cpu().numpy()

    def memory(self, i: int) -> SVDDMemory:
        """Memory i as an SVDDMemory of its own with the same state; later operations on either leave the other
        alone.
        """
        b = range(self.batch)[i]
        C, sigma = float(self._C[b]), float(self._sigma[b])
        if self._store is None or (len(self._ledgers[b]) == 0 and not bool(self._store.operations[b])):
            return SVDDMemory(C, sigma)
        return SVDDMemory.from_state(state_of(self._store, b, self._ledgers[b], C, sigma), verify=False)

    # ---- checks ----

    def _chosen(self, mask: Any) -> list[int]:
        if mask is None:
            return list(range(self.batch))
        chosen = np.asarray(mask.cpu() if isinstance(mask, Tensor) else mask)
        if chosen.shape != (self.batch,) or chosen.dtype != np.bool_:
            raise MemoryRefused(
                f"mask has shape {chosen.shape} and type {chosen.dtype}, expected ({self.batch},) of bool"
            )
        return [int(b) for b in chosen.nonzero()[0]]

    def _checked_keys(self, keys: Keys, rows: list[int]) -> Tensor:
        array = torch.as_tensor(keys, dtype=torch.float64).to(self.device)
        if array.ndim != 2 or len(array) != self.batch or array.shape[1] == 0:
            raise MemoryRefused(f"keys have shape {tuple(array.shape)}, expected ({self.batch}, d) with d >= 1")
        if self._store is not None and array.shape[1] != self._store.d:
            raise MemoryRefused(
                f"keys have width {array.shape[1]}, this batch holds width {self._store.d}: keep one width"
            )
        wrong = int((~torch.isfinite(array[rows])).any(1).sum())
        if wrong:
            raise MemoryRefused(
                f"{wrong} of {len(rows)} keys hold a number that is not finite: remove or fill it, or mask the memory"
            )
        return array + 0.0  # -0.0 and 0.0 are one location

    def _checked_values(self, values: Any, rows: list[int]) -> Array | None:
        if values is None:
            return None
        array = np.asarray(values.cpu() if isinstance(values, Tensor) else values, dtype=np.float64)
        if array.ndim != 2 or len(array) != self.batch:
            raise MemoryRefused(
                f"values have shape {array.shape}, expected ({self.batch}, d_v): give one row per memory"
            )
        for b in rows:
            self._ledgers[b].values.checked(array[b : b + 1], 1)
        return array[rows]

    def _checked_ids(self, ids: Sequence[int] | None, rows: list[int]) -> list[int]:
        if ids is None:
            return [self._ledgers[b].next_id for b in rows]
        if len(ids) != self.batch:
            raise MemoryRefused(f"{len(ids)} ids for {self.batch} memories: give one id per memory")
        tokens = [ids[b] for b in rows]
        if not all(
            isinstance(t, int | np.integer) and not isinstance(t, bool) and -(2**63) <= int(t) < 2**63 for t in tokens
        ):
            raise MemoryRefused("an id is not a 64-bit integer: use one integer per token")
        held = sum(int(token) in self._ledgers[b] for b, token in zip(rows, tokens, strict=True))
        if held:
            raise MemoryRefused(
                f"{held} of {len(rows)} ids are already held by their memory: an id names one token; delete it first"
            )
        return [int(token) for token in tokens]

    def _check_leaving(self, leaving: list[list[int]], below_capacity: str) -> None:
        if below_capacity not in ("refuse", "collect"):
            raise MemoryRefused(f"below_capacity is {below_capacity!r}: choose 'refuse' or 'collect'")
        if len(leaving) != self.batch:
            raise MemoryRefused(
                f"{len(leaving)} lists of ids for {self.batch} memories: give one list per memory, empty for none"
            )
        if any(len(set(part)) != len(part) for part in leaving):
            raise MemoryRefused("an id is listed twice for deletion from one memory: list each once")
        unknown = sum(token not in self._ledgers[b] for b, part in enumerate(leaving) for token in part)
        if unknown:
            raise MemoryRefused(
                f"{unknown} of {sum(map(len, leaving))} ids are not held by their memory: nothing was deleted"
            )
        if below_capacity == "refuse":
            self._check_capacity(leaving)

    def _check_capacity(self, leaving: list[list[int]]) -> None:
        ready = self.ready
        for b, part in enumerate(leaving):
            rest, C = len(self._ledgers[b]) - len(part), float(self._C[b])
            if part and ready[b] and not self._carries(b, rest):
                raise MemoryRefused(
                    f"n * C = {rest} * {C:.6g} = {rest * C:.6g} < 1 after this deletion in one memory, so the caps "
                    "cannot carry the mass: keep more tokens, or delete with below_capacity='collect'"
                )

    def _carries(self, b: int, tokens: int) -> bool:
        return tokens * float(self._C[b]) >= 1.0 - 1e-12

    # ---- inside ----

    @property
    def _tensors(self) -> Store:
        assert self._store is not None  # noqa: S101  (opened by every public operation)
        return self._store

    def _open(self, width: int) -> Report:
        if self._store is None:
            full = np.array([_tokens_that_fill(float(C)) for C in self._C])
            caps = np.where(full == np.rint(full), 1.0 / full, self._C)
            parts = (torch.from_numpy(part).to(self.device) for part in (caps, full, 1.0 / (self._sigma * self._sigma)))
            self._store = Store(width, *parts)
            self._engine = Engine(self._store, self._solve_alone, self._force)
        return Report.blank(self._store)

    def _solve_alone(self, work: Work, row: int, mult: Tensor) -> None:
        b = int(work.rows[row])
        solve_alone(work, row, mult, float(self._C[b]), float(self._sigma[b]))

    def _outcome(self, report: Report, score_change: Array | None = None) -> BatchOutcome:
        numbers = torch.stack([report.path, report.events, report.reexamined, report.readmitted, report.removed])
        path, events, reexamined, readmitted, removed = numbers.cpu().numpy()
        paths = tuple(_PATHS[step] for step in path)
        return BatchOutcome(paths, events, reexamined, readmitted, removed, score_change)


def _per_memory(value: Any, batch: int, name: str) -> Array:
    array = np.asarray(value.cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
    if array.shape not in ((), (batch,)):
        raise MemoryRefused(f"{name} has shape {array.shape}, expected a number or ({batch},)")
    if not (np.isfinite(array).all() and (array > 0.0).all()):
        raise MemoryRefused(f"{name} must be a finite number above 0 for every memory")
    return np.broadcast_to(array, (batch,)).copy()


def _tokens_that_fill(C: float) -> float:
    """1/C, an exact integer where it is one to 1e-12."""
    whole = math.floor(1.0 / C + 0.5)
    return float(whole) if whole and abs(1.0 / C - whole) <= 1e-12 * whole else 1.0 / C
