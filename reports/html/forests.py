"""Forest plots: retention of every policy, and paired differences around zero, on a wide and on a narrow page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree.ElementTree import Element

from reports.html import svg
from reports.html.figures import SIDES, Figure, Side, stamp
from reports.html.model import ContrastRow, RetentionRow, Study, Value
from reports.html.numbers import Kind, fraction, interval, percent_span, plain
from reports.html.shared import shown_policies
from reports.html.words import CHANNEL_ORDER, POLICIES, POLICY_ORDER, order, short_name

SHAPES = {"svdd": "circle", "least-dense": "diamond", "density": "square", "recency": "triangle", "random": "down"}


@dataclass(frozen=True)
class Frame:
    """Where the parts of a forest plot stand, in pixels: the plot, and two right-aligned columns of numbers."""

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


def forest_figure(study: Study, protocol: str) -> Figure:
    """Retention of every channel and policy under one protocol."""
    shown = shown_policies(study, protocol)
    rows = [row for row in study.retention if row.protocol == protocol and row.policy in shown]
    return Figure(*(forest(protocol, rows, study.simulated, side) for side in SIDES))


def contrast_figure(study: Study, protocol: str) -> Figure:
    """Paired differences of one protocol on all event hours."""
    shown = shown_policies(study, protocol)
    rows = [
        row
        for row in study.contrasts
        if row.protocol == protocol and row.events == "all" and row.left == "svdd" and row.right in shown
    ]
    return Figure(*(contrasts(protocol, rows, study.simulated, side) for side in SIDES))


def forest(protocol: str, rows: Sequence[RetentionRow], simulated: bool, side: Side) -> str:
    """Draw the retention of every channel and policy of one protocol, on all and on measured event hours."""
    frame, groups = FOREST[side], _grouped(rows)
    height = 74 + sum(30 + 27 * len(policies) for _, policies in groups)
    root = svg.canvas(
        f"forest-{plain(protocol)}-{side}",
        frame.width,
        height,
        f"Retention by event definition and policy, protocol {plain(protocol)}",
        "Share of event hours kept, from 0 to 1. "
        + " ".join(_spoken(channel, policies) for channel, policies in groups),
    )
    stamp(root, 0, simulated)
    scale = svg.Scale(0, 1, frame.left, frame.right)
    _axis(root, scale, svg.ticks(0, 1, 0.25), "{:.2f}", height, "share of event hours kept")
    _column_heads(root, frame, ("all event hours", "measured only"), ("all", "meas."))
    y = 46.0
    for channel, policies in groups:
        svg.line(root, 0, y + 6, frame.width, y + 6, "rule")
        svg.text(root, 0, y + 23, short_name(channel), "bold")
        svg.text(root, frame.width, y + 23, _budget(policies), "small muted", "end")
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


def _budget(policies: Sequence[tuple[str, Sequence[RetentionRow]]]) -> str:
    """The budget that the policies of one event definition share on all event hours, or its range."""
    return f"budget {percent_span(pair[0].budget for _, pair in policies)}"


def _spoken(channel: str, policies: Sequence[tuple[str, Sequence[RetentionRow]]]) -> str:
    parts = (f"{plain(policy)} {fraction(pair[0].retention, Kind.MEASURED).text}" for policy, pair in policies)
    return f"{short_name(channel)}: {', '.join(parts)}."


def contrasts(protocol: str, rows: Sequence[ContrastRow], simulated: bool, side: Side) -> str:
    """Draw the paired differences of one protocol around zero, resampled by patient (solid) and by stay (hollow)."""
    frame = FOREST[side]
    ranked = sorted(rows, key=lambda row: (*_place(row), row.unit))
    groups = [(channel, list(group)) for channel, group in groupby(ranked, key=lambda row: row.channel)]
    height = 74 + sum(30 + 27 * len({row.right for row in group}) for _, group in groups)
    root = svg.canvas(
        f"contrasts-{plain(protocol)}-{side}",
        frame.width,
        height,
        f"Paired differences in retention, protocol {plain(protocol)}",
        "Left of zero the support set kept fewer event hours than the other policy. " + _differences(ranked),
    )
    stamp(root, 0, simulated)
    reach = _reach(rows)
    scale = svg.Scale(-reach, reach, frame.left, frame.right)
    _axis(
        root,
        scale,
        svg.ticks(-reach, reach, reach / 2),
        "{:+.2f}",
        height,
        "difference in the share of event hours kept",
    )
    svg.line(root, scale(0), 40, scale(0), height - 34, "zero")
    _column_heads(root, frame, ("by patient", "by stay"), ("patient", "stay"))
    y = 46.0
    for channel, group in groups:
        svg.line(root, 0, y + 6, frame.width, y + 6, "rule")
        svg.text(root, 0, y + 23, short_name(channel), "bold")
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
        f"{short_name(row.channel)}, minus {plain(row.right)}: {fraction(row.mean, Kind.MEASURED, signed=True).text}."
        for row in rows
        if row.unit == "patient"
    )
    return " ".join(parts)


def _reach(rows: Sequence[ContrastRow]) -> float:
    """The axis reaches the farthest interval end, rounded up to 0.2, at least 0.2 and never above 1."""
    ends = [abs(end) for row in rows for end in (row.low, row.high, row.mean) if isinstance(end, float | int)]
    return min(max(math.ceil(max(ends, default=0) * 5 - 1e-9) / 5, 0.2), 1.0)


def _column_heads(root: Element, frame: Frame, long: tuple[str, str], short: tuple[str, str]) -> None:
    for x, words, mark in zip(frame.columns, long if frame.with_intervals else short, "●○", strict=True):
        svg.text(root, x, 36 if frame.with_intervals else 18, f"{mark} {words}", "small muted", "end")


def _axis(root: Element, scale: svg.Scale, ticks: Iterable[float], pattern: str, height: float, words: str) -> None:
    for tick in ticks:
        label = pattern.format(tick).replace("-", "−")
        label = label.removeprefix("+") if abs(tick) < 1e-9 else label
        svg.line(root, scale(tick), 42, scale(tick), height - 34, "grid")
        for y in (36, height - 20):
            svg.text(root, scale(tick), y, label, "tiny muted", "middle")
    svg.text(root, (scale.left + scale.right) / 2, height - 4, words, "small muted", "middle")


def _forest_row(
    root: Element,
    frame: Frame,
    scale: svg.Scale,
    y: float,
    policy: str,
    label: str,
    marks: Sequence[Mark],
    *,
    signed: bool,
) -> None:
    css = _css(policy)
    svg.marker(root, SHAPES.get(policy, "circle"), 7, y - 4, 4, css)
    svg.text(root, 18, y, label, "small")
    for mark in marks:
        style = css if mark.solid else f"{css} hollow"
        _estimate(root, scale, y - 7 if mark.solid else y + 2, SHAPES.get(policy, "circle"), mark, style)
        column, tone = (frame.columns[0], "small") if mark.solid else (frame.columns[1], "small muted")
        verdict = _side(mark) if signed and mark.solid else ""
        svg.text(root, column, y, _printed(mark, frame.with_intervals, signed), f"{tone} {verdict}".strip(), "end")


def _estimate(root: Element, scale: svg.Scale, y: float, shape: str, mark: Mark, css: str) -> None:
    if not isinstance(mark.value, float | int):
        return
    if isinstance(mark.low, float | int) and isinstance(mark.high, float | int):
        svg.interval(root, scale(mark.low), scale(mark.high), y, f"reach {css}")
    svg.marker(root, shape, scale(mark.value), y, 4.2 if mark.solid else 3.4, css)


def _side(mark: Mark) -> str:
    """The side of zero on which the whole interval lies."""
    if not isinstance(mark.low, float | int) or not isinstance(mark.high, float | int):
        return ""
    return "wins" if mark.low > 0 else "loses" if mark.high < 0 else ""


def _printed(mark: Mark, with_interval: bool, signed: bool) -> str:
    value = fraction(mark.value, Kind.MEASURED, signed=signed)
    if not with_interval or value.kind is not Kind.MEASURED:
        return value.text
    ends = interval(mark.low, mark.high, Kind.MEASURED, "", signed=signed)
    return f"{value.text}  [{ends.text}]" if ends.kind is Kind.MEASURED else value.text


def key(policy: str) -> str:
    """Draw the mark of a policy as it stands in the figures, for use beside its name."""
    root = Element(
        "svg", {"viewBox": "-7 -7 14 14", "class": "chart mark", "aria-hidden": "true", "focusable": "false"}
    )
    svg.marker(root, SHAPES.get(policy, "circle"), 0, 0, 4.6, _css(policy))
    return svg.markup(root)


def _css(policy: str) -> str:
    return f"p-{policy}" if policy in POLICIES else "p-other"
