"""Net recall and synthetic tasks as sentences and tables, from records in which small counts are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.html.model import RecallRow, Study, TaskRow, Value
from reports.html.numbers import Cell, Kind, as_published, count, fraction, interval, percent, plain
from reports.html.shared import Table, kind_of, notes
from reports.html.words import channel_name

MAIN_DELAY, MAIN_TOLERANCE = 24, 0.5  # what the first table shows; the others stand below it
NO_CACHE = "a matrix holds no hours"

MEMORIES = {
    "vla-ridge": "VLA, ridge gain",
    "vla-unit": "VLA, unit gain",
    "delta": "delta rule",
    "linear": "linear attention",
    "nc01": "NC01",
    "svdd": "svdd, its readout",
    "svdd-support": "svdd support as a cache",
    "density": "cache, densest hours",
    "novelty": "cache, least dense hours",
    "recency": "cache, last hours",
    "random": "cache, random hours",
}


@dataclass(frozen=True)
class RecallGroup:
    """All memories at one budget: a heading and one line of cells a memory."""

    heading: str
    rows: Sequence[tuple[str, str, Sequence[Cell]]]


def recall_about(study: Study) -> tuple[str, list[tuple[str, Cell]]]:
    """The vital that was held out and the counts behind the first table."""
    rows = _chosen(study.recall, MAIN_DELAY, MAIN_TOLERANCE, "all")
    if not rows:
        return "", []
    first, kind = rows[0], kind_of(study)
    counts = [
        ("stays", first.stays),
        ("patients", first.patients),
        ("stay-hours", first.hours),
        ("event hours", first.event_hours),
        ("of them measured", first.measured_event_hours),
        ("event hours asked for", first.asked),
    ]
    return channel_name(first.channel), [(name, count(size, kind)) for name, size in counts]


def recall_findings(study: Study) -> list[str]:
    """At each budget, what nets most and how much of its recall a memory without the hour reads as well."""
    found = []
    for heading, rows in _by_budget(_chosen(study.recall, MAIN_DELAY, MAIN_TOLERANCE, "all")):
        ranked = sorted((row for row in rows if isinstance(row.net, float | int)), key=lambda row: -_number(row.net))
        if ranked:
            best, kind = ranked[0], kind_of(study)
            matrix = next((row for row in ranked if row.kept is None), None)
            text = f"{heading}: {memory_name(best)} nets most, {fraction(best.net, kind).text}"
            text += f" ({fraction(best.recalled, kind).text} recalled, {fraction(best.ghost, kind).text} ghost)"
            if matrix is not None and matrix is not best:
                text += f"; the best matrix memory is {memory_name(matrix)} with {fraction(matrix.net, kind).text}"
            found.append(f"{text}.")
    return found


def recall_table(study: Study) -> Table:
    """Recalled, ghost and net with intervals at the main delay and tolerance, on all event hours."""
    kind = kind_of(study)
    groups = [
        RecallGroup(heading, [(memory_name(row), plain(row.size), _recall_cells(row, kind)) for row in rows])
        for heading, rows in _by_budget(_chosen(study.recall, MAIN_DELAY, MAIN_TOLERANCE, "all"))
    ]
    return Table(groups, notes(cell for group in groups for *_, cells in group.rows for cell in cells))


def _recall_cells(row: RecallRow, kind: Kind) -> list[Cell]:
    reason = plain(row.reason or "not reported by the run")
    bytes_held = row.state_bytes if not isinstance(row.state_bytes, float) else round(row.state_bytes)
    hours = row.matched_hours if not isinstance(row.matched_hours, float) else round(row.matched_hours)
    return [
        count(bytes_held, kind, reason),
        count(hours, kind, reason),
        Cell("–", Kind.UNDEFINED, NO_CACHE)
        if row.kept is None and row.net is not None
        else percent(row.kept, kind, reason),
        fraction(row.recalled, kind, reason),
        interval(row.recalled_low, row.recalled_high, kind, reason),
        fraction(row.ghost, kind, reason),
        interval(row.ghost_low, row.ghost_high, kind, reason),
        fraction(row.net, kind, reason, signed=True),
        interval(row.low, row.high, kind, reason, signed=True),
    ]


def delays(study: Study) -> list[int]:
    """The delays that were measured, ascending."""
    return sorted({row.delay for row in study.recall})


def tolerances(study: Study) -> list[float]:
    """The tolerances that were measured, ascending."""
    return sorted({row.tolerance for row in study.recall})


def recall_counts(study: Study) -> list[tuple[int, str, list[Cell]]]:
    """Stays, patients, hours, event hours, measured ones and hours asked, for every delay and kind of event hour."""
    kind, found = kind_of(study), []
    for delay in delays(study):
        for events, words in (("all", "all event hours"), ("measured", "measured only")):
            rows = [row for row in study.recall if (row.delay, row.events) == (delay, events)]
            if rows:
                row = rows[0]
                sizes = (row.stays, row.patients, row.hours, row.event_hours, row.measured_event_hours, row.asked)
                found.append((delay, words, [count(size, kind) for size in sizes]))
    return found


def net_table(study: Study, events: str) -> Table:
    """Net recall of every memory at every delay and tolerance, on one kind of event hour."""
    kind = kind_of(study)
    rows = [row for row in study.recall if row.events == events]
    groups = [RecallGroup(heading, _net_lines(study, members, kind)) for heading, members in _by_budget(rows)]
    return Table(groups, notes(cell for group in groups for *_, cells in group.rows for cell in cells))


def _net_lines(study: Study, rows: Sequence[RecallRow], kind: Kind) -> list[tuple[str, str, list[Cell]]]:
    found = {(row.memory, row.size, row.delay, row.tolerance): row for row in rows}
    lines = []
    for memory, size in dict.fromkeys((row.memory, row.size) for row in rows):
        cells = []
        for delay in delays(study):
            for tolerance in tolerances(study):
                row = found.get((memory, size, delay, tolerance))
                reason = plain((row and row.reason) or "the run holds no such row")
                cells.append(fraction(row.net if row else None, kind, reason, signed=True))
        lines.append((memory_name(rows[0], memory), plain(size), cells))
    return lines


def _chosen(rows: Sequence[RecallRow], delay: int, tolerance: float, events: str) -> list[RecallRow]:
    return [row for row in rows if (row.delay, row.tolerance, row.events) == (delay, tolerance, events)]


def _by_budget(rows: Sequence[RecallRow]) -> list[tuple[str, list[RecallRow]]]:
    groups: dict[str, list[RecallRow]] = {}
    for row in rows:
        size = f" of {row.budget_bytes:,} bytes" if row.budget_bytes is not None else ""
        groups.setdefault(f"{plain(row.budget)}{size}".capitalize(), []).append(row)
    return list(groups.items())


def memory_name(row: RecallRow, memory: str | None = None) -> str:
    """A memory in words, with its ridge where it has one."""
    first, *more = (memory or row.memory).split(" ")
    name = MEMORIES.get(first, plain(first))
    return f"{name} {plain(' '.join(more))}" if more else name


def _number(value: Value) -> float:
    return float(value) if isinstance(value, float | int) else float("-inf")


def tasks_table(study: Study) -> Table:
    """Each synthetic task with its policies: ours with interval, published, and whether it was reproduced."""
    groups: dict[tuple[str, str], list[tuple[str, str, list[Cell]]]] = {}
    for row in study.tasks:
        about = f"{plain(row.conditions)}; {row.trials:,} draws; {plain(row.source)}"
        groups.setdefault((plain(row.task), about), []).append((plain(row.policy), plain(row.status), _task_cells(row)))
    rows = [(task, about, lines) for (task, about), lines in groups.items()]
    return Table(rows, notes(cell for *_, lines in rows for *_, cells in lines for cell in cells))


def _task_cells(row: TaskRow) -> list[Cell]:
    reason = plain(row.reason or "not reported by the run")
    return [
        as_published(row.published, "the publication does not print it"),
        fraction(row.value, Kind.MEASURED, reason),
        interval(row.low, row.high, Kind.MEASURED, reason),
    ]
