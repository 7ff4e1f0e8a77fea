"""What the opening and the tables share: reasons, verdicts, notes below a table, the kind of our own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reports.html.model import ContrastRow, Hidden, Study
from reports.html.numbers import Cell, Kind
from reports.html.words import POLICIES, order

FEW_GROUPS = "an interval needs at least two stays or patients"
BEST_SHOWN = 3  # policies beside the published ones that figures and the opening show
NO_EVENT = "no stay has such an event hour"
NOT_REPORTED = "not reported by the run"
NOT_GIVEN = "the publication does not print it"


@dataclass(frozen=True)
class Table:
    """Rows of one printed table and the reasons for its numbers that are hidden or not defined."""

    rows: Sequence[Any]
    notes: Sequence[str]


def kind_of(study: Study) -> Kind:
    """What our own numbers are: measured, or simulated when the patients are invented."""
    return Kind.SIMULATED if study.simulated else Kind.MEASURED


def protocols(study: Study) -> list[str]:
    """The protocols of the study in a fixed order; they are never mixed."""
    return order((row.protocol for row in study.retention), ("fixed-context", "streamed"))


def shown_policies(study: Study, protocol: str) -> frozenset[str]:
    """The policies that figures and the opening show: the published comparison and the few best of the others.

    Best is the highest retention on all event hours, averaged over kinds of event. The tables hold every policy.
    """
    rows = [row for row in study.retention if (row.protocol, row.events) == (protocol, "all")]
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.policy not in POLICIES and isinstance(row.retention, float | int):
            found.setdefault(row.policy, []).append(float(row.retention))
    ranked = sorted(found, key=lambda name: (-sum(found[name]) / len(found[name]), name))
    return frozenset(POLICIES) | frozenset(ranked[:BEST_SHOWN])


def verdict_word(row: ContrastRow) -> str:
    """wins, loses or unclear by where the interval lies; hidden or not defined where there is none."""
    if not isinstance(row.low, float | int) or not isinstance(row.high, float | int):
        return "hidden" if isinstance(row.low, Hidden) else "not defined"
    return "wins" if row.low > 0 else "loses" if row.high < 0 else "unclear"


def notes(cells: Iterable[Cell]) -> list[str]:
    """The distinct reasons of cells that are hidden or not defined, sorted; a cell refers to one by its letter."""
    return sorted({cell.note for cell in cells if cell.note})
