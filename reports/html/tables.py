"""The printed tables: records in which small counts are gone become rows of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reports.html.model import AuditRow, ContrastRow, PublishedRow, RetentionRow, Study, Value
from reports.html.numbers import Cell, Kind, as_published, count, fraction, interval, percent, plain, scientific
from reports.html.shared import FEW_GROUPS, NO_EVENT, NOT_GIVEN, NOT_REPORTED, Table, kind_of, notes, verdict_word
from reports.html.words import CHANNEL_ORDER, OTHER_POLICIES, POLICIES, POLICY_ORDER, UNITS, channel_name, order


def coverage_table(study: Study) -> Table:
    """Hours, charted hours, event hours and charted event hours of each vital."""
    kind, rows = kind_of(study), []
    for row in study.coverage:
        cells = [count(row.hours, kind), count(row.measured_hours, kind), percent(row.measured_share, kind)]
        events = [
            count(row.event_hours, kind, "no threshold is declared for this vital"),
            count(row.measured_event_hours, kind, "no threshold is declared for this vital"),
        ]
        rows.append((channel_name(row.channel), [*cells, *events, count(row.stays_without, kind)]))
    return Table(rows, notes(cell for _, cells in rows for cell in cells))


@dataclass(frozen=True)
class RetentionGroup:
    """All policies on one event definition under one protocol, with the counts they share."""

    channel: str
    definition: str
    counts: Sequence[tuple[str, Cell, Cell]]
    measured_share: Cell
    rows: Sequence[tuple[str, str, Sequence[Cell]]]


def retention_table(study: Study, protocol: str) -> Table:
    """Budget, retention, interval and retrieval of every policy, on all and on measured event hours."""
    rows = [row for row in study.retention if row.protocol == protocol]
    channels = order((row.channel for row in rows), CHANNEL_ORDER)
    groups = [_retention_group(study, [row for row in rows if row.channel == channel]) for channel in channels]
    cells = [cell for group in groups for _, _, row in group.rows for cell in row]
    cells += [cell for group in groups for _, stays, patients in group.counts for cell in (stays, patients)]
    return Table(groups, notes([*cells, *(group.measured_share for group in groups)]))


def _retention_group(study: Study, rows: Sequence[RetentionRow]) -> RetentionGroup:
    kind, first = kind_of(study), {row.events: row for row in reversed(rows)}
    counts = [
        (words, count(first[events].stays, kind), count(first[events].patients, kind))
        for events, words in (("all", "all event hours"), ("measured", "measured only"))
        if events in first
    ]
    found = {(row.policy, row.events): row for row in rows}
    table = [
        (
            plain(policy),
            plain(rows[0].protocol),
            [cell for events in ("all", "measured") for cell in _retention_cells(found.get((policy, events)), kind)],
        )
        for policy in order((row.policy for row in rows), POLICY_ORDER)
    ]
    channel = rows[0].channel
    return RetentionGroup(
        channel_name(channel),
        plain(study.events.get(channel, "")),
        counts,
        percent(rows[0].measured_share, kind),
        table,
    )


def _retention_cells(row: RetentionRow | None, kind: Kind) -> list[Cell]:
    if row is None:
        return [Cell("not defined", Kind.UNDEFINED, "the run holds no such row")] * 4
    absent = NO_EVENT if row.stays == 0 else None
    reason = plain(row.reason or absent or NOT_REPORTED)
    ends = interval(row.low, row.high, kind, plain(row.reason or absent or FEW_GROUPS))
    return [
        percent(row.budget, kind, reason),
        fraction(row.retention, kind, reason),
        ends,
        fraction(row.retrieval, kind, reason),
    ]


def contrast_table(study: Study, protocol: str) -> Table:
    """Every paired difference, by patient and by stay side by side, grouped by event definition."""
    rows = [row for row in study.contrasts if row.protocol == protocol]
    channels = order((row.channel for row in rows), CHANNEL_ORDER)
    groups = [
        (channel_name(channel), _contrast_lines([row for row in rows if row.channel == channel], kind_of(study)))
        for channel in channels
    ]
    return Table(groups, notes(cell for _, lines in groups for *_, cells in lines for cell in cells))


def _contrast_lines(rows: Sequence[ContrastRow], kind: Kind) -> list[tuple[str, str, list[Cell]]]:
    found = {(row.events, row.left, row.right, row.unit): row for row in rows}
    rights = order((row.right for row in rows), POLICY_ORDER)
    lines = []
    for events, left, right in sorted(
        {(e, a, b) for e, a, b, _ in found}, key=lambda name: (name[0], rights.index(name[2]), name)
    ):
        by_patient, by_stay = found.get((events, left, right, "patient")), found.get((events, left, right, "stay"))
        word = verdict_word(by_patient) if by_patient else "not defined"
        name = f"{plain(left)} − {plain(right)}" + (", measured only" if events == "measured" else "")
        lines.append((name, word, [*_contrast_cells(by_patient, kind), *_contrast_cells(by_stay, kind)]))
    return lines


def _contrast_cells(row: ContrastRow | None, kind: Kind) -> list[Cell]:
    if row is None:
        return [Cell("not defined", Kind.UNDEFINED, "the run holds no such row")] * 3
    reason = plain(row.reason or FEW_GROUPS)
    ends = interval(row.low, row.high, kind, reason, signed=True)
    return [fraction(row.mean, kind, reason, signed=True), ends, count(row.groups, kind)]


def published_table(study: Study) -> Table:
    """Published figures, each with our own of the same protocol, channel, policy and measure where one exists."""
    groups: dict[str, list[tuple[str, list[Cell], list[Cell]]]] = {}
    for row in study.published:
        place = f"{channel_name(row.channel)}|protocol {plain(row.protocol)}; {plain(row.source)}; {plain(row.cohort)}"
        groups.setdefault(place, []).append((_measure(row), _published_cells(row), _ours(study, row)))
    return Table(
        [(*place.split("|", 1), lines) for place, lines in groups.items()],
        notes(cell for lines in groups.values() for _, theirs, ours in lines for cell in (*theirs, *ours)),
    )


def _measure(row: PublishedRow) -> str:
    if row.right is None:
        return f"{row.measure}, {plain(row.policy)}"
    return f"{plain(row.policy)} − {plain(row.right)}" + (f", {UNITS[row.unit]}" if row.unit else "")


def _published_cells(row: PublishedRow) -> list[Cell]:
    signed, absent = row.right is not None, NOT_GIVEN
    low, high = as_published(row.low, absent, signed=signed), as_published(row.high, absent, signed=signed)
    ends = low if low.kind is Kind.UNDEFINED else Cell(f"{low.text} to {high.text}", Kind.PUBLISHED)
    budget = percent(row.budget, Kind.PUBLISHED, absent)
    cells = [
        budget,
        as_published(row.value, absent, signed=signed),
        ends,
        count(row.stays or row.groups, Kind.PUBLISHED, absent),
    ]
    return _given(cells)


def _given(cells: Sequence[Cell]) -> list[Cell]:
    """What a publication leaves out is not given, rather than not defined."""
    return [replace(cell, text="not given") if cell.kind is Kind.UNDEFINED else cell for cell in cells]


def _ours(study: Study, row: PublishedRow) -> list[Cell]:
    kind = kind_of(study)
    same = [
        r
        for r in study.retention
        if (r.protocol, r.channel, r.policy, r.events) == (row.protocol, row.channel, row.policy, "all")
    ]
    ours = same[0] if same else None
    absent = "this run did not measure it"
    budget = percent(ours.budget if ours else None, kind, absent)
    stays = count(ours.stays if ours else None, kind, absent)
    if row.right is None:
        value: Value = None if ours is None else ours.retention if row.measure == "retention" else ours.retrieval
        low, high = (ours.low, ours.high) if ours and row.measure == "retention" else (None, None)
        return [budget, fraction(value, kind, absent), interval(low, high, kind, absent), stays]
    pairs = [
        c
        for c in study.contrasts
        if (c.protocol, c.channel, c.left, c.right, c.unit, c.events)
        == (row.protocol, row.channel, row.policy, row.right, row.unit or "stay", "all")
    ]
    pair = pairs[0] if pairs else None
    if pair is None:
        return [budget, *[Cell("not defined", Kind.UNDEFINED, absent)] * 2, stays]
    return [
        budget,
        fraction(pair.mean, kind, absent, signed=True),
        interval(pair.low, pair.high, kind, FEW_GROUPS, signed=True),
        stays,
    ]


def audit_table(study: Study) -> Table:
    """The deletion audit: per regime our row and, where one exists, the published one."""
    groups = [(plain(row.title or row.regime), _audit_about(row), _audit_lines(row)) for row in study.audit]
    return Table(groups, notes(cell for *_, lines in groups for _, cells in lines for cell in cells))


def _audit_about(row: AuditRow) -> str:
    """How the memory was built, the target, the paths that the deletions took and what failed."""
    taken = {
        "reserve": row.path_reserve,
        "walk": row.path_walk,
        "repaired": row.path_repaired,
        "re-solved": row.path_resolved,
    }
    parts = [f"built by {plain(row.built)}"] if row.built else []
    if row.target is not None:
        met = "" if row.within_target is None else f", met by {row.within_target:,}"
        parts.append(f"target {scientific(row.target, Kind.MEASURED).text}{met}")
    parts += [f"paths: {', '.join(f'{path} {n:,}' for path, n in taken.items() if n)}"] if any(taken.values()) else []
    failed = ", ".join(f"{plain(reason)} {n:,}" for reason, n in sorted(row.failures.items()))
    return "; ".join([*parts, f"failures: {failed or 'none'}"])


def _audit_lines(row: AuditRow) -> list[tuple[str, list[Cell]]]:
    ours = _audit_cells(
        Kind.MEASURED,
        (row.completed, row.attempted),
        (row.absolute_median, row.absolute_mean, row.absolute_worst, row.error_worst),
        row.partition_agreement,
        row.decay_median,
        row.covered,
    )
    if row.published_attempted is None:
        return [("ours", ours)]
    theirs = _audit_cells(
        Kind.PUBLISHED,
        (row.published_completed, row.published_attempted),
        (row.published_error_median, row.published_error_mean, row.published_error_worst, None),
        row.published_partition_agreement,
        row.published_decay_median,
        None,
    )
    return [("ours", ours), ("published", theirs)]


def _audit_cells(
    kind: Kind,
    trials: tuple[int | None, int | None],
    errors: Sequence[float | None],
    agreement: float | None,
    decay: float | None,
    covered: int | None,
) -> list[Cell]:
    absent = NOT_GIVEN if kind is Kind.PUBLISHED else NOT_REPORTED
    cells = [count(n, kind, absent) for n in trials]
    cells += [scientific(error, kind, absent) for error in errors]
    cells += [percent(agreement, kind, absent), scientific(decay, kind, absent), count(covered, kind, absent)]
    return _given(cells) if kind is Kind.PUBLISHED else cells


def policies_explained(study: Study) -> list[tuple[str, str]]:
    """The policies compared in every report and what they keep, then the others that this study has."""
    there = {row.policy for row in study.retention}
    return [*POLICIES.items(), *((name, text) for name, text in OTHER_POLICIES.items() if name in there)]


MEMORY_WORDS = {
    "vla": "VLA, least squares",
    "nc01": "NC01, protected reads",
    "wards": "Wards, support-vector memories that patients share",
    "active": "Stay-hours with a coefficient above zero",
    "hot": "Stay-hours in the solver's arrays, the others kept cold",
    "collecting": "Stays in wards too small for a gate",
    "bound": "Worst certified bound on the error of a score",
    "written": "Stay-hours written",
    "shortened": "Stay-hours longer than any of training, shortened",
    "protected": "Stay-hours protected when the stays ended",
    "offer_admitted": "Offers admitted",
    "offer_none": "Half days without an offer",
    "offer_gram": "Offers refused: too like a protected hour",
    "offer_full": "Offers refused: no free slot",
    "offer_norm": "Offers refused: norm",
    "offer_invalid": "Offers refused: not a number or too long",
    "offer_verify": "Offers refused: not verified on the stored numbers",
    "retained_error": "Worst distance of a state to a fresh fit of its hours",
    "protected_error": "Worst distance of a protected read to its value, in the largest training norm",
}


def memory_tables(study: Study) -> list[tuple[str, str, Table]]:
    """The memories other than the gate: name, what a deletion may claim, counts and worst measures."""
    kind = kind_of(study)
    found = []
    for row in study.memories:
        cells = [("Stay-hours streamed", count(row.tokens, kind))]
        cells += [(plain(MEMORY_WORDS.get(name, name)), count(n, kind)) for name, n in sorted(row.counts.items())]
        cells += [(plain(MEMORY_WORDS.get(name, name)), scientific(x, kind)) for name, x in sorted(row.worst.items())]
        table = Table(cells, notes(cell for _, cell in cells))
        found.append((plain(MEMORY_WORDS.get(row.name, row.name)), plain(row.deletion), table))
    return found


def streaming_table(study: Study) -> Table:
    """What the streamed memories took in and hold."""
    facts = study.streaming
    if facts is None:
        return Table((), ())
    kind = kind_of(study)
    rows = [
        ("Stays streamed", count(facts.stays, kind)),
        ("Patients", count(facts.patients, kind)),
        ("Stay-hours admitted", count(facts.tokens, kind)),
        ("Stay-hours held when the stays ended", count(facts.retained, kind)),
    ]
    rows += [(f"Admitted by the path “{plain(path)}”", count(n, kind)) for path, n in sorted(facts.paths.items())]
    rows.append(("Worst certified bound on the error of a score", scientific(facts.score_bound, kind)))
    return Table(rows, notes(cell for _, cell in rows))
