"""The cohort flow and the coverage of each vital, drawn from records in which small counts are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree.ElementTree import Element

from reports.html import svg
from reports.html.model import Count, CoverageRow, Hidden, Level, LevelName, Study, Value
from reports.html.numbers import Kind, count, percent
from reports.html.words import LEVELS, reason_name, short_name

Side = Literal["wide", "narrow"]
SIDES: tuple[Side, Side] = ("wide", "narrow")


@dataclass(frozen=True)
class Figure:
    """A drawing in its two widths; the page shows the one that fits."""

    wide: str
    narrow: str


def flows(study: Study) -> list[str]:
    """One panel per level of the attrition, readings last."""
    return [flow(name, study.attrition[name], study.simulated) for name in LEVELS if name in study.attrition]


def flow(name: LevelName, level: Level, simulated: bool) -> str:
    """Draw one CONSORT-style panel: source, what was left out and why, what was used."""
    heading, source, used = LEVELS[name]
    kind = Kind.SIMULATED if simulated else Kind.MEASURED
    numbers = [count(n, kind).text for n in level.left_out.values()]
    room = 250 - 7 * max(map(len, numbers), default=0)
    reasons = [
        (svg.wrap(reason_name(reason), room, 12), number)
        for reason, number in zip(level.left_out, numbers, strict=True)
    ]
    side = 34 + sum(16 * len(words) + 4 for words, _ in reasons) if reasons else 44
    height = 24 + 48 + 22 + side + 22 + 48 + 4
    described = "; ".join(f"{' '.join(words)}: {number}" for words, number in reasons) or "nothing"
    root = svg.canvas(
        f"flow-{name}",
        340,
        height,
        f"Flow of {heading.lower()}",
        f"{count(level.source, kind).text} {source}; left out {described}; {count(level.used, kind).text} {used}.",
        "flow",
    )
    svg.text(root, 0, 14, heading, "bold")
    stamp(root, 250, simulated)
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


def coverage_figure(study: Study) -> Figure:
    """Charted against filled hours of each vital."""
    return Figure(*(coverage(study.coverage, study.simulated, side) for side in SIDES))


def coverage(rows: Sequence[CoverageRow], simulated: bool, side: Side) -> str:
    """Draw, per vital, which share of the stay-hours and of the event hours was charted and which was filled in."""
    width, left, right = (960, 124, 780) if side == "wide" else (380, 92, 316)
    kind = Kind.SIMULATED if simulated else Kind.MEASURED
    root = svg.canvas(
        f"coverage-{side}",
        width,
        62 + 54 * len(rows),
        "Coverage of each vital sign",
        "Share of stay-hours that were charted: "
        + ", ".join(f"{short_name(row.channel)} {percent(row.measured_share, kind).text}" for row in rows)
        + ".",
    )
    stamp(root, 0, simulated)
    _coverage_key(root, left)
    scale, bottom = svg.Scale(0, 1, left, right), 34 + 54 * len(rows)
    for tick in svg.ticks(0, 1, 0.25):
        svg.line(root, scale(tick), 30, scale(tick), bottom, "grid")
        svg.text(
            root, scale(tick), bottom + 16, f"{100 * tick:.0f}{' %' if tick == 1 else ''}", "small muted", "middle"
        )
    for n, row in enumerate(rows):
        y = 38 + 54 * n
        svg.text(root, 0, y + 15, short_name(row.channel), "bold")
        events = _share(row.measured_event_hours, row.event_hours)
        bars = ((row.measured_share, "", "of hours", "hidden"), (events, "event", "of event hours", _why_void(row)))
        for m, (share, css, what, void) in enumerate(bars):
            top, height = y + 22 * m, 20 - 6 * m
            _coverage_bar(root, scale, top, height, share, css, void)
            if isinstance(share, float | int):
                words = f"{percent(share, kind).text} {what if side == 'wide' else ''}".strip()
                svg.text(root, width, top + height / 2 + 5, words, "small", "end")
    return svg.markup(root)


def _coverage_key(root: Element, left: float) -> None:
    for x, css, words in ((left, "bar", "charted"), (left + 78, "bar filled", "filled in")):
        svg.box(root, x, 6, 14, 12, css, 2)
        svg.text(root, x + 20, 16, words, "small muted")


def _coverage_bar(root: Element, scale: svg.Scale, y: float, height: float, share: Value, css: str, void: str) -> None:
    """A withheld share gets a bar without any boundary in it: its length would be the number."""
    if not isinstance(share, float | int):
        svg.box(root, scale.left, y, scale.right - scale.left, height, "bar void", 2)
        svg.text(root, scale.left + 8, y + height / 2 + 4, void, "tiny muted")
        return
    svg.box(root, scale.left, y, scale.right - scale.left, height, f"bar filled {css}".strip(), 2)
    svg.box(root, scale.left, y, scale(share) - scale.left, height, f"bar {css}".strip(), 2)


def _why_void(row: CoverageRow) -> str:
    if row.event_hours is None:
        return "no threshold is declared"
    return "no event hour" if row.event_hours == 0 else "hidden"


def _share(part: Count | None, whole: Count | None) -> Value:
    if isinstance(part, Hidden) or isinstance(whole, Hidden):
        return Hidden.HIDDEN
    return part / whole if part is not None and whole else None


def stamp(root: Element, x: float, simulated: bool) -> None:
    """A copied figure keeps its origin: invented data is marked inside the drawing too."""
    if simulated:
        svg.box(root, x, 1, 88, 17, "stamp", 3)
        svg.text(root, x + 44, 13.5, "SIMULATED", "tiny sim", "middle")
