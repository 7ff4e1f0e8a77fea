"""Retention against the budget: one panel a vital, bands for the intervals, names at the lines, a table of all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from reports.html import svg
from reports.html.figures import stamp
from reports.html.model import CurveRow, Study
from reports.html.numbers import Cell, Kind, count, fraction, interval, percent, plain
from reports.html.shared import BEST_SHOWN, Table, kind_of, notes
from reports.html.words import CHANNEL_ORDER, POLICIES, POLICY_ORDER, channel_name, order, short_name

PUBLISHED = ("svdd", "density", "recency", "random")  # policies of the published comparison, always drawn
THIRD = 1 / 3
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 380, 300, 40, 262, 40, 252
LABEL_ROOM = 14
DASHES = ("", "7 3", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Panel:
    """The drawing of one vital under one protocol, and what it rests on in words."""

    drawing: str
    heading: str
    counts: Sequence[tuple[str, Cell]]


def curve_protocols(study: Study) -> list[str]:
    """The protocols that have curves, in a fixed order."""
    return order((row.protocol for row in study.curves), ("fixed-context", "streamed"))


def panels(study: Study, protocol: str) -> list[Panel]:
    """One panel a vital, on all event hours."""
    rows = [row for row in study.curves if (row.protocol, row.events) == (protocol, "all")]
    channels = order((row.channel for row in rows), CHANNEL_ORDER)
    return [_panel(study, protocol, channel, [r for r in rows if r.channel == channel]) for channel in channels]


def _panel(study: Study, protocol: str, channel: str, rows: Sequence[CurveRow]) -> Panel:
    return Panel(curve(protocol, channel, rows, study.simulated), channel_name(channel), _counts(study, rows))


def _counts(study: Study, rows: Sequence[CurveRow]) -> list[tuple[str, Cell]]:
    kind, first = kind_of(study), rows[0]
    sizes = {
        "stays": first.stays,
        "patients": first.patients,
        "event hours": first.event_hours,
        "of them measured": first.measured_event_hours,
    }
    return [(name, count(size, kind)) for name, size in sizes.items()]


def drawn(rows: Sequence[CurveRow]) -> list[str]:
    """The published policies and the few others that keep most near a third of the hours, in reading order."""
    near = min((abs(row.target_share - THIRD) for row in rows), default=0.0)
    there = {
        row.policy: float(row.retention)
        for row in rows
        if abs(row.target_share - THIRD) == near and isinstance(row.retention, float | int)
    }
    others = sorted((name for name in there if name not in PUBLISHED), key=lambda name: (-there[name], name))
    names = {row.policy for row in rows}
    return order([name for name in names if name in PUBLISHED or name in others[:BEST_SHOWN]], POLICY_ORDER)


def curve(protocol: str, channel: str, rows: Sequence[CurveRow], simulated: bool) -> str:
    """Draw retention against the budget for the chosen policies of one vital under one protocol."""
    lines = {name: _points([row for row in rows if row.policy == name]) for name in drawn(rows)}
    shown = {name: points for name, points in lines.items() if points}
    root = svg.canvas(
        f"curve-{plain(protocol)}-{plain(channel)}",
        WIDTH,
        HEIGHT,
        f"Retention against the budget, {short_name(channel)}, protocol {plain(protocol)}",
        "Share of event hours kept at each share of hours that may be kept. "
        + " ".join(_spoken(name, points) for name, points in shown.items()),
    )
    across, up = svg.Scale(0, _reach(rows), LEFT, RIGHT), svg.Scale(0, 1, BOTTOM, TOP)
    svg.text(root, 0, 16, short_name(channel), "bold")
    stamp(root, 250, simulated)
    _axes(root, across, up, _reach(rows))
    others = [name for name in shown if name not in POLICIES]
    for name, points in shown.items():
        _band(root, points, across, up, _css(name))
    for name, points in shown.items():
        dash = DASHES[others.index(name) % len(DASHES)] if name in others else ""
        _line(root, [(across(row.target_share), up(_value(row))) for row in points], _css(name), dash)
    ends = {name: up(_value(points[-1])) for name, points in shown.items()}
    last = {name: across(points[-1].target_share) for name, points in shown.items()}
    for name, y in spread(ends).items():
        svg.line(root, last[name] + 3, ends[name], RIGHT + 12, y, f"leader {_css(name)}")
        svg.text(root, RIGHT + 15, y + 4, plain(name), "small")
    return svg.markup(root)


def spread(ends: Mapping[str, float]) -> dict[str, float]:
    """Heights for labels near the ends of their lines, at least LABEL_ROOM apart and inside the panel."""
    names = sorted(ends, key=lambda name: (ends[name], name))
    heights: list[float] = []
    for name in names:
        heights.append(max(ends[name], heights[-1] + LABEL_ROOM) if heights else max(ends[name], TOP))
    lowest = float(BOTTOM)
    for place in reversed(range(len(heights))):
        heights[place] = min(heights[place], lowest)
        lowest = heights[place] - LABEL_ROOM
    return dict(zip(names, heights, strict=True))


def _points(rows: Sequence[CurveRow]) -> list[CurveRow]:
    return sorted((row for row in rows if isinstance(row.retention, float | int)), key=lambda row: row.target_share)


def _value(row: CurveRow) -> float:
    return float(row.retention) if isinstance(row.retention, float | int) else 0.0


def _reach(rows: Sequence[CurveRow]) -> float:
    """The axis reaches the largest target budget, rounded up to a tenth."""
    return max(1, -(-round(100 * max(row.target_share for row in rows)) // 10)) / 10


def _axes(root: Element, across: svg.Scale, up: svg.Scale, reach: float) -> None:
    for tick in svg.ticks(0, 1, 0.25):
        svg.line(root, LEFT, up(tick), RIGHT, up(tick), "grid")
        svg.text(root, LEFT - 6, up(tick) + 4, f"{tick:.2f}", "tiny muted", "end")
    for tick in svg.ticks(0, reach, 0.1):
        svg.text(root, across(tick), BOTTOM + 16, f"{100 * tick:.0f} %", "tiny muted", "middle")
    svg.text(root, (LEFT + RIGHT) / 2, BOTTOM + 34, "share of hours that may be kept", "small muted", "middle")
    svg.text(root, LEFT - 40, TOP - 10, "share of event hours kept", "tiny muted")


def _band(root: Element, points: Sequence[CurveRow], across: svg.Scale, up: svg.Scale, css: str) -> None:
    ends = [
        (across(row.target_share), up(row.low), up(row.high))
        for row in points
        if isinstance(row.low, float | int) and isinstance(row.high, float | int)
    ]
    if len(ends) > 1:
        corners = [(x, high) for x, _, high in ends] + [(x, low) for x, low, _ in reversed(ends)]
        path = " ".join(f"{svg.px(x)},{svg.px(y)}" for x, y in corners)
        SubElement(root, "polygon", {"points": path, "class": f"band {css}"})


def _line(root: Element, points: Sequence[tuple[float, float]], css: str, dash: str) -> None:
    path = " ".join(f"{svg.px(x)},{svg.px(y)}" for x, y in points)
    attributes = {"points": path, "class": f"curve {css}"} | ({"stroke-dasharray": dash} if dash else {})
    SubElement(root, "polyline", attributes)
    for x, y in points:
        svg.marker(root, "circle", x, y, 2.2, css)


def _css(policy: str) -> str:
    return f"p-{policy}" if policy in POLICIES else "p-other"


def _spoken(name: str, points: Sequence[CurveRow]) -> str:
    parts = (
        f"{percent(row.target_share, Kind.MEASURED).text}: {fraction(row.retention, Kind.MEASURED).text}"
        for row in points
    )
    return f"{plain(name)}: {', '.join(parts)}."


@dataclass(frozen=True)
class CurveGroup:
    """All policies of one vital and kind of event hour: a heading, its counts, one line of cells a policy."""

    heading: str
    about: Sequence[tuple[str, Cell]]
    rows: Sequence[tuple[str, Sequence[tuple[Cell, Cell]]]]


def shares(study: Study, protocol: str) -> list[float]:
    """The target budgets of one protocol, ascending."""
    return sorted({row.target_share for row in study.curves if row.protocol == protocol})


def curve_table(study: Study, protocol: str) -> Table:
    """Every policy at every budget with its interval, on all and on measured event hours: what the panels show."""
    rows = [row for row in study.curves if row.protocol == protocol]
    groups = []
    for channel in order((row.channel for row in rows), CHANNEL_ORDER):
        for events, words in (("all", ""), ("measured", ", measured event hours only")):
            some = [row for row in rows if (row.channel, row.events) == (channel, events)]
            if some:
                groups.append(_group(study, f"{channel_name(channel)}{words}", some, shares(study, protocol)))
    cells = [cell for group in groups for _, line in group.rows for pair in line for cell in pair]
    return Table(groups, notes([*cells, *(cell for group in groups for _, cell in group.about)]))


def _group(study: Study, heading: str, rows: Sequence[CurveRow], targets: Sequence[float]) -> CurveGroup:
    kind = kind_of(study)
    found = {(row.policy, row.target_share): row for row in rows}
    policies = order((row.policy for row in rows), POLICY_ORDER)
    lines = [(plain(name), [_cells(found.get((name, target)), kind) for target in targets]) for name in policies]
    return CurveGroup(heading, _counts(study, rows), lines)


def _cells(row: CurveRow | None, kind: Kind) -> tuple[Cell, Cell]:
    reason = plain((row and row.reason) or "the run holds no such row")
    if row is None:
        return (Cell("not defined", Kind.UNDEFINED, reason),) * 2
    return fraction(row.retention, kind, reason), interval(row.low, row.high, kind, reason)
