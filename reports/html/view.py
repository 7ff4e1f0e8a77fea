"""From records to what the templates print: cells, rows and sentences. Input: records in which small counts are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.html import figures
from reports.html.model import ContrastRow, Hidden, LevelName, PublishedRow, RetentionRow, Setting, Study, Value
from reports.html.numbers import Cell, Kind, count, fraction, interval, percent, plain, scientific
from reports.html.words import CHANNELS, LEVELS, SHORT_CHANNELS, UNITS

FEW_GROUPS = "an interval needs at least two stays or patients"
NO_EVENT = "no stay has such an event hour"
NOT_REPORTED = "not reported by the run"


@dataclass(frozen=True)
class Tile:
    """One figure of the opening: a number and what it counts."""

    number: Cell
    label: str


@dataclass(frozen=True)
class Verdict:
    """How the support set fared against one policy on one event definition, resampled by patient."""

    right: str
    word: str
    mean: Cell
    interval: Cell


@dataclass(frozen=True)
class Board:
    """All verdicts of one protocol: a table of event definitions by policies, and the sentence that sums it up."""

    protocol: str
    budget: str
    rights: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Verdict | None]]]
    sentences: Sequence[str]


@dataclass(frozen=True)
class Figure:
    """A drawing in its two widths."""

    name: str
    wide: str
    narrow: str


@dataclass(frozen=True)
class Table:
    """Rows of one printed table and the reasons for its numbers that are hidden or not defined."""

    rows: Sequence[Any]
    notes: Sequence[str]


def kind_of(study: Study) -> Kind:
    """What our own numbers are: measured, or simulated when the patients are invented."""
    return Kind.SIMULATED if study.simulated else Kind.MEASURED


def tiles(study: Study) -> list[Tile]:
    """The counts a reader asks for first."""
    kind, levels = kind_of(study), study.attrition
    hours = max((row.hours for row in study.coverage if not isinstance(row.hours, Hidden)), default=None)
    found = [Tile(count(levels[name].used, kind), label) for name, label in _TILES.items() if name in levels]
    found.insert(2, Tile(count(hours, kind, "no coverage was given"), "stay-hours"))
    shares = [row.measured_share for row in study.coverage if isinstance(row.measured_share, float | int)]
    mean = sum(shares) / len(shares) if shares and len(shares) == len(study.coverage) else None
    return [*found, Tile(percent(mean, kind, "the coverage of a vital is hidden or missing"), "of vital-hours charted, the rest filled in")]


_TILES: dict[LevelName, str] = {"stays": "ICU stays", "patients": "patients", "rows": "charted readings used"}


def protocols(study: Study) -> list[str]:
    """The protocols of the study in a fixed order; they are never mixed."""
    return figures.order((row.protocol for row in study.retention), ("fixed-context", "streamed"))


def boards(study: Study) -> list[Board]:
    """One scoreboard per protocol, by patient, on all event hours."""
    return [_board(study, protocol) for protocol in protocols(study)]


def _board(study: Study, protocol: str) -> Board:
    kind = kind_of(study)
    rows = [row for row in study.contrasts if row.protocol == protocol and row.unit == "patient" and row.events == "all" and row.left == "svdd"]
    rights = figures.order((row.right for row in rows), figures.POLICY_ORDER)
    found = {(row.channel, row.right): _verdict(row, kind) for row in rows}
    channels = figures.order((row.channel for row in rows), figures.CHANNEL_ORDER)
    table = [(channel_name(channel), [found.get((channel, right)) for right in rights]) for channel in channels]
    budgets = [row.budget for row in study.retention if row.protocol == protocol and isinstance(row.budget, float | int)]
    sentences = [_sum_up(right, [(channel, found[channel, right]) for channel in channels if (channel, right) in found]) for right in rights]
    return Board(plain(protocol), _span(budgets, kind), [plain(right) for right in rights], table, sentences)


def _span(budgets: Sequence[float], kind: Kind) -> str:
    ends = [percent(end, kind).text for end in (min(budgets), max(budgets))] if budgets else ["not defined"]
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def _verdict(row: ContrastRow, kind: Kind) -> Verdict:
    reason = plain(row.reason or FEW_GROUPS)
    ends = interval(row.low, row.high, kind, reason, signed=True)
    return Verdict(plain(row.right), _word(row), fraction(row.mean, kind, reason, signed=True), ends)


def _word(row: ContrastRow) -> str:
    if not isinstance(row.low, float | int) or not isinstance(row.high, float | int):
        return "hidden" if isinstance(row.low, Hidden) else "not defined"
    return "wins" if row.low > 0 else "loses" if row.high < 0 else "unclear"


def _sum_up(right: str, verdicts: Sequence[tuple[str, Verdict]]) -> str:
    """One sentence against one policy, losses first: they are what a summary tends to leave out."""
    groups = {word: [_named(c, v) for c, v in verdicts if v.word == word] for word in ("loses", "wins", "unclear", "hidden", "not defined")}
    phrases = {
        "loses": "svdd loses on {}",
        "wins": "svdd keeps more on {}",
        "unclear": "the interval includes zero on {}",
        "hidden": "hidden on {}",
        "not defined": "not defined on {}",
    }
    parts = [phrases[word].format(_listed(names)) for word, names in groups.items() if names]
    return f"Against {plain(right)}: " + "; ".join(parts) + "."


def _named(channel: str, verdict: Verdict) -> str:
    name = SHORT_CHANNELS.get(channel, plain(channel))
    return f"{name} ({verdict.mean.text}, {verdict.interval.text})" if verdict.word in {"loses", "wins", "unclear"} else name


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def channel_name(channel: str) -> str:
    """The full name of a channel."""
    return CHANNELS.get(channel, plain(channel))


def flows(study: Study) -> list[str]:
    """One panel per level of the attrition, readings last."""
    return [figures.flow(name, study.attrition[name], study.simulated) for name in LEVELS if name in study.attrition]


def coverage_figure(study: Study) -> Figure:
    """Charted against filled hours of each vital."""
    drawn = [figures.coverage(study.coverage, study.simulated, side) for side in figures.FOREST]
    return Figure("coverage", *drawn)


def forest_figure(study: Study, protocol: str) -> Figure:
    """Retention of every channel and policy under one protocol."""
    rows = [row for row in study.retention if row.protocol == protocol]
    return Figure(protocol, *(figures.forest(protocol, rows, study.simulated, side) for side in figures.FOREST))


def contrast_figure(study: Study, protocol: str) -> Figure:
    """Paired differences of one protocol on all event hours."""
    rows = [row for row in study.contrasts if row.protocol == protocol and row.events == "all"]
    return Figure(protocol, *(figures.contrasts(protocol, rows, study.simulated, side) for side in figures.FOREST))


def coverage_table(study: Study) -> Table:
    """Hours, charted hours, event hours and charted event hours of each vital."""
    kind, rows = kind_of(study), []
    for row in study.coverage:
        cells = [count(row.hours, kind), count(row.measured_hours, kind), percent(row.measured_share, kind)]
        events = [count(row.event_hours, kind, "no threshold is declared for this vital"),
                  count(row.measured_event_hours, kind, "no threshold is declared for this vital")]
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
    """Retention, interval and retrieval of every policy on all and on measured event hours; each row prints its budget."""
    rows = [row for row in study.retention if row.protocol == protocol]
    channels = figures.order((row.channel for row in rows), figures.CHANNEL_ORDER)
    groups = [_retention_group(study, [row for row in rows if row.channel == channel]) for channel in channels]
    cells = [cell for group in groups for _, _, row in group.rows for cell in row]
    cells += [cell for group in groups for _, stays, patients in group.counts for cell in (stays, patients)]
    return Table(groups, notes([*cells, *(group.measured_share for group in groups)]))


def _retention_group(study: Study, rows: Sequence[RetentionRow]) -> RetentionGroup:
    kind, first = kind_of(study), {row.events: row for row in reversed(rows)}
    counts = [
        (words, count(first[events].stays, kind), count(first[events].patients, kind))
        for events, words in (("all", "all event hours"), ("measured", "measured only")) if events in first
    ]
    found = {(row.policy, row.events): row for row in rows}
    table = [
        (plain(policy), plain(rows[0].protocol), [cell for events in ("all", "measured") for cell in _retention_cells(found.get((policy, events)), kind)])
        for policy in figures.order((row.policy for row in rows), figures.POLICY_ORDER)
    ]
    channel = rows[0].channel
    return RetentionGroup(channel_name(channel), plain(study.events.get(channel, "")), counts, percent(rows[0].measured_share, kind), table)


def _retention_cells(row: RetentionRow | None, kind: Kind) -> list[Cell]:
    if row is None:
        return [Cell("not defined", Kind.UNDEFINED, "the run holds no such row")] * 4
    absent = NO_EVENT if row.stays == 0 else None
    reason = plain(row.reason or absent or NOT_REPORTED)
    ends = interval(row.low, row.high, kind, plain(row.reason or absent or FEW_GROUPS))
    return [percent(row.budget, kind, reason), fraction(row.retention, kind, reason), ends, fraction(row.retrieval, kind, reason)]


def contrast_table(study: Study, protocol: str) -> Table:
    """Every paired difference, by patient and by stay side by side."""
    kind = kind_of(study)
    rows = [row for row in study.contrasts if row.protocol == protocol]
    found = {(row.channel, row.left, row.right, row.events, row.unit): row for row in rows}
    channels, policies = figures.order((r.channel for r in rows), figures.CHANNEL_ORDER), figures.POLICY_ORDER
    keys = sorted({key[:4] for key in found}, key=lambda k: (k[3], channels.index(k[0]), figures.order({*policies, k[2]}, policies).index(k[2]), k))
    table = []
    for channel, left, right, events, in keys:
        pair = [found.get((channel, left, right, events, unit)) for unit in UNITS.__reversed__()]
        word = _word(pair[0]) if pair[0] else "not defined"
        cells = [cell for row in pair for cell in _contrast_cells(row, kind)]
        table.append((channel_name(channel), f"{plain(left)} − {plain(right)}", events, word, cells))
    return Table(table, notes(cell for *_, cells in table for cell in cells))


def _contrast_cells(row: ContrastRow | None, kind: Kind) -> list[Cell]:
    if row is None:
        return [Cell("not defined", Kind.UNDEFINED, "the run holds no such row")] * 3
    reason = plain(row.reason or FEW_GROUPS)
    ends = interval(row.low, row.high, kind, reason, signed=True)
    return [fraction(row.mean, kind, reason, signed=True), ends, count(row.groups, kind)]


def published_table(study: Study) -> Table:
    """Published figures, each with our own of the same protocol, channel, policy and measure where one exists."""
    rows = [
        (channel_name(row.channel), _measure(row), plain(row.protocol), plain(f"{row.source}; {row.cohort}"), _published_cells(row), _ours(study, row))
        for row in study.published
    ]
    return Table(rows, notes(cell for *_, theirs, ours in rows for cell in (*theirs, *ours)))


def _measure(row: PublishedRow) -> str:
    if row.right is None:
        return f"{row.measure}, {plain(row.policy)}"
    return f"difference, {plain(row.policy)} − {plain(row.right)}" + (f", {UNITS[row.unit]}" if row.unit else "")


def _published_cells(row: PublishedRow) -> list[Cell]:
    kind, signed = Kind.PUBLISHED, row.right is not None
    return [
        percent(row.budget, kind, "not published"), fraction(row.value, kind, signed=signed),
        interval(row.low, row.high, kind, "not published", signed=signed), count(row.stays or row.groups, kind, "not published"),
    ]


def _ours(study: Study, row: PublishedRow) -> list[Cell]:
    kind = kind_of(study)
    same = [r for r in study.retention if (r.protocol, r.channel, r.policy, r.events) == (row.protocol, row.channel, row.policy, "all")]
    ours = same[0] if same else None
    absent = "this run did not measure it"
    budget = percent(ours.budget if ours else None, kind, absent)
    stays = count(ours.stays if ours else None, kind, absent)
    if row.right is None:
        value: Value = None if ours is None else ours.retention if row.measure == "retention" else ours.retrieval
        low, high = (ours.low, ours.high) if ours and row.measure == "retention" else (None, None)
        return [budget, fraction(value, kind, absent), interval(low, high, kind, absent), stays]
    pairs = [c for c in study.contrasts if (c.protocol, c.channel, c.left, c.right, c.unit, c.events)
             == (row.protocol, row.channel, row.policy, row.right, row.unit or "stay", "all")]
    pair = pairs[0] if pairs else None
    if pair is None:
        return [budget, *[Cell("not defined", Kind.UNDEFINED, absent)] * 2, stays]
    return [budget, fraction(pair.mean, kind, absent, signed=True), interval(pair.low, pair.high, kind, FEW_GROUPS, signed=True), stays]


def audit_table(study: Study) -> Table:
    """The deletion audit: our rows and the published ones under each regime."""
    rows = []
    for row in sorted(study.audit, key=lambda row: (row.regime, row.kind)):
        kind = Kind.PUBLISHED if row.kind == "published" else Kind.MEASURED
        cells = [count(row.attempted, kind), count(row.completed, kind)]
        cells += [scientific(value, kind, "not reported") for value in (row.error_median, row.error_mean, row.error_worst)]
        cells += [percent(row.partition_match, kind, "not reported"), scientific(row.decay_median, kind, "not reported")]
        failures = "; ".join(f"{plain(reason)}: {n:,}" for reason, n in sorted(row.failures.items())) or "none"
        rows.append((plain(row.regime), row.kind, [*cells, count(row.covered, kind, "not reported")], failures))
    return Table(rows, notes(cell for _, _, cells, _ in rows for cell in cells))


def streaming_table(study: Study) -> Table:
    """What the streamed memories took in and hold."""
    facts = study.streaming
    if facts is None:
        return Table((), ())
    kind = kind_of(study)
    rows = [("Stays streamed", count(facts.stays, kind)), ("Patients", count(facts.patients, kind)),
            ("Stay-hours admitted", count(facts.tokens, kind)), ("Stay-hours held when the stays ended", count(facts.retained, kind))]
    rows += [(f"Admitted by the path “{plain(path)}”", count(n, kind)) for path, n in sorted(facts.paths.items())]
    rows.append(("Worst certified bound on the error of a score", scientific(facts.score_bound, kind)))
    return Table(rows, notes(cell for _, cell in rows))


def flatten(settings: Mapping[str, Setting], prefix: str = "") -> list[tuple[str, str]]:
    """Settings as dotted names and printed values, sorted by name; paths and long numbers are left out of the page."""
    found: list[tuple[str, str]] = []
    for name in sorted(settings):
        value = settings[name]
        if isinstance(value, Mapping):
            found += flatten(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            found.append((plain(prefix + name), plain(", ".join(map(str, value))) or "none"))
        else:
            found.append((plain(prefix + name), _setting(value)))
    return found


def _setting(value: object) -> str:
    """Seeds have up to ten digits; anything longer may be an identifier."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not set"}[value]
    if isinstance(value, int):
        return str(value) if abs(value) < 2**32 else "[number not shown]"
    return plain(value)


def notes(cells: Iterable[Cell]) -> list[str]:
    """The distinct reasons of cells that are hidden or not defined, sorted; a cell refers to one by its letter."""
    return sorted({cell.note for cell in cells if cell.note})


def rows_observed(study: Study) -> Cell:
    """The chart rows that the source holds."""
    return count(study.source.observed_rows, kind_of(study), "not counted")


def rows_expected(study: Study) -> Cell:
    """The chart rows that a complete copy of the release holds."""
    return count(study.source.expected_rows, Kind.PUBLISHED, "the release is not recognised")


def rows_verdict(study: Study) -> str:
    """End the sentence about observed and expected rows."""
    observed, expected = study.source.observed_rows, study.source.expected_rows
    if expected is None or not isinstance(observed, int):
        return "."
    return ": all of it was loaded." if observed == expected else ": the source differs from the complete release."
