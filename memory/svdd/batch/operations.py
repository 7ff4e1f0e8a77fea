"""Operations of the lock-step memory on chosen rows of a store: admit, shrink, prune, and the end that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from memory.contract import NotConverged
from memory.svdd.batch.arithmetic import pick
from memory.svdd.batch.store import Store
from memory.svdd.batch.upkeep import part_of, polish, refactor, refresh, repair, rows_of, shed_edges, start, take_statuses
from memory.svdd.batch.upkeep import field as field_of
from memory.svdd.batch.walk import admit_to_margin, run, send
from memory.svdd.batch.work import BOUND, DONE, FAILED, MARGIN, RESERVE, Work

REFRESH_EVERY = 64
WALKED, REPAIRED, RESOLVED = 1, 2, 3

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
    """A store with what its operations share: how to solve one memory alone, and the switches by which tests force a path."""

    store: Store
    alone: SolveAlone
    force: set[str] = field(default_factory=set)

    # ---- the end of every operation ----

    def finish(self, work: Work, mult: Tensor, thorough: Tensor, report: Report) -> Tensor:
        """Shed, refresh where due, check, repair, solve alone: rows that no path could solve (p,) bool."""
        shed_edges(work)
        self._on_part(work, thorough & (work.mode != FAILED), _refresh_all)
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
        serial, most, walks, starts = self._triage(rows, slot)
        store.most = most
        done: list[tuple[Work, Tensor]] = []
        for chosen, action in ((walks, self._take_up), (starts, self._start)):
            if len(chosen):
                done.append(action(rows[chosen], slot[chosen], report))
        if any(bool(failed.any()) for _, failed in done):
            store.give_back(rows, slot, new)
            raise NotConverged("an admission to the batch reached no state that passes its checks; it is as it was before")
        for work, _ in done:
            store.put(work)
            if work.starts is False:
                store.advance_clock(work)
        return serial
