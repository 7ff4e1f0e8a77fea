"""Small counts in the measures beside retention: budget curves and net recall.

The rules are those of `reports.html.suppression`: a count of 1 to 10 leaves with what would reveal it. Stays and
patients of these measures nest in the cohort and in the stays with an event of the same vital; a count that leaves 1 to
10 of one of them is withheld, and every figure computed on 1 to 10 stays or patients with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from reports.html.model import HIDDEN, Count, CurveRow, Hidden, OptionalCount, RecallRow, Study

Small = Callable[[int], bool]
Chain = Callable[[Sequence[tuple[int, Sequence[int]]]], tuple[bool, ...]]


def hidden_curves(study: Study, is_small: Small, hide_in_chain: Chain) -> tuple[CurveRow, ...]:
    """The budget curves without small counts and without figures computed on few stays or patients."""
    return tuple(_curve(study, row, is_small, hide_in_chain) for row in study.curves)


def _curve(study: Study, row: CurveRow, is_small: Small, chain: Chain) -> CurveRow:
    stays, patients = (
        chain(_nested(study, unit, row.channel, [count], row.events))[-1]
        for unit, count in (("stays", row.stays), ("patients", row.patients))
    )
    shown = replace(
        row,
        stays=HIDDEN if stays else row.stays,
        patients=HIDDEN if patients else row.patients,
        event_hours=_hours(row.event_hours, is_small),
        measured_event_hours=_part(row.measured_event_hours, row.event_hours, is_small),
    )
    if not (is_small(_size(row.stays)) or is_small(_size(row.patients))):
        return shown
    return replace(shown, retention=HIDDEN, retrieval=HIDDEN, budget=HIDDEN, low=HIDDEN, high=HIDDEN)


def hidden_recall(study: Study, is_small: Small, hide_in_chain: Chain) -> tuple[RecallRow, ...]:
    """Net recall without small counts and without figures computed on few stays or patients."""
    gone = {unit: _recall_hidden(study, unit, hide_in_chain) for unit in ("stays", "patients")}
    return tuple(_recall(row, gone, is_small) for row in study.recall)


_Place = tuple[str, str, int]  # channel, kind of event hours, delay


def _recall_hidden(study: Study, unit: str, chain: Chain) -> frozenset[_Place]:
    """Which numbers of stays or patients to withhold; longer delays nest in shorter ones, measured hours in all."""
    sizes: dict[_Place, Count] = {(r.channel, r.events, r.delay): getattr(r, unit) for r in study.recall}
    hidden: set[_Place] = set()
    for channel in sorted({channel for channel, *_ in sizes}):
        places = sorted((place for place in sizes if place[0] == channel), key=lambda place: place[1:])
        nested = _nested(study, unit, channel, [sizes[place] for place in places], "all")
        hidden |= {place for place, gone in zip(places, chain(nested)[-len(places) :], strict=True) if gone}
    return frozenset(hidden)


def _nested(
    study: Study, unit: str, channel: str, counts: Sequence[Count], events: str
) -> list[tuple[int, Sequence[int]]]:
    """The cohort, the stays with such an event in the retention tables, then these counts, each in all before it."""
    wide = [study.attrition[unit].used] if unit in study.attrition else []  # type: ignore[index]
    wide += [
        size
        for size in dict.fromkeys(
            getattr(row, unit) for row in study.retention if row.channel == channel and row.events in ("all", events)
        )
        if not isinstance(size, Hidden)
    ]
    sizes = [_size(count) for count in (*wide, *counts)]
    own = range(len(wide), len(sizes))
    return [(size, list(range(n)) if n in own else []) for n, size in enumerate(sizes)]


def _recall(row: RecallRow, gone: dict[str, frozenset[_Place]], is_small: Small) -> RecallRow:
    place = (row.channel, row.events, row.delay)
    stays, patients = (place in gone[unit] for unit in ("stays", "patients"))
    event_hours = _part(row.event_hours, row.hours, is_small)
    shown = replace(
        row,
        stays=HIDDEN if stays else row.stays,
        patients=HIDDEN if patients else row.patients,
        hours=HIDDEN if is_small(_size(row.hours)) else row.hours,
        event_hours=HIDDEN if event_hours is None or isinstance(event_hours, Hidden) else event_hours,
        measured_event_hours=_kept(_part(row.measured_event_hours, row.event_hours, is_small)),
        asked=_kept(_part(row.asked, row.event_hours, is_small)),
    )
    if not (is_small(_size(row.stays)) or is_small(_size(row.patients))):
        return shown
    nothing = dict.fromkeys(_FIGURES, HIDDEN)
    return replace(shown, **nothing)  # type: ignore[arg-type]


_FIGURES = (
    *("recalled", "ghost", "net", "low", "high", "recalled_low", "recalled_high", "ghost_low", "ghost_high", "kept"),
    *("state_bytes", "matched_hours"),
)


def _size(count: OptionalCount) -> int:
    return 1 if isinstance(count, Hidden) else count or 0


def _hours(count: OptionalCount, is_small: Small) -> OptionalCount:
    return HIDDEN if isinstance(count, int) and is_small(count) else count


def _part(count: OptionalCount, total: OptionalCount, is_small: Small) -> OptionalCount:
    """A part of a total is withheld where it or the rest is 1 to 10."""
    small = is_small(_size(count)) or is_small(abs(_size(total) - _size(count)))
    return HIDDEN if count is not None and small else count


def _kept(count: OptionalCount) -> Count:
    return HIDDEN if count is None else count
