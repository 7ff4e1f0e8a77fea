"""Small counts leave the report together with everything they could be worked out from.

A count of 1 to 10 is replaced by `HIDDEN` before anything is drawn, so no template, figure or sentence can print it.
Besides the count itself go

* complements: where a total and its parts are both shown, a part is withheld when the rest of the total is 1 to 10;
* sums: where the withheld cells could be solved from the shown ones, another shown cell is withheld as well;
* the same count elsewhere: where the cohort flow withholds the used stays, no number of stays is shown at all;
* percentages, estimates and interval ends computed on 1 to 10 stays or patients.

No smallest or largest value of a single stay is ever part of the input. Zero is shown: it names nobody. Differences
between the number of stays and the number of patients are shown, as published tables do. Audit trials are synthetic
and are not counts of anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from reports.html.model import (
    HIDDEN,
    ContrastRow,
    Count,
    CoverageRow,
    Hidden,
    Level,
    LevelName,
    MemoryRow,
    OptionalCount,
    RetentionRow,
    Streaming,
    Study,
)
from reports.html.suppression_measures import hidden_curves, hidden_recall

SMALLEST_SHOWN = 11


def is_small(count: int) -> bool:
    """True for 1 to 10."""
    return 0 < count < SMALLEST_SHOWN


def hide_in_total(total: int, parts: Mapping[str, int], *, last: str | None = None) -> frozenset[str]:
    """Return the parts of `total` to withhold, given that `total` itself is shown and is the sum of the parts.

    Cells of 1 to 10 go first. While the withheld cells can be solved from the rest (one cell alone, or several that
    must all be 1 or all be 10), another non-zero cell goes too, chosen by name: a choice by size would give sizes
    away. `last` (the remainder that readers need most) is taken only when nothing else is left. All withheld cells
    look alike.
    """
    if is_small(total):
        return frozenset(name for name, count in parts.items() if count)
    hidden = {name for name, count in parts.items() if is_small(count)}
    spare = sorted((name == last, name) for name, count in parts.items() if count and name not in hidden)
    while hidden and spare and _is_certain([parts[name] for name in hidden]):
        hidden.add(spare.pop(0)[1])
    return frozenset(hidden)


def _is_certain(withheld: Sequence[int]) -> bool:
    """One cell follows by subtraction; several follow where their known sum leaves each of them one value."""
    return len(withheld) == 1 or sum(withheld) in {len(withheld), (SMALLEST_SHOWN - 1) * len(withheld)}


def hide_in_chain(counts: Sequence[tuple[int, Sequence[int]]]) -> tuple[bool, ...]:
    """Say which of several nested counts to withhold.

    counts: per count its size and the positions of earlier counts that it is a subset of. A count is withheld when it
    is 1 to 10 or when it leaves 1 to 10 of an earlier count that is shown.
    """
    hidden: list[bool] = []
    for size, supersets in counts:
        rests = (abs(counts[other][0] - size) for other in supersets if not hidden[other])
        hidden.append(is_small(size) or any(map(is_small, rests)))
    return tuple(hidden)


def hide_in_table(total: int, first: int, second: int, both: int) -> frozenset[str]:
    """Return which of "first", "second" and "both" to withhold of two overlapping properties of `total` things.

    The four inner cells (both, only first, only second, neither) and the margins can be worked out only where they are
    0 or above 10.
    """
    if is_small(total):
        return frozenset({"first", "second", "both"})
    margin = {name for name, size in (("first", first), ("second", second)) if is_small(size) or is_small(total - size)}
    inner = (both, first - both, second - both, total - first - second + both)
    return frozenset(margin | ({"both"} if any(map(is_small, inner)) else set()))


def suppress(study: Study) -> Study:
    """Replace every small count, and what would reveal it, by HIDDEN; with show_records nothing is replaced."""
    if study.show_records:
        return study
    coverage = tuple(_coverage(row, study.attrition["stays"].used) for row in study.coverage)
    filled = frozenset(
        row.channel for row in coverage if Hidden in map(type, (row.event_hours, row.measured_event_hours))
    )
    counts = _Family.of(study)
    return replace(
        study,
        source=replace(study.source, observed_rows=_hide(study.source.observed_rows)),
        attrition={name: _level(level) for name, level in study.attrition.items()},
        coverage=coverage,
        retention=tuple(_retention(row, counts, filled) for row in study.retention),
        contrasts=tuple(_contrast(row, counts) for row in study.contrasts),
        curves=hidden_curves(study, is_small, hide_in_chain),
        recall=hidden_recall(study, is_small, hide_in_chain),
        streaming=_streaming(study.streaming, counts),
        memories=[_memory(row) for row in study.memories],
    )


def _hide(count: OptionalCount) -> OptionalCount:
    return HIDDEN if isinstance(count, int) and is_small(count) else count


def _size(count: OptionalCount) -> int:
    """A count that is missing or was withheld before has size 0 or 1: a withheld one stays withheld."""
    return 1 if isinstance(count, Hidden) else count or 0


def _hidden_parts(level: Level) -> frozenset[str | None]:
    """The reasons whose counts are withheld, and None where the used count is."""
    names = {f"{n} {name}": name for n, name in enumerate(sorted(level.left_out))}
    parts = {"used": _size(level.used), **{key: _size(level.left_out[name]) for key, name in names.items()}}
    return frozenset(names.get(key) for key in hide_in_total(_size(level.source), parts, last="used"))


def _level(level: Level) -> Level:
    hidden = _hidden_parts(level)
    return Level(
        source=HIDDEN if is_small(_size(level.source)) else level.source,
        used=HIDDEN if None in hidden else level.used,
        left_out={name: HIDDEN if name in hidden else count for name, count in level.left_out.items()},
    )


def _coverage(row: CoverageRow, stays: Count) -> CoverageRow:
    hours, measured = _size(row.hours), _size(row.measured_hours)
    hidden = hide_in_table(hours, measured, _size(row.event_hours), _size(row.measured_event_hours))
    without = _size(row.stays_without)
    return replace(
        row,
        hours=HIDDEN if is_small(hours) else row.hours,
        measured_hours=HIDDEN if "first" in hidden else row.measured_hours,
        measured_share=HIDDEN if "first" in hidden else row.measured_share,
        event_hours=HIDDEN if "second" in hidden and row.event_hours is not None else row.event_hours,
        measured_event_hours=HIDDEN
        if "both" in hidden and row.measured_event_hours is not None
        else row.measured_event_hours,
        stays_without=HIDDEN
        if is_small(without) or (without and is_small(_size(stays) - without))
        else row.stays_without,
    )


_Key = tuple[str, str, str, str]  # unit, protocol, channel, events


@dataclass(frozen=True)
class _Family:
    """The nested numbers of stays and of patients over all channels, and which of them are withheld."""

    small: frozenset[_Key]
    hidden: frozenset[_Key]

    @classmethod
    def of(cls, study: Study) -> _Family:
        """Order the counts from the widest (the cohort) to the narrowest (measured events of one channel)."""
        small: set[_Key] = set()
        hidden: set[_Key] = set()
        for unit, level in _UNITS.items():
            sizes = _group_sizes(study, unit)
            keys = sorted(sizes, key=_breadth)
            chain = [
                (sizes[key], [i for i, other in enumerate(keys[:n]) if _contains(other, key)])
                for n, key in enumerate(keys)
            ]
            gone = hide_in_chain(chain)
            if level in study.attrition and None in _hidden_parts(study.attrition[level]):
                gone = (True,) * len(keys)  # any of them would bound the used count from below
            hidden |= set(compress(keys, gone))
            small |= {key for key in keys if is_small(sizes[key])}
        return cls(frozenset(small), frozenset(hidden))


_UNITS: dict[str, LevelName] = {"stay": "stays", "patient": "patients"}


def _group_sizes(study: Study, unit: str) -> dict[_Key, int]:
    """Collect every count of stays or patients that the report would print; the key tells how they nest."""
    sizes: dict[_Key, int] = {}
    if _UNITS[unit] in study.attrition:
        sizes[(unit, "", "cohort", "all")] = _size(study.attrition[_UNITS[unit]].used)
    if study.streaming is not None:
        held = study.streaming.stays if unit == "stay" else study.streaming.patients
        sizes[(unit, "streamed", "cohort", "all")] = _size(held)
    for row in study.retention:
        sizes[(unit, row.protocol, row.channel, row.events)] = _size(row.stays if unit == "stay" else row.patients)
    for contrast in study.contrasts:
        if contrast.unit == unit:
            sizes.setdefault((unit, contrast.protocol, contrast.channel, contrast.events), _size(contrast.groups))
    return sizes


def _breadth(key: _Key) -> tuple[int, str, int, str]:
    _, protocol, channel, events = key
    return {"cohort": 0, "composite": 1}.get(channel, 2), channel, int(events == "measured"), protocol


def _contains(wide: _Key, narrow: _Key) -> bool:
    """True where everyone counted in `narrow` may be taken to be counted in `wide` too."""
    return wide[2] in {"cohort", "composite", narrow[2]}


def _retention(row: RetentionRow, counts: _Family, filled: Collection[str]) -> RetentionRow:
    keys = {unit: (unit, row.protocol, row.channel, row.events) for unit in ("stay", "patient")}
    shown = replace(
        row,
        stays=HIDDEN if keys["stay"] in counts.hidden else row.stays,
        patients=HIDDEN if keys["patient"] in counts.hidden else row.patients,
        measured_share=HIDDEN if row.channel in filled and row.measured_share is not None else row.measured_share,
    )
    if not any(key in counts.small for key in keys.values()):
        return shown
    return replace(
        shown, retention=HIDDEN, retrieval=HIDDEN, budget=HIDDEN, measured_share=HIDDEN, low=HIDDEN, high=HIDDEN
    )


def _contrast(row: ContrastRow, counts: _Family) -> ContrastRow:
    keys = {unit: (unit, row.protocol, row.channel, row.events) for unit in ("stay", "patient")}
    shown = replace(row, groups=HIDDEN if keys[row.unit] in counts.hidden else row.groups)
    if not any(key in counts.small for key in keys.values()):
        return shown
    return replace(shown, mean=HIDDEN, low=HIDDEN, high=HIDDEN)


def _streaming(facts: Streaming | None, counts: _Family) -> Streaming | None:
    if facts is None:
        return None
    paths = hide_in_total(_size(facts.tokens), {name: _size(count) for name, count in facts.paths.items()})
    return replace(
        facts,
        stays=HIDDEN if ("stay", "streamed", "cohort", "all") in counts.hidden else facts.stays,
        patients=HIDDEN if ("patient", "streamed", "cohort", "all") in counts.hidden else facts.patients,
        tokens=HIDDEN if is_small(_size(facts.tokens)) else facts.tokens,
        retained=HIDDEN if is_small(_size(facts.tokens) - _size(facts.retained)) else _keep(facts.retained),
        paths={name: HIDDEN if name in paths else count for name, count in facts.paths.items()},
    )


def _memory(row: MemoryRow) -> MemoryRow:
    """Offers are hidden with what would reveal a small one; stays and patients are those of the gate and not shown."""
    offers = {name: _size(count) for name, count in row.counts.items() if name.startswith("offer_")}
    hidden = hide_in_total(sum(offers.values()), offers)
    rests = {name for name in ("active", "hot") if is_small(_size(row.tokens) - _size(row.counts.get(name)))}
    shown = {name: HIDDEN if name in hidden | rests else _keep(count) for name, count in row.counts.items()}
    return replace(row, stays=HIDDEN, patients=HIDDEN, tokens=_keep(row.tokens), counts=shown)


def _keep(count: Count) -> Count:
    return HIDDEN if is_small(_size(count)) else count


__all__ = ["SMALLEST_SHOWN", "hide_in_chain", "hide_in_table", "hide_in_total", "is_small", "suppress"]
