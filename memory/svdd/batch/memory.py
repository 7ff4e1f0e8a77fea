"""Support-vector memories in lock-step: the operations of SVDDMemory for a whole batch on one torch device, in fp64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memory.contract import Array, MemoryRefused, NotConverged, Path
from memory.svdd.batch import checks
from memory.svdd.batch.ledger import Ledger
from memory.svdd.batch.operations import Engine, Report
from memory.svdd.batch.single import solve_alone, state_of
from memory.svdd.batch.store import Store
from memory.svdd.batch.work import Work
from memory.svdd.checks import carries, inequality
from memory.svdd.memory import SVDDMemory

_PATHS: tuple[Path, ...] = ("reserve", "walk", "repaired", "resolved")
Counts = NDArray[np.int64]


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
        self.batch, self.device = checks.memories(batch), torch.device(device)
        self._C, self._sigma = checks.per_memory("C", C, batch), checks.per_memory("sigma", sigma, batch)
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
        self,
        keys: Array | Tensor,
        values: Array | None = None,
        ids: Sequence[int] | None = None,
        mask: Array | None = None,
    ) -> BatchOutcome:
        """Take in one key a memory: keys (B, d), optional values (B, d_v), ids (B,) and mask (B,) bool.

        An id defaults to one above the largest its memory holds. Refused, all memories unchanged: a number that is not
        finite, another width, an id that its memory holds. Source: [SVA 3.2]. Raises NotConverged if no path reaches a
        checked state.
        """
        rows = checks.chosen(mask, self.batch)
        width = self._store.d if self._store is not None else None
        array = checks.key_rows(keys, rows, self.batch, width).to(self.device)
        given = checks.value_rows(values, rows, self._ledgers)
        tokens = checks.token_ids(ids, rows, self._ledgers)
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
        expiry = store.cold_expiry[at].clone()
        store.cold_expiry[at] = torch.inf
        try:
            self._arrive(rows, store.cold_x[at[0], :, at[1]], tokens, report)
        except NotConverged:
            store.cold_expiry[at] = expiry
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
        leaving = checks.leaving_ids(ids, below_capacity, self._ledgers)
        if self._store is None:
            return self._nothing()
        ready, touched = self.ready, [b for b, part in enumerate(leaving) if part]
        lasts = {b: carries(len(self._ledgers[b]) - len(leaving[b]), float(self._C[b])) for b in touched}
        lacking = [b for b in touched if ready[b] and not lasts[b]]
        if lacking and below_capacity == "refuse":
            first = lacking[0]
            why = inequality(len(self._ledgers[first]) - len(leaving[first]), float(self._C[first]))
            raise MemoryRefused(
                f"{why} after this deletion, in {len(lacking)} of the memories: keep more tokens, or delete with "
                "below_capacity='collect'"
            )
        report = Report.blank(self._store)
        together = [b for b in touched if ready[b] and lasts[b]]
        alone = [self._deleted_alone(b, leaving[b], report) for b in touched if b not in {*together}]
        if together:
            self._delete_together(together, leaving, report)
        for b, collecting in alone:
            self._collect_again(b, collecting, report)
        return self._outcome(report)

    def _delete_together(self, rows: list[int], leaving: list[list[int]], report: Report) -> None:
        copies = [self._ledgers[b].copies(leaving[b]) for b in rows]
        aside, expiry = self._set_cold_aside(rows, leaving)
        try:
            self._recall(rows, [sum(count.values()) for count in copies], report)
            hot = [(b, [self._ledgers[b].hot[t] for t in leaving[b] if t in self._ledgers[b].hot]) for b in rows]
            self._shrink([entry for entry in hot if entry[1]], report)
        except NotConverged:
            self._tensors.cold_expiry[aside] = expiry
            raise
        for b in rows:
            self._ledgers[b].forget(leaving[b])
        self._examine_lapsed(report)

    def _set_cold_aside(self, rows: list[int], leaving: list[list[int]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Cold tokens that are being deleted are neither recalled nor examined: their places and expiries."""
        places = [(b, self._ledgers[b].cold[t]) for b in rows for t in leaving[b] if t in self._ledgers[b].cold]
        b, q = torch.tensor(places, dtype=torch.int64, device=self.device).reshape(-1, 2).unbind(1)
        expiry = self._tensors.cold_expiry[b, q]
        self._tensors.cold_expiry[b, q] = torch.inf
        return (b, q), expiry

    def _recall(self, rows: list[int], hot_leaving: list[int], report: Report) -> None:
        """Bring cold tokens back by ascending expiry until the hot ones that stay can carry the mass."""
        while True:
            lacking = [
                b
                for b, gone in zip(rows, hot_leaving, strict=True)
                if not carries(len(self._ledgers[b].hot) - gone, float(self._C[b]))
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

    def _deleted_alone(self, b: int, leaving: list[int], report: Report) -> tuple[int, SVDDMemory]:
        """A memory that collects, or falls back to collecting, has no solution to maintain: SVDDMemory does it."""
        memory = self.memory(b)
        outcome = memory.delete(leaving, below_capacity="collect")
        report.removed[b] += outcome.removed
        report.readmitted[b] += outcome.readmitted
        return b, memory

    def _collect_again(self, b: int, memory: SVDDMemory, report: Report) -> None:
        """Memory b holds the tokens of a memory that collects."""
        state, ledger = memory.to_state(), Ledger()
        ledger.values = self._ledgers[b].values
        ledger.values.drop(token for token in [*self._ledgers[b].hot, *self._ledgers[b].cold] if token not in memory)
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
        if self._store is None:
            return self._nothing(np.full(self.batch, np.nan))
        report = Report.blank(self._store)
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

    def score(self, Q: Array | Tensor) -> Array:
        """Gate scores of queries Q (q, d), shared, or (B, q, d): (B, q), NaN for memories that still collect. Pure."""
        queries = checks.query_rows(Q, self.batch, self._store.d if self._store is not None else None).to(self.device)
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

    # ---- inside ----

    @property
    def _tensors(self) -> Store:
        assert self._store is not None  # noqa: S101  (opened by every public operation)
        return self._store

    def _open(self, width: int) -> Report:
        if self._store is None:
            whole = np.rint(1.0 / self._C)
            full = np.where(np.abs(1.0 / self._C - whole) <= 1e-12 * whole, whole, 1.0 / self._C)
            caps = np.where(full == np.rint(full), 1.0 / full, self._C)
            parts = (torch.from_numpy(part).to(self.device) for part in (caps, full, 1.0 / (self._sigma * self._sigma)))
            self._store = Store(width, *parts)
            self._engine = Engine(self._store, self._solve_alone, self._force)
        return Report.blank(self._store)

    def _solve_alone(self, work: Work, row: int, mult: Tensor) -> None:
        b = int(work.rows[row])
        solve_alone(work, row, mult, float(self._C[b]), float(self._sigma[b]))

    def _nothing(self, score_change: Array | None = None) -> BatchOutcome:
        none, path = np.zeros(self.batch, np.int64), (_PATHS[0],) * self.batch
        return BatchOutcome(path, none, none.copy(), none.copy(), none.copy(), score_change)

    def _outcome(self, report: Report, score_change: Array | None = None) -> BatchOutcome:
        numbers = torch.stack([report.path, report.events, report.reexamined, report.readmitted, report.removed])
        path, events, reexamined, readmitted, removed = numbers.cpu().numpy()
        paths = tuple(_PATHS[step] for step in path)
        return BatchOutcome(paths, events, reexamined, readmitted, removed, score_change)
