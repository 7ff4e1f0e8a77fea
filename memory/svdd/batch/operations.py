"""Operations of the lock-step memory on chosen rows of a store: admit, shrink, prune, and the end that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from memory.contract import NotConverged
from memory.svdd.batch.arithmetic import pick
from memory.svdd.batch.store import Store
from memory.svdd.batch.upkeep import (
    drifted,
    part_of,
    polish,
    refactor,
    refresh,
    repair,
    rows_of,
    shed_edges,
    start,
    take_statuses,
)
from memory.svdd.batch.upkeep import field as field_of
from memory.svdd.batch.walk import admit_to_margin, run, send
from memory.svdd.batch.work import BOUND, DONE, FAILED, MARGIN, RESERVE, Work

REFRESH_EVERY = 64
WALKED, REPAIRED, RESOLVED = 1, 2, 3
UPKEEP, JOINS, WALKS, STARTS = 1, 2, 3, 4

SolveAlone = Callable[[Work, int, Tensor], None]


@dataclass
class Report:
    """What an operation did to each memory of the batch: (B,) int64 tensors."""

    path: Tensor
    events: Tensor
    reexamined: Tensor
    readmitted: Tensor
    removed: Tensor

    @classmethod
    def blank(cls, store: Store) -> Report:
        """Nothing done."""
        return cls(*(torch.zeros_like(store.n) for _ in range(5)))

    def reach(self, rows: Tensor, path: int) -> None:
        """These memories needed at least this path."""
        self.path[rows] = self.path[rows].clamp_min(path)


@dataclass
class Engine:
    """A store with what its operations share: how to solve one memory alone, and the switches by which tests force a
    path.
    """

    store: Store
    alone: SolveAlone
    force: set[str] = field(default_factory=set)

    # ---- the end of every operation ----

    def finish(self, work: Work, mult: Tensor, thorough: Tensor, report: Report) -> Tensor:
        """Shed, refresh where due, check, repair, solve alone: rows that no path could solve (p,) bool."""
        shed_edges(work)
        self._on_part(work, thorough & (work.mode != FAILED), _factor_and_solve_again)
        self._on_part(work, ~thorough & (work.events > 0) & (work.mode != FAILED), _solve_drifted_again)
        wrong = ~work.right() if "repair" not in self.force else torch.ones_like(thorough)
        wrong = wrong & (work.mode != FAILED)
        report.events.index_add_(0, work.rows, work.events)
        if self._on_part(work, wrong, repair):
            report.reach(work.rows[wrong], REPAIRED)
        failed = work.mode == FAILED
        if self.force & {"resolve", "failure"}:
            failed = torch.ones_like(failed)
        for row in rows_of(failed).tolist():
            self._solve_alone(work, row, mult, report)
        shed_edges(work)
        return work.mode == FAILED

    @staticmethod
    def _on_part(work: Work, mask: Tensor, action: Callable[[Work], None]) -> bool:
        """Do something to the rows of a mask only; whether there were any."""
        chosen = part_of(work, mask)
        if chosen is None:
            return False
        rows, part = chosen
        action(part)
        work.put(rows, part)
        return True

    def _solve_alone(self, work: Work, row: int, mult: Tensor, report: Report) -> None:
        line = torch.tensor([row], device=work.m.device)
        report.reach(work.rows[line], RESOLVED)
        work.mode[row] = FAILED
        if "failure" in self.force:
            return
        try:
            self.alone(work, row, mult)
        except NotConverged:
            return
        work.mode[row] = DONE
        part = work.take(line)
        _adopt_masses(part)
        part.mode = torch.where(part.right(), DONE, FAILED)
        work.put(line, part)

    # ---- admission ----

    def admit(self, rows: Tensor, keys: Tensor, report: Report) -> list[int]:
        """One key (p, d) for each of the given memories: the serial numbers of their locations.

        Raises NotConverged with every memory as it was.
        """
        store = self.store
        store.need_locations(store.most + 1)
        slot, new = store.locate(rows, keys)
        store.operations[rows] += 1
        serial, counts, flags = self._triage(rows, slot)
        store.most = max(store.most, *counts)
        busy = [line for line, flag in enumerate(flags) if flag]
        if busy and not self._take_up(rows, slot, flags, busy, report):
            store.give_back(rows, slot, new)
            store.operations[rows] -= 1
            raise NotConverged(
                "an admission to the batch reached no state that passes its checks; it is as it was before"
            )
        return serial

    def _triage(self, rows: Tensor, slot: Tensor) -> tuple[list[int], list[int], list[int]]:
        """Serials, location counts and what each memory must do: nothing, upkeep, join, walk or start (0..4)."""
        store = self.store
        solved, status = store.solved[rows], store.status[rows, slot]
        violates = (status != MARGIN) & (store.g[rows, slot] < -store.tolerance(rows))
        due = (store.operations[rows] % REFRESH_EVERY == 0).long() * UPKEEP
        joins = torch.where(status == BOUND, JOINS, due)
        flag = torch.where(violates, WALKS, joins)
        tokens = torch.where(store.valid(rows), store.mult[rows], 0).sum(1)
        begins = torch.where(tokens >= store.full[rows] * (1.0 - 1e-12), STARTS, 0)
        flag = torch.where(solved, flag, begins)
        serial, counts, flags = torch.stack([store.serial[rows, slot], store.n[rows], flag]).tolist()
        return serial, counts, flags

    def _take_up(self, rows: Tensor, slot: Tensor, flags: list[int], busy: list[int], report: Report) -> bool:
        store, device = self.store, rows.device
        lines = torch.tensor(busy, device=device)
        flag = torch.tensor([flags[line] for line in busy], device=device)
        rows, slot = rows[lines], slot[lines]
        work = store.take(rows)
        mult = _tokens(work)
        if STARTS in flags:
            self._on_part(work, flag == STARTS, lambda part: start(part, _tokens(part), store.full[part.rows]))
        up = torch.ones_like(work.r)
        send(work, flag == WALKS, slot, up, torch.zeros_like(up), True)
        admit_to_margin(work, flag == JOINS, slot, up)
        run(work)
        report.reach(rows[flag >= WALKS], WALKED)
        due = (flag == STARTS) | (store.operations[rows] % REFRESH_EVERY == 0)
        if bool(self.finish(work, mult, due, report).any()):
            return False
        store.put(work)
        self._advance_clock(work, flag != STARTS)
        store.solved[rows] = True
        return True

    def _advance_clock(self, work: Work, which: Tensor) -> None:
        chosen = part_of(work, which)
        if chosen is not None:
            self.store.advance_clock(chosen[1])

    # ---- deletion ----

    def shrink(self, rows: Tensor, serials: Tensor, report: Report) -> None:
        """One token fewer for every serial number >= 0 in each row of serials (p, rounds); raises NotConverged."""
        store = self.store
        store.operations[rows] += 1
        work = store.take(rows)
        mult = _tokens(work)
        walked = torch.zeros_like(work.to_kkt)
        for serial in serials.unbind(1):
            walked = walked | self._shrink_one(work, mult, serial, report)
        if bool(self.finish(work, mult, walked, report).any()):
            store.operations[rows] -= 1
            raise NotConverged(
                "a deletion in the batch reached no state that passes its checks; it is as it was before"
            )
        store.put(work)
        store.mult.index_copy_(0, rows, mult)
        store.advance_clock(work)
        store.keep_locations(rows, mult > 0)

    def _shrink_one(self, work: Work, mult: Tensor, serial: Tensor, report: Report) -> Tensor:
        """The mass at a location walks down to its smaller cap, where it is above: which rows (p,) did."""
        here = (self.store.serial[work.rows] == serial[:, None]) & work.valid
        slot = here.to(torch.int8).argmax(1)
        mult -= here.long()
        cap = mult * work.C[:, None]
        work.cap = torch.where(here, cap, work.cap)
        ends = pick(work.cap, slot)
        walks = here.any(1) & (pick(work.a, slot) > ends) & (work.mode != FAILED)
        report.reach(work.rows[walks], WALKED)
        send(work, walks, slot, -torch.ones_like(ends), ends, False)
        run(work)
        return walks

    # ---- pruning and the clock ----

    def prunable(self, rows: Tensor, report: Report) -> Tensor:
        """Solve the margins again and say which locations (p, R) may go cold; raises NotConverged."""
        store = self.store
        store.operations[rows] += 1
        work = store.take(rows)
        mult = _tokens(work)
        if bool(self.finish(work, mult, torch.ones_like(work.to_kkt), report).any()):
            store.operations[rows] -= 1
            raise NotConverged("pruning the batch reached no state that passes its checks; it is as it was before")
        store.put(work)
        store.advance_clock(work)
        return (work.status == RESERVE) & store.can_chill(rows, work.g)

    def reexamine(self, report: Report) -> list[tuple[int, int]] | None:
        """Look at every cold token whose expiry has passed; None when there is none, else (memory, slot) of those that
        must come back, one a memory."""
        store = self.store
        everyone = torch.arange(store.batch, device=store.device)
        lapsed = (store.cold_expiry <= store.clock(everyone)[:, None]) & store.solved[:, None]
        if not bool(lapsed.any()):
            return None
        b, q = lapsed.nonzero().unbind(1)
        rows = rows_of(lapsed.any(1))
        lines = torch.searchsorted(rows, b)
        g = store.gradient_at(rows, lines, store.cold_x[b, :, q])
        report.reexamined += lapsed.sum(1)
        stays = store.can_chill(b, g)
        store.cold_expiry[b, q] = torch.where(stays, store.expiry(b, g), store.cold_expiry[b, q])
        back = torch.full_like(store.cold_expiry, torch.inf)
        back[b, q] = torch.where(stays, torch.inf, store.cold_expiry[b, q])
        first = torch.stack([torch.arange(store.batch, device=store.device), back.argmin(1)], 1)
        return [(row, slot) for row, slot in first[(back < torch.inf).any(1)].tolist()]


def _tokens(work: Work) -> Tensor:
    """Tokens at each location: (B, R), 0 in padding."""
    return torch.where(work.valid, work.store.mult[work.rows], 0)


def _factor_and_solve_again(work: Work) -> None:
    refactor(work)
    polish(work)
    refresh(work)


def _solve_drifted_again(work: Work) -> None:
    chosen = part_of(work, drifted(work))
    if chosen is not None:
        rows, part = chosen
        polish(part)
        refresh(part)
        work.put(rows, part)


def _adopt_masses(work: Work) -> None:
    """Status, margin, factor and gradients that follow from masses and rho just set."""
    state = torch.where(work.a <= 0.0, RESERVE, torch.where(work.a >= work.cap, BOUND, MARGIN)).to(torch.int8)
    work.status = torch.where(work.valid, state, work.status)
    work.g = field_of(work) + work.r[:, None]
    take_statuses(work)
