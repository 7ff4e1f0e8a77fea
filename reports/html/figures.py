"""The four figures of the report, each drawn for a wide and for a narrow page. Input: records in which small counts are gone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal
from xml.etree.ElementTree import Element

from reports.html import svg
from reports.html.model import ContrastRow, Count, CoverageRow, Hidden, Level, LevelName, RetentionRow, Value
from reports.html.numbers import Kind, count, fraction, interval, percent, plain
from reports.html.words import LEVELS, POLICIES, SHORT_CHANNELS

SHAPES = {"svdd": "circle", "least-dense": "diamond", "density": "square", "recency": "triangle", "random": "down"}
CHANNEL_ORDER = tuple(SHORT_CHANNELS)
POLICY_ORDER = tuple(SHAPES)
Side = Literal["wide", "narrow"]


@dataclass(frozen=True)
class Frame:
    """Where the parts of a forest plot stand, in pixels: labels from 0, the plot, two right-aligned columns of numbers."""

    width: float
    left: float
    right: float
    columns: tuple[float, float]
    with_intervals: bool


FOREST: dict[Side, Frame] = {
    "wide": Frame(960, 124, 586, (776, 960), True),
    "narrow": Frame(380, 92, 274, (326, 380), False),
}


@dataclass(frozen=True)
class Mark:
    """One estimate with its interval, drawn solid (the main one) or hollow (the second one)."""

    value: Value
    low: Value
    high: Value
    solid: bool


def order(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Sort names in the known order, unknown ones last by name; duplicates count once."""
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))


def flow(name: LevelName, level: Level, simulated: bool) -> str:
    """Draw one CONSORT-style panel: source, what was left out and why, what was used."""
    heading, source, used = LEVELS[name]
    kind = Kind.SIMULATED if simulated else Kind.MEASURED
    reasons = [(svg.wrap(plain(reason).replace("_", " "), 172, 12), count(n, kind).text) for reason, n in level.left_out.items()]
    side = 34 + sum(16 * len(words) + 4 for words, _ in reasons) if reasons else 44
    height = 24 + 48 + 22 + side + 22 + 48 + 4
    described = "; ".join(f"{' '.join(words)}: {number}" for words, number in reasons) or "nothing"
    root = svg.canvas(
        f"flow-{name}", 340, height, f"Flow of {heading.lower()}",
        f"{count(level.source, kind).text} {source}; left out {described}; {count(level.used, kind).text} {used}.", "flow",
    )
    svg.text(root, 0, 14, heading, "bold")
    _stamp(root, 340, simulated)
    _panel(root, 24, count(level.source, kind).text, source)
    bottom = height - 52
    svg.arrow(root, [(24, 72), (24, bottom)], "spine")
    svg.arrow(root, [(24, 94 + side / 2), (56, 94 + side / 2)], "spine")
    svg.box(root, 56, 94, 283, side, "side", 4)
    svg.text(root, 70, 94 + 20, "Left out" if reasons else "Nothing left out", "small bold")
    _reasons(root, 94 + 40, reasons)
    _panel(root, bottom, count(level.used, kind).text, used, "result")
    return svg.markup(root)


def _panel(root: Element, y: float, number: str, words: str, css: str = "") -> None:
    svg.box(root, 1, y, 338, 48, f"panel {css}".strip(), 4)
    svg.text(root, 16, y + 31, number, "figure")
    svg.text(root, 324, y + 30, words, "muted", "end")


def _reasons(root: Element, y: float, reasons: Sequence[tuple[list[str], str]]) -> None:
    for words, number in reasons:
        for n, row in enumerate(words):
            svg.text(root, 70, y + 16 * n, row, "small")
        svg.text(root, 326, y, number, "small", "end")
        y += 16 * len(words) + 4


def coverage(rows: Sequence[CoverageRow], simulated: bool, side: Side) -> str:
    """Draw, per vital, which share of the stay-hours and of the event hours was charted and which was filled in."""
    width, left, right = (960, 124, 780) if side == "wide" else (380, 92, 316)
    kind = Kind.SIMULATED if simulated else Kind.MEASURED
    root = svg.canvas(
        f"coverage-{side}", width, 62 + 54 * len(rows), "Coverage of each vital sign",
        "Share of stay-hours that were charted: "
        + ", ".join(f"{SHORT_CHANNELS.get(row.channel, plain(row.channel))} {percent(row.measured_share, kind).text}" for row in rows) + ".",
    )
    _stamp(root, width, simulated)
    _coverage_key(root, left)
    scale, bottom = svg.Scale(0, 1, left, right), 34 + 54 * len(rows)
    for tick in svg.ticks(0, 1, 0.25):
        svg.line(root, scale(tick), 30, scale(tick), bottom, "grid")
        svg.text(root, scale(tick), bottom + 16, f"{100 * tick:.0f}{' %' if tick == 1 else ''}", "small muted", "middle")
    for n, row in enumerate(rows):
        y = 38 + 54 * n
        svg.text(root, 0, y + 15, SHORT_CHANNELS.get(row.channel, plain(row.channel)), "bold")
        shares = (("hours", row.measured_share), ("event hours", _share(row.measured_event_hours, row.event_hours)))
        for m, (label, share) in enumerate(shares):
            _coverage_bar(root, scale, y + 22 * m, (20, 14)[m], share, "event" if m else "")
            if side == "wide":
                svg.text(root, width, y + 22 * m + (15, 12)[m], f"{percent(share, kind).text} of {label}", "small" if m else "", "end")
            else:
                svg.text(root, width, y + 22 * m + (15, 12)[m], percent(share, kind).text, "small", "end")
    return svg.markup(root)


def _coverage_key(root: Element, left: float) -> None:
    for x, css, words in ((left, "bar", "charted"), (left + 78, "bar filled", "filled in")):
        svg.box(root, x, 6, 14, 12, css, 2)
        svg.text(root, x + 20, 16, words, "small muted")


def _coverage_bar(root: Element, scale: svg.Scale, y: float, height: float, share: Value, css: str) -> None:
    """A withheld share gets a bar without any boundary in it: its length would be the number."""
    if not isinstance(share, float | int):
        svg.box(root, scale.left, y, scale.right - scale.left, height, "bar void", 2)
        svg.text(root, scale.left + 8, y + height / 2 + 4, "hidden" if isinstance(share, Hidden) else "not defined", "tiny muted")
        return
    svg.box(root, scale.left, y, scale.right - scale.left, height, f"bar filled {css}".strip(), 2)
    svg.box(root, scale.left, y, scale(share) - scale.left, height, f"bar {css}".strip(), 2)


def _share(part: Count | None, whole: Count | None) -> Value:
    if isinstance(part, Hidden) or isinstance(whole, Hidden):
        return Hidden.HIDDEN
    return part / whole if part is not None and whole else None


def forest(protocol: str, rows: Sequence[RetentionRow], simulated: bool, side: Side) -> str:
    """Draw retention with its interval for every channel and policy of one protocol, on all and on measured event hours."""
    frame, groups = FOREST[side], _grouped(rows)
    height = 74 + sum(30 + 27 * len(policies) for _, policies in groups)
    root = svg.canvas(
        f"forest-{plain(protocol)}-{side}", frame.width, height, f"Retention by event definition and policy, protocol {plain(protocol)}",
        "Share of event hours kept, from 0 to 1. " + " ".join(_spoken(channel, policies) for channel, policies in groups),
    )
    _stamp(root, frame.width, simulated)
    scale = svg.Scale(0, 1, frame.left, frame.right)
    _axis(root, scale, svg.ticks(0, 1, 0.25), "{:.2f}", height, "share of event hours kept")
    _column_heads(root, frame, ("all event hours", "measured only"), ("all", "meas."))
    y = 46.0
    for channel, policies in groups:
        svg.line(root, 0, y + 6, frame.width, y + 6, "rule")
        svg.text(root, 0, y + 23, SHORT_CHANNELS.get(channel, plain(channel)), "bold")
        y += 30
        for policy, pair in policies:
            marks = [Mark(row.retention, row.low, row.high, row.events == "all") for row in pair]
            _forest_row(root, frame, scale, y + 12, policy, plain(policy), marks, signed=False)
            y += 27
    return svg.markup(root)


def _grouped(rows: Sequence[RetentionRow]) -> list[tuple[str, list[tuple[str, list[RetentionRow]]]]]:
    """Group rows by channel and then by policy, in reading order; all event hours before measured ones."""
    channels = order((row.channel for row in rows), CHANNEL_ORDER)
    policies = order((row.policy for row in rows), POLICY_ORDER)
    ranked = sorted(rows, key=lambda row: (channels.index(row.channel), policies.index(row.policy), row.events))
    return [
        (channel, [(policy, list(pair)) for policy, pair in groupby(group, key=lambda row: row.policy)])
        for channel, group in groupby(ranked, key=lambda row: row.channel)
    ]


def _spoken(channel: str, policies: Sequence[tuple[str, Sequence[RetentionRow]]]) -> str:
    parts = (f"{plain(policy)} {fraction(pair[0].retention, Kind.MEASURED).text}" for policy, pair in policies)
    return f"{SHORT_CHANNELS.get(channel, plain(channel))}: {', '.join(parts)}."


def contrasts(protocol: str, rows: Sequence[ContrastRow], simulated: bool, side: Side) -> str:
    """Draw the paired differences of one protocol around zero, resampled by patient (solid) and by stay (hollow)."""
    frame = FOREST[side]
    ranked = sorted(rows, key=lambda row: (*_place(row), row.unit))
    groups = [(channel, list(group)) for channel, group in groupby(ranked, key=lambda row: row.channel)]
    height = 74 + sum(30 + 27 * len({row.right for row in group}) for _, group in groups)
    root = svg.canvas(
        f"contrasts-{plain(protocol)}-{side}", frame.width, height, f"Paired differences in retention, protocol {plain(protocol)}",
        "Left of zero the support set kept fewer event hours than the other policy. " + _differences(ranked),
    )
    _stamp(root, frame.width, simulated)
    reach = _reach(rows)
    scale = svg.Scale(-reach, reach, frame.left, frame.right)
    _axis(root, scale, svg.ticks(-reach, reach, reach / 2), "{:+.2f}", height, "difference in the share of event hours kept")
    svg.line(root, scale(0), 40, scale(0), height - 34, "zero")
    _column_heads(root, frame, ("by patient", "by stay"), ("patient", "stay"))
    y = 46.0
    for channel, group in groups:
        svg.line(root, 0, y + 6, frame.width, y + 6, "rule")
        svg.text(root, 0, y + 23, SHORT_CHANNELS.get(channel, plain(channel)), "bold")
        y += 30
        for right, pair in groupby(group, key=lambda row: row.right):
            marks = [Mark(row.mean, row.low, row.high, row.unit == "patient") for row in pair]
            _forest_row(root, frame, scale, y + 12, right, f"− {plain(right)}", marks, signed=True)
            y += 27
    return svg.markup(root)


def _place(row: ContrastRow) -> tuple[int, str, int, str]:
    """Reading order: channels, then the policies compared against, both with unknown names last."""
    channel = CHANNEL_ORDER.index(row.channel) if row.channel in CHANNEL_ORDER else len(CHANNEL_ORDER)
    policy = POLICY_ORDER.index(row.right) if row.right in POLICY_ORDER else len(POLICY_ORDER)
    return channel, row.channel, policy, row.right


def _differences(rows: Sequence[ContrastRow]) -> str:
    parts = (
        f"{SHORT_CHANNELS.get(row.channel, plain(row.channel))}, minus {plain(row.right)}: {fraction(row.mean, Kind.MEASURED, signed=True).text}."
        for row in rows if row.unit == "patient"
    )
    return " ".join(parts)


def _reach(rows: Sequence[ContrastRow]) -> float:
    """The axis reaches the farthest interval end, rounded up to 0.2, at least 0.2 and never above 1."""
    ends = [abs(end) for row in rows for end in (row.low, row.high, row.mean) if isinstance(end, float | int)]
    return min(max(math.ceil(max(ends, default=0) * 5 - 1e-9) / 5, 0.2), 1.0)


def _column_heads(root: Element, frame: Frame, long: tuple[str, str], short: tuple[str, str]) -> None:
    for x, words, css in zip(frame.columns, long if frame.with_intervals else short, ("", "hollow"), strict=True):
        svg.text(root, x, 36, words, "small muted", "end")
        svg.marker(root, "circle", x - svg.CHARACTER * 12 * len(words) - 9, 32, 4, f"key {css}".strip())


def _axis(root: Element, scale: svg.Scale, ticks: Iterable[float], pattern: str, height: float, words: str) -> None:
    for tick in ticks:
        label = pattern.format(tick).replace("-", "−")
        label = label.removeprefix("+") if abs(tick) < 1e-9 else label
        svg.line(root, scale(tick), 42, scale(tick), height - 34, "grid")
        for y in (36, height - 20):
            svg.text(root, scale(tick), y, label, "tiny muted", "middle")
    svg.text(root, (scale.left + scale.right) / 2, height - 4, words, "small muted", "middle")


def _forest_row(
    root: Element, frame: Frame, scale: svg.Scale, y: float, policy: str, label: str, marks: Sequence[Mark], *, signed: bool
) -> None:
    css = f"p-{policy}" if policy in POLICIES else "p-other"
    svg.marker(root, SHAPES.get(policy, "circle"), 7, y - 4, 4, css)
    svg.text(root, 18, y, label, "small")
    for mark in marks:
        at = y - 7 if mark.solid else y + 2
        style = css if mark.solid else f"{css} hollow"
        _estimate(root, scale, at, SHAPES.get(policy, "circle"), mark, style)
        column = frame.columns[0 if mark.solid else 1]
        svg.text(root, column, y, _printed(mark, frame.with_intervals, signed), "small" if mark.solid else "small muted", "end")


def _estimate(root: Element, scale: svg.Scale, y: float, shape: str, mark: Mark, css: str) -> None:
    if not isinstance(mark.value, float | int):
        words = "hidden" if isinstance(mark.value, Hidden) else "not defined"
        svg.text(root, scale.left + 4, y + 5, words, "tiny muted void")
        return
    if isinstance(mark.low, float | int) and isinstance(mark.high, float | int):
        svg.interval(root, scale(mark.low), scale(mark.high), y, f"reach {css}")
    svg.marker(root, shape, scale(mark.value), y, 4.2 if mark.solid else 3.4, css)


def _printed(mark: Mark, with_interval: bool, signed: bool) -> str:
    value = fraction(mark.value, Kind.MEASURED, signed=signed)
    if not with_interval or value.kind is not Kind.MEASURED:
        return value.text
    ends = interval(mark.low, mark.high, Kind.MEASURED, "", signed=signed)
    return f"{value.text}  [{ends.text}]" if ends.kind is Kind.MEASURED else value.text


def _stamp(root: Element, width: float, simulated: bool) -> None:
    """A copied figure keeps its origin: invented data is marked inside the drawing too."""
    if simulated:
        svg.box(root, width - 90, 0, 90, 17, "stamp", 3)
        svg.text(root, width - 45, 12.5, "SIMULATED", "tiny stamp-text", "middle")
