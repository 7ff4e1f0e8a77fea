"""The opening of the report: the counts a reader asks for first, and how the support set fared, losses included."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from reports.html.model import ContrastRow, Hidden, LevelName, RetentionRow, Study
from reports.html.numbers import Cell, Kind, count, fraction, interval, percent, percent_span, plain
from reports.html.shared import FEW_GROUPS, kind_of, protocols, shown_policies, verdict_word
from reports.html.words import CHANNEL_ORDER, POLICY_ORDER, channel_name, order, short_name


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
    finding: str
    kept: Sequence[str]
    sentences: Sequence[tuple[bool, str]]


def tiles(study: Study) -> list[Tile]:
    """The counts a reader asks for first."""
    kind, levels = kind_of(study), study.attrition
    hours = max((row.hours for row in study.coverage if not isinstance(row.hours, Hidden)), default=None)
    found = [Tile(count(levels[name].used, kind), label) for name, label in _TILES.items() if name in levels]
    found.insert(2, Tile(count(hours, kind, "no coverage was given"), "stay-hours"))
    shares = [row.measured_share for row in study.coverage if isinstance(row.measured_share, float | int)]
    mean = sum(shares) / len(shares) if shares and len(shares) == len(study.coverage) else None
    return [
        *found,
        Tile(
            percent(mean, kind, "the coverage of a vital is hidden or missing"),
            "of vital-hours charted, the rest filled in",
        ),
    ]


_TILES: dict[LevelName, str] = {"stays": "ICU stays", "patients": "patients", "rows": "charted readings used"}


def boards(study: Study) -> list[Board]:
    """One scoreboard per protocol, by patient, on all event hours."""
    return [_board(study, protocol) for protocol in protocols(study)]


def _board(study: Study, protocol: str) -> Board:
    kind, shown = kind_of(study), shown_policies(study, protocol)
    rows = [
        row
        for row in study.contrasts
        if row.protocol == protocol
        and row.unit == "patient"
        and row.events == "all"
        and row.left == "svdd"
        and row.right in shown
    ]
    rights = order((row.right for row in rows), POLICY_ORDER)
    found = {(row.channel, row.right): _verdict(row, kind) for row in rows}
    channels = order((row.channel for row in rows), CHANNEL_ORDER)
    table = [(channel_name(channel), [found.get((channel, right)) for right in rights]) for channel in channels]
    against = {
        right: [(channel, found[channel, right]) for channel in channels if (channel, right) in found]
        for right in rights
    }
    sentences = [_sum_up(right, verdicts) for right, verdicts in against.items()]
    sentences += _challengers(study, protocol, shown, kind)
    rows_of = [row for row in study.retention if row.protocol == protocol and row.policy in shown]
    return Board(
        plain(protocol),
        percent_span(row.budget for row in rows_of),
        list(map(plain, rights)),
        table,
        _finding(against),
        _kept(rows_of, kind),
        sentences,
    )


def _challengers(study: Study, protocol: str, shown: Collection[str], kind: Kind) -> list[tuple[bool, str]]:
    """How other selectors fared against the support set, one sentence each, where the run compared them so."""
    rows = [
        row
        for row in study.contrasts
        if (row.protocol, row.unit, row.events, row.right) == (protocol, "patient", "all", "svdd") and row.left in shown
    ]
    found = {(row.left, row.channel): _verdict(row, kind) for row in rows}
    channels = order((row.channel for row in rows), CHANNEL_ORDER)
    return [
        _sum_up("svdd", [(channel, found[left, channel]) for channel in channels if (left, channel) in found], left)
        for left in order((row.left for row in rows), POLICY_ORDER)
    ]


def _finding(against: Mapping[str, Sequence[tuple[str, Verdict]]]) -> str:
    """The whole comparison in one sentence, with its losses."""
    parts: list[str] = []
    for right, verdicts in against.items():
        words = [verdict.word for _, verdict in verdicts]
        judged = f"{sum(word in _JUDGED for word in words)}{'' if parts else ' kinds of event'}"
        parts.append(
            f"wins on {words.count('wins')} and loses on {words.count('loses')} of {judged} against {plain(right)}"
        )
    return f"By patient, svdd {_listed(parts)}." if parts else ""


_JUDGED = ("wins", "loses", "unclear")


def _kept(rows: Sequence[RetentionRow], kind: Kind) -> list[str]:
    """What every policy kept of the composite event hours (or of the first channel there is), all and measured."""
    sentences = []
    channel = order((row.channel for row in rows), CHANNEL_ORDER)[:1]
    for events, words in (
        ("all", "On average over stays, of the event hours by {},"),
        ("measured", "Of the measured ones alone,"),
    ):
        found = {row.policy: row for row in rows if [row.channel] == channel and row.events == events}
        parts = [f"{plain(name)} {percent(found[name].retention, kind).text}" for name in order(found, POLICY_ORDER)]
        if parts:
            name = "any vital (composite)" if channel == ["composite"] else channel_name(channel[0]).lower()
            sentences.append(
                f"{words.format(name)} {'they' if events == 'measured' else 'the policies'} kept: {_listed(parts)}."
            )
    return sentences


def _verdict(row: ContrastRow, kind: Kind) -> Verdict:
    reason = plain(row.reason or FEW_GROUPS)
    ends = interval(row.low, row.high, kind, reason, signed=True)
    return Verdict(plain(row.right), verdict_word(row), fraction(row.mean, kind, reason, signed=True), ends)


def _sum_up(right: str, verdicts: Sequence[tuple[str, Verdict]], left: str = "svdd") -> tuple[bool, str]:
    """One sentence against one policy, losses first, as summaries tend to leave them out; True where left loses."""
    phrases = {
        "loses": f"{plain(left)} loses on",
        "wins": f"{plain(left)} wins on",
        "unclear": "unclear on",
        "hidden": "hidden on",
        "not defined": "not defined on",
    }
    groups = {
        word: [_named(channel, verdict) for channel, verdict in verdicts if verdict.word == word] for word in phrases
    }
    parts = [f"{phrase} {_listed(groups[word])}" for word, phrase in phrases.items() if groups[word]]
    return bool(groups["loses"]), f"Against {plain(right)}: {'; '.join(parts)}."


def _named(channel: str, verdict: Verdict) -> str:
    name = short_name(channel)
    name = name if channel == "spo2" else name.lower()
    return f"{name} ({verdict.mean.text})" if verdict.word in _JUDGED else name


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
